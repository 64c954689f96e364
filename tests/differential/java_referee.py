"""The second referee: Google's Java Datastore for tests, a process of its own. It is built by Maven on each use."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pytest

from tests.differential.players import RemotePlayer
from tests.differential.values import APP

_SOURCE = Path(__file__).parent / "java"
_BUILD_SECONDS = 600


class JavaReferee(RemotePlayer):
    """Built and started in `directory`; ended with the context. Fails the test when java or mvn is not there."""

    def __init__(self, directory: Path) -> None:
        target = directory / "java"
        _run([_find("mvn"), "-q", "-B", "-f", str(_SOURCE / "pom.xml"), f"-Dtarget={target}", "compile"])
        command = [_find("java"), "-cp", f"{target}/classes:{target}/lib/*", "Referee", APP]
        with (directory / "java.stderr").open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        super().__init__(_port(self._process.stdout, directory / "java.stderr"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        self._process.kill()
        self._process.wait()


def _find(program: str) -> str:
    """The program's path, from JAVA_HOME or PATH."""
    found = _in_java_home(program) or shutil.which(program)
    if found is None:
        pytest.fail(
            f"DIFFERENTIAL_REFEREE=java needs {program}, which is neither on PATH nor in JAVA_HOME; "
            "install a JDK (17 or later) and Maven",
            pytrace=False,
        )
    return found


def _in_java_home(program: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(program, path=str(Path(home) / "bin")) if home else None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    if done.returncode:
        pytest.fail(f"the Java referee could not be built ({done.returncode}):\n{done.stdout[-4000:]}", pytrace=False)


def _port(output: IO[Any] | None, errors: Path) -> int:
    """The port from the first line that is printed; waits for it."""
    line = output.readline().decode() if output is not None else ""
    if not line.startswith("port "):
        pytest.fail(f"the Java referee did not start:\n{errors.read_text()[-4000:]}", pytrace=False)
    return int(line.split()[1])
