"""How long a get takes while two other clients run queries of 1,000 entities without a pause."""

from bench import data, server
from bench.calls import Cycle
from bench.client import Load
from bench.experiments.limits import KIND, query_load
from bench.measure import Figures, Generator, best
from bench.run import Run, Subject
from bench.server import Server

NAME = "latency"
OTHERS = 2


def run(bench: Run) -> None:
    count = bench.scale.query_entities
    with server.pbserver(f"lmdb:{bench.directory / 'store'}?durability=none", bench.server_core) as ours:
        ours.call(data.puts(data.entities(KIND, count)))
        calls = Cycle(data.gets(KIND, count), least_bytes=data.ENTITY_BYTES)
        load = Load(port=ours.port, connections=1, calls=calls, seconds=bench.scale.seconds)
        alone: list[Figures] = []
        beside: list[Figures] = []
        for _ in range(bench.scale.rounds):
            alone.append(bench.measure(f"{NAME}: gets alone", Subject(ours, load)))
            beside.append(disturbed(bench, ours, load))
    quiet, busy = best(alone, "p50_us"), best(beside, "p50_us")
    for name, figures in (("get alone", quiet), (f"get beside {OTHERS} queries", busy)):
        bench.record(NAME, name, p50_us=figures.p50_us, p99_us=figures.p99_us, operations=figures.operations)
    bench.at_most(NAME, f"get beside {OTHERS} queries / alone, p50", busy.p50_us / quiet.p50_us, 10)


def disturbed(bench: Run, ours: Server, load: Load) -> Figures:
    """Gets while queries run; the server's CPU in it is that of both, so only latencies mean something."""
    long = query_load(ours, OTHERS, bench.scale.query_entities, seconds=3600)
    with Generator(long, bench.client_core) as others:
        others.start()
        return bench.measure(f"{NAME}: gets beside {OTHERS} queries", Subject(ours, load))
