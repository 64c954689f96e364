"""The load generator: a process of its own with N kept-alive connections on one epoll, closed loop.

Each connection sends, waits for the whole answer and sends again. Run by bench.measure, which talks to it in pickles:
it sends a Load, gets Ready once all connections are warm, says GO, gets Progress from time to time and a Sample.
"""

import gc
import pickle
import re
import select
import socket
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from bench.calls import Calls, is_error

GO = b"g"
_ANSWER_SECONDS = 60.0
_PROGRESS_SECONDS = 0.25
_READ_BYTES = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to do: for so many seconds, or so many operations."""

    port: int
    connections: int
    calls: Calls
    seconds: float = 0.0
    operations: int = 0
    warm_operations: int = 200  #: done before the measured part, by all connections together
    patient: bool = False  #: sleeps while it waits, where a database beside the server needs the core


@dataclass(frozen=True, slots=True)
class Ready:
    """All connections stand, and the warming up is over."""


@dataclass(frozen=True, slots=True)
class Progress:
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was done between GO and the last answer. Latencies are of whole operations."""

    operations: int
    requests: int
    seconds: float
    p50_us: float
    p90_us: float
    p99_us: float
    most_us: float
    busy: float  #: share of the time this process used a core: near 1 it was itself the bottleneck


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str


class Failed(Exception):
    """A wrong answer, or none."""


class Line:
    """One connection and the operation under way on it."""

    __slots__ = ("began", "chunks", "missing", "number", "size", "sock")

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(None)  # it is read when epoll says so, and requests fit the kernel's buffer
        self.began = 0.0
        self.size = 0  # of the operation's answers so far
        self.chunks: list[bytes] = []
        self.missing = 0

    def receive(self) -> bytes | None:
        """The body of the answer, once it is whole."""
        data = self.sock.recv(_READ_BYTES)
        if not data:
            raise Failed("the server closed a connection")
        if self.missing:
            self.chunks.append(data)
            self.missing -= len(data)
        else:
            end = data.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(data, 0, end)
            if length is None or not data.startswith(b"HTTP/1.1 200"):
                raise Failed(f"not the answer to a call: {data[:200]!r}")
            body = data[end:]
            self.missing = int(length[1]) - len(body)
            if not self.missing:
                return body
            self.chunks = [body]
        if self.missing:
            return None
        body = b"".join(self.chunks)
        self.chunks = []
        return body


class Generator:
    def __init__(self, load: Load) -> None:
        self._calls = load.calls
        self._sleep_seconds = _ANSWER_SECONDS if load.patient else 0.0
        self._latencies = array("f")
        self._requests = 0
        self._epoll = select.epoll()
        self._lines: dict[int, Line] = {}
        for number in range(load.connections):
            line = Line(number, load.port)
            self._lines[line.sock.fileno()] = line
            self._epoll.register(line.sock, select.EPOLLIN)

    def _wait(self) -> list[tuple[int, int]]:
        """The connections with something to read; none after _ANSWER_SECONDS.

        Unless it is patient, it asks again and again instead of sleeping: waking a sleeper on another core is paid by
        the server that answers it, although a client on another machine would cost it nothing.
        """
        until = time.perf_counter() + _ANSWER_SECONDS
        while not (events := self._epoll.poll(self._sleep_seconds)) and time.perf_counter() < until:
            pass
        return events

    def run(self, report: Callable[[Progress], None], *, seconds: float, operations: int) -> Sample:
        """Until the time is up or so many operations are done; returns when every connection is at rest."""
        self._latencies = array("f")
        self._requests = 0
        cpu = time.process_time()
        began = time.perf_counter()
        self._drive(report, began + seconds if seconds else float("inf"), operations or sys.maxsize)
        lasted = time.perf_counter() - began
        return sampled(self._latencies, self._requests, lasted, time.process_time() - cpu)

    def _drive(self, report: Callable[[Progress], None], until: float, operations: int) -> None:
        clock = time.perf_counter
        lines = self._lines
        left = operations
        for line in lines.values():
            if left:
                left -= 1
                self._begin(line)
        under_way = operations - left
        report_at = clock() + _PROGRESS_SECONDS
        while under_way:
            events = self._wait()
            if not events:
                raise Failed(f"no answer for {_ANSWER_SECONDS:.0f} s; {under_way} calls are waiting")
            for fd, _ in events:
                line = lines[fd]
                if not self._receive(line):
                    continue
                if left and clock() < until:
                    left -= 1
                    self._begin(line)
                else:
                    under_way -= 1
            if clock() > report_at:
                report(Progress(len(self._latencies)))
                report_at = clock() + _PROGRESS_SECONDS

    def _begin(self, line: Line) -> None:
        data = self._calls.begin(line.number)
        line.size = 0
        line.began = time.perf_counter()
        line.sock.sendall(data)

    def _receive(self, line: Line) -> bool:
        """Reads what is there, sends the operation's next request; whether the operation is finished."""
        body = line.receive()
        if body is None:
            return False
        now = time.perf_counter()
        self._requests += 1
        if is_error(body):
            raise Failed(f"the server answered with an error: {body[-300:]!r}")
        line.size += len(body)
        following = self._calls.go_on(line.number, body)
        if following is not None:
            line.sock.sendall(following)
            return False
        if line.size < self._calls.least_bytes:
            raise Failed(f"an answer of {line.size} bytes, at least {self._calls.least_bytes} were expected")
        self._latencies.append(now - line.began)
        return True


def sampled(latencies: "array[float]", requests: int, seconds: float, cpu_seconds: float) -> Sample:
    """What came of operations that took so many seconds each, and together with what lay between them `seconds`."""
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e6

    return Sample(
        operations=len(ordered),
        requests=requests,
        seconds=seconds,
        p50_us=round(at(0.5), 1),
        p90_us=round(at(0.9), 1),
        p99_us=round(at(0.99), 1),
        most_us=round(at(1), 1),
        busy=cpu_seconds / seconds,
    )


def serve(orders: BinaryIO, reports: BinaryIO) -> None:
    """One Load, start to end."""

    def report(message: object) -> None:
        pickle.dump(message, reports)
        reports.flush()

    try:
        load: Load = pickle.load(orders)
        generator = Generator(load)
        if load.warm_operations:
            generator.run(lambda _: None, seconds=0, operations=max(load.warm_operations, load.connections))
        gc.collect()
        gc.disable()
        report(Ready())
        if orders.read(1) == GO:
            report(generator.run(report, seconds=load.seconds, operations=load.operations))
    except (Failed, OSError) as error:
        report(Failure(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    from bench.client import serve  # so that what it sends is known by this module's name, not as __main__

    serve(sys.stdin.buffer, sys.stdout.buffer)
