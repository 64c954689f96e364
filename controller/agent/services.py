"""A node's services under supervisord, by its XML-RPC over a socket that is the owner's alone."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import psutil
from supervisor.xmlrpc import Faults, SupervisorTransport

from controller.agent import files, launch
from controller.agent.home import Home
from controller.agent.messages import ServiceFacts

AGENT = "agent"
#: A service in one of these has a process, or is about to.
RUNNING = frozenset({"RUNNING", "STARTING", "BACKOFF"})
#: supervisord sees to its own log and to the agent's.
MOST_LOG_BYTES = 20 << 20
_MIB = 1 << 20
_POLL_SECONDS = 0.1


class ServiceError(Exception):
    """supervisord does not do it; the text says why."""


def states(home: Home) -> dict[str, ServiceFacts]:
    """Of all services, the agent itself left out."""
    with _supervisord(home) as supervisord:
        found: list[dict[str, Any]] = supervisord.getAllProcessInfo()
    return {each["name"]: _facts(home, each) for each in found if each["name"] != AGENT}


def adopt(home: Home) -> None:
    """Lets supervisord know what is new in its files. What runs goes on as it was started. Only then is the node
    prepared: a heartbeat that says so earlier gets services started that supervisord has not heard of.
    """
    written = home.written.read_text(encoding="ascii")
    with _supervisord(home) as supervisord:
        added, changed, removed = supervisord.reloadConfig()[0]
        running = {each["group"] for each in supervisord.getAllProcessInfo() if each["statename"] in RUNNING}
        for name in {*changed, *removed} - running:
            supervisord.removeProcessGroup(name)
        for name in {*added, *changed} - running:
            supervisord.addProcessGroup(name)
    files.write(home.prepared, written)


def start(home: Home, service: str, *, begins: bool) -> None:
    """Returns when the process has lived for a second. Raises ServiceError if it does not."""
    if begins:
        home.begins(service).touch()
    else:
        home.begins(service).unlink(missing_ok=True)
    with _supervisord(home) as supervisord:
        supervisord.startProcess(service, True)


def stop(home: Home, service: str) -> None:
    """Returns when the service and all that it has started are gone; nothing if it does not run."""
    with _supervisord(home) as supervisord:
        supervisord.stopProcess(service, True)
        while supervisord.getProcessInfo(service)["statename"] in {*RUNNING, "STOPPING"}:
            time.sleep(_POLL_SECONDS)
    mark = json.loads(home.program(service).read_text(encoding="utf-8"))["mark"]
    launch.end(mark)


def shorten_logs(home: Home) -> None:
    """Of services: what is in a log that has grown too long goes to NAME.log.1, in the place of what was there. The
    process goes on writing to the same file, which begins anew (launch.py opens it so); a line may be lost.
    """
    for program in home.prepared.parent.glob("*.program"):
        log = home.log / f"{program.stem}.log"
        if log.exists() and log.stat().st_size > MOST_LOG_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


@contextmanager
def _supervisord(home: Home) -> Iterator[Any]:
    """Raises ServiceError. A service that runs already, or is stopped already, is none."""
    proxy = ServerProxy("http://node", SupervisorTransport(None, None, f"unix://{home.supervisor}"))
    try:
        with proxy:
            yield proxy.supervisor
    except Fault as fault:
        if fault.faultCode not in (Faults.ALREADY_STARTED, Faults.NOT_RUNNING):
            raise ServiceError(f"supervisord: {fault.faultString}") from fault
    except (OSError, HTTPException) as error:
        raise ServiceError(f"supervisord does not answer at {home.supervisor}: {error}") from error


def _facts(home: Home, info: Mapping[str, Any]) -> ServiceFacts:
    memory, stale = 0, False
    if info["pid"]:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            process = psutil.Process(info["pid"])
            memory = process.memory_info().rss // _MIB
            program = json.loads(home.program(info["name"]).read_text(encoding="utf-8"))
            # None: it is the launcher still.
            stale = process.environ().get(launch.DIGEST) not in (None, program["digest"])
    return ServiceFacts(state=info["statename"], pid=info["pid"], memory_mib=memory, stale=stale)
