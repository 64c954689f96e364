"""The result of a run, as JSON lines: machine, measurements and targets, each written the moment it is known."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from bench.server import ROOT
from pbserver import __version__

_PACKAGES = ("protobuf", "httptools", "lmdb", "tornado", "appengine-python-standard")


class Bound(Enum):
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One promise: `measured` against `limit`, both in `unit` (x: a ratio inside this run)."""

    name: str
    measured: float
    bound: Bound
    limit: float
    unit: str = "x"

    @property
    def met(self) -> bool:
        if self.bound is Bound.AT_MOST:
            return self.measured <= self.limit
        return self.measured >= self.limit


class Results:
    """What was measured so far; every line is on disk before the next experiment begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def machine(self, settings: Mapping[str, Any]) -> None:
        self._add("machine", {**machine(), "settings": dict(settings)})

    def measurement(self, experiment: str, name: str, values: Mapping[str, Any]) -> None:
        self._add("measurement", {"experiment": experiment, "name": name, **values})

    def target(self, experiment: str, target: Target) -> None:
        values = {**asdict(target), "bound": target.bound.value, "measured": round(target.measured, 4)}
        self._add("target", {"experiment": experiment, **values, "met": target.met})

    def failure(self, experiment: str, reason: str) -> None:
        self._add("failure", {"experiment": experiment, "reason": reason})

    def finished(self, seconds: float) -> None:
        self._add("finished", {"seconds": round(seconds, 1), "load_average": os.getloadavg()})

    def of(self, what: str) -> Iterable[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == what]

    def _add(self, what: str, values: Mapping[str, Any]) -> None:
        line = {"type": what, **values}
        self.lines.append(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def machine() -> dict[str, Any]:
    """Where, with what and from which source this is measured."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
        "pbserver": __version__,
        "revision": _revision(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    """The commit, `+changes` when files differ from it; None outside a working copy."""
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def filesystem(directory: Path) -> str:
    """The type of the file system that holds `directory`; a synced commit costs nothing on tmpfs."""
    place = str(directory.resolve())
    parts = [part for part in psutil.disk_partitions(all=True) if place.startswith(part.mountpoint)]
    return max(parts, key=lambda part: len(part.mountpoint)).fstype if parts else "unknown"
