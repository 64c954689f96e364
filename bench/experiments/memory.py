"""Memory of one worker: idle, and after many calls that change no amount of data.

Resident memory counts the store's pages that were touched, so what is not of a file is measured too: that is what a
leak would make grow. Growth counts from the end of the first tenth, when every thread and cache has been used.
"""

from bench import data, server
from bench.calls import Cycle, Mix, WholeQuery, request
from bench.client import Load
from bench.run import Run, Subject
from bench.server import Memory

NAME = "memory"
KIND = b"Thing"
STORED = 1000
LEAST_MIB = 2.0  #: growth below this is the allocator's, not a leak: two bytes a call in the full run


def run(bench: Run) -> None:
    total = bench.scale.memory_operations
    with server.pbserver(f"lmdb:{bench.directory / 'store'}?durability=none", bench.server_core) as ours:
        idle = ours.memory()
        bench.record(NAME, "idle worker", start_seconds=round(ours.start_seconds, 2), **mib(idle))
        ours.call(data.puts(data.entities(KIND, STORED)))
        seen = []
        for name, operations in (("first", total // 10), ("other", total - total // 10)):
            load = Load(port=ours.port, connections=9, calls=mix(), operations=operations, warm_operations=0)
            figures = bench.measure(f"{NAME}: the {name} {operations:,} operations", Subject(ours, load))
            seen.append(ours.memory())
            title = f"after the {name} {operations:,} operations"
            bench.record(NAME, title, cpu_us=round(figures.cpu_us, 1), requests=figures.requests, **mib(seen[-1]))
    grown = Memory(seen[1].rss - seen[0].rss, seen[1].private - seen[0].private)
    bench.record(NAME, "growth", **mib(grown))
    bench.at_most(NAME, "idle worker, resident", idle.rss / 2**20, 60, unit="MiB")
    name = f"growth over {total:,} calls, without pages of files"
    bench.at_most(NAME, name, grown.private / 2**20, LEAST_MIB, unit="MiB")


def mix() -> Mix:
    """50 gets, 30 puts over what is there, 20 queries of 20 entities in two answers."""
    stored = data.entities(KIND, STORED)
    puts = Cycle([*data.puts(stored, at_once=1)])
    queries = WholeQuery([request(b"RunQuery", data.kind_query(KIND, 20, count=10))], count=10)
    return Mix([Cycle(data.gets(KIND, STORED)), puts, queries], [50, 30, 20])


def mib(memory: Memory) -> dict[str, float]:
    return {"rss_mib": round(memory.rss / 2**20, 1), "private_mib": round(memory.private / 2**20, 2)}
