"""What the front end costs: a call that does nothing, beside a tornado RequestHandler that does the same."""

from bench import data, server
from bench.calls import Cycle
from bench.client import Load
from bench.run import Run, Subject

NAME = "noop"


def run(bench: Run) -> None:
    store = f"lmdb:{bench.directory / 'store'}?durability=none"
    with server.pbserver(store, bench.server_core) as ours, server.tornado(bench.server_core) as tornado:
        subjects = {}
        for connections in bench.scale.connections:
            for name, process in (("pbserver", ours), ("tornado", tornado)):
                calls = Cycle([data.touch()])
                load = Load(port=process.port, connections=connections, calls=calls, seconds=bench.scale.seconds)
                subjects[f"{name} at {connections}"] = Subject(process, load)
        found = bench.compare(NAME, subjects)
    ratio = found["tornado at 9"].cpu_us / found["pbserver at 9"].cpu_us
    bench.at_least(NAME, "no-op at 9 connections, tornado / ours", ratio, 10)
    few, many = bench.scale.connections[-2:]
    ratio = found[f"pbserver at {many}"].cpu_us / found[f"pbserver at {few}"].cpu_us
    bench.at_most(NAME, f"no-op, {many} connections / {few}", ratio, 1.5)
