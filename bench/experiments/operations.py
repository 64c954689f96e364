"""Get and put of one entity on LMDB, in no-ops of the same run.

The put stores a new entity under a complete key: the entity, its kind row and twenty property rows are the 22 rows of
the target; the kindless row and the head of its entity group come on top. Its values are random, so its rows land all
over the index.
"""

from bench import data, server
from bench.calls import Calls, Cycle, Fresh
from bench.client import Load
from bench.run import Run, Subject

NAME = "operations"
CONNECTIONS = 9
STORED = 1000


def run(bench: Run) -> None:
    with server.pbserver(f"lmdb:{bench.directory / 'store'}?durability=none", bench.server_core) as ours:
        ours.call(data.puts(data.entities(b"Stored", STORED)))
        loads: dict[str, Calls] = {
            "no-op": Cycle([data.touch()]),
            "get": Cycle(data.gets(b"Stored", STORED), least_bytes=data.ENTITY_BYTES),
            "put, 22 rows": Fresh(data.single_puts(b"Fresh", 500)),
        }
        subjects = {
            name: Subject(ours, Load(port=ours.port, connections=CONNECTIONS, calls=calls, seconds=bench.scale.seconds))
            for name, calls in loads.items()
        }
        found = bench.compare(NAME, subjects)
    noop = found["no-op"].cpu_us
    bench.at_most(NAME, "get / no-op", found["get"].cpu_us / noop, 2.5)
    bench.at_most(NAME, "put of 22 rows, not synced / no-op", found["put, 22 rows"].cpu_us / noop, 10)
