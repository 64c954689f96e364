"""Gets and puts at an even rate while something is killed with kill -9 and comes back: what clients see, second by
second. On a cluster it is the last node, with its database and its PBServer; else one of several workers.

Clients are spread over all entry points, as behind a load balancer: a connection that breaks is opened again, and while
it cannot be, others take what it would have done.
"""

import os
import time
from collections import defaultdict
from typing import Any

from bench import data
from bench.calls import Calls, Cycle, Mix, request
from bench.client import Errors, Load, Sample
from bench.drive import Drive
from bench.run import Run
from bench.served import Served, Victim, on_each_store, served
from bench.server import ServerFailed
from protos import datastore_v3_pb2 as v3

NAME = "faults"
STORED = 200
CONNECTIONS = 24
MOST_EMPTY_SECONDS = 10  # Galera, for one, waits five before it goes on without a node that is silent
_WORKERS = 3
_DEADLINE_SECONDS = 10  # of a call, so that those that were under way come to an end


def run(bench: Run) -> None:
    on_each_store(bench, lambda store: _one(bench, store))


def _one(bench: Run, store: str) -> None:
    with served(bench, store, workers=_WORKERS) as place:
        name = f"{place.store}: all"
        found = bench.once(NAME, name, lambda: _measured(bench, place))
    title = f"{place.store}: seconds in which nothing succeeded"
    bench.at_most(NAME, title, found["empty_seconds"], MOST_EMPTY_SECONDS, unit="s")


def _measured(bench: Run, place: Served) -> dict[str, Any]:
    if place.victim is None:
        raise ServerFailed("nothing here can be killed; give a store or a cluster")
    kind = b"Fault" + os.urandom(3).hex().encode()
    place.call(data.puts(data.entities(kind, STORED)))

    def calls(number: int, of: int) -> Calls:
        del of
        return mix(kind, seed=number)

    load = Load(
        connections=CONNECTIONS,
        calls=calls(0, 1),
        per_second=bench.scale.faults.per_second,
        errors=Errors.SURVIVE,
        by_second=True,
    )
    with place.drive(bench, load, calls) as drive:
        events = _play(bench, f"{NAME}: {place.store}", drive, place.victim)
        sample = drive.finish()
    seconds = lines(sample, events)
    for each in seconds:
        values = {**place.named, **each}
        bench.results.measurement(NAME, f"{place.store}: second {each['second']}", values)
    every = sample.all
    return {
        **place.named,
        "operations": every.latencies.count,
        "errors_by_answer": dict(every.errors),
        "not_begun": sample.not_begun,
        **every.latencies.milliseconds(),
        "most_ms": round(every.latencies.most * 1e3, 1),
        "empty_seconds": sum(not each["operations"] for each in seconds),
    }


def mix(kind: bytes, seed: int) -> Mix:
    stored = data.entities(kind, STORED)
    puts = [request(b"Put", v3.PutRequest(entity=[each]), _DEADLINE_SECONDS) for each in stored]
    keys = [data.reference(kind, number + 1) for number in range(STORED)]
    gets = [request(b"Get", v3.GetRequest(key=[key]), _DEADLINE_SECONDS) for key in keys]
    parts: list[Calls] = [Cycle(gets, least_bytes=data.ENTITY_BYTES, name="get"), Cycle(puts, name="put")]
    return Mix(parts, [50, 50], seed=seed)


def _play(bench: Run, title: str, drive: Drive, victim: Victim) -> dict[int, str]:
    """Kills and brings back while the load runs, and ends it; what was done in which second."""
    third = bench.scale.faults.seconds / 3
    events: defaultdict[int, list[str]] = defaultdict(list)
    with bench.step(title, 3 * third) as step:
        drive.start()
        began = time.monotonic()

        def wait(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (now := time.monotonic()) < until:
                step(now - began)
                time.sleep(min(0.25, until - now))

        def note(event: str) -> None:
            events[int(time.monotonic() - began)].append(event)
            bench.say(f"[dim]{title}: {event}")

        wait(third)
        note(victim.kill())
        if not victim.returns:
            wait(third)
            note("it is started again")
        note(victim.bring_back())
        wait(2 * third if victim.returns else third)
        drive.halt()
    return {second: "; ".join(found) for second, found in events.items()}


def lines(sample: Sample, events: dict[int, str]) -> list[dict[str, Any]]:
    """Every whole second."""
    found = []
    for second in range(int(sample.seconds)):
        tally = sample.by_second.of(second)
        latencies = tally.latencies
        found.append(
            {
                "second": second,
                "operations": latencies.count,
                "errors": tally.failed,
                "p50_ms": round(latencies.at(0.5) * 1e3, 3) if latencies.count else None,
                "p99_ms": round(latencies.at(0.99) * 1e3, 3) if latencies.count else None,
                "event": events.get(second),
            }
        )
    return found
