"""A real pbserver in a process of its own: started on a free loopback port, stopped by its own pid."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

ROOT = Path(__file__).parents[2]

_READY = re.compile(r"serves https?://127\.0\.0\.1:(\d+)")
_START_SECONDS = 30
_STOP_SECONDS = 25
_SHOWN_BYTES = 8_000


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Returns once `condition` is true; fails with `what` when it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _end(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        if _lives(process):
            process.kill()


class Server:
    """One pbserver. `directory` receives its output; the store's place is up to the caller. `settings`: TOML.

    start, stop and kill may follow each other; every start takes another free port.
    """

    def __init__(
        self, directory: Path, store: str, *, workers: int = 2, testing: bool = False, settings: str = ""
    ) -> None:
        self.port = 0
        self._command = [sys.executable, "-m", "pbserver", "serve", "--listen", "127.0.0.1:0", "--admin", "none"]
        self._command += ["--store", store, "--workers", str(workers), "--threads", "9"]
        self._command += ["--testing"] if testing else []
        if settings:
            file = directory / "pbserver.toml"
            file.write_text(settings)
            self._command += ["--config", str(file)]
        self._output = directory / "pbserver.stdout"
        self._errors = directory / "pbserver.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        if error is not None:
            sys.stderr.write(self.errors())

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
        with self._output.open("wb") as output, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdout=output, stderr=errors, start_new_session=True
            )
        wait_until(self._is_ready, "the ready line of pbserver", _START_SECONDS)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"pbserver ended ({self._process.returncode}):\n{self.errors()}"
        ready = _READY.search(self._output.read_text(errors="replace"))
        self.port = int(ready[1]) if ready else 0
        return ready is not None

    def workers(self) -> dict[int, psutil.Process]:
        """The worker processes by pid."""
        if self._process is None or self._process.poll() is not None:
            return {}
        return {child.pid: child for child in psutil.Process(self._process.pid).children()}

    def stop(self) -> int:
        """SIGTERM, then SIGKILL to the whole group if that is not enough. The exit code of the parent."""
        if self._process is None or self._process.poll() is not None:
            return 0
        workers = self.workers()
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -signal.SIGKILL
        _end(workers.values())
        return code

    def kill(self) -> None:
        """kill -9 of parent and workers at once, as when the power goes."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill_parent(self) -> None:
        """kill -9 of the parent alone; returns when its workers have ended by themselves."""
        workers = self.workers()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        try:
            wait_until(lambda: not any(map(_lives, workers.values())), "the end of the orphans")
        finally:
            _end(workers.values())

    def kill_workers(self) -> None:
        """kill -9 of every worker; returns when the supervisor has replaced each of them and they answer."""
        before = self.workers()
        for worker in before.values():
            worker.kill()
        wait_until(
            lambda: len(self.workers()) == len(before) and not self.workers().keys() & before.keys(),
            "new workers in place of the killed ones",
        )
        wait_until(self._answers, "an answer of the new workers")

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(self.url, timeout=5).is_success
        return False

    def reset(self) -> None:
        """Drops all data; only a --testing server can."""
        httpx.post(f"{self.url}/reset", timeout=30).raise_for_status()

    def errors(self) -> str:
        """The end of what the server wrote to stderr since the last call."""
        if not self._errors.exists():
            return ""
        with self._errors.open("rb") as file:
            file.seek(max(self._seen, file.seek(0, os.SEEK_END) - _SHOWN_BYTES))
            text = file.read()
            self._seen = file.tell()
        return text.decode(errors="replace")
