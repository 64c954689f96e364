"""A merge join of two equality filters, in a small and in a large store of the same density.

One entity in ten has the wanted value of each property, so one in a hundred matches: 20 results take the same skips
in both stores.
"""

import random

from bench import data
from bench.calls import request
from bench.run import Run
from bench.sizes import KIND, compare
from protos import datastore_v3_pb2 as v3

NAME = "join"
LIMIT = 20
SMALL = 10_000
_VALUES = 10


def run(bench: Run) -> None:
    few, many = compare(bench, NAME, SMALL, queries(), least_bytes=20 * LIMIT, properties=two_values)
    name = f"merge join, limit 20, time at {bench.scale.large_entities:,} entities / {SMALL:,}"
    bench.at_most(NAME, name, many.p50_us / few.p50_us, 3)


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
