"""`limit 20` on an indexed property in a small and in a large store: the time must not grow with the data.

Each query begins at another value, and neighbours in the index are far apart in the table of entities. Two stores, so
that the small one really is small.
"""

import random
from contextlib import ExitStack

from bench import data, server
from bench.calls import Cycle, request
from bench.client import Load
from bench.run import Run, Subject
from bench.stored import RANGE, load
from protos import datastore_v3_pb2 as v3

NAME = "limit"
KIND = b"Row"
LIMIT = 20
SMALL = 1000


def run(bench: Run) -> None:
    large = bench.scale.large_entities
    sizes = {f"{SMALL:,} entities": SMALL, f"{large:,} entities": large}
    with ExitStack() as stack:
        subjects = {}
        for name, count in sizes.items():
            url = f"lmdb:{bench.directory / str(count)}?durability=none"
            with bench.step(f"{NAME}: loading {name}", count) as step, server.on_core(bench.server_core):
                load(url, KIND, count, step)
            ours = stack.enter_context(server.pbserver(url, bench.server_core))
            calls = Cycle(queries(), least_bytes=20 * LIMIT)
            subjects[name] = Subject(
                ours, Load(port=ours.port, connections=1, calls=calls, seconds=bench.scale.seconds)
            )
        found = [*bench.compare(NAME, subjects, by="p50_us").values()]
    ratio = found[1].p50_us / found[0].p50_us
    bench.at_most(NAME, f"limit 20, time at {large:,} entities / {SMALL:,}", ratio, 1.5)
    bench.record(NAME, "CPU, large / small", ratio=round(found[1].cpu_us / found[0].cpu_us, 3))


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
