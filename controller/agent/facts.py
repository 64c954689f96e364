"""What an agent says of its node at a heartbeat: cheap enough for every few seconds."""

import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil

from controller.agent import services
from controller.agent.home import Home
from controller.agent.messages import NodeFacts, ServiceFacts
from controller.agent.parts import VERSION
from controller.gateways import ADMIN_PORT, NAME

_MIB = 1 << 20
_LISTENS = "0A"
_ANSWER_SECONDS = 2


def gather(home: Home, engines: Path | None, admin_port: int = ADMIN_PORT) -> NodeFacts:
    """`engines`: the directory they are in, None as long as nobody has said so. Raises ServiceError."""
    running = services.states(home)
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(home.directory))
    return NodeFacts(
        version=VERSION,
        engines=_engines(engines),
        prepared=home.prepared.read_text(encoding="ascii") if home.prepared.exists() else "",
        first_booted=home.first_boot.exists(),
        services=running,
        serves=_serves(running, admin_port),
        left=home.left.exists(),
        leaving=home.leaving.read_text(encoding="utf-8") if home.leaving.exists() else "",
        cpu_percent=psutil.cpu_percent(),
        memory_mib=memory.total // _MIB,
        available_mib=memory.available // _MIB,
        disk_mib=disk.total // _MIB,
        free_mib=disk.free // _MIB,
        processes=sum(name.isdigit() for name in os.listdir("/proc")),  # noqa: PTH208 - Path would make objects of all
        ports=_listening(),
    )


def _engines(directory: Path | None) -> dict[str, str]:
    """Name -> version, as their directories are called."""
    if directory is None or not directory.is_dir():
        return {}
    found = (each.name.rpartition("-") for each in directory.iterdir() if not each.name.startswith("."))
    return {name: version for name, _, version in found if name}


def _serves(running: Mapping[str, ServiceFacts], admin_port: int) -> bool | None:
    """Whether the PBServer has had an answer from the database a moment ago."""
    if NAME not in running:
        return None
    connection = HTTPConnection("127.0.0.1", admin_port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _listening() -> list[int]:
    """The TCP ports on which anything listens."""
    ports = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if fields[3] == _LISTENS:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)
