"""A merge join of two equality filters, in a small and in a large store of the same density.

One entity in ten has the wanted value of each property, so one in a hundred matches: 20 results take the same skips
in both stores.
"""

import random
from contextlib import ExitStack

from bench import data, server
from bench.calls import Cycle, request
from bench.client import Load
from bench.run import Run, Subject
from bench.stored import load
from protos import datastore_v3_pb2 as v3

NAME = "join"
KIND = b"Row"
LIMIT = 20
SMALL = 10_000
_VALUES = 10


def run(bench: Run) -> None:
    large = bench.scale.large_entities
    sizes = {f"{SMALL:,} entities": SMALL, f"{large:,} entities": large}
    with ExitStack() as stack:
        subjects = {}
        for name, count in sizes.items():
            url = f"lmdb:{bench.directory / str(count)}?durability=none"
            with bench.step(f"{NAME}: loading {name}", count) as step, server.on_core(bench.server_core):
                load(url, KIND, count, step, two_values)
            ours = stack.enter_context(server.pbserver(url, bench.server_core))
            calls = Cycle(queries(), least_bytes=20 * LIMIT)
            subjects[name] = Subject(
                ours, Load(port=ours.port, connections=1, calls=calls, seconds=bench.scale.seconds)
            )
        found = [*bench.compare(NAME, subjects, by="p50_us").values()]
    ratio = found[1].p50_us / found[0].p50_us
    bench.at_most(NAME, f"merge join, limit 20, time at {large:,} entities / {SMALL:,}", ratio, 3)


def two_values(randomly: random.Random) -> dict[bytes, int]:
    return {b"first": randomly.randrange(_VALUES), b"second": randomly.randrange(_VALUES)}


def queries() -> list[bytes]:
    """Every pair of values."""
    pairs = [(first, second) for first in range(_VALUES) for second in range(_VALUES)]
    return [request(b"RunQuery", query(*pair)) for pair in pairs]


def query(first: int, second: int) -> v3.Query:
    message = v3.Query(app=data.APP, kind=KIND, limit=LIMIT, count=LIMIT)
    for name, value in ((b"first", first), (b"second", second)):
        added = message.filter.add(op=v3.Query.Filter.EQUAL).property.add(name=name, multiple=False)
        added.value.int64_value = value
    return message
