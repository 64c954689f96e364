"""Engines from Debian's packages, unpacked into the private directory: nothing is installed, no root is needed."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.engines.tools import EngineError, apt_get, run
from controller.progress import Report

_OR = "Give a directory that holds the files: pbdeploy engines fetch NAME --use PATH"
_INSTALLS = re.compile(r"^Inst (\S+) \(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Packages:
    """`whole` with what they depend on and this machine lacks; `alone` without. `series`: package -> how its version
    must begin, since mirrors keep only the newest of each series.
    """

    whole: tuple[str, ...]
    alone: tuple[str, ...]
    series: Mapping[str, str]

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        """The answer is package -> version. Raises EngineError."""
        if shutil.which("apt-get") is None:
            raise EngineError(
                f"{self.whole[0]} comes from Debian's packages, and the command apt-get is missing. {_OR}"
            )
        _need_lists(self.whole, directory, report)
        missing = newly_installed(apt_get("install", "-s", "--no-install-recommends", *self.whole, directory=directory))
        report(f"downloading {', '.join(self.whole)} and what they need")
        downloads = directory / "packages"
        downloads.mkdir()
        apt_get("download", *sorted({*self.whole, *self.alone, *missing}), directory=downloads)
        versions = dict(_name_and_version(file) for file in sorted(downloads.glob("*.deb")))
        check_series(self.series, versions)
        for file in sorted(downloads.glob("*.deb")):
            run(["dpkg-deb", "-x", str(file), str(directory)], directory)
            file.unlink()
        downloads.rmdir()
        relink(directory)
        return versions


def newly_installed(simulation: str) -> list[str]:
    """The packages that `apt-get install -s` would add; those it would only replace by a newer version are left alone:
    a second C library would not fit this system's loader.
    """
    return _INSTALLS.findall(simulation)


def check_series(series: Mapping[str, str], versions: Mapping[str, str]) -> None:
    """Raises EngineError where a version is not of the series these recipes were written for."""
    for package, begins in series.items():
        if not versions[package].startswith(begins):
            raise EngineError(f"this system's {package} is {versions[package]}, but {begins}* is needed. {_OR}")


def relink(directory: Path) -> None:
    """Absolute links of the packages lead into the directory instead, where it has their target."""
    for path in directory.rglob("*"):
        if path.is_symlink() and (target := str(path.readlink())).startswith("/"):
            inside = directory / target.lstrip("/")
            if inside.exists():
                path.unlink()
                path.symlink_to(os.path.relpath(inside, path.parent))


def _need_lists(packages: Sequence[str], directory: Path, report: Report) -> None:
    """A fresh machine has no lists of packages; only root may fetch them."""
    if "Candidate: " in run(["apt-cache", "policy", packages[0]], directory, {"LC_ALL": "C"}):
        return
    if os.geteuid() != 0:
        raise EngineError(f"apt-get knows no package {packages[0]}: sudo apt-get update")
    report("fetching the lists of packages")
    apt_get("update")


def _name_and_version(file: Path) -> tuple[str, str]:
    name, version = run(["dpkg-deb", "-f", str(file), "Package", "Version"], file.parent).splitlines()
    return name.removeprefix("Package: "), version.removeprefix("Version: ")
