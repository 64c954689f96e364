"""AppScale's table of primitive operations: puts, gets, deletes, no-ops and whole-table queries by each of 1, 3 and 9
threads (Bunch et al., 2010). A thread here is a connection that waits for each answer.

Each thread puts entities of its own, gets them and deletes them again, so a query finds the table that was filled in
at the start, and at times what other threads have put.
"""

import os
from collections import Counter
from functools import cache, partial
from statistics import fmean, stdev
from typing import Any

from bench import data
from bench.calls import Calls, Cycle, InOrder, WholeQuery, request
from bench.client import Errors, Load, Sample
from bench.measure import LoadFailed
from bench.published import APPSCALE
from bench.run import Run
from bench.served import Served, on_each_store, served
from protos import datastore_v3_pb2 as v3

NAME = "appscale"
OPERATIONS = ("put", "get", "delete", "no-op", "query")


def run(bench: Run) -> None:
    on_each_store(bench, lambda store: _one(bench, store))


def _one(bench: Run, store: str) -> None:
    kind = b"Item" + os.urandom(3).hex().encode()
    with served(bench, store) as place:
        place.call(data.puts(data.entities(kind, bench.scale.table.entities)))
        for threads in bench.scale.table.threads:
            _threads(bench, place, kind, threads)


def _threads(bench: Run, place: Served, kind: bytes, threads: int) -> None:
    measured = cache(partial(_repeats, bench, place, kind, threads))  # once, and only if it is not there already
    for operation in OPERATIONS:
        name = f"{place.store}: {operation}, {threads} threads"
        found = bench.once(NAME, name, lambda: {**place.named, **facts(measured(), operation, threads)})  # noqa: B023
        if threads == max(bench.scale.table.threads):
            limit = APPSCALE.seconds[operation].low * 1e3
            bench.at_most(NAME, f"{name}, the paper's mean", found["mean_ms"], limit, unit="ms")


def _repeats(bench: Run, place: Served, kind: bytes, threads: int) -> list[Sample]:
    table = bench.scale.table

    def calls(number: int, of: int) -> Calls:
        mine = range(number, threads, of)
        return InOrder([_of_thread(kind, each, table.thread_operations, table.entities) for each in mine])

    load = Load(connections=threads, calls=calls(0, 1), warm_operations=0, errors=Errors.COUNT)
    title = f"{NAME}: {place.store}, {threads} threads"
    operations = threads * (4 * table.thread_operations + _queries(table.thread_operations))
    return [
        place.measure(bench, f"{title}, {number + 1} of {table.repeats}", load, calls, operations)
        for number in range(table.repeats)
    ]


def _of_thread(kind: bytes, thread: int, count: int, entities: int) -> list[tuple[Calls, int]]:
    """What one thread does, in this order."""
    first = (thread + 1) * 1_000_000
    keys = [data.reference(kind, first + number) for number in range(count)]
    stored = data.entities(kind, count, first)
    query = WholeQuery(
        [request(b"RunQuery", data.kind_query(kind, entities + 100 * count))],
        count=entities,
        least_bytes=entities * data.ENTITY_BYTES,
        name="query",
    )
    gets = [request(b"Get", v3.GetRequest(key=[key])) for key in keys]
    deletes = [request(b"Delete", v3.DeleteRequest(key=[key])) for key in keys]
    return [
        (Cycle([*data.puts(stored, at_once=1)], name="put"), count),
        (Cycle(gets, least_bytes=data.ENTITY_BYTES, name="get"), count),
        (Cycle(deletes, name="delete"), count),
        (Cycle([data.touch()], name="no-op"), count),
        (query, _queries(count)),
    ]


def _queries(count: int) -> int:
    return max(1, count // 10)


def facts(measured: list[Sample], operation: str, threads: int) -> dict[str, Any]:
    """The mean of the repeats' means, and their deviation from it. Raises LoadFailed if none succeeded in one."""
    tallies = [sample.tallies.of(operation) for sample in measured]
    errors = sum((tally.errors for tally in tallies), Counter[str]())
    if not all(tally.latencies.count for tally in tallies):
        raise LoadFailed(f"no {operation} succeeded: {dict(errors)}")
    means = [tally.latencies.mean * 1e3 for tally in tallies]
    return {
        "threads": threads,
        "operation": operation,
        "mean_ms": round(fmean(means), 3),
        "deviation_ms": round(stdev(means), 3) if len(means) > 1 else 0.0,
        "repeats": len(measured),
        "per_second": round(threads / fmean(means) * 1e3, 1),
        "operations": sum(tally.latencies.count for tally in tallies),
        "errors": dict(errors),
        "generator_busy": round(max(sample.busy for sample in measured), 3),
    }
