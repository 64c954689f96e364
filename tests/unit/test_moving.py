"""Whatever the stores promise, everything arrives, also after an interruption at any call, and nothing else does."""

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore, Write
from adapters.errors import Applied, Unavailable
from pbserver.datastore import building, entities, ids, keys, projects
from pbserver.datastore.composites import MAX_ENTRIES, State
from pbserver.datastore.core import Datastore, Indexing
from pbserver.datastore.errors import Internal
from pbserver.datastore.execute import Progress
from pbserver.datastore.keys import Key, encode_kind
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Op, Query, normalize
from pbserver.datastore.tables import entity_address
from pbserver.moving import arriving
from pbserver.moving.arriving import Arrival, is_unfinished
from pbserver.moving.comparing import differences
from pbserver.moving.reading import StoreSource
from pbserver.moving.records import START, CannotMove, Place, Record, Stored
from pbserver.verification import problems
from protos.entity_pb2 import EntityProto
from tests.unit.building import APP, FAR, definition, entity, finish_indexes, key, query, reference
from tests.unit.indexed_world import AB, DOWN, PROJECT, UP, Interrupted, World
from tests.unit.moved_worlds import DATABASE, IDENTITY, STORES, WEAK, Ending, assert_right, copied, filled, of, opened
from tests.unit.test_unfinished_commits import Postponed


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "SETTLE_SECONDS", 0)  # nobody has begun a commit before the index was there


def data(datastore: Datastore, wanted: list[Key]) -> list[bytes]:
    return [entities.unframe(each) for each in datastore.get(wanted, None, deadline=FAR) if each is not None]


def keys_found(datastore: Datastore, asked: Query) -> list[bytes]:
    found = datastore.query(asked, Progress(None, 0, None), 1000, None, deadline=FAR).frames
    return [EntityProto.FromString(entities.unframe(each)).key.SerializeToString() for each in found]


def live(datastore: Datastore, kind: bytes) -> list[bytes]:
    """What `__kind__` or `__namespace__` tells."""
    asked = Query(partition=PROJECT, kind=encode_kind(kind), ancestor=None, filters=(), orders=())
    found = datastore.query(normalize(asked), Progress(None, 0, None), 1000, None, deadline=FAR)
    return [row for row, _ in found.rows]


@pytest.mark.parametrize("to", STORES)
@pytest.mark.parametrize("start", STORES)
def test_all_of_any_store_arrives_in_any_other(start: str, to: str, tmp_path: Path) -> None:
    with opened(start, tmp_path / "source") as source, opened(to, tmp_path / "target") as target:
        world = filled(source)
        assert copied(of(source), target).entities == len(world.held)
        assert_right(source, target)
        ours, theirs = (Datastore(each, indexing=Indexing(strict=True)) for each in (source, target))
        assert data(theirs, [*world.held]) == data(ours, [*world.held])
        for asked in (
            query(filters=[(b"a", Op.EQUAL, 1)], orders=[(b"b", True)]),
            query(ancestor=key((b"K", 22)), orders=[(b"a", True)]),
        ):
            assert keys_found(theirs, asked) == keys_found(ours, asked) != []
        for kind in (b"__kind__", b"__namespace__"):
            assert live(theirs, kind) == live(ours, kind) != []
        assert theirs.new_id(PROJECT, sequential=True, deadline=FAR) == 10_001
        assert theirs.new_id(PROJECT, sequential=False, deadline=FAR) == ids.scatter(301)
        assert theirs.new_id(DATABASE, sequential=True, deadline=FAR) == 77_001


def test_indexes_keep_their_ids_and_those_that_were_being_built_are_built_again() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    filled(source)
    copied(of(source), target)
    there = Datastore(target).catalog.read(PROJECT, deadline=FAR)
    assert {each.id: each.state for each in there.all} == {
        1: State.SERVING,
        2: State.SERVING,
        4: State.ERROR,
        5: State.BUILDING,
    }
    assert there.next_id == 6
    assert there.find(4) is not None
    finish_indexes(Datastore(target).builder())
    assert_right(source, target)


def test_an_entity_that_an_index_being_built_cannot_hold_is_copied_all_the_same() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    world = World(store=source)
    world.put(reference((b"K", 1)), a=[*range(200)], b=[*range(MAX_ENTRIES // 200 + 1)])
    world.create(AB)
    copied(of(source), target)
    finish_indexes(Datastore(target).builder())
    assert_right(source, target)
    assert [each.state for each in Datastore(target).catalog.read(PROJECT, deadline=FAR).all] == [State.ERROR]


def test_entities_that_no_longer_fit_are_named() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    world = World(store=source)
    world.put(reference((b"K", 5)), a=[*range(100)], b=[*range(110)])
    for wanted in (AB, definition((b"b", UP), (b"a", UP))):  # each fits, both together do not
        world.create(wanted)
        finish_indexes(world.datastore.builder())
    with pytest.raises(
        CannotMove, match=r"cannot take s~unit K:5: too many indexed properties .*mend it in the source"
    ):
        copied(of(source), target)


class Failing:
    """A store of which one call fails: before it, or when all of it is done."""

    def __init__(self, store: OrderedStore, at: int, *, done: bool) -> None:
        self._store = store
        self._numbers = count(1)
        self._at = at
        self._done = done
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._failing(found) if name in ("read", "write", "scan", "fetch", "snapshot") else found

    def _failing(self, call: Any) -> Any:
        def work(*arguments: Any, **named: Any) -> Any:
            self.calls = next(self._numbers)
            if self.calls == self._at:
                if self._done:
                    call(*arguments, **named)
                raise Unavailable("interrupted", Applied.UNKNOWN)
            return call(*arguments, **named)

        return work


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("url", "most"), [("memory:", 1000), *((each, 12) for each in WEAK)])
def test_after_an_interruption_at_any_call_it_goes_on(
    url: str, most: int, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "_BATCH_ENTITIES", 7)
    source = open_store("memory:")
    world = filled(source, 20)
    whole: Any = Failing(open_store(url), 0, done=done)
    copied(of(source), whole)
    for at in range(1 + done, whole.calls + 1, max(1, whole.calls // most)):
        target = open_store(url)
        failing: Any = Failing(target, at, done=done)
        with suppress(Unavailable):
            copied(of(source), failing)
        if is_unfinished(target) or not projects.projects(target):
            assert copied(of(source), target).entities <= len(world.held) + 7
        assert_right(source, target)


def test_what_has_arrived_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "_BATCH_ENTITIES", 10)
    source, target = open_store("memory:"), open_store("memory:")
    world = filled(source)
    for limit in (25, 12):
        with closing(Arrival(target, IDENTITY)) as arrival, pytest.raises(Unavailable):
            arrival.take(Ending(of(source), limit))
    with closing(Arrival(target, IDENTITY)) as arrival:
        assert arrival.begin() > START
        assert arrival.entities == 31
        left = [each for each in of(source).records(arrival.begin()) if isinstance(each, Stored)]
    assert len(left) == len(world.held) - 31
    copied(of(source), target)
    assert_right(source, target)


@pytest.mark.parametrize("url", STORES)
def test_a_store_that_holds_anything_else_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    source = open_store("memory:")
    filled(source)
    with opened(url, tmp_path / "target") as target:
        other = World(store=target)
        other.create(AB)
        with pytest.raises(CannotMove, match="holds data already, of s~unit: nothing was touched"):
            copied(of(source), target)
        assert not is_unfinished(target)


def test_the_unfinished_copy_of_another_source_is_refused() -> None:
    target = open_store("memory:")
    with closing(Arrival(target, b"another")) as arrival:
        arrival.begin()
    with pytest.raises(CannotMove, match="unfinished copy of another source"):
        copied(of(target), target)


def test_of_two_copies_at_once_one_is_told() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    filled(source)
    with closing(Arrival(target, IDENTITY)) as late:
        late.begin()
        copied(of(source), target)
        with pytest.raises(CannotMove, match="somebody else moves into the target"):
            late.finish()
    assert_right(source, target)


@pytest.mark.parametrize("url", STORES)
def test_a_source_may_be_in_use(url: str, tmp_path: Path) -> None:
    class InUse:
        def records(self, after: Place = START) -> Iterator[Record]:
            for number, record in enumerate(of(source).records(after)):
                world.put(reference((b"K", number * 50 + 1)), a=number)
                world.put(reference((b"New", number + 1), namespace=b"zz"), a=number)
                if number % 5 == 0 and isinstance(record, Stored):
                    world.datastore.write([Mutation(record.key, None)], None, deadline=FAR)
                if number == 10:
                    world.create(definition((b"a", DOWN), (b"b", DOWN)))
                    finish_indexes(world.datastore.builder())
                yield record

    with opened(url, tmp_path / "source") as source, opened(url, tmp_path / "target") as target:
        world = filled(source, 20)
        copied(InUse(), target)
        there = Datastore(target).catalog.read(PROJECT, deadline=FAR).find(6)
        assert there is not None
        assert there.state is State.BUILDING
        assert [str(each) for each in problems(target, [PROJECT]) if not each.fault.is_note] == []


@pytest.mark.parametrize("url", WEAK)
def test_commits_that_a_dead_server_acknowledged_and_did_not_finish_are_copied(url: str) -> None:
    source, target = open_store(url), open_store("memory:")
    World(store=source).put(reference((b"K", 2)), a=1)
    lost = entity(reference((b"K", 1)), a=1)
    dead = Datastore(source, early=True, beside=Postponed())
    dead.write([Mutation(lost.key, lost)], None, deadline=FAR)
    assert copied(of(source), target).entities == 2
    assert data(Datastore(target), [lost.key]) == [lost.data]


def test_a_batch_is_small_however_many_rows_its_entities_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "_BATCH_ROWS", 300)
    source, target = open_store("memory:"), open_store("memory:")
    world = World(store=source)
    for number in range(30):
        world.put(reference((b"K", number + 1)), a=[*range(5)], b=[*range(number)])
    world.create(AB)
    finish_indexes(world.datastore.builder())
    watched: Any = Interrupted(target)
    copied(of(source), watched)
    assert 150 < watched.most_rows <= 300 + 2 * 30  # with kindless rows
    assert_right(source, target)


def test_a_damaged_entity_is_told_and_not_left_behind() -> None:
    source = open_store("memory:")
    world = World(store=source)
    world.fill(5)
    one, two = (each for each in world.held if each.partition == PROJECT)
    value = source.read([entity_address(two)], deadline=FAR)[0]
    source.write([Write(entity_address(one), value)], deadline=FAR)
    with pytest.raises(Internal, match="stands in the place of another entity"):
        copied(of(source), open_store("memory:"))


def changed(source: OrderedStore, target: OrderedStore) -> list[str]:
    return [*differences(of(source), StoreSource(target, sorted({*projects.projects(target), PROJECT, DATABASE})))]


def test_every_difference_is_told() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    world, there = filled(source), World(store=target)
    copied(of(source), target)
    world.put(reference((b"K", b"only here")), a=1)
    there.put(reference((b"K", b"only there")), a=1)
    there.put(reference((b"K", 22), (b"K", 1)), a=1)
    world.put(reference((b"K", 22), (b"K", 1)), a=2)
    world.datastore.ids.reserve(PROJECT, 10_500, deadline=FAR)
    there.catalog.delete(PROJECT, 2, deadline=FAR)
    there.put(reference((b"K", 1), app=b"s~third"))
    assert changed(source, target) == [
        "only in the target: s~third",
        "only in the target: s~third K:1",
        "only in the target: s~third",
        "not the same bytes: s~unit K:22/K:1",
        "missing in the target: s~unit K:'only here'",
        "only in the target: s~unit K:'only there'",
        "composite index 2 of s~unit is not the same: serving in the source and deleting in the target",
        "sequential counter of s~unit: 10501 in the source, 10001 in the target",
    ]


def test_a_target_given_an_id_above_the_sources_keeps_its_counter() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    filled(source)
    Datastore(target).prepare(deadline=FAR)
    Datastore(target).ids.reserve(PROJECT, 50_000, deadline=FAR)
    copied(of(source), target)
    assert Datastore(target).new_id(PROJECT, sequential=True, deadline=FAR) == 50_001
    assert_right(source, target)


def test_ids_that_clients_chose_are_never_given_out() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    World(store=source).put(reference((b"K", 900)), a=1)
    copied(of(source), target)
    assert Datastore(target).new_id(PROJECT, sequential=True, deadline=FAR) == 901


def test_an_app_of_nothing_but_ids_is_copied_when_it_is_named() -> None:
    source, target = open_store("memory:"), open_store("memory:")
    project = keys.partition(APP, b"", b"")
    World(store=source).datastore.ids.reserve(project, 9, deadline=FAR)
    copied(StoreSource(source, [project]), target)
    assert Datastore(target).new_id(project, sequential=True, deadline=FAR) == 10
