"""The result of a run, as JSON lines: machine, measurements and targets, each written the moment it is known."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
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


class OtherRun(Exception):
    """What was kept cannot be gone on with: it was measured otherwise."""


class Results:
    """What was measured so far; every line is on disk before anything else is measured, and whole.

    `resume`: goes on with what `path` holds, if anything. A measurement of the same experiment and name takes the
    earlier one's place. Raises OSError where nothing can be written, from every method that adds something.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = _kept(path) if resume else []
        self._resumes = bool(self.lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._resumes:
            path.write_text("")

    def machine(self, settings: Mapping[str, Any]) -> None:
        """To be called first. Raises OtherRun if what is resumed was measured with other settings, or of other code."""
        this = {**machine(), "settings": dict(settings)}
        if not self._resumes:
            self._add("machine", this)
            return
        _check_same(self.path, self.lines[0], json.loads(json.dumps(this)))
        self._rewrite()
        self._add("resumed", {name: this[name] for name in ("time", "load_average")})

    def measurement(self, experiment: str, name: str, values: Mapping[str, Any]) -> None:
        self._add("measurement", {"experiment": experiment, "name": name, **values})

    def target(self, experiment: str, target: Target) -> None:
        values = {**asdict(target), "bound": target.bound.value, "measured": round(target.measured, 4)}
        self._add("target", {"experiment": experiment, **values, "met": target.met})

    def failure(self, experiment: str, reason: str) -> None:
        self._add("failure", {"experiment": experiment, "reason": reason})

    def done(self, experiment: str, seconds: float) -> None:
        """It has come to its end; `seconds`: since it began, or went on in a run that is resumed."""
        self._add("done", {"experiment": experiment, "seconds": round(seconds, 1)})

    def finished(self, seconds: float) -> None:
        self._add("finished", {"seconds": round(seconds, 1), "load_average": os.getloadavg()})

    def of(self, what: str) -> Iterable[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == what]

    def is_done(self, experiment: str) -> bool:
        return any(line["experiment"] == experiment for line in self.of("done"))

    def kept(self, experiment: str, name: str) -> dict[str, Any] | None:
        """The measurement of that name, if there is one already."""
        for line in self.of("measurement"):
            if (line["experiment"], line["name"]) == (experiment, name):
                return line
        return None

    def _add(self, what: str, values: Mapping[str, Any]) -> None:
        line = {"type": what, **values}
        if self._resumes and "name" in line:
            others = [each for each in self.lines if _identity(each) != _identity(line)]
            if len(others) < len(self.lines):
                self.lines = [*others, line]
                self._rewrite()
                return
        _append(self.path, json.dumps(line) + "\n")
        self.lines.append(line)

    def _rewrite(self) -> None:
        written = self.path.with_suffix(".new")
        written.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        written.replace(self.path)


def _identity(line: Mapping[str, Any]) -> tuple[object, ...]:
    return line["type"], line.get("experiment"), line.get("name")


def _append(path: Path, text: str) -> None:
    """All of it, or OSError and nothing."""
    data = text.encode()
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(before)
            raise


def _kept(path: Path) -> list[dict[str, Any]]:
    """What an interrupted run has measured, its machine first; nothing where there was none."""
    lines: list[dict[str, Any]] = []
    with suppress(FileNotFoundError, json.JSONDecodeError):  # the last line may be half there
        for text in path.read_text().splitlines():
            lines.append(json.loads(text))
    return [line for line in lines if line["type"] not in ("failure", "finished")]


def _check_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [name for name in ("cpu", "cores", "pbserver", "revision") if before.get(name) != now[name]]
    settings = before.get("settings", {}), now["settings"]
    names = {name for each in settings for name in each} - {"experiments"}
    differing += sorted(name for name in names if settings[0].get(name) != settings[1].get(name))
    if differing:
        found = "; ".join(
            _difference(name, before.get(name, settings[0].get(name)), now.get(name, settings[1].get(name)))
            for name in differing
        )
        raise OtherRun(f"{path.name} cannot be resumed: {found}; measure anew, without --resume")


def _difference(name: str, before: object, now: object) -> str:
    """Short enough to be read."""
    return f"{name} differ" if isinstance(now, dict) else f"{name} {before} then, {now} now"


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
