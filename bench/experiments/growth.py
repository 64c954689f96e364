"""How the time of each operation grows with the data: the exponent of a power of the number of entities.

0: it does not grow. 1: it grows as the data does, as in the papers' design, which fetched the whole table for every
query. Measured from 1,000 entities on, in steps of ten, each number in a store of its own; the exponent is the slope of
the line that fits best when both axes are logarithms. Judged by the server's CPU: at one connection to a store in
memory that is all that grows, and other work on the machine moves it least.

Entities have three indexed integers; one is different in nearly all of them, two have five values each, so that one
entity in 25 matches a merge join whatever the store's size. Every query begins at another value.
"""

import math
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import linear_regression

from bench import data, server
from bench.calls import NAME as KEY_NAME
from bench.calls import Calls, Cycle, Fresh, request
from bench.client import Load
from bench.measure import Figures
from bench.run import Measurable, Run, Subject
from bench.stored import RANGE, VALUES, entity, load
from protos import datastore_v3_pb2 as v3

NAME = "growth"
KIND = b"Row"
LEAST = 1000
LIMIT = 20
WHOLE = "query of 1,000"
#: The exponent that an operation may have. 0.06: half as much again at a thousand times the data; 0.1: twice as much.
#: A count looks at every row, so there it is 1.
MOST = {"get": 0.06, "put": 0.1, "limit 20": 0.06, "merge join": 0.1, WHOLE: 0.06, "count": 1.05}
_SHARE = 0.5  # of a measurement's seconds: there are many
_MIXED = 200  # requests of one sort that are drawn
_WARM = {WHOLE: 20, "count": 2}  # operations before; of the others one of each request, so that its pages are there


def run(bench: Run) -> None:
    counts = sizes(bench.asked.most or bench.scale.large_entities)
    subjects: dict[str, Measurable] = {}
    named: dict[str, tuple[int, str]] = {}
    with ExitStack() as stack:
        for count in counts:
            url = f"lmdb:{bench.directory / str(count)}?durability=none"
            title = f"{NAME}: loading {count:,} entities"
            with bench.step(title, count) as step, server.on_core(bench.server_core):
                load(url, KIND, count, step)
            ours = stack.enter_context(server.pbserver(url, bench.server_core))
            seconds = _SHARE * bench.scale.seconds
            for operation, calls in operations(count).items():
                name = f"{operation} at {count:,}"
                named[name] = (count, operation)
                sent = Load(
                    port=ours.port,
                    connections=1,
                    calls=calls,
                    seconds=seconds,
                    warm_operations=_WARM.get(operation, _MIXED),
                )
                subjects[name] = Subject(ours, sent)
        found = bench.compare(NAME, subjects)
    for operation, most in MOST.items():
        took = {count: found[name] for name, (count, of) in named.items() if of == operation}
        _judge(bench, operation, took, most)


def _judge(bench: Run, operation: str, took: Mapping[int, Figures], most: float) -> None:
    cpu_us = {count: round(each.cpu_us, 1) for count, each in took.items()}
    p50_us = {count: each.p50_us for count, each in took.items()}
    slope = exponent(cpu_us)
    bench.record(
        NAME,
        operation,
        operation=operation,
        exponent=round(slope, 3),
        p50_exponent=round(exponent(p50_us), 3),
        entities=[*took],
        cpu_us=[*cpu_us.values()],
        p50_us=[*p50_us.values()],
    )
    name = f"{operation}, exponent from {min(took):,} to {max(took):,} entities"
    bench.at_most(NAME, name, slope, most, unit="")


def sizes(most: int) -> list[int]:
    """LEAST, ten times as many, and so on up to `most`, which is the last."""
    steps = range(math.ceil(math.log10(max(most, 2 * LEAST) / LEAST) - 1e-9))
    return [*(LEAST * 10**step for step in steps), max(most, 2 * LEAST)]


def exponent(values: Mapping[int, float]) -> float:
    """Of the power of the number, the keys, that fits the values best."""
    return linear_regression([math.log(each) for each in values], [math.log(each) for each in values.values()]).slope


def operations(count: int) -> dict[str, Calls]:
    """What is asked of a store of `count` entities."""
    randomly = random.Random(4)
    numbers = [randomly.randrange(1, count + 1) for _ in range(_MIXED)]
    pairs = [(first, second) for first in range(VALUES) for second in range(VALUES)]
    puts = [v3.PutRequest(entity=[entity(KIND, KEY_NAME, randomly).SerializeToString()]) for _ in range(_MIXED)]
    everything = v3.Query(app=data.APP, kind=KIND)
    return {
        "get": Cycle([request(b"Get", v3.GetRequest(key=[data.reference(KIND, each)])) for each in numbers]),
        "put": Fresh([request(b"Put", each) for each in puts]),
        "limit 20": _queries([_from_value(randomly.randrange(RANGE * 9 // 10)) for _ in range(_MIXED)], LIMIT),
        "merge join": _queries([_join(*pair) for pair in pairs], LIMIT),
        WHOLE: _queries([data.kind_query(KIND, LEAST)], LEAST),
        "count": Cycle([request(b"Count", everything)]),
    }


def _queries(queries: Sequence[v3.Query], results: int) -> Cycle:
    return Cycle([request(b"RunQuery", each) for each in queries], least_bytes=20 * results)


def _from_value(start: int) -> v3.Query:
    """`where value >= X order by value limit 20`; even the smallest store has 20 behind X."""
    message = v3.Query(app=data.APP, kind=KIND, limit=LIMIT, count=LIMIT)
    low = message.filter.add(op=v3.Query.Filter.GREATER_THAN_OR_EQUAL).property.add(name=b"value", multiple=False)
    low.value.int64_value = start
    message.order.add(property=b"value")
    return message


def _join(first: int, second: int) -> v3.Query:
    message = v3.Query(app=data.APP, kind=KIND, limit=LIMIT, count=LIMIT)
    for name, value in ((b"first", first), (b"second", second)):
        added = message.filter.add(op=v3.Query.Filter.EQUAL).property.add(name=name, multiple=False)
        added.value.int64_value = value
    return message
