"""A commit that does not know of a new index leaves no row of it behind, where commits write row by row."""

import pytest

from adapters.contract import KeyRange, Row, Table, after_prefix
from pbserver.datastore import building
from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.core import Datastore
from pbserver.datastore.keys import project_of
from pbserver.datastore.mutations import Mutation
from tests.unit.building import FAR, definition, entity, finish_indexes, key, reference
from tests.unit.indexed_world import World

STORES = ["weak:?atomicity=row&versions=yes", "weak:?atomicity=scope&versions=yes"]
A = definition((b"a", False))
ONE = key((b"K", 1))


def put(datastore: Datastore, number: int, value: int) -> None:
    made = entity(reference((b"K", number)), a=value)
    datastore.write([Mutation(made.key, made)], None, deadline=FAR)


def rows(world: World, composite: Composite) -> list[Row]:
    keys = KeyRange(composite.prefix, after_prefix(composite.prefix))
    return world.store.scan(Table.INDEXES, ONE.partition + ONE.kind, keys, limit=1000, deadline=FAR)


def composite(world: World, wanted: Definition) -> Composite:
    return world.datastore.catalog.find(project_of(ONE.partition), wanted, deadline=FAR)


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(building, "SETTLE_SECONDS", 0)
    return World(request.param)


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_rows_that_a_commit_has_forgotten_are_gone_when_the_index_serves(
    world: World, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_BATCH", batch)
    unaware = Datastore(world.store)
    for number in range(1, 12):
        put(unaware, number, 1)  # it remembers that there is no index
    world.datastore.catalog.create(project_of(ONE.partition), A, deadline=FAR)
    for number in range(1, 9):
        put(world.datastore, number, 2)
    for number in range(1, 7):
        put(unaware, number, 3)
    for number in (1, 2, 7):
        unaware.write([Mutation(key((b"K", number)), None)], None, deadline=FAR)
    put(world.datastore, 2, 2)
    made = composite(world, A)
    assert len(rows(world, made)) == 8  # of what there was for a moment; only those of 2 and 8 are right
    finish_indexes(world.datastore.builder())
    made = composite(world, A)
    assert made.state is State.SERVING
    assert len(rows(world, made)) == 9


def test_a_removal_waits_for_commits_that_still_know_the_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_of(ONE.partition)
    made = world.datastore.catalog.create(project, A, deadline=FAR)
    finish_indexes(world.datastore.builder())
    knowing = Datastore(world.store)
    put(knowing, 1, 1)  # it remembers the index
    world.datastore.catalog.delete(project, made.id, deadline=FAR)
    monkeypatch.setattr(building, "SETTLE_SECONDS", 1000)
    builder = world.datastore.builder()
    (work,) = builder.unfinished(deadline=FAR)
    assert builder.step(work, deadline=FAR)
    put(knowing, 2, 2)
    monkeypatch.setattr(building, "SETTLE_SECONDS", 0)
    finish_indexes(builder)
    assert rows(world, made) == []
