"""One run: servers and clients over a simulated store, with everything that may go wrong; then what must hold."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from adapters.contract import Table
from pbserver.datastore import (
    catalog,
    core,
    entities,
    heads,
    ids,
    keys,
    row_groups,
    sessions,
    tables,
    transactions,
)
from pbserver.datastore.core import Datastore
from pbserver.datastore.groups import run_now
from pbserver.datastore.row_groups import RowGroups
from tests.isolation.checker import check
from tests.isolation.history import History, How, Outcome, Transaction
from tests.simulation.clients import LISTS, PLAIN_GET, REGISTERS, Attempt, Client, _Step, key_of
from tests.simulation.scheduler import World, governed
from tests.simulation.store import NO_FAULTS, Data, Faults, SimulatedStore, live_rows

_MODULES = [catalog, core, ids, row_groups, sessions, transactions]
_MOST_STEPS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much happens in a run."""

    servers: int = 3
    clients: int = 4
    operations: int = 8  #: of each client
    crashes: float = 0.01  #: of the server, after each write of it
    pauses: float = 0.02
    faults: Faults = field(default_factory=Faults)


class Cluster:
    """Servers that crash, pause and come back, over the same data."""

    def __init__(self, world: World, data: Data, plan: Plan) -> None:
        self._world = world
        self._data = data
        self._plan = plan
        self.servers: list[Datastore] = []
        self.servers += [self._boot() for _ in range(plan.servers)]

    def _boot(self) -> Datastore:
        server: Datastore

        def later(work: Callable[[], None]) -> None:
            self._world.start("later", lambda: run_now(work), owner=server)

        server = Datastore(SimulatedStore(self._data, lambda: self._meet_fate(server)), later=later)  # type: ignore[arg-type]
        return server

    def _meet_fate(self, server: Datastore) -> None:
        """Now and then a server is killed, and another takes its place, or it is stopped for a while."""
        luck = self._world.random.random()
        if server not in self.servers:
            return
        if luck < self._plan.crashes:
            self._world.kill(server)
            self.servers[self.servers.index(server)] = self._boot()
        elif luck < self._plan.crashes + self._plan.pauses:
            self._world.pause(server, self._world.random.choice([0.005, 0.3, 5.0]))

    def at(self, number: int) -> Datastore:
        return self.servers[number]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run. `problems`: nothing should be there. `fingerprint`: of every step, in their order."""

    seed: int
    problems: list[str]
    fingerprint: int
    history: History


def simulate(seed: int, plan: Plan | None = None) -> Report:
    """Plays one seed."""
    plan = plan or Plan()
    world = World(seed)
    data = Data(world, plan.faults)
    history: History = []
    with ExitStack() as stack:
        stack.enter_context(governed(world, _MODULES))
        if seed % 2:  # slots without gaps, so that a slot used twice meets itself
            stack.enter_context(patch.object(row_groups, "_next_slot", lambda base: base.slot + 1))
        cluster = Cluster(world, data, plan)
        for number in range(1, plan.clients + 1):
            choices = [lambda n=n: cluster.at(n) for n in range(plan.servers)]  # type: ignore[misc]
            client = Client(world, number, choices, history)
            world.start(f"client {number}", lambda client=client: client.run(plan.operations))  # type: ignore[misc]
        world.run(_MOST_STEPS)
        data.faults = NO_FAULTS
        _look_at_everything(world, data, history)
    problems = [*_history_problems(history), *_row_problems(data), *_head_problems(data)]
    return Report(seed, problems, world.fingerprint, history)


def _look_at_everything(world: World, data: Data, history: History) -> None:
    """A new server finishes what is unfinished, and a client reads every object."""
    server = Datastore(SimulatedStore(data))  # type: ignore[arg-type]
    groups = server._groups
    assert isinstance(groups, RowGroups)
    deadline = world.now_ns / 1e9 + 1000

    def work() -> None:
        for group in dict.fromkeys(key_of(name).group for name in LISTS):
            groups.sweep(group, deadline=deadline)
        for name in (*LISTS, *REGISTERS):
            attempt = Attempt(0, "last look", world.now_ns)
            client = Client(world, 0, [], history)
            _Step(client, server, attempt).get([name], None)
            attempt.outcome = Outcome.OK
            history.append(attempt.line(world.now_ns))

    world.start("last look", work)
    world.run(_MOST_STEPS * 2)


def _history_problems(history: History) -> list[str]:
    """Of a plain get only this is promised: it sees what was acknowledged before it began.

    It reads the entity's row and nothing else, so a commit that nobody was told of, because its server died before all
    rows were written, is seen when somebody has finished it. Everything else is strictly serializable.
    """
    gets = [each for each in history if each.name == PLAIN_GET]
    relaxed = [replace(each, start=0) if each.name == PLAIN_GET else each for each in history]
    return [*map(str, check(relaxed)), *(problem for get in gets for problem in _missed(get, history))]


def _missed(get: Transaction, history: History) -> list[str]:
    acknowledged = [each for each in history if each.outcome is Outcome.OK and each.end < get.start]
    missed = []
    for read in get.reads:
        for transaction in acknowledged:
            for write in transaction.last_writes():
                if write.object != read.object:
                    continue
                old = write.how is How.PUT and read.seen and (read.version or 0) < (write.version or 0)
                if old or (write.how is How.APPEND and write.id not in read.seen):
                    missed.append(f"{get} does not see {write}, which was acknowledged before")
    return missed


def _row_problems(data: Data) -> list[str]:
    """Every index row matches its entity, and every entity has its rows."""
    expected: set[tuple[Table, bytes, bytes]] = set()
    for (_, _, key), stored in live_rows(data, [Table.GROUPS]).items():
        if key != b"\x00":
            proto = entities.parse(stored)
            its = keys.from_reference(proto.key)
            for row in entities.index_rows(its, proto):
                expected.add((Table.INDEXES, its.partition + its.kind, row))
            expected.add((Table.KINDLESS, its.partition, its.path))
    found = set(live_rows(data, [Table.INDEXES, Table.KINDLESS]))
    return [f"phantom row {each}" for each in found - expected] + [f"missing row {each}" for each in expected - found]


def _head_problems(data: Data) -> list[str]:
    return [
        f"head of {scope!r} is {head.state.name} after the sweep"
        for (_, scope, key), raw in live_rows(data, [Table.GROUPS]).items()
        if key == tables.head_address(scope).key and (head := heads.decode(raw)).state is not heads.State.APPLIED
    ]
