"""One measurement: a load generator on its core, a server on the other, and what the server's worker spent on it."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from bench.client import GO, STOP, Failure, Load, Progress, Ready, Sample
from bench.server import ROOT, Server, on_core

_STOP_SECONDS = 10.0


class LoadFailed(Exception):
    """The load generator met a wrong answer, or died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """CPU is the server's worker's, user and system, per operation; latencies are those of whole operations."""

    cpu_us: float
    per_second: float
    p50_us: float
    p90_us: float
    p99_us: float
    operations: int
    requests: int
    seconds: float
    generator_busy: float

    def __str__(self) -> str:
        rate = f"{self.cpu_us:,.1f} us CPU, {self.per_second:,.0f}/s"
        return f"{rate}, p50 {self.p50_us:,.0f} us, p99 {self.p99_us:,.0f} us, {self.operations:,} operations"

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 3) for name, value in asdict(self).items()}


class Generator:
    """A load generator's process, warm after `with`; `finish` starts what was not started and waits for the end."""

    def __init__(self, load: Load, core: int) -> None:
        self._load = load
        self._started = False
        with on_core(core):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.client"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )

    def __enter__(self) -> Self:
        try:
            self._send(pickle.dumps(self._load))
            ready = self._receive()
            assert isinstance(ready, Ready)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self._started = True
        self._send(GO)

    def halt(self) -> None:
        """What is under way is finished, and nothing else begun."""
        with suppress(LoadFailed):  # it has ended: `finish` knows how
            self._send(STOP)

    def finish(self, on_progress: Callable[[int], None] = lambda operations: None) -> Sample:
        """Raises LoadFailed."""
        if not self._started:
            self.start()
        while True:
            message = self._receive()
            if isinstance(message, Sample):
                return message
            assert isinstance(message, Progress)
            on_progress(message.operations)

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_STOP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise LoadFailed("the load generator ended; its error is above") from None

    def _receive(self) -> object:
        assert self._process.stdout is not None
        try:
            message: object = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise LoadFailed("the load generator ended; its error is above") from None
        if isinstance(message, Failure):
            raise LoadFailed(message.reason)
        return message


def measure(server: Server, load: Load, core: int, on_progress: Callable[[int], None] = lambda _: None) -> Figures:
    """Runs `load` against `server`, which does nothing else meanwhile."""
    with Generator(load, core) as generator:
        before = server.cpu_seconds()
        sample = generator.finish(on_progress)
        spent = server.cpu_seconds() - before
    return figures(sample, spent)


def figures(sample: Sample, cpu_seconds: float) -> Figures:
    latencies = sample.all.latencies
    return Figures(
        cpu_us=cpu_seconds / latencies.count * 1e6,
        per_second=latencies.count / sample.seconds,
        p50_us=latencies.at(0.5) * 1e6,
        p90_us=latencies.at(0.9) * 1e6,
        p99_us=latencies.at(0.99) * 1e6,
        operations=latencies.count,
        requests=sample.requests,
        seconds=sample.seconds,
        generator_busy=sample.busy,
    )


def best(rounds: Sequence[Figures], of: str) -> Figures:
    """The least disturbed of several rounds: what else a machine does only ever adds time and takes rate."""
    choose = max if of == "per_second" else min
    return choose(rounds, key=lambda each: getattr(each, of))
