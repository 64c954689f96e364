"""Processes that outlive whoever started them: each the leader of a session of its own, known by pid and start time.

The kernel gives no pid away while a session has that number, so the members of a session whose leader died are still
ours, and a process with the leader's pid but another start time is somebody else's.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_POLL_SECONDS = 0.02
#: Of the fields of /proc/PID/stat, counted after the name.
_START_TICK = 19
#: States of threads.
_STOPPED = "Tt"
_ENDED = "ZXx"


@dataclass(frozen=True, slots=True)
class Leader:
    """A started process. `started` names the boot of the machine and the tick: no clock that can be set."""

    pid: int
    started: str

    @classmethod
    def read(cls, record: Path) -> "Leader | None":
        """None where nothing was started."""
        with suppress(FileNotFoundError):
            return cls(**json.loads(record.read_text(encoding="utf-8")))
        return None


def start(
    command: Sequence[str], record: Path, log: Path, directory: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a process and writes who it is to `record`; its output is appended to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - a recipe of ours, no shell
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    written = record.with_suffix(".new")
    written.write_text(json.dumps(asdict(Leader(process.pid, _started(process.pid)))), encoding="utf-8")
    written.replace(record)
    return process


def _started(pid: int) -> str:
    """Raises OSError where there is no such process; a zombie is still one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{_facts(Path(f'/proc/{pid}/stat'))[_START_TICK]}"


def _states(pid: int) -> list[str]:
    """Of each of a process's threads; none if there is no such process."""
    states = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # this one has ended since
                states.append(_facts(thread / "stat")[0])
    return states


def _lives(pid: int) -> bool:
    """The first thread may be a zombie while others still hold the ports."""
    return any(state not in _ENDED for state in _states(pid))


def _facts(stat: Path) -> list[str]:
    """The fields after the name, which may hold anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def members(leader: Leader) -> list[psutil.Process]:
    """The live processes of the session, the leader first if it lives."""
    with suppress(OSError):
        if _started(leader.pid) != leader.started:
            return []
    found = [process for process in psutil.process_iter() if _session(process) == leader.pid and _lives(process.pid)]
    return sorted(found, key=lambda process: process.pid != leader.pid)


def leads(leader: Leader) -> bool:
    """Whether the leader itself lives."""
    with suppress(OSError):
        return _started(leader.pid) == leader.started and _lives(leader.pid)
    return False


def freeze(leader: Leader) -> None:
    """SIGSTOP to the session; returns when none of its threads runs any more."""
    frozen = members(leader)
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    while any(state not in _STOPPED + _ENDED for process in frozen for state in _states(process.pid)):
        time.sleep(_POLL_SECONDS)


def thaw(leader: Leader) -> None:
    """SIGCONT to the session."""
    for process in members(leader):
        with suppress(psutil.NoSuchProcess):
            process.resume()


def stop(leaders: Mapping[Leader, float]) -> None:
    """SIGTERM to the leaders, and SIGKILL to what is left of a session when its leader has ended, or after as many
    seconds as it is given.
    """
    begun = time.monotonic()
    for leader in leaders:
        for process in members(leader)[:1]:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
    for leader, seconds in leaders.items():
        while leads(leader) and time.monotonic() < begun + seconds:
            time.sleep(_POLL_SECONDS)
        kill(leader)


def kill(leader: Leader) -> None:
    """SIGKILL to the session; returns when it is empty."""
    while left := members(leader):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:
        return -1
