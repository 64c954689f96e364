"""Composite indexes are built and removed beside other writers."""

import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest

from pbserver.datastore import building, catalog, composites, keys
from pbserver.datastore.building import Builder
from pbserver.datastore.composites import Definition, State
from pbserver.datastore.core import Datastore
from pbserver.datastore.mutations import Mutation
from tests.unit.building import APP, FAR, definition, entity, finish_indexes, reference
from tests.unit.indexed_world import AB, DOWN, NAMESPACES, PINNED, PROJECT, UP, Interrupted, World, at, in_threads


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(building, "_BATCH", 5)
    return 5


@pytest.mark.parametrize("wanted", [AB, PINNED, definition((b"a", UP), (b"__key__", DOWN))])
def test_a_build_gives_every_entity_of_every_namespace_its_rows(world: World, wanted: Definition) -> None:
    world.fill(60)
    made = world.create(wanted)
    assert world.rows(made) == {}
    finish_indexes(world.datastore.builder())
    world.assert_complete(made)
    assert len(world.rows(made)) > 50
    assert {partition for partition, _ in world.rows(made)} == {keys.partition(APP, b"", each) for each in NAMESPACES}


def test_an_index_of_nothing_serves_at_once(world: World) -> None:
    made = world.create()
    assert finish_indexes(world.datastore.builder()) == 1
    world.assert_complete(made)


def test_a_build_goes_on_where_another_stopped(world: World, small_batches: int) -> None:
    world.fill(80)
    made = world.create()
    whole = sum(one.kind == AB.kind for one in world.held)
    steps, more = 0, True
    while more:
        (work,) = world.datastore.builder().unfinished(deadline=FAR)
        builder = world.datastore.builder()
        for _ in range(3):
            built = builder.progress(work, deadline=FAR)
            more = builder.step(work, deadline=FAR)
            if not more:
                break
            steps += 1
            assert 0 < builder.progress(work, deadline=FAR) - built <= small_batches
        assert builder.progress(work, deadline=FAR) == (whole if not built and more else min(whole, built + 5) * more)
    assert whole / small_batches <= steps <= whole / small_batches + len(NAMESPACES)
    world.assert_complete(made)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("wanted", [AB, PINNED])
def test_writes_between_the_batches_are_in_the_index(
    world: World, small_batches: int, seed: int, wanted: Definition
) -> None:
    rng = Random(seed)
    world.fill(70)
    made = world.create(wanted)
    builder = world.datastore.builder()
    (work,) = builder.unfinished(deadline=FAR)
    while builder.step(work, deadline=FAR):
        for _ in range(rng.randint(0, 4)):
            random_write(world, rng)
    random_write(world, rng)
    world.assert_complete(made)


def random_write(world: World, rng: Random) -> None:
    number = rng.randrange(90)
    shape = rng.random()
    if shape < 0.3:
        world.delete(at(number))
    elif shape < 0.5:
        world.put(at(number), a=number % 7, b=[number, -number])  # as it was
    else:
        world.put(
            at(number), **{name: rng.choice([1, [2, 3], [b"x\x00", 4, 4]]) for name in rng.choice(["a", "ab", "b"])}
        )


def interrupted(world: World, happening: Callable[[], None]) -> tuple[Builder, Interrupted]:
    store = Interrupted(world.store)
    store.before_write = happening
    return Datastore(store, testing=True).builder(), store  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "happening",
    [
        lambda world: world.put(at(3), a=99, b=99),
        lambda world: world.delete(at(3)),
        lambda world: world.delete(at(9)),
        lambda world: world.create(PINNED),
    ],
    ids=["put", "delete", "delete of another", "another index"],
)
def test_a_batch_that_meets_another_writer_is_made_again(world: World, happening: Callable[[World], object]) -> None:
    world.fill(30)
    made = world.create()
    builder, _ = interrupted(world, lambda: happening(world) and None)
    (work, *_) = builder.unfinished(deadline=FAR)
    assert builder.step(work, deadline=FAR)
    assert builder.progress(work, deadline=FAR) == 0
    assert world.rows(made).keys() <= world.expected(made).keys()
    finish_indexes(builder)
    world.assert_complete(made)


def test_two_builders_of_one_index_do_no_harm(world: World, small_batches: int) -> None:
    world.fill(60)
    made = world.create()
    builders = [world.datastore.builder() for _ in range(2)]
    (work,) = builders[0].unfinished(deadline=FAR)

    def build(builder: Builder) -> None:
        while builder.step(work, deadline=FAR):
            pass

    in_threads(*((lambda each=each: build(each)) for each in builders))
    world.assert_complete(made)


def test_puts_from_another_server_miss_no_index_that_is_being_made(world: World, small_batches: int) -> None:
    world.fill(60)
    other = world.beside()
    done = threading.Event()
    puts: list[Random] = []
    wanted = [
        definition((b"a", a), (b"b", b), *ending, ancestor=ancestor)
        for a in (UP, DOWN)
        for b in (UP, DOWN)
        for ending in ([], [(b"__key__", DOWN)])
        for ancestor in (False, True)
    ]

    def put() -> None:
        rng = Random(5)
        while not done.is_set():
            random_write(other, rng)
            puts.append(rng)

    def build() -> None:
        try:
            for each in wanted:
                world.create(each)
                finish_indexes(world.datastore.builder())
        finally:
            done.set()

    in_threads(put, build)
    assert len(puts) >= len(wanted)
    for each in wanted:
        world.assert_complete(world.catalog.find(PROJECT, each, deadline=FAR))


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_write_that_began_before_an_index_was_made_is_in_it(world: World, change: str) -> None:
    world.fill(10)
    store = Interrupted(world.store)
    server = Datastore(store, testing=True)  # type: ignore[arg-type]
    made = []

    def make() -> None:
        made.append(world.create())
        finish_indexes(world.datastore.builder())

    store.before_write = make
    slow = world.beside()
    slow.datastore = server
    if change == "put":
        slow.put(at(3), a=99, b=99)
    else:
        slow.delete(at(3))
    world.assert_complete(made[0])


@pytest.mark.parametrize("state", [State.DELETING, None], ids=["deleted", "deleted and removed"])
@pytest.mark.parametrize("size", [0, 30])
def test_an_index_deleted_while_it_is_built_never_serves(world: World, size: int, state: State | None) -> None:
    world.fill(size)
    made = world.create()

    def delete() -> None:
        world.catalog.delete(PROJECT, made.id, deadline=FAR)
        if state is None:
            finish_indexes(world.datastore.builder())

    builder, _ = interrupted(world, delete)
    (work,) = builder.unfinished(deadline=FAR)
    builder.step(work, deadline=FAR)
    found = world.find(made)
    assert (found.state if found else None) is state
    finish_indexes(world.datastore.builder())
    assert world.find(made) is None
    assert world.rows(made) == {}


def test_an_index_deleted_at_the_end_of_its_build_never_serves(world: World) -> None:
    world.fill(30)
    made = world.create()
    builder, store = interrupted(world, lambda: None)
    (work,) = builder.unfinished(deadline=FAR)
    while builder.progress(work, deadline=FAR) < sum(one.kind == AB.kind for one in world.held):
        builder.step(work, deadline=FAR)
    store.before_write = lambda: world.catalog.delete(PROJECT, made.id, deadline=FAR)
    builder.step(work, deadline=FAR)
    found = world.find(made)
    assert found is not None
    assert found.state is State.DELETING


# Removing


def test_removal_leaves_nothing_of_the_index_and_all_of_the_others(world: World, small_batches: int) -> None:
    world.fill(60)
    made, kept = world.create(), world.create(PINNED)
    builder = world.datastore.builder()
    finish_indexes(builder)
    world.catalog.delete(PROJECT, made.id, deadline=FAR)
    world.put(at(3), a=5, b=5)
    world.delete(at(4))
    assert finish_indexes(builder) >= len(world.expected(made)) / small_batches
    assert world.rows(made) == {}
    assert world.find(made) is None
    world.assert_complete(kept)


def test_an_index_half_built_is_removed_as_well(world: World, small_batches: int) -> None:
    world.fill(60)
    made = world.create()
    builder = world.datastore.builder()
    (work,) = builder.unfinished(deadline=FAR)
    for _ in range(3):
        assert builder.step(work, deadline=FAR)
    assert len(world.rows(made)) >= 2 * small_batches
    world.catalog.delete(PROJECT, made.id, deadline=FAR)
    assert not builder.step(work, deadline=FAR)
    finish_indexes(builder)
    assert (world.rows(made), world.find(made)) == ({}, None)
    address = catalog.progress_address(PROJECT, made.id)
    assert world.store.read([address], deadline=FAR) == [None]


# Entities with too many entries


def test_an_entity_past_the_limit_stops_the_build_and_is_named(world: World) -> None:
    world.put(reference((b"P", b"root"), (b"K", 7)), a=[*range(200)], b=[*range(200)])
    world.fill(10)
    made = world.create()
    finish_indexes(world.datastore.builder())
    found = world.find(made)
    assert found is not None
    assert found.state is State.ERROR
    assert found.note.startswith("P:root/K:7: too many indexed properties for an entity: 40")
    world.put(at(3), a=[*range(200)], b=[*range(200)])  # nobody writes it any more


@pytest.mark.parametrize("change", ["put", "delete"])
def test_an_entity_past_the_limit_of_a_new_index_can_still_be_changed(world: World, change: str) -> None:
    """Without making rows that it cannot have in the index: there may be more of them than memory."""
    numbers = [*range(60)]
    world.put(at(3), a=numbers, b=numbers, c=numbers)
    world.create(definition((b"a", UP), (b"b", UP), (b"c", UP)))
    store = Interrupted(world.store)
    server = Datastore(store, testing=True)  # type: ignore[arg-type]
    one = entity(at(3), a=1)
    server.write([Mutation(one.key, one if change == "put" else None)], None, deadline=FAR)
    assert store.most_rows <= composites.MAX_ENTRIES
