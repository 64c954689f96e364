"""What a machine says of itself, as JSON. Sent over SSH to `python3 -`, so: the standard library of Python 3.6 alone.

The one argument is JSON: {"directories": [...], "listens": {"PORT": "ADDRESS", ...}, "address": "..."}.
"""

import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - see above

_LISTENS = "0A"


def memory() -> Tuple[int, int]:  # noqa: UP006
    """MiB of the whole machine, and MiB that programs could still take."""
    found = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text()))
    return int(found["MemTotal"]) // 1024, int(found["MemAvailable"]) // 1024


def free_mib(directory: str) -> int:
    """On the disk that the directory is, or would be, on."""
    place = Path(directory)
    while not place.is_dir():
        place = place.parent
    return shutil.disk_usage(str(place)).free // 1048576


def java() -> Optional[str]:  # noqa: UP045
    """The version of the one that is found first."""
    try:
        done = subprocess.run(
            ["java", "-version"],  # noqa: S607 - whatever is found first, that is the question
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError:
        return None
    match = re.search(r'version "([^"]+)"', done.stdout.decode(errors="replace"))
    return match.group(1) if match else None


def addresses_of(name: str) -> List[str]:  # noqa: UP006
    try:
        return [place[0] for *_, place in socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)]  # type: ignore[misc]
    except OSError:
        return []


def read_address(digits: str) -> str:
    """As the kernel writes it: 32-bit words in the machine's byte order."""
    raw = b"".join(int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8))
    found = ipaddress.ip_address(raw)
    return str(getattr(found, "ipv4_mapped", None) or found)


def listening(listens: Dict[str, str]) -> Dict[int, str]:  # noqa: UP006
    """Port -> who listens there, on that address or on all: the command line, as far as this user may see it."""
    sockets = {}
    wanted = {int(port): {"0.0.0.0", "::", *addresses_of(name)} for port, name in listens.items()}  # noqa: S104
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            address, _, digits = fields[1].rpartition(":")
            port = int(digits, 16)
            if fields[3] == _LISTENS and read_address(address) in wanted.get(port, ()):
                sockets[f"socket:[{fields[9]}]"] = port
    found = {port: "" for port in sockets.values()}
    for process in Path("/proc").glob("[0-9]*") if sockets else []:
        try:
            for handle in (process / "fd").iterdir():
                held = sockets.get(os.readlink(str(handle)))  # noqa: PTH115 - Path has it since 3.9
                if held is not None:
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[held] = f"{command.strip()} (pid {process.name})"
        except OSError:
            continue
    return found


def has(address: str) -> bool:
    """Whether the address is one of this machine's."""
    found = addresses_of(address)
    for each in found:
        with socket.socket(socket.AF_INET6 if ":" in each else socket.AF_INET) as probe:
            try:
                probe.bind((each, 0))
            except OSError:
                return False
    return bool(found)


def facts(wanted: Dict[str, Any]) -> Dict[str, object]:  # noqa: UP006
    """The clock first: what follows takes time."""
    now = time.time()
    total, available = memory()
    return {
        "time": now,
        "python": [*sys.version_info[:3]],
        "root": os.geteuid() == 0,
        "memory_mib": total,
        "available_mib": available,
        "free_mib": {each: free_mib(each) for each in wanted["directories"]},
        "java": java(),
        "taken": listening(wanted["listens"]),
        "has_address": has(wanted["address"]),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(facts(json.loads(sys.argv[1]))))
