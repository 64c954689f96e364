"""The catalog of composite indexes: what is in it, who may change it, and ids."""

from collections.abc import Iterator

import pytest

from pbserver.datastore import catalog, keys
from pbserver.datastore.catalog import Catalog
from pbserver.datastore.composites import Composite, State
from pbserver.datastore.errors import BadRequest
from tests.unit.building import FAR, definition, finish_indexes
from tests.unit.indexed_world import AB, DOWN, PROJECT, UP, World, in_threads


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.store.close()


def test_an_index_can_be_found_until_it_is_deleted_and_made_again_meanwhile(world: World) -> None:
    made = world.create()
    assert (made.id, made.state, made.definition) == (1, State.BUILDING, AB)
    assert world.catalog.find(PROJECT, AB, deadline=FAR) == made
    with pytest.raises(BadRequest, match="already exists"):
        world.create()
    world.catalog.delete(PROJECT, made.id, deadline=FAR)
    with pytest.raises(BadRequest, match="does not exist"):
        world.catalog.find(PROJECT, AB, deadline=FAR)
    again = world.create()
    assert again.id == 2
    assert world.catalog.find(PROJECT, AB, deadline=FAR) == again
    with pytest.raises(BadRequest, match=r"does not exist. \(id 3\)"):
        world.catalog.delete(PROJECT, 3, deadline=FAR)


def test_projects_have_their_own_indexes(world: World) -> None:
    other = keys.partition(b"s~other", b"", b"")
    made = world.create()
    assert world.catalog.read(other, deadline=FAR).all == ()
    assert world.catalog.create(other, AB, deadline=FAR).id == made.id
    assert catalog.projects(world.store, deadline=FAR) == sorted([PROJECT, other])
    kinds = world.catalog.read(PROJECT, deadline=FAR)
    assert kinds.of_kind(keys.encode_kind(b"K")) == (made,)
    assert kinds.of_kind(keys.encode_kind(b"L")) == kinds.of_kind(None) == ()


def test_the_catalog_remembers_all_of_a_definition(world: World) -> None:
    odd = definition((b"\xc3\xa9\x00", DOWN), (b"__key__", DOWN), kind=b"K\x00\x01", ancestor=True)
    made = world.create(odd)
    assert world.catalog.move(PROJECT, made, State.ERROR, deadline=FAR, note="too é")
    assert world.find(made) == Composite(made.id, odd, State.ERROR, "too é")


ALLOWED = {(State.BUILDING, State.ERROR), *((old, State.DELETING) for old in State)}


@pytest.mark.parametrize("old", [state for state in State if state is not State.DELETING])
@pytest.mark.parametrize("new", State)
def test_a_client_may_delete_an_index_or_give_it_up(world: World, old: State, new: State) -> None:
    made = world.create()
    assert world.catalog.move(PROJECT, made, old, deadline=FAR)
    if old is new or (old, new) in ALLOWED:
        world.catalog.update(PROJECT, AB, new, deadline=FAR)
        assert world.find(made) == made._replace(state=new)
    else:
        with pytest.raises(BadRequest, match=r"cannot move|still being built"):
            world.catalog.update(PROJECT, AB, new, deadline=FAR)
        assert world.find(made) == made._replace(state=old)


def test_indexes_created_at_once_have_ids_of_their_own(world: World) -> None:
    def create(number: int) -> None:
        for each in range(10):
            Catalog(world.store).create(PROJECT, definition((b"p%d" % (10 * number + each), UP)), deadline=FAR)

    in_threads(*((lambda number=number: create(number)) for number in range(4)))
    found = world.catalog.read(PROJECT, deadline=FAR).all
    assert sorted(each.id for each in found) == [*range(1, 41)]
    assert len({each.definition for each in found}) == 40


def test_an_id_is_not_used_again(world: World) -> None:
    for expected in (1, 2, 3):
        made = world.create()
        assert made.id == expected
        finish_indexes(world.datastore.builder())
        world.catalog.delete(PROJECT, made.id, deadline=FAR)
        finish_indexes(world.datastore.builder())
        assert world.catalog.read(PROJECT, deadline=FAR).all == ()
