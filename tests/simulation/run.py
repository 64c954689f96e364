"""One run: servers and clients over a simulated store, with everything that may go wrong; then what must hold."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from adapters.contract import Atomicity, KeyRange, OrderedStore, Table
from adapters.layers import ordered, versioned
from adapters.layers.ordered import TreeStore
from adapters.layers.versioned import VersionedStore
from pbserver.datastore import (
    catalog,
    core,
    entities,
    head_store,
    heads,
    ids,
    keys,
    notes,
    remembered,
    row_groups,
    sessions,
    tables,
    transactions,
)
from pbserver.datastore.core import Datastore
from pbserver.datastore.groups import Result, carried_out, run_quietly
from tests.isolation.checker import check
from tests.isolation.history import History, Outcome
from tests.simulation.clients import LISTS, REGISTERS, Attempt, Client, _Step
from tests.simulation.scheduler import Task, World, governed
from tests.simulation.store import NO_FAULTS, Data, Faults, SimulatedStore

_MODULES = [catalog, core, head_store, ids, notes, remembered, row_groups, sessions, transactions, ordered, versioned]
_MOST_STEPS = 400_000
#: Small enough for servers to be taken for dead within a run, also those that only sleep.
_SECONDS = {"IDLE_SECONDS": 0.5, "BEAT_SECONDS": 0.15, "LEASE_SECONDS": 0.4, "DEAD_SECONDS": 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the servers run on, and when they answer. `layers` stand over the simulated store, the first on it: they
    need every read to see what has happened, told or not.
    """

    atomicity: Atomicity = Atomicity.ROW
    early: bool = False
    layers: tuple[Callable[[OrderedStore], OrderedStore], ...] = ()

    def open(self, data: Data, after_write: Callable[[], None] = lambda: None) -> OrderedStore:
        """One server's access."""
        store: OrderedStore = SimulatedStore(data, after_write)
        for layer in self.layers:
            store = layer(store)
        return store


KINDS = {
    "row": Kind(),
    "scope": Kind(atomicity=Atomicity.SCOPE),
    "row-committed": Kind(early=True),
    "scope-committed": Kind(atomicity=Atomicity.SCOPE, early=True),
}
#: Cost more steps, so they are played only when they are asked for, and a little in the tests.
LAYERED = {
    "versioned": Kind(layers=(VersionedStore,)),
    "ordered": Kind(layers=(TreeStore, VersionedStore)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much happens in a run."""

    servers: int = 3
    clients: int = 4
    operations: int = 8  #: of each client
    gets: int = 40  #: of another one, which does nothing else
    crashes: float = 0.01  #: of the server, after each write of it
    pauses: float = 0.02
    refused_later: float = 0.05  #: of the work for later, for want of room
    faults: Faults = field(default_factory=Faults)


class Hands:
    """pbserver.datastore.groups.Beside of one server: tasks of their own."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self.server: Datastore | None = None

    def later(self, work: Callable[[], object]) -> bool:
        if self._world.random.random() < self._plan.refused_later:
            return False
        self._world.start("later", lambda: run_quietly(work), owner=self.server)
        return True

    def at_once(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        if len(works) < 2:
            return [work() for work in works]
        ended: dict[int, Future[Any]] = {}

        def carry_out(number: int) -> None:
            ended[number] = carried_out(works[number])

        tasks = [
            self._world.start("beside", lambda n=n: carry_out(n), owner=self.server)  # type: ignore[misc]
            for n in range(1, len(works))
        ]
        carry_out(0)
        for task in tasks:
            self._world.join(task)
        return [ended[number].result() for number in range(len(works))]


class Cluster:
    """Servers that crash, pause and come back, over the same data."""

    def __init__(self, world: World, data: Data, plan: Plan, kind: Kind) -> None:
        self._world = world
        self._data = data
        self._plan = plan
        self._kind = kind
        self.wanted = True  #: until the clients have ended
        self.servers: list[Datastore] = []
        self.servers += [self._boot() for _ in range(plan.servers)]

    def _boot(self) -> Datastore:
        hands = Hands(self._world, self._plan)
        server = Datastore(
            self._kind.open(self._data, lambda: self._meet_fate(server)),
            beside=hands,
            early=self._kind.early,
        )
        hands.server = server
        self._world.start("tender", lambda: self._tend(server), owner=server)
        return server

    def _tend(self, server: Datastore) -> None:
        while self.wanted:
            self._world.sleep(self._world.random.uniform(0.05, 0.4))
            run_quietly(lambda: server.tend(deadline=self._world.now_ns / 1e9 + 10))

    def _meet_fate(self, server: Datastore) -> None:
        """Now and then a server is killed, and another takes its place, or it is stopped for a while."""
        luck = self._world.random.random()
        if server not in self.servers:
            return
        if luck < self._plan.crashes:
            self._world.kill(server)
            self.servers[self.servers.index(server)] = self._boot()
        elif luck < self._plan.crashes + self._plan.pauses:
            self._world.pause(server, self._world.random.choice([0.005, 0.3, 1.5, 5.0]))

    def at(self, number: int) -> Datastore:
        return self.servers[number]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run. `problems`: nothing should be there. `fingerprint`: of every step, in their order."""

    seed: int
    problems: list[str]
    fingerprint: int
    history: History


def simulate(seed: int, plan: Plan | None = None, kind: str = "") -> Report:
    """Plays one seed, on the kind of store that is named, else on one after the other."""
    plan = plan or Plan()
    world = World(seed)
    its = {**KINDS, **LAYERED}[kind] if kind else [*KINDS.values()][seed % len(KINDS)]
    faults = replace(plan.faults, unseen=0) if its.layers else plan.faults
    data = Data(world, faults, its.atomicity, versions=not its.layers)
    history: History = []
    with ExitStack() as stack:
        stack.enter_context(governed(world, _MODULES))
        stack.enter_context(patch.multiple(notes, **_SECONDS))
        if seed // len(KINDS) % 2:  # slots without gaps, so that a slot used twice meets itself
            stack.enter_context(patch.object(row_groups, "_next_slot", lambda base: base.slot + 1))
        cluster = Cluster(world, data, plan, its)
        clients = [
            Client(world, number, [lambda n=n: cluster.at(n) for n in range(plan.servers)], history)  # type: ignore[misc]
            for number in range(1, plan.clients + 2)
        ]
        tasks = [
            world.start(f"client {number}", lambda client=client: client.run(plan.operations))  # type: ignore[misc]
            for number, client in enumerate(clients[:-1], start=1)
        ]
        tasks.append(world.start("watcher", lambda: clients[-1].watch(plan.gets)))
        world.start("end", lambda: _end(world, cluster, tasks))
        world.run(_MOST_STEPS)
        data.faults = NO_FAULTS
        _look_at_everything(world, data, its, history)
        problems = [*map(str, check(history)), *_row_problems(data, its), *_unfinished(data, its)]
    return Report(seed, problems, world.fingerprint, history)


def _end(world: World, cluster: Cluster, clients: list[Task]) -> None:
    for client in clients:
        world.join(client)
    cluster.wanted = False


def _look_at_everything(world: World, data: Data, kind: Kind, history: History) -> None:
    """A new server finds what the others have left unfinished, all being dead; then a client reads every object."""
    server = Datastore(kind.open(data), early=kind.early)

    def work() -> None:
        for _ in range(2):  # their beats stand still
            server.tend(deadline=world.now_ns / 1e9 + 1000)
            world.sleep(2 * _SECONDS["DEAD_SECONDS"])
        for name in (*LISTS, *REGISTERS):
            attempt = Attempt(0, "last look", world.now_ns)
            client = Client(world, 0, [], history)
            _Step(client, server, attempt).get([name], None)
            attempt.outcome = Outcome.OK
            history.append(attempt.line(world.now_ns))

    world.start("last look", work)
    world.run(_MOST_STEPS * 2)


def _rows(data: Data, kind: Kind, *wanted: Table) -> dict[tuple[Table, bytes, bytes], bytes]:
    """All rows of some tables, as a server sees them."""
    store = kind.open(data)
    return {
        (table, scope, key): value
        for table, scope in dict.fromkeys(place[:2] for place in data.cells)
        if table in wanted
        for key, value in store.scan(table, scope, KeyRange(), limit=1 << 30, deadline=data.world.now_ns / 1e9 + 1000)
    }


def _row_problems(data: Data, kind: Kind) -> list[str]:
    """Every index row matches its entity, and every entity has its rows."""
    expected: set[tuple[Table, bytes, bytes]] = set()
    for (_, _, key), stored in _rows(data, kind, Table.GROUPS).items():
        if key != b"\x00":
            proto = entities.parse(stored)
            its = keys.from_reference(proto.key)
            for row in entities.index_rows(its, proto):
                expected.add((Table.INDEXES, its.partition + its.kind, row))
            expected.add((Table.KINDLESS, its.partition, its.path))
    found = set(_rows(data, kind, Table.INDEXES, Table.KINDLESS))
    return [f"phantom row {each}" for each in found - expected] + [f"missing row {each}" for each in expected - found]


def _unfinished(data: Data, kind: Kind) -> list[str]:
    """Heads whose rows may not be written, and notes of them."""
    left = [f"note of {group!r} after the sweep" for _, _, group in _rows(data, kind, Table.UNFINISHED)]
    return left + [
        f"head of {scope!r} is {head.state.name} after the sweep"
        for (_, scope, key), raw in _rows(data, kind, Table.GROUPS).items()
        if key == tables.head_address(scope).key and (head := heads.decode(raw)).state is not heads.State.APPLIED
    ]
