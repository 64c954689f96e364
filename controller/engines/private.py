"""The private directory of engines. One directory per engine and version, complete from the moment it exists."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.engines.catalog import ENGINES, Engine
from controller.engines.tools import EngineError
from controller.progress import Report, say_nothing

_RECORD = "installed.json"


def default_directory() -> Path:
    """$XDG_DATA_HOME/pbserver/engines, by default below ~/.local/share."""
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share) / "pbserver" / "engines"


def place(name: str, directory: Path) -> Path:
    """Where an engine of the pinned version lies or would lie. Raises EngineError for an unknown name."""
    return directory / f"{name}-{_engine(name).version}"


def locate(name: str, directory: Path | None = None) -> Path:
    """The directory of an engine that was fetched. Raises EngineError when it was not."""
    where = place(name, directory or default_directory())
    if not where.exists():
        raise EngineError(f"{name} is not in {where.parent}: pbdeploy engines fetch {name}")
    return where


def fetch(name: str, directory: Path | None = None, *, use: Path | None = None, report: Report = say_nothing) -> Path:
    """The directory of an engine, fetched with what it needs if it is not there yet; `use` takes the operator's copy
    instead, in place of what was there. Other processes that fetch meanwhile wait. Raises EngineError.
    """
    directory = directory or default_directory()
    where = place(name, directory)
    if use is None and where.exists():
        return where
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        if use is not None:
            _link(where, use, _engine(name))
        else:
            _install(name, directory, report)
    return where


def _engine(name: str) -> Engine:
    if name not in ENGINES:
        raise EngineError(f"unknown engine {name!r}; known engines: {', '.join(ENGINES)}")
    return ENGINES[name]


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process at a time: the tools' own caches do not bear two."""
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(name: str, directory: Path, report: Report) -> Path:
    where, engine = place(name, directory), _engine(name)
    if where.exists():
        return where
    if (installed := engine.installed()) is not None:
        report(f"{name} {engine.version}: using {installed}")
        _link(where, installed, engine)
        return where
    needs = {needed: _install(needed, directory, report) for needed in engine.needs}
    building = directory / f".{where.name}.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        parts = engine.source.install(building, needs, report)
        _verify(building, engine)
        if parts:
            (building / _RECORD).write_text(json.dumps(parts, indent=1), encoding="utf-8")
        building.replace(where)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    report(f"{name} {engine.version}: ready in {where}")
    return where


def _link(where: Path, target: Path, engine: Engine) -> None:
    _verify(target, engine)
    made = where.with_name(f".{where.name}.link")
    made.unlink(missing_ok=True)
    made.symlink_to(target.absolute())
    if where.is_dir() and not where.is_symlink():
        shutil.rmtree(where)
    made.replace(where)


def _verify(directory: Path, engine: Engine) -> None:
    """Raises EngineError if something that belongs to the engine is not there, or is not what it should be."""
    missing = [pattern for pattern in engine.evidence if not any(directory.glob(pattern))]
    if missing:
        raise EngineError(f"{directory} is no {engine.version} engine: it has no {', '.join(missing)}")
    engine.check(directory)
