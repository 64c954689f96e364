"""Every kind of problem is found by its name and mended; a store that is right is called right, even while in use."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from adapters.contract import Address, Table, Write
from pbserver.datastore import building, catalog, entities, heads, ids, keys, tables
from pbserver.datastore.composites import Composite, State
from pbserver.datastore.heads import Head
from pbserver.datastore.keys import Key
from pbserver.verification import Fault, Problem, Tally, known_projects, problems, repair
from pbserver.verification.checks import kindless_address, listing_address, row_address
from pbserver.verification.walk import PAGE_GROUPS, PAGE_ROWS
from tests.unit.building import APP, FAR, definition, entity, finish_indexes, key, reference
from tests.unit.indexed_world import (
    AB,
    DOWN,
    PINNED,
    PROJECT,
    UP,
    Interrupted,
    World,
    at,
    everything,
    in_threads,
    read,
    write,
)

NESTED = reference((b"K", 1), (b"L", b"child"))
ONE = key((b"K", 1))
CHILD = key((b"K", 1), (b"L", b"child"))
STORES = ["memory:", "weak:?atomicity=row&versions=yes", "weak:?atomicity=scope&versions=yes"]


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """Entities of several namespaces, groups and depths, and an index that serves."""
    monkeypatch.setattr(building, "SETTLE_SECONDS", 0)  # nobody has begun a commit before the index was there
    made = World(request.param)
    made.fill(40)
    made.put(reference((b"K", 1)), a=1, b=[2, 3])
    made.put(NESTED, a=1, b=2, text=b"x\x00y")
    made.create(AB)
    finish_indexes(made.datastore.builder())
    made.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    return made


def found(world: World) -> list[Problem]:
    return [*problems(world.store, [PROJECT])]


def faults(world: World) -> list[Fault]:
    return [each.fault for each in found(world)]


def test_a_right_store_has_no_problem_and_all_of_it_is_looked_at(world: World) -> None:
    tally = Tally()
    assert [*problems(world.store, [PROJECT], tally)] == []
    assert tally.entities == len(world.held)
    assert tally.index_rows == sum(
        len(rows) for (table, _), rows in everything(world).items() if table is Table.INDEXES
    )


def test_an_empty_store_has_no_problem() -> None:
    assert found(World()) == []


def test_the_store_tells_of_projects_with_entities_or_composite_indexes(world: World) -> None:
    assert known_projects(world.store) == [PROJECT]
    other, third = (keys.partition(app, b"", b"") for app in (b"s~other", b"s~third"))
    world.catalog.create(other, AB, deadline=FAR)
    world.put(reference((b"K", 1), app=b"s~third"))
    assert known_projects(world.store) == [other, third, PROJECT]


def test_pages_of_any_fill_are_walked_to_their_end() -> None:
    world = World()
    for number in range(PAGE_GROUPS * 2):
        world.put(reference((b"K", number + 1)), a=number)
    for number in range(PAGE_GROUPS * 2 + 1):
        world.put(reference((b"P", 1), (b"K", number + 1)), a=[*range(3)])
    tally = Tally()
    world.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    assert [*problems(world.store, [PROJECT], tally)] == []
    assert tally.entities == PAGE_GROUPS * 4 + 1
    assert tally.index_rows > PAGE_ROWS
    last = key((b"P", 1), (b"K", PAGE_GROUPS * 2 + 1))
    write(world, Write(row_address(last, tables.KIND_ROW + last.path), None))
    assert faults(world) == [Fault.MISSING_ROW]


def written(address: Address, value: bytes | None) -> Callable[[World], None]:
    return lambda world: write(world, Write(address, value))


def deleted(*addresses: Address) -> Callable[[World], None]:
    return lambda world: write(world, *(Write(address, None) for address in addresses))


def cut_entity(world: World) -> None:
    address = tables.entity_address(CHILD)
    write(world, Write(address, read(world, address)[:-3]))


def endless_version(world: World) -> None:
    address = tables.entity_address(CHILD)
    write(world, Write(address, read(world, address)[:-1] + b"\xff"))


def entity_of_another_key(world: World) -> None:
    other = entity(reference((b"K", 7), (b"L", b"child")), a=1, b=2)
    write(world, Write(tables.entity_address(CHILD), entities.frame(other.data, 1)))


def no_property_row(world: World) -> None:
    row = next(row for row in entities.index_rows(CHILD, _proto(world, CHILD)) if b"text" in row)
    write(world, Write(row_address(CHILD, row), None))


def no_composite_row(world: World) -> None:
    (partition, row), _ = next(each for each in world.rows(_serving(world)).items() if each[0][1].endswith(ONE.path))
    write(world, Write(Address(Table.INDEXES, partition + ONE.kind, b"", row), None))


def phantom_row_of_an_index(world: World) -> None:
    row = _serving(world).prefix + b"\x10\x10" + ONE.path
    write(world, Write(row_address(ONE, row), tables.row_value(ONE, repeated=False)))


def row_of_an_index_that_is_gone(world: World) -> None:
    row = _serving(world)._replace(id=77).prefix + b"\x10\x10" + ONE.path
    write(world, Write(row_address(ONE, row), tables.row_value(ONE, repeated=False)))


def _serving(world: World) -> Composite:
    return world.catalog.read(PROJECT, deadline=FAR).all[0]


def _proto(world: World, one: Key) -> entities.EntityProto:
    return entities.parse(read(world, tables.entity_address(one)))


def low_head(world: World) -> None:
    write(world, Write(tables.head_address(ONE.group), head_at(world, 5)))


def head_at(world: World, slot: int) -> bytes:
    return slot.to_bytes(8, "big") if world.datastore.steady else heads.encode(Head(slot=slot))


GONE = key((b"K", 999))
damaged_entity = written(tables.entity_address(CHILD), b"\x12\x03abc")
one_byte_entity = written(tables.entity_address(CHILD), b"\x12")
no_head = deleted(tables.head_address(ONE.group))
no_kind_row = deleted(row_address(ONE, tables.KIND_ROW + ONE.path))
no_kindless_row = deleted(kindless_address(CHILD))
unlisted_kind = deleted(listing_address(ONE))
wrong_kindless_row = written(kindless_address(ONE), b"\x01")
phantom_row_of_no_entity = written(
    row_address(GONE, tables.KIND_ROW + GONE.path), tables.row_value(GONE, repeated=False)
)
phantom_row_of_an_entity = written(
    row_address(ONE, entities.property_prefix(b"never") + b"\x10" + ONE.path), tables.row_value(ONE, repeated=False)
)

MENDABLE = {
    "no head": (no_head, Fault.MISSING_HEAD),
    "low head": (low_head, Fault.LOW_HEAD),
    "head of a few bytes": (written(tables.head_address(ONE.group), b"\xff" * 5), Fault.UNREADABLE_HEAD),
    "head of many bytes": (written(tables.head_address(ONE.group), b"\xff" * 50), Fault.UNREADABLE_HEAD),
    "no kind row": (no_kind_row, Fault.MISSING_ROW),
    "no property row": (no_property_row, Fault.MISSING_ROW),
    "no composite row": (no_composite_row, Fault.MISSING_ROW),
    "no kindless row": (no_kindless_row, Fault.MISSING_ROW),
    "no kindless row in a group": (deleted(kindless_address(ONE), kindless_address(CHILD)), Fault.MISSING_ROW),
    "wrong row": (
        written(row_address(ONE, tables.KIND_ROW + ONE.path), tables.row_value(ONE, repeated=True)),
        Fault.WRONG_ROW,
    ),
    "wrong kindless row": (wrong_kindless_row, Fault.WRONG_ROW),
    "row of no entity": (phantom_row_of_no_entity, Fault.PHANTOM_ROW),
    "row of another value": (phantom_row_of_an_entity, Fault.PHANTOM_ROW),
    "composite row of another value": (phantom_row_of_an_index, Fault.PHANTOM_ROW),
    "composite row of an index that is gone": (row_of_an_index_that_is_gone, Fault.PHANTOM_ROW),
    "row of no form": (
        written(Address(Table.INDEXES, PROJECT + ONE.kind, b"", b"\x09stray"), b"\x01"),
        Fault.PHANTOM_ROW,
    ),
    "kindless row of no entity": (
        written(kindless_address(GONE), tables.row_value(GONE, repeated=False)),
        Fault.PHANTOM_ROW,
    ),
    "kindless row of no form": (
        written(Address(Table.KINDLESS, PROJECT, b"", b"\x7fstray"), b"\x01"),
        Fault.PHANTOM_ROW,
    ),
    "unlisted kind": (unlisted_kind, Fault.UNLISTED_KIND),
    "unlisted project": (deleted(tables.project_address(PROJECT)), Fault.UNLISTED_PROJECT),
}
LOST = {
    "damaged entity": (damaged_entity, Fault.UNREADABLE_ENTITY),
    "cut entity": (cut_entity, Fault.UNREADABLE_ENTITY),
    "entity of one byte": (one_byte_entity, Fault.UNREADABLE_ENTITY),
    "entity of no version": (endless_version, Fault.UNREADABLE_ENTITY),
    "entity of another key": (entity_of_another_key, Fault.MISPLACED_ENTITY),
    "damaged catalog": (written(catalog.catalog_address(PROJECT), b"\xff\xff"), Fault.UNREADABLE_CATALOG),
}


@pytest.mark.parametrize(("harm", "fault"), MENDABLE.values(), ids=MENDABLE)
def test_what_is_planted_is_found_and_mended(world: World, harm: Callable[[World], None], fault: Fault) -> None:
    right = everything(world)
    harm(world)
    wrong = found(world)
    assert {each.fault for each in wrong} == {fault}
    assert all(str(each).startswith(f"{fault.value}: ") and "--repair" in str(each) for each in wrong)
    assert all(repair(world.store, each) for each in wrong)
    assert found(world) == []
    assert everything(world) == right


@pytest.mark.parametrize(("harm", "fault"), LOST.values(), ids=LOST)
def test_what_is_lost_is_told_and_left_alone(world: World, harm: Callable[[World], None], fault: Fault) -> None:
    harm(world)
    before = everything(world)
    wrong = [each for each in found(world) if each.fault is fault]
    assert len(wrong) == 1
    assert "backup" in str(wrong[0])
    assert not repair(world.store, wrong[0])
    assert everything(world) == before


@pytest.mark.parametrize("harm", [damaged_entity, cut_entity, one_byte_entity], ids=["damaged", "cut", "one byte"])
def test_the_rows_of_an_unreadable_entity_are_not_called_phantoms(world: World, harm: Callable[[World], None]) -> None:
    harm(world)
    assert faults(world) == [Fault.UNREADABLE_ENTITY]


@pytest.mark.parametrize("identifier", [20_000, ids.scatter(50)], ids=["sequential", "scattered"])
def test_an_id_above_its_counter_is_only_a_note(world: World, identifier: int) -> None:
    world.put(reference((b"K", identifier)), c=1)
    (note,) = found(world)
    assert note.fault is Fault.LOW_COUNTER
    assert note.fault.is_note
    assert not repair(world.store, note)


def test_a_problem_says_whose_row_it_is(world: World) -> None:
    no_property_row(world)
    assert str(found(world)[0]) == (
        "missing index row: s~unit K:1/L:'child', row of property 'text'; --repair writes it"
    )


def test_several_problems_of_one_entity_are_mended_at_once(world: World) -> None:
    right = everything(world)
    for harm in (no_head, no_kind_row, wrong_kindless_row, unlisted_kind):
        harm(world)
    wrong = [each for each in found(world) if each.key == ONE]
    assert repair(world.store, wrong[0])
    assert all(repair(world.store, each) for each in found(world))
    assert found(world) == []
    assert everything(world) == right


def test_an_index_being_built_may_lack_rows_but_not_have_wrong_ones(world: World) -> None:
    building = world.create(PINNED)
    assert found(world) == []
    row = building.prefix + b"\x10\x10" + ONE.path
    write(world, Write(row_address(ONE, row), tables.row_value(ONE, repeated=False)))
    assert faults(world) == [Fault.PHANTOM_ROW]
    assert all(repair(world.store, each) for each in found(world))
    world.datastore.builder().step(world.datastore.builder().unfinished(deadline=FAR)[0], deadline=FAR)
    assert found(world) == []
    finish_indexes(world.datastore.builder())
    assert found(world) == []


@pytest.mark.parametrize("state", [State.DELETING, State.ERROR])
def test_rows_of_an_index_nobody_reads_are_not_looked_at(world: World, state: State) -> None:
    serving = _serving(world)
    moved = catalog._serialize(PROJECT, 2, [serving._replace(state=state)])
    write(world, Write(catalog.catalog_address(PROJECT), moved))
    no_composite_row(world)
    phantom_row_of_an_index(world)
    assert found(world) == []


def test_an_index_that_serves_without_its_rows_is_found(world: World) -> None:
    world.create(definition((b"a", UP), (b"text", DOWN), kind=b"L"))
    indexes = world.catalog.read(PROJECT, deadline=FAR)
    served = [each._replace(state=State.SERVING) for each in indexes.all]
    write(world, Write(catalog.catalog_address(PROJECT), catalog._serialize(PROJECT, indexes.next_id, served)))
    assert faults(world) == [Fault.MISSING_ROW]
    assert all(repair(world.store, each) for each in found(world))
    assert found(world) == []


def test_a_repair_of_what_is_right_again_writes_nothing(world: World) -> None:
    no_kind_row(world)
    (wrong,) = found(world)
    world.delete(reference((b"K", 1)))
    before = everything(world)
    assert repair(world.store, wrong)
    assert everything(world) == before


def test_a_repair_does_not_undo_what_was_put_since(world: World) -> None:
    phantom_row_of_an_entity(world)
    (wrong,) = found(world)
    world.put(reference((b"K", 1)), never=None)
    assert repair(world.store, wrong)
    assert found(world) == []


def test_a_commit_just_before_a_repair_wins(world: World) -> None:
    phantom_row_of_an_entity(world)
    (wrong,) = found(world)
    interrupted: Any = Interrupted(world.store)
    interrupted.before_write = lambda: world.put(reference((b"K", 1)), never=None)
    assert repair(interrupted, wrong)
    assert interrupted.before_write is None
    assert found(world) == []


@pytest.mark.parametrize("world", ["memory:"], indirect=True)  # elsewhere the row is left, and a problem of its own
def test_no_row_is_written_for_an_index_that_was_just_removed(world: World) -> None:
    def remove() -> None:
        world.catalog.delete(PROJECT, _serving(world).id, deadline=FAR)
        finish_indexes(world.datastore.builder())

    no_composite_row(world)
    (wrong,) = found(world)
    interrupted: Any = Interrupted(world.store)
    interrupted.before_write = remove
    assert repair(interrupted, wrong)
    assert found(world) == []


def test_repairs_beside_writers_end_in_a_right_store(world: World) -> None:
    stop = threading.Event()
    chance = random.Random(3)

    def change() -> None:
        while not stop.wait(0.001):
            world.put(at(chance.randrange(20)), a=chance.randrange(5), b=chance.randrange(5))

    def mend() -> None:
        try:
            for _ in range(20):
                for harm in (no_kindless_row, phantom_row_of_no_entity, no_property_row, phantom_row_of_an_index):
                    harm(world)
                for wrong in found(world):
                    repair(world.store, wrong)
        finally:
            stop.set()

    in_threads(change, mend)
    for wrong in found(world):
        assert repair(world.store, wrong)
    assert found(world) == []


def test_only_the_named_projects_are_looked_at(world: World) -> None:
    no_kind_row(world)
    assert [*problems(world.store, [keys.partition(b"s~other", b"", b"")])] == []
    assert APP == b"s~unit"


def test_what_nothing_leads_to_cannot_be_seen(world: World) -> None:
    """Scopes cannot be listed: a namespace without a listed kind, a group without kindless and index rows."""
    far = reference((b"Far", 1), namespace=b"far")
    world.put(far, a=1)
    one = keys.from_reference(far)
    write(world, Write(listing_address(one), None), Write(row_address(one, tables.KIND_ROW + one.path), None))
    assert found(world) == []
    world.put(reference((b"Near", 1), namespace=b"far"), a=1)
    assert set(faults(world)) == {Fault.UNLISTED_KIND, Fault.MISSING_ROW}
