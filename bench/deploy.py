"""`python -m bench.deploy [CLUSTER...]`: how long pbdeploy and the head take, on several machines.

The machines are network namespaces of this one with an sshd each, as in tests/hosts, so all of them share its cores.
Engines are fetched before, since how long that takes is the network's affair.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Annotated, Any

import pytest
import typer
from rich.console import Console

from bench import data, server
from bench.__main__ import RESULTS, measure
from bench.line import Address
from bench.result import Results
from bench.run import FULL, Run
from bench.server import ServerFailed
from controller.databases import recipe
from controller.engines import private
from controller.gateways import NAME as PBSERVER
from controller.gateways import PORT
from tests.hosts.site import Site, site

#: What an idle agent may take.
AGENT_SHARE, AGENT_MIB = 0.01, 60
_KIND = b"Deployed"
_IDLE_SECONDS = 60
_UP_SECONDS = 900
_BACK_SECONDS = 600
_POLL_SECONDS = 0.05
_CALL_SECONDS = 0.1  # between two calls of a client


@dataclass(frozen=True, slots=True)
class Raised:
    """A cluster to be raised: the database, and the role of each of its machines."""

    database: str
    roles: Sequence[str]


CLUSTERS = {
    "mysql-1": Raised("mysql", ["peer"]),
    "mysql-3": Raised("mysql", ["peer"] * 3),
    "mongodb-1": Raised("mongodb", ["peer"]),
    "cassandra-1": Raised("cassandra", ["peer"]),
    "cassandra-3": Raised("cassandra", ["peer"] * 3),
    "hbase-3": Raised("hbase", ["master", "slave", "slave"]),
}


class Client:
    """An app server at one entry point that puts one entity after the other, for as long as it is open.

    `longest`: the seconds of the longest time without an acknowledgement since `begin`; `last`: when the last came.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.first = 0.0  #: when the first entity was stored, monotonic; 0: not yet
        self.last = 0.0
        self._longest = 0.0

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self) -> None:
        self._longest, self.last = 0.0, time.monotonic()

    @property
    def longest(self) -> float:
        return max(self._longest, time.monotonic() - self.last)

    def _run(self) -> None:
        number, values = 0, random.Random(0)
        while not self._over.wait(_CALL_SECONDS if self.first else _POLL_SECONDS):
            number += 1
            entity = data.entity(_KIND, number, values)
            with suppress(ServerFailed):
                server.call(self._address, data.puts([entity]))
                now = time.monotonic()
                self.first = self.first or now
                self._longest, self.last = max(self._longest, now - self.last), now


def run(bench: Run, name: str, cluster: Raised) -> None:
    """Raises ServerFailed for all that goes wrong with it."""
    for engine in recipe(cluster.database).ENGINES:
        private.fetch(engine)
    try:
        with site(cluster.database, cluster.roles) as shop:
            _raise(bench, name, shop)
            _idle(bench, name, shop)
            if len(cluster.roles) > 1:
                _without_a_node(bench, name, shop)
            _down(bench, name, shop)
    except (pytest.skip.Exception, AssertionError) as error:  # what tests are skipped for, or have waited for in vain
        raise ServerFailed(str(error)) from error


def _raise(bench: Run, name: str, shop: Site) -> None:
    began = time.monotonic()
    with _client(shop, 0) as client, bench.step(f"{name}: up", 1):
        _pbdeploy(shop, "up")
        whole = time.monotonic() - began
        _wait(lambda: client.first, f"{name}: an entity at the first entry point", 60)
        first = client.first - began
    bench.record(name, "up, from nothing", first_entity_seconds=round(first, 1), whole_seconds=round(whole, 1))
    began = time.monotonic()
    _pbdeploy(shop, "up")
    bench.record(name, "up, again", whole_seconds=round(time.monotonic() - began, 1))


def _idle(bench: Run, name: str, shop: Site) -> None:
    with bench.step(f"{name}: idle agents", 1):
        shares, mebibytes = shop.idle_agents(_IDLE_SECONDS)
    bench.at_most(name, "an idle agent, of a core", max(shares) * 100, AGENT_SHARE * 100, unit="%")
    bench.at_most(name, "an idle agent, resident", max(mebibytes), AGENT_MIB, unit="MiB")


def _without_a_node(bench: Run, name: str, shop: Site) -> None:
    """The last node's database is killed; then its cable is pulled."""
    with _client(shop, 0) as near, _client(shop, -1) as far:
        _wait(lambda: near.first and far.first, f"{name}: clients are served", 120)
        with bench.step(f"{name}: a node's database killed", 1):
            values = _killed(shop, near, far)
        bench.record(name, "a node's database killed", **values)
        with bench.step(f"{name}: a node cut off", 1):
            values = _cut(shop, near)
        bench.record(name, "a node cut off", **values)


def _killed(shop: Site, near: Client, far: Client) -> dict[str, float]:
    killed = _database(shop.status())
    for client in (near, far):
        client.begin()
    began = time.monotonic()
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)

    def is_back(status: dict[str, Any]) -> bool:
        return bool(status.get("whole")) and not _database(status).items() & killed.items()

    shop.wait_for(is_back, "the killed node serves again", _BACK_SECONDS)
    return {
        "whole_again_seconds": round(time.monotonic() - began, 1),
        "without_answer_elsewhere_seconds": round(near.longest, 1),
        "without_answer_there_seconds": round(far.longest, 1),
    }


def _cut(shop: Site, near: Client) -> dict[str, float]:
    near.begin()
    began = time.monotonic()
    shop.hosts[-1].cut()
    try:
        shop.wait_for(lambda found: bool(found.get("troubles")), "the silent node is noticed", _BACK_SECONDS)
        noticed = time.monotonic()
        _wait(lambda: near.last > noticed, "an entity is stored without the node", _BACK_SECONDS)
    finally:
        shop.hosts[-1].heal()
    healed = time.monotonic()
    shop.wait_for(lambda found: bool(found.get("whole")), "the node is among the others again", _BACK_SECONDS)
    return {
        "noticed_seconds": round(noticed - began, 1),
        "without_answer_elsewhere_seconds": round(near.longest, 1),
        "whole_after_return_seconds": round(time.monotonic() - healed, 1),
    }


def _database(status: dict[str, Any]) -> dict[str, int]:
    """The pids of the last node's services but the PBServer's."""
    services = status["nodes"][-1]["facts"]["services"]
    return {name: each["pid"] for name, each in services.items() if name != PBSERVER}


def _down(bench: Run, name: str, shop: Site) -> None:
    began = time.monotonic()
    _pbdeploy(shop, "down")
    bench.record(name, "down", seconds=round(time.monotonic() - began, 1))


def _pbdeploy(shop: Site, command: str) -> None:
    done = shop.pbdeploy(command, str(shop.layout), seconds=_UP_SECONDS)
    if done.returncode:
        raise ServerFailed(f"pbdeploy {command} ended with {done.returncode}: {done.stderr[-2000:]}")


@contextmanager
def _client(shop: Site, node: int) -> Iterator[Client]:
    with Client(Address(shop.hosts[node].address, PORT)) as client:
        yield client


def _wait(fits: Callable[[], object], what: str, seconds: float) -> None:
    """Raises ServerFailed when it does not in time."""
    until = time.monotonic() + seconds
    while not fits():
        if time.monotonic() > until:
            raise ServerFailed(f"{what}: not within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(CLUSTERS)}; none: all of them")] = None,
) -> None:
    """Measures pbdeploy on machines of its own, which are namespaces of this one; root only."""
    console = Console()
    chosen = names or [*CLUSTERS]
    if unknown := [each for each in chosen if each not in CLUSTERS]:
        console.print(f"no cluster is called {', '.join(unknown)}; there are: {', '.join(CLUSTERS)}")
        raise typer.Exit(2)
    experiments = {name: partial(run, name=name, cluster=CLUSTERS[name]) for name in chosen}
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))  # so that no database is left behind
    results = Results(RESULTS / f"{'-'.join(['deploy', *(names or [])])}.jsonl")
    complete = measure(chosen, FULL, results, console, None, experiments)
    raise typer.Exit(0 if complete else 1)


if __name__ == "__main__":
    typer.run(main)
