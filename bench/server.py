"""The processes under measurement: started on one core, watched, and stopped by pid, also when something fails."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from adapters.url import shown
from bench.calls import is_error
from bench.line import Address

ROOT = Path(__file__).parents[1]

_READY = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_START_SECONDS = 30.0
_STOP_SECONDS = 20.0
_ANSWER_SECONDS = 60.0


class ServerFailed(Exception):
    """It did not start, or answered a preparing call with an error."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process; `private` leaves out pages of files, such as those of a store's map."""

    rss: int
    private: int


class Server:
    """One server process and its worker; figures are of the first one. `core`: where it runs, all of it. `settings`: as
    PBSERVER_* variables.
    """

    def __init__(
        self, arguments: Sequence[str], core: int, settings: Mapping[str, str] = {}, *, program: str = sys.executable
    ) -> None:
        self.port = 0
        self.start_seconds = 0.0
        self._arguments = [program, *arguments]
        self._core = core
        self._settings = {f"PBSERVER_{name}": value for name, value in settings.items()}
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: psutil.Process | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    def cpu_seconds(self) -> float:
        """User and system time of the worker's threads so far, in nanoseconds' steps where the kernel counts them."""
        worker = self._measured()
        tasks = Path(f"/proc/{worker.pid}/task")
        try:
            return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks.iterdir()) / 1e9
        except FileNotFoundError:  # no such counter, or a thread has just ended: in ticks of the clock
            times = worker.cpu_times()
            return times.user + times.system

    def memory(self) -> Memory:
        info = self._measured().memory_info()
        return Memory(info.rss, info.rss - info.shared)

    def call(self, requests: Iterable[bytes]) -> list[bytes]:
        """Sends ready-made requests one after the other; the bodies of the answers. Raises ServerFailed."""
        return call(self.address, requests)

    def workers(self) -> list[psutil.Process]:
        """Those that serve now."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children()

    def stop(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its own group: the supervisor and its worker
                process.wait()
        if self._worker is not None and self._worker.is_running():
            self._worker.kill()
        self._process = self._worker = None
        self._output.close()

    def _start(self) -> None:
        began = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
        with on_core(self._core):  # a child inherits it, and so do its own children and threads
            self._process = subprocess.Popen(
                self._arguments,
                cwd=ROOT,
                env=environment | self._settings,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        while (ready := _READY.search(self._said())) is None:
            if self._process.poll() is not None or time.monotonic() > began + _START_SECONDS:
                said = self._said().decode(errors="replace")[-2000:]
                command = " ".join(shown(each) for each in self._arguments[1:])
                raise ServerFailed(f"{command} did not get ready; it said:\n{said}")
            time.sleep(0.01)
        self.start_seconds = time.monotonic() - began
        self.port = int(ready[1])
        parent = psutil.Process(self._process.pid)
        self._worker = next(iter(parent.children()), parent)

    def _said(self) -> bytes:
        return os.pread(self._output.fileno(), 100_000, 0)

    def _measured(self) -> psutil.Process:
        assert self._worker is not None
        return self._worker


def call(address: Address, requests: Iterable[bytes]) -> list[bytes]:
    """Sends ready-made requests one after the other; the bodies of the answers. Raises ServerFailed."""
    try:
        with socket.create_connection(address, timeout=_ANSWER_SECONDS) as sock:
            return [_answer(sock, each) for each in requests]
    except OSError as error:
        raise ServerFailed(f"{address.host}:{address.port}: a preparing call failed: {error}") from error


def _answer(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    received = b""
    while (end := received.find(b"\r\n\r\n") + 4) < 4:
        received += _some(sock)
    head, body = received[:end].lower(), received[end:]
    length = int(head.partition(b"content-length:")[2].partition(b"\r")[0])
    chunks, missing = [body], length - len(body)
    while missing:
        chunks.append(_some(sock))
        missing -= len(chunks[-1])
    body = b"".join(chunks)
    if b" 200 " not in head[:20] or is_error(body):
        raise ServerFailed(f"a preparing call failed: {head[:40]!r} {body[-300:]!r}")
    return body


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 20)
    if not data:
        raise ServerFailed("the server closed the connection during a preparing call")
    return data


def pbserver(store: str, core: int, *, threads: int = 9, acknowledge: str = "applied", workers: int = 1) -> Server:
    """The real thing."""
    fixed = ["-m", "pbserver", "serve", "--listen", "127.0.0.1:0", "--admin", "none", "--workers", str(workers)]
    return Server([*fixed, "--threads", str(threads), "--store", store], core, {"DATASTORE__ACKNOWLEDGE": acknowledge})


def tornado(core: int) -> Server:
    """The yardstick: bench.tornado_server."""
    return Server(["-m", "bench.tornado_server"], core)


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside runs on `core`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
