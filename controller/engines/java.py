"""Java 17: the system's own, or Debian's package. No other version runs all of these engines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.engines.tools import EngineError, install_packages, run
from controller.progress import Report

_PACKAGE = "openjdk-17-jre-headless"
_VERSION = re.compile(r"\S+ 17\b")


def installed() -> Path | None:
    """The home of an installed Java 17, or None."""
    return next((path.resolve() for path in sorted(Path("/usr/lib/jvm").glob("java-17*/")) if _works(path)), None)


def _works(home: Path) -> bool:
    return (home / "bin" / "java").exists()


def check(home: Path) -> None:
    """Raises EngineError unless the Java there is a 17."""
    said = run([str(home / "bin" / "java"), "--version"], home)
    if _VERSION.match(said) is None:
        raise EngineError(f"Java 17 is needed, no other runs all of the engines; {home} is {said.splitlines()[0]}")


@dataclass(frozen=True, slots=True)
class Package:
    """Installs the package, since Java's trusted certificates are made by its installation."""

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        install_packages("Java 17 is missing", [_PACKAGE], report)
        home = installed()
        if home is None:
            raise EngineError(f"{_PACKAGE} is installed, but /usr/lib/jvm has no java-17")
        directory.rmdir()
        directory.symlink_to(home)
        return {}
