"""A query of a whole kind, 1,000 entities of 1.2 KB, beside Google's own in-process stub.

Ours is the server's whole work for RunQuery and the Next calls after it, HTTP included; the stub's is function calls
in one process. Each gives as many results in one answer as it likes: the stub 300.
"""

import json
import subprocess
import sys

from bench import data, server
from bench.calls import WholeQuery, first_cursor, request
from bench.client import Load
from bench.run import Run, Subject
from bench.server import ROOT, Server, on_core
from protos import datastore_v3_pb2 as v3
from protos import remote_api_pb2 as remote_api

NAME = "query"
KIND = b"Thing"


class StubFailed(Exception):
    """Google's stub could not be run."""


def run(bench: Run) -> None:
    count = bench.scale.query_entities
    with server.pbserver(f"lmdb:{bench.directory / 'store'}?durability=none", bench.server_core) as ours:
        ours.call(data.puts(data.entities(KIND, count)))
        if (found := whole_query(ours, count)) != count:
            raise StubFailed(f"{count} entities were stored, a query gives {found}")
        subjects = {f"pbserver at {n}": Subject(ours, query_load(ours, n, count, bench.scale.seconds)) for n in (1, 9)}
        figures = bench.compare(NAME, subjects)
        rounds = [stub_cpu_us(bench, count) for _ in range(bench.scale.rounds)]
    stub = min(rounds)
    bench.record(NAME, "Google's in-process stub", cpu_us=round(stub, 1), rounds_cpu_us=rounds)
    name = f"{count:,}-entity query, Google's stub / ours"
    bench.at_least(NAME, name, stub / figures["pbserver at 9"].cpu_us, 25)


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


def stub_cpu_us(bench: Run, count: int) -> float:
    """CPU of one query in Google's stub, in a process of its own on the server's core."""
    command = [sys.executable, "-m", "bench.google_stub", str(count), str(bench.scale.seconds)]
    with bench.step(f"{NAME}: Google's in-process stub", 1), on_core(bench.server_core):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StubFailed(f"bench.google_stub ended with {done.returncode}; it said:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout)["cpu_us"])
