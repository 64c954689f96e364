"""How near to what is possible: CPU of a request at 1, 9 and 64 connections, beside yardsticks of the same run.

The no-op passes through everything but the store; beside it a plain tornado RequestHandler and, where Go is installed,
net/http, which do the same. Get, put and a query of a whole kind, 1,000 entities of 1.2 KB, stand beside Google's own
in-process stub. Ours is the server's whole work, HTTP and the Next calls of a query included; the stub's is function
calls in one process. Each gives as many results in one answer as it likes: the stub 300.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from bench import data, server
from bench.calls import Calls, Cycle, Fresh, WholeQuery, first_cursor, request
from bench.client import Load
from bench.measure import Figures
from bench.run import Measurable, Run, Subject
from bench.server import ROOT, Server, ServerFailed, on_core
from controller.engines import golang
from controller.engines.tools import EngineError
from controller.engines.tools import run as run_tool
from protos import datastore_v3_pb2 as v3
from protos import remote_api_pb2 as remote_api

NAME = "limits"
KIND = b"Thing"
OURS, TORNADO, GO, STUB = "pbserver", "tornado", "Go net/http", "Google's stub"
NOOP = "no-op"
#: How many times our CPU the yardsticks take, at 9 connections: at least.
LEAST = {"get": 1.0, "put": 1.0, "query": 25.0}
#: What they may cost in no-ops, at 9 connections: at most. A put stores 22 rows and the head of its entity group.
MOST = {"get": 2.5, "put": 10.0}
_GO_SERVER = Path(__file__).parents[1] / "go_server"


class StubFailed(Exception):
    """Google's stub could not be run."""


def run(bench: Run) -> None:
    count = bench.scale.query_entities
    with ExitStack() as stack:
        store = f"lmdb:{bench.directory / 'store'}?durability=none"
        ours = stack.enter_context(server.pbserver(store, bench.server_core))
        ours.call(data.puts(data.entities(KIND, count)))
        if (found := whole_query(ours, count)) != count:
            raise StubFailed(f"{count} entities were stored, a query gives {found}")
        servers = {OURS: ours, TORNADO: stack.enter_context(server.tornado(bench.server_core))}
        if (program := go_program(bench)) is not None:
            servers[GO] = stack.enter_context(Server([], bench.server_core, program=str(program)))
        subjects: dict[str, Measurable] = {}
        for connections in bench.scale.connections:
            for who, process in servers.items():
                load = _load(bench, process, connections, Cycle([data.touch()]))
                subjects[f"{NOOP}, {who} at {connections}"] = Subject(process, load)
        for connections in bench.scale.connections[:-1]:
            for name, load in loads(bench, ours, connections, count).items():
                subjects[f"{name}, {OURS} at {connections}"] = Subject(ours, load)
        figures = bench.compare(NAME, subjects)
        rounds = [stub_cpu_us(bench, count) for _ in range(bench.scale.rounds)]
    for name, figure in figures.items():
        operation, _, rest = name.partition(", ")
        who, _, connections_text = rest.rpartition(" at ")
        _record(bench, operation, who, int(connections_text), figure.cpu_us)
    stub = {name: min(each[name] for each in rounds) for name in LEAST}
    for name, cpu_us in stub.items():
        _record(bench, name, STUB, 1, cpu_us)
    _judge(bench, figures, stub)


def _record(bench: Run, operation: str, who: str, connections: int, cpu_us: float) -> None:
    """What the page shows side by side."""
    values = {"operation": operation, "subject": who, "at": connections, "cpu_us": round(cpu_us, 1)}
    bench.results.measurement(NAME, f"CPU of {operation}, {who} at {connections}", values)


def _judge(bench: Run, figures: dict[str, Figures], stub: dict[str, float]) -> None:
    nine = next(each for each in bench.scale.connections if each >= 9)
    few, many = bench.scale.connections[-2:]
    ours = {n: figures[f"{NOOP}, {OURS} at {n}"].cpu_us for n in bench.scale.connections}
    tornado = figures[f"{NOOP}, {TORNADO} at {nine}"].cpu_us
    bench.at_least(NAME, f"no-op at {nine} connections, tornado / ours", tornado / ours[nine], 10)
    bench.at_most(NAME, f"no-op, {many} connections / {few}", ours[many] / ours[few], 1.5)
    if (go := figures.get(f"{NOOP}, {GO} at {nine}")) is not None:
        bench.record(NAME, f"no-op at {nine} connections, ours / {GO}", ratio=round(ours[nine] / go.cpu_us, 2))
    for name, limit in MOST.items():
        ratio = figures[f"{name}, {OURS} at {nine}"].cpu_us / ours[nine]
        bench.at_most(NAME, f"{name}, not synced / no-op", ratio, limit)
    for name, limit in LEAST.items():
        ratio = stub[name] / figures[f"{name}, {OURS} at {nine}"].cpu_us
        bench.at_least(NAME, f"{name}, Google's stub / ours", ratio, limit)


def loads(bench: Run, ours: Server, connections: int, count: int) -> dict[str, Load]:
    gets = Cycle(data.gets(KIND, count), least_bytes=data.ENTITY_BYTES)
    return {
        "get": _load(bench, ours, connections, gets),
        "put": _load(bench, ours, connections, Fresh(data.single_puts(b"Fresh", 500))),
        "query": query_load(ours, connections, count, bench.scale.seconds),
    }


def _load(bench: Run, process: Server, connections: int, calls: Calls) -> Load:
    return Load(port=process.port, connections=connections, calls=calls, seconds=bench.scale.seconds)


def query_load(ours: Server, connections: int, count: int, seconds: float) -> Load:
    """Whole queries of `count` entities, one after the other."""
    queries = [request(b"RunQuery", data.kind_query(KIND, count))]
    calls = WholeQuery(queries, count, least_bytes=count * data.ENTITY_BYTES)
    return Load(port=ours.port, connections=connections, calls=calls, seconds=seconds, warm_operations=20)


def whole_query(ours: Server, count: int) -> int:
    """How many entities the query gives, counted in the messages."""
    calls = WholeQuery([request(b"RunQuery", data.kind_query(KIND, count))], count)
    following: bytes | None = calls.begin(0)
    found = 0
    while following is not None:
        (answer,) = ours.call([following])
        result = v3.QueryResult.FromString(remote_api.Response.FromString(answer).response)
        assert result.HasField("cursor") == result.more_results == (first_cursor(answer) is not None)
        found += len(result.result)
        following = calls.go_on(0, answer)
    return found


def stub_cpu_us(bench: Run, count: int) -> dict[str, float]:
    """CPU of each call in Google's stub, in a process of its own on the server's core."""
    command = [sys.executable, "-m", "bench.google_stub", str(count), str(bench.scale.seconds)]
    with bench.step(f"{NAME}: Google's in-process stub", 1), on_core(bench.server_core):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StubFailed(f"bench.google_stub ended with {done.returncode}; it said:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def go_program(bench: Run) -> Path | None:
    """The Go yardstick, built with an installed Go; None where none is new enough. Raises ServerFailed."""
    root = golang.installed()
    if root is None:
        bench.say(f"[dim]{NAME}: no Go here, so nothing is measured of it")
        return None
    program = bench.directory / "go_server"
    environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
    build = [str(root / "bin" / "go"), "build", "-buildvcs=false", "-o", str(program), "."]
    try:
        with bench.step(f"{NAME}: building {GO}", 1):
            run_tool(build, _GO_SERVER, environment)
    except EngineError as error:
        raise ServerFailed(str(error)) from error
    return program
