"""Becomes a service's process: `launch PROGRAM BEGINS`, both paths. Run by supervisord, so: the standard library alone.

PROGRAM is JSON: the command, the one that begins a cluster (null where that is no different), the environment, the
directory, the log, the mark that every process of the service carries in its environment, and a digest of its settings,
which they carry too. Before the start, processes of an earlier one are ended that have outlived their leader: they hold
ports and files.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

MARK = "PBSERVER_NODE_SERVICE"
DIGEST = "PBSERVER_NODE_SETTINGS"
_POLL_SECONDS = 0.05


def marked(mark: str, *, below: bool = False) -> list[int]:
    """The live processes that carry `mark` in their environment, our own left out; `below`: those of all services of
    the node that the mark names.
    """
    wanted = f"{MARK}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            entries = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended since, or is another user's
        fits = any(each == wanted or (below and each.startswith(wanted + b"/")) for each in entries)
        if fits and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def end(mark: str, *, below: bool = False) -> None:
    """SIGKILL to all of them; returns when there is none. A zombie has no environment any more."""
    while left := marked(mark, below=below):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_POLL_SECONDS)


def main(program: Path, begins: Path) -> None:
    """Does not return."""
    wanted = json.loads(program.read_text(encoding="utf-8"))
    end(wanted["mark"])
    command = wanted["command"]
    try:
        begins.unlink()  # once: whoever is started again after a crash joins the others
    except FileNotFoundError:
        pass
    else:
        command = wanted["beginning"] or command
    log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(wanted["directory"])
    environment = {**os.environ, **wanted["environment"], MARK: wanted["mark"], DIGEST: wanted["digest"]}
    os.execvpe(command[0], command, environment)  # noqa: S606 - a recipe of ours, no shell


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
