"""50 gets, 30 puts and 20 whole-table queries of every 100 operations, drawn in a fixed order, by nine threads: on one
key, where all of them meet, and on a table of many.
"""

import os
import random
from functools import cache, partial
from typing import Any

from bench import data
from bench.calls import Calls, Cycle, Mix, WholeQuery, request
from bench.client import Errors, Load, Sample
from bench.run import Run
from bench.served import Served, on_each_store, served

NAME = "mixed"
THREADS = 9
SHARES = {"get": 50, "put": 30, "query": 20}
EVERYTHING = "all"
MOST_ERRORS_PERCENT = 1


def run(bench: Run) -> None:
    on_each_store(bench, lambda store: _one(bench, store))


def _one(bench: Run, store: str) -> None:
    with served(bench, store) as place:
        for keys in (1, bench.scale.table.entities):
            measured = cache(partial(_measured, bench, place, keys))  # once, and only if it is not there already
            title = f"{place.store}: on {keys:,} key{'s' if keys > 1 else ''}"
            for operation in (EVERYTHING, *SHARES):
                named = {**place.named, "keys": keys, "threads": THREADS, "operation": operation}
                found = bench.once(NAME, f"{title}, {operation}", lambda: {**named, **facts(measured(), operation)})  # noqa: B023
                if operation == EVERYTHING:
                    failed = sum(found["errors"].values())
                    share = 100 * failed / (failed + found["operations"])
                    bench.at_most(NAME, f"{title}, errors", share, MOST_ERRORS_PERCENT, unit="%")


def _measured(bench: Run, place: Served, keys: int) -> Sample:
    kind = b"Mixed" + os.urandom(3).hex().encode()
    place.call(data.puts(data.entities(kind, keys)))

    def calls(number: int, of: int) -> Calls:
        del of
        return mix(kind, keys, seed=number)

    operations = bench.scale.table.mixed_operations
    load = Load(connections=THREADS, calls=calls(0, 1), operations=operations, warm_operations=0, errors=Errors.COUNT)
    return place.measure(bench, f"{NAME}: {place.store}, {keys:,} keys", load, calls)


def mix(kind: bytes, keys: int, seed: int) -> Mix:
    """Over the whole of a kind."""
    stored = data.entities(kind, keys)
    random.Random(seed).shuffle(stored)
    query = WholeQuery(
        [request(b"RunQuery", data.kind_query(kind, keys))],
        count=keys,
        least_bytes=keys * data.ENTITY_BYTES,
        name="query",
    )
    parts: list[Calls] = [
        Cycle(data.gets(kind, keys), least_bytes=data.ENTITY_BYTES, name="get"),
        Cycle([*data.puts(stored, at_once=1)], name="put"),
        query,
    ]
    return Mix(parts, [SHARES[part.name] for part in parts], seed=seed)


def facts(sample: Sample, operation: str) -> dict[str, Any]:
    tally = sample.all if operation == EVERYTHING else sample.tallies.of(operation)
    return {
        **tally.latencies.milliseconds(),
        "per_second": round(tally.latencies.count / sample.seconds, 1),
        "operations": tally.latencies.count,
        "errors": dict(tally.errors),
        "generator_busy": round(sample.busy, 3),
    }
