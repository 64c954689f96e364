"""`limit 20` on an indexed property in a small and in a large store: the time must not grow with the data.

Each query begins at another value, and neighbours in the index are far apart in the table of entities.
"""

import random

from bench import data
from bench.calls import request
from bench.run import Run
from bench.sizes import KIND, compare
from bench.stored import RANGE
from protos import datastore_v3_pb2 as v3

NAME = "limit"
LIMIT = 20
SMALL = 1000


def run(bench: Run) -> None:
    few, many = compare(bench, NAME, SMALL, queries(), least_bytes=20 * LIMIT)
    name = f"limit 20, time at {bench.scale.large_entities:,} entities / {SMALL:,}"
    bench.at_most(NAME, name, many.p50_us / few.p50_us, 1.5)
    bench.record(NAME, "CPU, large / small", ratio=round(many.cpu_us / few.cpu_us, 3))


def queries() -> list[bytes]:
    """`where value >= X order by value limit 20` for many X; even the small store has 20 behind each."""
    randomly = random.Random(4)
    return [request(b"RunQuery", query(randomly.randrange(RANGE * 9 // 10))) for _ in range(1000)]


def query(start: int) -> v3.Query:
    message = v3.Query(app=data.APP, kind=KIND, limit=LIMIT, count=LIMIT)
    low = message.filter.add(op=v3.Query.Filter.GREATER_THAN_OR_EQUAL).property.add(name=b"value", multiple=False)
    low.value.int64_value = start
    message.order.add(property=b"value")
    return message
