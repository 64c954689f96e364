"""Verification beside others, and where commits are applied row by row: what is unfinished, late, or in between."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import Address, KeyRange, OrderedStore, Sweepable, Table, Write
from adapters.errors import Unavailable
from adapters.layers.checked import CheckedStore
from adapters.layers.versioned import DELETED, VersionedStore
from adapters.memory import MemoryStore
from adapters.url import parse_url
from adapters.weak import open_url
from pbserver.background import Hands
from pbserver.datastore import entities, heads, tables
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import ConcurrentTransaction, Internal, Timeout
from pbserver.datastore.head_store import HeadStore
from pbserver.datastore.heads import Head, Primary, State
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.projects import every_scope, sweep_all
from pbserver.datastore.scanning import every_row
from pbserver.verification import Fault, Problem, Tally, problems, repair, states
from pbserver.verification.checks import kindless_address, row_address
from tests.unit.building import APP, FAR, entity, finish_indexes, key, reference
from tests.unit.indexed_world import PINNED, PROJECT, World, at, in_threads
from tests.unit.test_unfinished_commits import Postponed

STORES = ["weak:?atomicity=row", "weak:?atomicity=scope&versions=yes", "weak:?atomicity=batch&versions=yes"]
A, B = reference((b"K", 1)), reference((b"K", 2))
ONE, TWO = key((b"K", 1)), key((b"K", 2))
KIND_ROW = row_address(ONE, tables.KIND_ROW + ONE.path)


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest) -> World:
    made = World(request.param)
    made.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    made.put(A, a=1)
    made.put(B, a=2)
    return made


def found(world: World, tally: Tally | None = None) -> list[Problem]:
    return [*problems(world.store, [PROJECT], tally)]


def faults(world: World) -> list[Fault]:
    return [each.fault for each in found(world)]


def head(world: World, one: Key) -> Head:
    return heads.decode(world.store.read([tables.head_address(one.group)], deadline=FAR)[0])


def write(world: World, *writes: Write) -> None:
    for each in writes:
        world.store.write([each], deadline=FAR)


@pytest.mark.parametrize("atomicity", ["row", "scope"])
def test_no_false_alarm_while_commits_fail_and_end_late(atomicity: str) -> None:
    store = open_store(f"weak:?atomicity={atomicity}&versions=yes&fail=1")
    world = World(store=store)
    world.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    chance = random.Random(0)
    while sum(1 for _ in every_row(store, Table.KINDLESS, PROJECT)) < 10:
        with suppress(Unavailable):
            commit(world.datastore, [at(chance.randrange(40))], chance)
    stop = threading.Event()
    hands = Hands()
    hands.later(lambda: None)

    def change(seed: int) -> Callable[[], None]:
        chance = random.Random(seed)
        mine = Datastore(store, early=True, beside=hands)

        def run() -> None:
            while not stop.is_set():
                chosen = [at(chance.randrange(40)) for _ in range(chance.choice((1, 1, 3)))]
                with suppress(ConcurrentTransaction, Timeout, Unavailable):
                    commit(mine, chosen, chance)

        return run

    def look() -> None:
        try:
            for _ in range(8):
                assert found(world) == []
        finally:
            stop.set()

    try:
        in_threads(change(1), change(2), change(3), look)
    finally:
        hands.close()
    tally = Tally()
    assert found(world, tally) == []
    assert tally.entities > 20


def test_no_false_alarm_while_entities_and_indexes_come_and_go() -> None:
    """In memory: elsewhere an index takes half a minute to settle."""
    world = World()
    world.fill(40)
    world.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    stop = threading.Event()

    def change(seed: int) -> Callable[[], None]:
        chance = random.Random(seed)
        mine = world.beside()

        def run() -> None:
            while not stop.is_set():
                where = at(chance.randrange(60))
                if chance.random() < 0.3:
                    mine.delete(where)
                else:
                    mine.put(where, a=chance.randrange(5), b=[chance.randrange(5), chance.randrange(5)])

        return run

    def index() -> None:
        while not stop.is_set():
            made = world.create(PINNED)
            finish_indexes(world.datastore.builder())
            world.catalog.delete(PROJECT, made.id, deadline=FAR)
            finish_indexes(world.datastore.builder())

    def look() -> None:
        try:
            for _ in range(15):
                assert found(world) == []
        finally:
            stop.set()

    in_threads(change(1), change(2), index, look)
    assert found(world) == []


def commit(datastore: Datastore, chosen: Sequence[Any], chance: random.Random) -> None:
    """Puts and deletes, of several groups in a transaction."""
    made = [entity(each, a=chance.randrange(9), b=[chance.randrange(9), chance.randrange(9)]) for each in chosen]
    handle = None
    if len(made) > 1:
        handle = datastore.transactions.begin(APP, cross_group=True, read_only=False, deadline=FAR)
    mutations = {one.key: Mutation(one.key, one if chance.random() < 0.7 else None) for one in made}
    datastore.write([*mutations.values()], handle, deadline=FAR)
    if handle is not None:
        datastore.transactions.commit(handle, deadline=FAR)


def test_what_a_dead_server_left_is_finished_and_no_problem(world: World) -> None:
    dying = Datastore(world.store, early=True, beside=Postponed())
    for number in range(1, 8):
        one = entity(reference((b"K", number)), a=number, b=9)
        dying.write([Mutation(one.key, one)], None, deadline=FAR)
    tally = Tally()
    assert found(world, tally) == []
    assert tally.unfinished == 7
    assert tally.entities == 7
    assert tally.index_rows == 7 * 3


def test_a_commit_that_nobody_decides_hides_no_problem(world: World) -> None:
    prepare(world)
    write(world, Write(kindless_address(ONE), None, version=head(world, ONE).slot))
    assert faults(world) == [Fault.MISSING_ROW]
    assert all(repair(world.store, each) for each in found(world))
    assert found(world) == []


def prepare(world: World) -> None:
    """A server dies when it has prepared a commit in one of two groups."""
    old, other = head(world, ONE), head(world, TWO)
    primary = Primary(TWO.group, other.slot + 1, other.slot)
    write(world, Write(tables.head_address(ONE.group), heads.encode(old.prepared(old.slot + 1, b"u", (), primary))))


def test_a_head_that_waits_for_an_unreadable_one_is_mended_after_it(world: World) -> None:
    prepare(world)
    write(
        world,
        Write(tables.head_address(TWO.group), b"\x01"),
        Write(kindless_address(ONE), None, version=head(world, ONE).slot),
    )
    with pytest.raises(Internal, match="run a verification"):
        world.put(B, a=3)
    wrong = found(world)
    assert [(each.fault, each.key) for each in wrong] == [(Fault.UNREADABLE_HEAD, ONE), (Fault.UNREADABLE_HEAD, TWO)]
    assert [repair(world.store, each) for each in wrong] == [False, True]
    assert [(each.fault, each.key) for each in found(world)] == [(Fault.MISSING_ROW, ONE)]
    assert all(repair(world.store, each) for each in found(world))
    assert found(world) == []
    world.put(B, a=3)


@pytest.mark.parametrize("value", [None, b"\x01"], ids=["deleted", "wrong"])
def test_a_row_harmed_with_the_version_of_its_own_commit_is_mended(world: World, value: bytes | None) -> None:
    ahead = 1 << 45  # of the clock, so that the next slot is the next number
    write(world, Write(tables.head_address(ONE.group), heads.encode(Head(slot=ahead))))
    world.put(A, a=3)
    write(world, Write(KIND_ROW, None), Write(KIND_ROW, value, version=head(world, ONE).slot))
    wrong = found(world)
    assert Fault.MISSING_ROW in {each.fault for each in wrong} or Fault.WRONG_ROW in {each.fault for each in wrong}
    assert all(repair(world.store, each) for each in wrong)
    assert found(world) == []


def test_a_lost_head_is_made_anew_above_all_versions_in_its_group(world: World) -> None:
    ahead = 1 << 45  # of the clock
    child = entity(reference((b"K", 1), (b"L", 1)), a=1)
    indexed = entities.index_rows(child.key, child.proto)
    write(
        world,
        Write(tables.entity_address(child.key), entities.frame(child.data, ahead)),
        *(Write(row_address(child.key, row), value, version=ahead) for row, value in indexed.items()),
        Write(kindless_address(child.key), tables.row_value(child.key, repeated=False), version=ahead),
        Write(tables.kind_address(PROJECT, b"", child.key.kind), tables.PRESENT),
        Write(tables.head_address(ONE.group), None),
    )
    wrong = found(world)
    assert {each.fault for each in wrong} == {Fault.MISSING_HEAD}
    assert repair(world.store, next(each for each in wrong if each.key == ONE))
    rebuilt = head(world, ONE)
    assert rebuilt.slot > ahead
    assert (rebuilt.state, rebuilt.dropped) == (State.APPLIED, rebuilt.slot)
    assert found(world) == []
    world.delete(reference((b"K", 1), (b"L", 1)))
    world.put(A, a=5)
    assert found(world) == []


@pytest.mark.parametrize("moment", ["after the slot was taken", "after the look"])
def test_a_commit_beside_a_repair_wins(world: World, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    row = entities.property_prefix(b"never") + b"\x10" + ONE.path
    write(world, Write(row_address(ONE, row), tables.row_value(ONE, repeated=False), version=1))
    (wrong,) = found(world)
    assert wrong.fault is Fault.PHANTOM_ROW
    owner, name = (states._RowStates, "_take") if moment == "after the slot was taken" else (HeadStore, "apply")
    original: Callable[..., object] = getattr(owner, name)

    def interrupted(*given: Any, **more: Any) -> object:
        monkeypatch.setattr(owner, name, original)
        result = original(*given, **more) if name == "_take" else None
        world.put(A, never=None)
        return result if name == "_take" else original(*given, **more)

    monkeypatch.setattr(owner, name, interrupted)
    assert repair(world.store, wrong)
    assert getattr(owner, name) is original
    assert found(world) == []
    assert world.store.read([row_address(ONE, row)], deadline=FAR) != [None]


class Restless:
    """A store in which somebody commits whenever heads are looked at to see whether they stood still."""

    def __init__(self, store: OrderedStore, commit: Callable[[], None]) -> None:
        self._store = store
        self._commit = commit

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        if settle and tables.head_address(ONE.group) in addresses:
            self._commit()
        return self._store.read(addresses, deadline=deadline, settle=settle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_group_changed_all_the_time_is_told_not_judged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_GROUP_SECONDS", 0.05)
    write(world, Write(KIND_ROW, None))
    restless: Any = Restless(world.store, lambda: world.put(A, a=random.random()))
    tally = Tally()
    assert [*problems(restless, [PROJECT], tally)] == []
    assert tally.restless == {ONE.group}
    assert faults(world) == [Fault.MISSING_ROW]
    assert not repair(restless, found(world)[0])


def tombstones(store: MemoryStore) -> Iterator[tuple[Table, bytes]]:
    for table, scope in store.scopes:
        for _, value in store.scan(table, scope, KeyRange(), limit=10**6, deadline=FAR):
            if value.startswith(DELETED):
                yield table, scope


def test_every_scope_that_is_reached_is_swept_of_what_was_deleted() -> None:
    weak: Any = open_url(parse_url("weak:?atomicity=row"))
    store = CheckedStore(VersionedStore(weak, horizon_seconds=-1.0))
    memory: MemoryStore = weak.inner._live
    world = World(store=store)
    world.fill(30)
    for number in range(0, 30, 2):
        world.put(at(number), c=1)
        world.delete(at(number + 1))
    left = {one.group for one in world.held}
    harmed = [*tombstones(memory)]
    assert {Table.INDEXES, Table.KINDLESS, Table.GROUPS} <= {table for table, _ in harmed}
    unreached = [(table, scope) for table, scope in harmed if table is Table.GROUPS and scope not in left]
    assert {*every_scope(store)} >= {place for place in memory.scopes if place[0] is not Table.GROUPS}
    assert sweep_all(store, deadline_seconds=10, pause=lambda: False) == len(harmed) - len(unreached)
    assert [*tombstones(memory)] == unreached
    assert [each for each in found(world) if not each.fault.is_note] == []
    assert sweep_all(store, deadline_seconds=10, pause=lambda: False) == 0


def test_a_store_that_leaves_nothing_behind_is_not_swept() -> None:
    store = MemoryStore()
    assert not isinstance(store, Sweepable)
    World(store=store).put(A, a=1)
    assert sweep_all(store, deadline_seconds=0, pause=lambda: False) == 0
