"""What takes turns in being measured: a PBServer over its socket, and sides that work in this process."""

import gc
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from bench import data, server
from bench.client import Load, sampled
from bench.clusters.work import Side, Work, calls, carry_out, check
from bench.measure import Figures, figures
from bench.measure import measure as measure_load
from bench.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`count` operations are measured, after `warm` others."""

    name: str
    count: int
    warm: int

    @property
    def total(self) -> int:
        return self.warm + self.count


@dataclass(frozen=True, slots=True)
class Remote:
    """One operation on a PBServer."""

    server: Server
    work: Work
    operation: Operation
    connections: int = 1

    @property
    def extent(self) -> float:
        return self.operation.count

    def measure(self, core: int, on_progress: Callable[[float], None]) -> Figures:
        round_ = self.work.round(self.operation.name, self.operation.total)
        self.server.call(data.puts([thing.message for thing in round_.before], at_once=20))
        load = Load(
            port=self.server.port,
            connections=1,
            calls=calls(round_.steps),
            operations=self.operation.count,
            warm_operations=self.operation.warm,
            patient=True,
        )
        return measure_load(self.server, load, core, on_progress)


@dataclass(frozen=True, slots=True)
class Local:
    """One operation by a side, on the core where a PBServer would be. CPU is this process's."""

    side: Side
    work: Work
    operation: Operation
    own_core: int
    connections: int = 1

    @property
    def extent(self) -> float:
        return self.operation.count

    def measure(self, core: int, on_progress: Callable[[float], None]) -> Figures:
        del core, on_progress  # who works here has no time to report
        round_ = self.work.round(self.operation.name, self.operation.total)
        with server.on_core(self.own_core):
            for thing in round_.before:
                self.side.insert(thing)
            for step in round_.steps[: self.operation.warm]:
                check(step, carry_out(step, self.side))
            latencies = array("f")
            gc.collect()
            gc.disable()
            try:
                cpu, began = time.process_time(), time.perf_counter()
                for step in round_.steps[self.operation.warm :]:
                    at = time.perf_counter()
                    result = carry_out(step, self.side)
                    latencies.append(time.perf_counter() - at)
                    check(step, result)
                lasted, spent = time.perf_counter() - began, time.process_time() - cpu
            finally:
                gc.enable()
        return figures(sampled(latencies, len(latencies), lasted, spent), spent)
