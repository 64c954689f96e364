"""Several load generators at once that work as one, so that they are not what is measured."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from bench.calls import Calls
from bench.client import Load, Sample
from bench.measure import Generator
from bench.tally import Tallies


def shares(total: int, parts: int) -> list[int]:
    """`total` in whole, near equal parts."""
    return [total // parts + (number < total % parts) for number in range(parts)]


def split(load: Load, calls: Callable[[int, int], Calls], processes: int) -> list[Load]:
    """The load of each of so many generators, none of which has nothing to do.

    `calls`: what generator number N of so many sends, instead of the load's own.
    """
    processes = min(processes, load.connections, load.operations or load.connections)
    connections = shares(load.connections, processes)
    operations = shares(load.operations, processes)
    return [
        replace(
            load,
            connections=connections[number],
            operations=operations[number],
            warm_operations=load.warm_operations // processes,
            per_second=load.per_second * connections[number] / load.connections,
            addresses=[*load.addresses[number:], *load.addresses[:number]],
            calls=calls(number, processes),
        )
        for number in range(processes)
    ]


class Drive:
    """Generators, all of them warm after `with`. They stop at its end, whatever they do."""

    def __init__(self, loads: Sequence[Load], cores: Sequence[int]) -> None:
        self._generators = [Generator(load, cores[number % len(cores)]) for number, load in enumerate(loads)]
        self._pool = ThreadPoolExecutor(len(loads))
        self._stack = ExitStack()
        self._samples: list[Future[Sample]] = []
        self._done = [0] * len(loads)

    def __enter__(self) -> Self:
        self._stack.callback(self._pool.shutdown)  # last of all: the threads end with their generators
        try:
            for generator in self._generators:
                self._stack.callback(generator.stop)
            for generator in self._generators:
                generator.__enter__()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def start(self, on_progress: Callable[[int], None] = lambda operations: None) -> None:
        """`on_progress`: of all together, from other threads."""
        for generator in self._generators:
            generator.start()

        def watch(number: int) -> Sample:
            def progress(operations: int) -> None:
                self._done[number] = operations
                on_progress(sum(self._done))

            return self._generators[number].finish(progress)

        self._samples = [self._pool.submit(watch, number) for number in range(len(self._generators))]

    def halt(self) -> None:
        """What is under way is finished, and nothing else begun."""
        for generator in self._generators:
            generator.halt()

    def finish(self) -> Sample:
        """Waits for the end. Raises LoadFailed."""
        return together([each.result() for each in self._samples])


def together(samples: Sequence[Sample]) -> Sample:
    """As one generator would have measured it; how busy is that of the busiest."""
    tallies: Tallies[str] = Tallies()
    by_second: Tallies[int] = Tallies()
    for each in samples:
        tallies.add(each.tallies)
        by_second.add(each.by_second)
    return Sample(
        requests=sum(each.requests for each in samples),
        seconds=max(each.seconds for each in samples),
        busy=max(each.busy for each in samples),
        tallies=tallies,
        by_second=by_second,
        not_begun=sum(each.not_begun for each in samples),
    )
