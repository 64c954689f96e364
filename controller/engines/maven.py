"""Java engines as the jars of a few Maven artifacts, each jar verified against a list of sums kept in the project."""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from controller.engines.tools import EngineError, need_command, run
from controller.progress import Report

_LOCKS = Path(__file__).parent / "locks"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Artifacts of one Maven group and version."""

    group: str
    version: str
    names: tuple[str, ...]

    def dependencies(self) -> list[str]:
        """One XML element each."""
        return [
            f"<dependency><groupId>{escape(self.group)}</groupId><artifactId>{escape(name)}</artifactId>"
            f"<version>{escape(self.version)}</version></dependency>"
            for name in self.names
        ]


@dataclass(frozen=True, slots=True)
class Jars:
    """`wanted` and all they need, with the versions in `pinned`; `members`: file to make -> (jar, path inside)."""

    lock: str
    wanted: tuple[Artifacts, ...]
    pinned: tuple[Artifacts, ...] = ()
    members: tuple[tuple[str, str, str], ...] = ()

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        """Fills `directory`/lib. The answer names every jar with its sum. Raises EngineError."""
        need_command("mvn", ["maven", "openjdk-17-jre-headless"], report)
        (directory / "pom.xml").write_text(project(self.lock, self.wanted, self.pinned), encoding="utf-8")
        report(f"resolving the jars of {self.lock} with Maven")
        options = [f"-DoutputDirectory={directory / 'lib'}", "-DincludeScope=runtime"]
        run(["mvn", "-B", "-ntp", "-q", _COPY, *options], directory, {"JAVA_HOME": str(needs["java"])})
        sums = {jar.name: _sha256(jar) for jar in sorted((directory / "lib").iterdir())}
        compare(self.lock, read_lock(self.lock), sums)
        for made, jar, path in self.members:
            with zipfile.ZipFile(directory / "lib" / jar) as archive:
                (directory / made).write_bytes(archive.read(path))
        return sums


def project(name: str, wanted: Sequence[Artifacts], pinned: Sequence[Artifacts]) -> str:
    """The text of a pom.xml that asks for these artifacts."""
    managed = "\n".join(line for artifacts in pinned for line in artifacts.dependencies())
    direct = "\n".join(line for artifacts in wanted for line in artifacts.dependencies())
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n"
        f"<groupId>pbserver.engines</groupId><artifactId>{escape(name)}</artifactId><version>1</version>"
        "<packaging>pom</packaging>\n"
        f"<dependencyManagement><dependencies>\n{managed}\n</dependencies></dependencyManagement>\n"
        f"<dependencies>\n{direct}\n</dependencies></project>\n"
    )


def read_lock(name: str) -> dict[str, str]:
    """Jar -> SHA-256 from locks/NAME.sha256, which has the format of sha256sum."""
    lines = (_LOCKS / f"{name}.sha256").read_text(encoding="ascii").splitlines()
    return {jar: digest for digest, jar in (line.split() for line in lines)}


def compare(name: str, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raises EngineError that lists every jar that is missing, unknown or different."""
    wrong = [f"{jar} is missing" for jar in sorted(expected.keys() - found.keys())]
    wrong += [f"{jar} is not in the list" for jar in sorted(found.keys() - expected.keys())]
    wrong += [
        f"{jar} has the sum {found[jar]}, not {expected[jar]}"
        for jar in sorted(expected.keys() & found.keys())
        if found[jar] != expected[jar]
    ]
    if wrong:
        lines = "\n  ".join(wrong)
        raise EngineError(f"the jars of {name} are not those of controller/engines/locks/{name}.sha256:\n  {lines}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
