"""One database: a cluster of it, the operations by everybody in turns, and what PBServer adds."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass

from adapters.errors import StoreError
from bench import data, server
from bench.clusters import table
from bench.clusters.core import Core
from bench.clusters.databases import Compared, Database
from bench.clusters.subjects import Local, Operation, Remote
from bench.clusters.table import Cost
from bench.clusters.work import OPERATIONS, Side, Work, queried
from bench.run import FULL, Measurable, Run
from bench.server import Server, ServerFailed
from controller.engines.tools import EngineError
from controller.local import BootFailed, ClusterError, LocalCluster

#: What a get may take: so many native gets, and so many ms beside them.
READ_TIMES, READ_MS = 1.3, 0.15
BARE, INDEXED = "native (a)", "native (b)"


@dataclass(frozen=True, slots=True)
class Contest:
    """Everybody who takes part. PBServers and cores by their way to acknowledge."""

    servers: Mapping[str, Server]
    cores: Mapping[str, Core]
    natives: Mapping[str, Side]
    works: Mapping[str, Work]

    def subjects(self, operation: Operation, core: int) -> dict[str, Measurable]:
        sides: dict[str, Side] = {**{f"core, {way}": side for way, side in self.cores.items()}, **self.natives}
        return {
            **{f"pbserver, {way}": Remote(ours, self.works[way], operation) for way, ours in self.servers.items()},
            **{name: Local(side, self.works[name], operation, core) for name, side in sides.items()},
        }


def run(bench: Run, name: str, database: Database) -> None:
    """Raises ServerFailed when the database cannot be booted or used."""
    with booted(bench, database.recipe, database.nodes) as url, contest(bench, database, url, cores=True) as everybody:
        for ours in everybody.servers.values():
            ours.call(data.puts([thing.message for thing in queried()], at_once=20))
        for side in everybody.natives.values():
            for thing in queried():
                side.insert(thing)
        _measure(bench, name, database, everybody)


@contextmanager
def booted(bench: Run, recipe: str, nodes: int) -> Iterator[str]:
    """A store URL of a cluster that is up. Raises ServerFailed for all that goes wrong with its database."""
    try:
        with LocalCluster.up(recipe, nodes, bench.directory / "cluster") as cluster:
            bench.say(f"[dim]{recipe} serves on {', '.join(node.host for node in cluster.nodes)}")
            yield cluster.store_urls()[0]
    except (BootFailed, ClusterError, EngineError, StoreError) as error:
        raise ServerFailed(str(error)) from error


@contextmanager
def contest(bench: Run, database: Compared, url: str, *, cores: bool) -> Iterator[Contest]:
    """Opens everybody; with the Datastore's core in this process only if that is wanted."""
    with ExitStack() as stack, server.on_core(bench.server_core):
        servers: dict[str, Server] = {}
        within: dict[str, Core] = {}
        for way in database.write_goals:
            place = database.url(url, way)
            if cores:
                within[way] = stack.enter_context(closing(Core(place, way)))
            servers[way] = stack.enter_context(server.pbserver(place, bench.server_core, acknowledge=way))
        natives = {BARE: database.bare(url), INDEXED: database.indexed(url)}
        for side in natives.values():
            stack.enter_context(closing(side))
        names = [*servers, *(f"core, {way}" for way in within), *natives]
        yield Contest(servers, within, natives, {name: Work() for name in names})


def _measure(bench: Run, name: str, database: Database, everybody: Contest) -> None:
    costs: dict[str, dict[str, Cost]] = {way: {} for way in everybody.servers}
    for called in OPERATIONS:
        operation = operation_of(bench, called, database.operations)
        subjects = everybody.subjects(operation, bench.server_core)
        found = bench.compare(name, {f"{called}: {who}": each for who, each in subjects.items()}, by="p50_us")
        p50 = {who: found[f"{called}: {who}"].p50_us / 1000 for who in subjects}
        cpu = {who: found[f"{called}: {who}"].cpu_us / 1000 for who in subjects}
        for way, core in everybody.cores.items():
            cost = Cost(
                pbserver_ms=p50[f"pbserver, {way}"],
                core_ms=p50[f"core, {way}"],
                store_ms=p50[f"core, {way}"] * core.store_share(called),
                store_calls=core.store_calls(called),
                bare_ms=p50[BARE],
                indexed_ms=p50[INDEXED],
                cpu_ms=cpu[f"pbserver, {way}"],
                indexed_cpu_ms=cpu[INDEXED],
            )
            costs[way][called] = cost
            facts = {key: round(value, 3) for key, value in asdict(cost).items()}
            bench.record(name, f"{called}, {way}: what it costs", **facts)
    for way, of_way in costs.items():
        title = f"{name}, acknowledge = {way}: medians in ms ({bench.scale.name} run, load {os.getloadavg()[0]:.1f})"
        goal = database.write_goals[way]
        for called, cost in of_way.items():
            _judge(bench, name, f"{called}, {way}", cost, goal)
        bench.console.print(
            table.of(title, of_way, {called: _limit(called, of_way[called], goal) for called in of_way})
        )


def operation_of(bench: Run, name: str, count: int) -> Operation:
    """A share of what a full run does."""
    count = round(count * bench.scale.seconds / FULL.seconds / (10 if name == "query" else 1))
    return Operation(name=name, count=max(5, count), warm=max(3, count // 5))


def _limit(operation: str, cost: Cost, write_goal: float | None) -> float | None:
    """In ms; None: there is no goal."""
    if operation == "query" or write_goal is None:
        return None
    return cost.indexed_ms * READ_TIMES + READ_MS if operation == "read" else cost.indexed_ms * write_goal


def _judge(bench: Run, name: str, what: str, cost: Cost, write_goal: float | None) -> None:
    limit = _limit(what.partition(",")[0], cost, write_goal)
    if limit is not None:
        bench.at_most(name, f"{what}, against native (b)", cost.pbserver_ms, limit, unit="ms")
