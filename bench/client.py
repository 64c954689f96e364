"""The load generator: a process of its own with N kept-alive connections on one epoll.

Closed loop: each connection sends, waits for the whole answer and sends again. Open loop: operations are meant to begin
at even distances, whatever became of those before; one that finds no connection free begins late, and its latency
counts from when it was meant to begin. Otherwise a server that stands still would be measured once, not as often as
clients would have called.

Run by bench.measure, which talks to it in pickles: it sends a Load, gets Ready once all connections are warm, says GO,
gets Progress from time to time and a Sample at the end, which STOP brings about early.
"""

import gc
import os
import pickle
import select
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO

from bench.calls import Calls, error_name, is_error
from bench.line import ANSWER_SECONDS, Address, Broken, Failed, Line
from bench.tally import Histogram, Tallies, Tally

GO, STOP = b"g", b"s"
_PROGRESS_SECONDS = 0.25
_REOPEN_SECONDS = 0.1
_ERRORS_SECONDS = 30.0  # of nothing but errors: what is measured has died
_AWAKE_SECONDS = 0.002  # before an operation is due: epoll sleeps whole milliseconds


class Errors(Enum):
    """What a load generator does about errors."""

    FAIL = "any one ends the measurement"
    COUNT = "answers that are errors are counted"
    SURVIVE = "connections that break are counted too, and opened again, each at the next address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to do: for so many seconds, or so many operations, or until no connection has more to do."""

    connections: int
    calls: Calls
    port: int = 0  #: on this host
    addresses: Sequence[Address] = ()  #: instead of a port: connections take turns among them
    seconds: float = 0.0
    operations: int = 0
    warm_operations: int = 200  #: done before the measured part, by all connections together
    per_second: float = 0.0  #: in an open loop; 0: closed loop
    patient: bool = False  #: sleeps while it waits, where others need the core: a database, another generator
    errors: Errors = Errors.FAIL
    by_second: bool = False

    def address(self, number: int) -> Address:
        """Where connection `number` goes."""
        return self.addresses[number % len(self.addresses)] if self.addresses else Address("127.0.0.1", self.port)


@dataclass(frozen=True, slots=True)
class Ready:
    """All connections stand, and the warming up is over."""


@dataclass(frozen=True, slots=True)
class Progress:
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was done between GO and the last answer. Latencies are of whole operations that succeeded."""

    requests: int
    seconds: float
    busy: float  #: share of the time in which it did not wait for the server: near 1 it was itself the bottleneck
    tallies: Tallies[str]
    by_second: Tallies[int] = field(default_factory=Tallies)  #: since GO, when they ended
    not_begun: int = 0  #: operations of an open loop that were due, and for which no connection was free until the end

    @property
    def all(self) -> Tally:
        return self.tallies.together()


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str


class _Round:
    """What is done and left between GO and the end."""

    def __init__(self, *, seconds: float, operations: int, per_second: float) -> None:
        self.tallies: Tallies[str] = Tallies()
        self.by_second: Tallies[int] = Tallies()
        self.requests = self.begun = self.ended = self.not_begun = 0
        self.waited = 0.0
        self.left = operations or sys.maxsize
        self.gap = 1 / per_second if per_second else 0.0
        self.began = self.due = self.succeeded = time.perf_counter()
        self.until = self.began + seconds if seconds else float("inf")

    @property
    def under_way(self) -> int:
        return self.begun - self.ended

    def intended(self, now: float) -> float | None:
        """When the next operation was meant to begin; None: not yet, or no more."""
        if not self.left or now >= self.until:
            return None
        if not self.gap:
            return now
        return self.due if self.due <= now else None

    def begin(self) -> None:
        self.left -= 1
        self.begun += 1
        self.due += self.gap

    def end(self, name: str, seconds: float, error: str, *, second: int | None) -> None:
        """An operation of so many seconds; `error`: empty if it succeeded. `second`: None if nobody wants to know."""
        self.ended += 1
        tallies = [self.tallies.of(name)]
        if second is not None:
            tallies.append(self.by_second.of(second))
        for tally in tallies:
            if error:
                tally.errors[error] += 1
            else:
                tally.latencies.record(seconds)

    def close(self, now: float) -> None:
        """No operation begins from now on."""
        self.left = 0
        if self.gap:
            self.not_begun = max(0, int((now - self.began) / self.gap) - self.begun)


class Generator:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._calls = load.calls
        self._epoll = select.epoll()
        self._lines: dict[int, Line] = {}
        self._idle: deque[Line] = deque()
        self._broken: deque[tuple[float, Line]] = deque()  # and when to open them again
        for number in range(load.connections):
            self._opened(Line(number, load.address(number)))

    def warm_up(self, operations: int) -> None:
        """In a closed loop."""
        self._drive(_Round(seconds=0, operations=operations, per_second=0), lambda _: None, None)

    def run(self, report: Callable[[Progress], None], orders: int | None = None) -> Sample:
        """Until the time is up, so many operations are done, nothing is left to do, or something comes from `orders`;
        returns when every connection is at rest.
        """
        load = self._load
        this = _Round(seconds=load.seconds, operations=load.operations, per_second=load.per_second)
        self._drive(this, report, orders)
        lasted = time.perf_counter() - this.began
        return Sample(
            requests=this.requests,
            seconds=lasted,
            busy=1 - this.waited / lasted,
            tallies=this.tallies,
            by_second=this.by_second,
            not_begun=this.not_begun,
        )

    def _drive(self, this: _Round, report: Callable[[Progress], None], orders: int | None) -> None:
        clock = time.perf_counter
        report_at = clock() + _PROGRESS_SECONDS
        if orders is not None:
            self._epoll.register(orders, select.EPOLLIN)
        self._begin_due(this)
        while this.under_way or (this.left and (self._idle or self._broken)):
            for fd, _ in self._wait(this):
                line = self._lines.get(fd)
                if line is not None and self._heard(line, this):
                    self._begin_due(this)
                elif fd == orders:
                    self._epoll.unregister(fd)
                    this.until = clock()
            self._reopen()
            self._begin_due(this)
            now = clock()
            if this.left and now >= this.until:
                this.close(min(now, this.until))
            if now > report_at:
                report(Progress(this.ended))
                report_at = now + _PROGRESS_SECONDS

    def _wait(self, this: _Round) -> list[tuple[int, int]]:
        """The connections with something to read; none when there is something to begin, reopen or close.

        Unless it is patient, it asks again and again instead of sleeping: waking a sleeper on another core is paid by
        the server that answers it, although a client on another machine would cost it nothing.
        """
        began = time.perf_counter()
        try:
            return self._wait_from(began, this)
        finally:
            this.waited += time.perf_counter() - began

    def _wait_from(self, now: float, this: _Round) -> list[tuple[int, int]]:
        wake = this.until if this.left else float("inf")
        if this.left and this.gap and self._idle:
            wake = min(wake, this.due)
        if self._broken:
            wake = min(wake, self._broken[0][0])
        give_up = now + ANSWER_SECONDS
        while True:
            pause = max(0.0, min(wake - _AWAKE_SECONDS, give_up) - now) if self._load.patient else 0.0
            events = self._epoll.poll(pause)
            now = time.perf_counter()
            if events or now >= wake:
                return events
            if now > give_up:
                error = Failed(f"no answer for {ANSWER_SECONDS:.0f} s: {this.under_way} calls are waiting")
                for line in [each for each in self._lines.values() if each.busy]:
                    self._lost(line, this, error)
                return []

    def _begin_due(self, this: _Round) -> None:
        while self._idle and (meant := this.intended(time.perf_counter())) is not None:
            line = self._idle.popleft()
            data = self._calls.begin(line.number)
            if data is None:  # this connection has nothing more to do
                continue
            this.begin()
            line.busy = True
            line.size = 0
            line.began = meant
            try:
                line.send(data)
            except Broken as error:
                self._lost(line, this, error)

    def _heard(self, line: Line, this: _Round) -> bool:
        """Reads what is there, sends the operation's next request; whether the connection has become free."""
        try:
            ended = self._receive(line, this)
        except Failed as error:
            self._lost(line, this, error)
            return False
        if ended:
            line.busy = False
            self._idle.append(line)
        return ended

    def _receive(self, line: Line, this: _Round) -> bool:
        body = line.receive()
        if body is None:
            return False
        now = time.perf_counter()
        this.requests += 1
        part = self._calls.part(line.number)
        error = ""
        if is_error(body):
            error = error_name(body)
            if self._load.errors is Errors.FAIL:
                raise Failed(f"the server answered with an error: {error} {body[-300:]!r}")
            if self._load.errors is Errors.COUNT and now - this.succeeded > _ERRORS_SECONDS:
                raise Failed(f"nothing succeeds any more: {error} {body[-300:]!r}")
        else:
            line.size += len(body)
            following = self._calls.go_on(line.number, body)
            this.succeeded = now
            if following is not None:
                line.send(following)
                return False
            if line.size < part.least_bytes:
                raise Failed(f"an answer of {line.size} bytes, at least {part.least_bytes} were expected")
        second = int(now - this.began) if self._load.by_second else None
        this.end(part.name, now - line.began, error, second=second)
        return True

    def _opened(self, line: Line) -> None:
        self._lines[line.sock.fileno()] = line
        self._epoll.register(line.sock, select.EPOLLIN)
        self._idle.append(line)

    def _lost(self, line: Line, this: _Round, error: Failed) -> None:
        """Counts what was under way, and has the connection opened again; raises the error where that is not wanted."""
        if self._load.errors is not Errors.SURVIVE:
            raise error
        now = time.perf_counter()
        del self._lines[line.sock.fileno()]
        line.sock.close()  # which takes it out of the epoll
        if line.busy:
            name = "connection lost" if isinstance(error, Broken) else str(error).partition(":")[0]
            this.end(self._calls.part(line.number).name, now - line.began, name, second=int(now - this.began))
        else:
            self._idle.remove(line)
        self._broken.append((now + _REOPEN_SECONDS, line))

    def _reopen(self) -> None:
        while self._broken and self._broken[0][0] <= time.perf_counter():
            _, line = self._broken.popleft()
            try:
                line.open(self._load.address(line.number))
            except OSError:
                self._broken.append((time.perf_counter() + _REOPEN_SECONDS, line))
            else:
                self._opened(line)


def sampled(latencies: "array[float]", requests: int, seconds: float, cpu_seconds: float) -> Sample:
    """What came of operations that took so many seconds each, and together with what lay between them `seconds`."""
    tallies: Tallies[str] = Tallies(operation=Tally(Histogram.of(latencies)))
    return Sample(requests=requests, seconds=seconds, busy=cpu_seconds / seconds, tallies=tallies)


def serve(orders: BinaryIO, reports: BinaryIO) -> None:
    """One Load, start to end."""

    def report(message: object) -> None:
        pickle.dump(message, reports)
        reports.flush()

    try:
        load: Load = pickle.load(orders)
        generator = Generator(load)
        if load.warm_operations:
            generator.warm_up(max(load.warm_operations, load.connections))
        gc.collect()
        gc.disable()
        report(Ready())
        if os.read(orders.fileno(), 1) == GO:  # past the buffer, so that epoll sees what comes next
            report(generator.run(report, orders.fileno()))
    except (Failed, OSError) as error:
        report(Failure(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    from bench.client import serve  # so that what it sends is known by this module's name, not as __main__

    serve(sys.stdin.buffer, sys.stdout.buffer)
