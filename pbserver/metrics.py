"""Counters in memory that the processes share: workers count, the admin process adds up.

One anonymous mapping is made before the forks, with one slab per worker and in it one row of cells per thread: a cell
has one writer, so no increment is lost and none needs a lock. A worker that is replaced counts on where the last one
stopped. Every cell is a double, exact up to 2**53.
"""

import mmap
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Upper bounds of the latency buckets, in seconds; one more bucket takes the rest.
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
_WIDTH = len(BUCKETS) + 1
_CELL_BYTES = 8
_STATE_CELLS = 8
_PID, _RESTARTS, _HEARTBEAT, _CONNECTIONS = range(4)


class WorkerMetrics:
    """One worker's slab. The supervisor writes pid and restarts, the worker everything else."""

    def __init__(self, cells: "memoryview[float]", calls: int, outcomes: int, rows: int) -> None:
        self._cells = cells
        self._calls = calls
        self._outcomes = outcomes
        self._rows = rows
        self._row_cells = row_cells(calls, outcomes)
        self._claimed = 0
        self._lock = threading.Lock()
        self._own = threading.local()

    def observe(self, call: int, outcome: int, seconds: float) -> None:
        """Counts one call, by the positions of its name and outcome in the lists Metrics was made with."""
        try:
            row = self._own.row
        except AttributeError:
            row = self._claim_row()
        cells = self._cells
        cells[row + call] += seconds
        cells[row + self._calls + (call * self._outcomes + outcome) * _WIDTH + bisect_left(BUCKETS, seconds)] += 1.0

    def _claim_row(self) -> int:
        """A row for the calling thread; those beyond the last share it, and may then lose an increment."""
        with self._lock:
            number = min(self._claimed, self._rows - 1)
            self._claimed += 1
        row: int = _STATE_CELLS + number * self._row_cells
        self._own.row = row
        return row

    def beat(self, connections: int) -> None:
        """Says that the store answered a moment ago, and how many clients are connected."""
        self._cells[_CONNECTIONS] = float(connections)
        self._cells[_HEARTBEAT] = time.monotonic()

    def count_connections(self, connections: int) -> None:
        self._cells[_CONNECTIONS] = float(connections)

    def has_started(self, pid: int) -> None:
        self._cells[_PID] = float(pid)

    def has_ended(self) -> None:
        self._cells[_PID] = self._cells[_HEARTBEAT] = self._cells[_CONNECTIONS] = 0.0

    def has_restarted(self) -> None:
        self._cells[_RESTARTS] += 1.0

    @property
    def pid(self) -> int:
        """0: there is no such process now."""
        return int(self._cells[_PID])

    @property
    def restarts(self) -> int:
        return int(self._cells[_RESTARTS])

    @property
    def connections(self) -> int:
        return int(self._cells[_CONNECTIONS])

    @property
    def heartbeat(self) -> float:
        """time.monotonic() of the last check of the store that passed; 0: none yet."""
        return float(self._cells[_HEARTBEAT])

    def seconds(self, call: int) -> float:
        """Time spent in a call so far, over all threads."""
        return float(sum(self._cells[start + call] for start in self._row_starts()))

    def histogram(self, call: int, outcome: int) -> list[float]:
        """Calls so far per bucket (not cumulated), over all threads."""
        first = self._calls + (call * self._outcomes + outcome) * _WIDTH
        rows = [self._cells[start + first : start + first + _WIDTH] for start in self._row_starts()]
        return [float(sum(column)) for column in zip(*rows, strict=True)]

    def _row_starts(self) -> Iterator[int]:
        return (_STATE_CELLS + number * self._row_cells for number in range(self._rows))


def row_cells(calls: int, outcomes: int) -> int:
    """Cells of one thread: the seconds of each call, then a histogram for each call and outcome."""
    return calls + calls * outcomes * _WIDTH


class Metrics:
    """All workers' slabs. Make it before the forks; give `workers[i]` to worker i."""

    def __init__(self, calls: Sequence[str], outcomes: Sequence[str], *, workers: int, threads: int) -> None:
        self.calls = list(calls)
        self.outcomes = list(outcomes)
        rows = threads + 2  # the worker's main and background threads
        size = (_STATE_CELLS + rows * row_cells(len(calls), len(outcomes))) * _CELL_BYTES
        self._memory = mmap.mmap(-1, size * workers)
        whole = memoryview(self._memory)
        self.workers = [
            WorkerMetrics(whole[i * size : (i + 1) * size].cast("d"), len(calls), len(outcomes), rows)
            for i in range(workers)
        ]

    def collect(self) -> Iterable["Metric"]:
        """For a prometheus_client registry. Names and labels: pbserver_<noun>_<unit>; call, outcome."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        total = CounterMetricFamily("pbserver_calls", "Calls answered.", labels=["call", "outcome"])
        seconds = HistogramMetricFamily("pbserver_call_seconds", "Time from a call to its answer.", labels=["call"])
        for index, call in enumerate(self.calls):
            buckets = [0.0] * _WIDTH
            for number, outcome in enumerate(self.outcomes):
                counts = self._histogram(index, number)
                if any(counts):
                    total.add_metric([call, outcome], sum(counts))
                    buckets = [have + more for have, more in zip(buckets, counts, strict=True)]
            if any(buckets):
                spent = sum(worker.seconds(index) for worker in self.workers)
                seconds.add_metric([call], _cumulated(buckets), spent)
        yield total
        yield seconds
        live = [worker for worker in self.workers if worker.pid]
        connections = sum(worker.connections for worker in live)
        restarts = sum(worker.restarts for worker in self.workers)
        yield GaugeMetricFamily("pbserver_connections", "Open connections of clients.", value=connections)
        yield CounterMetricFamily("pbserver_worker_restarts", "Workers that were replaced.", value=restarts)
        yield GaugeMetricFamily("pbserver_workers", "Workers that are alive.", value=len(live))

    def _histogram(self, call: int, outcome: int) -> list[float]:
        each = [worker.histogram(call, outcome) for worker in self.workers]
        return [sum(column) for column in zip(*each, strict=True)]


def _cumulated(buckets: list[float]) -> list[tuple[str, float]]:
    """As Prometheus wants them: each bucket with all the ones below it."""
    bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
    return [(bound, sum(buckets[: place + 1])) for place, bound in enumerate(bounds)]
