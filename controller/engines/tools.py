"""Running the package tools, and installing the ones that are missing where that is allowed."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.progress import Report

_SHOWN_CHARACTERS = 2_000


class EngineError(Exception):
    """An engine cannot be had; the text says what to do. Nothing half-made stays behind."""


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> str:
    """The standard output of a tool. Raises EngineError with the end of what it printed when it fails."""
    done = subprocess.run(  # noqa: S603 - commands of ours, no shell
        command,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = f"{done.stdout}\n{done.stderr}".strip()[-_SHOWN_CHARACTERS:]
        raise EngineError(f"{' '.join(command)} failed with {done.returncode}:\n{said}")
    return done.stdout


def apt_get(*arguments: str, directory: Path = Path("/")) -> str:
    """The output of apt-get, which fails when another one is at work: those of ours wait for each other."""
    held = os.open("/var/lib/apt", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        return run(["apt-get", *arguments], directory, {"DEBIAN_FRONTEND": "noninteractive"})
    finally:
        os.close(held)


def need_command(name: str, packages: Sequence[str], report: Report) -> None:
    """Installs `packages` with apt-get when the command `name` is missing and we are root. Raises EngineError else."""
    if shutil.which(name) is None:
        install_packages(f"the command {name} is missing", packages, report)


def install_packages(why: str, packages: Sequence[str], report: Report) -> None:
    """Raises EngineError, naming the packages, unless we are root and apt-get succeeds."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise EngineError(
            f"{why}. On Debian or Ubuntu: sudo apt-get install {' '.join(packages)}. "
            "Or give the engine yourself: pbdeploy engines fetch NAME --use PATH"
        )
    report(f"{why}: installing {' '.join(packages)}")
    apt_get("update")
    apt_get("install", "-y", "--no-install-recommends", *packages)
