"""Stores full of everything that can be moved, short ways to move it, and whether all of it arrived."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from adapters.build import open_store
from adapters.contract import OrderedStore
from adapters.errors import Unavailable
from pbserver.datastore import entities, ids, keys, projects
from pbserver.datastore.composites import State
from pbserver.datastore.entities import Entity
from pbserver.datastore.mutations import Mutation
from pbserver.moving.arriving import Arrival, is_unfinished
from pbserver.moving.comparing import differences
from pbserver.moving.reading import StoreSource
from pbserver.moving.records import START, Place, Record, Source
from pbserver.verification import problems
from protos.entity_pb2 import EntityProto, Property, PropertyValue
from tests.unit.building import FAR, definition, finish_indexes, proto, reference
from tests.unit.indexed_world import AB, DOWN, PINNED, PROJECT, UP, World

WEAK = ["weak:?atomicity=row&versions=yes", "weak:?atomicity=scope&versions=yes"]
STORES = ["memory:", "lmdb:", *WEAK]
OTHER = b"s~other"
DATABASE = keys.partition(OTHER, b"second", b"")
IDENTITY = b"the source"


@contextmanager
def opened(url: str, directory: Path) -> Iterator[OrderedStore]:
    place = f"lmdb:{directory}?durability=none" if url == "lmdb:" else url
    with closing(open_store(place)) as store:
        yield store


def awkward() -> EntityProto:
    """Every type of value, indexed and not; names, text and bytes of all kinds."""
    made = proto(
        reference((b"P\x00\x01", b"n\x00\x01\xc3\xa9"), (b"K", "日本".encode()), namespace=b"m"),
        a=[1, -(2**63), 2**63 - 1],
        b=[True, False],
        c=[0.0, -0.0, float("inf"), float("nan"), 1e-320],
        d=[b"", b"\x00", b"\x01\x02", "é€😀".encode()],
        e=(1.5, -0.0),
        f=reference((b"K", b"x\x00"), (b"L", 7), namespace=b"n"),
        g=[],
    )
    made.property.add(name="ключ\x00".encode(), multiple=False).value.SetInParent()
    user = PropertyValue()
    user.uservalue.email, user.uservalue.auth_domain, user.uservalue.gaiaid = b"a@b.c", b"d", 7
    made.property.add(name=b"user", multiple=False).value.CopyFrom(user)
    when = made.property.add(name=b"when", multiple=False, meaning=Property.GD_WHEN)
    when.value.int64_value = -1
    blob = made.raw_property.add(name=b"blob", multiple=False, meaning=Property.BLOB)
    blob.value.string_value = bytes(range(256)) * 1200
    return made


def put(world: World, made: EntityProto) -> Entity:
    built = entities.build(keys.from_reference(made.key), made, made.SerializeToString())
    world.datastore.write([Mutation(built.key, built)], None, deadline=FAR)
    world.held[built.key] = entities.property_values(made)
    return built


def filled(store: OrderedStore, count: int = 40) -> World:
    """Two projects; namespaces, groups, depths; indexes that serve, are being built, failed and are gone; counters."""
    world = World(store=store)
    for wanted in (AB, PINNED, definition((b"b", UP), (b"c", DOWN))):
        world.create(wanted)
    world.fill(count)
    put(world, awkward())
    world.catalog.delete(PROJECT, 3, deadline=FAR)
    finish_indexes(world.datastore.builder())
    failed = world.create(definition((b"x", UP), (b"y", UP)))
    world.catalog.move(PROJECT, failed, State.ERROR, deadline=FAR, note="too many")
    world.create(definition((b"a", UP), (b"b", UP)))
    far = reference((b"K", ids.scatter(5000)), (b"K", 77_000), app=OTHER)
    far.database_id = b"second"
    put(world, proto(far, a=1))
    world.datastore.ids.reserve(PROJECT, 10_000, deadline=FAR)
    world.datastore.ids.reserve(PROJECT, ids.scatter(300), deadline=FAR)
    return world


def copied(source: Source, target: OrderedStore) -> Arrival:
    with closing(Arrival(target, IDENTITY)) as arrival:
        arrival.take(source)
        arrival.finish()
    return arrival


def of(store: OrderedStore) -> StoreSource:
    return StoreSource(store, projects.projects(store))


def assert_right(source: OrderedStore, target: OrderedStore) -> None:
    assert projects.projects(target) == projects.projects(source)
    assert [*differences(of(source), of(target))] == []
    assert [str(each) for each in problems(target, projects.projects(target)) if not each.fault.is_note] == []
    assert not is_unfinished(target)


class Ending:
    """A source that fails behind some records."""

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._most = most

    def records(self, after: Place = START) -> Iterator[Record]:
        for number, record in enumerate(self._source.records(after)):
            if number == self._most:
                raise Unavailable("the end")
            yield record
