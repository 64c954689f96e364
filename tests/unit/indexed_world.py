"""A Datastore, in memory or as said, with composite indexes, what was put into it, and writers that get in between."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from adapters.build import open_store
from adapters.contract import Address, KeyRange, Operation, OrderedStore, Rows, Table, after_prefix
from pbserver.datastore import catalog, composites, keys
from pbserver.datastore.catalog import Catalog
from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.core import Datastore
from pbserver.datastore.entities import property_values
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import Mutation
from protos.entity_pb2 import Reference
from tests.unit.building import APP, FAR, definition, entity, reference

UP, DOWN = False, True
PROJECT = keys.partition(APP, b"", b"")
NAMESPACES = (b"", b"m", b"n")
AB = definition((b"a", UP), (b"b", DOWN))
PINNED = definition((b"a", DOWN), kind=b"K", ancestor=True)


class Interrupted:
    """A store in which something happens between what was read and the write that follows, once."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store
        self.before_write: Callable[[], None] | None = None
        self.most_rows = 0

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        happening, self.before_write = self.before_write, None
        if happening is not None:
            happening()
        self.most_rows = max(self.most_rows, sum(len(each.values) for each in rows))
        self._store.write(operations, rows=rows, deadline=deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class World:
    """A Datastore, and what was put into it."""

    def __init__(self, url: str = "memory:", store: OrderedStore | None = None) -> None:
        self.store = store or open_store(url)
        self.datastore = Datastore(self.store, testing=True)
        self.datastore.prepare(deadline=FAR)
        self.held: dict[Key, composites.Values] = {}

    def beside(self) -> "World":
        """The same as another server sees it."""
        other = World(store=self.store)
        other.held = self.held
        return other

    @property
    def catalog(self) -> Catalog:
        return self.datastore.catalog

    def put(self, at: Reference, **properties: Any) -> None:
        one = entity(at, **properties)
        self.datastore.write([Mutation(one.key, one)], None, deadline=FAR)
        self.held[one.key] = property_values(one.proto)

    def delete(self, at: Reference) -> None:
        one = keys.from_reference(at)
        self.datastore.write([Mutation(one, None)], None, deadline=FAR)
        self.held.pop(one, None)

    def fill(self, count: int) -> None:
        for number in range(count):
            self.put(at(number), a=number % 7, b=[number, -number])

    def create(self, wanted: Definition = AB) -> Composite:
        return self.catalog.create(PROJECT, wanted, deadline=FAR)

    def find(self, composite: Composite) -> Composite | None:
        return self.catalog.read(PROJECT, deadline=FAR).find(composite.id)

    def rows(self, composite: Composite) -> dict[tuple[bytes, bytes], bytes]:
        """Whatever stands in the index, by partition and row."""
        span = KeyRange(composite.prefix, after_prefix(composite.prefix))
        scan = self.store.scan
        return {
            (partition, row): content
            for partition in (keys.partition(APP, b"", namespace) for namespace in NAMESPACES)
            for row, content in scan(
                Table.INDEXES, partition + composite.definition.kind, span, limit=10**6, deadline=FAR
            )
        }

    def expected(self, composite: Composite) -> dict[tuple[bytes, bytes], bytes]:
        return {
            (one.partition, row): content
            for one, values in self.held.items()
            if one.kind == composite.definition.kind
            for row, content in composites.entries(composite, one, values).items()
        }

    def assert_complete(self, composite: Composite) -> None:
        assert self.rows(composite) == self.expected(composite)
        found = self.find(composite)
        assert found is not None
        assert found.state is State.SERVING
        left = self.store.read([catalog.progress_address(PROJECT, composite.id)], deadline=FAR)
        assert left == [None]


def write(world: World, *operations: Operation) -> None:
    world.store.write(operations, deadline=FAR)


def read(world: World, address: Address) -> bytes:
    value = world.store.read([address], deadline=FAR)[0]
    assert value is not None
    return value


def everything(world: World) -> dict[tuple[Table, bytes], list[tuple[bytes, bytes]]]:
    """All rows but the heads, whose slots follow the clock."""
    memory: Any = world.store
    while not hasattr(memory, "scopes"):
        memory = memory._live if hasattr(memory, "_live") else memory.inner
    rows = {place: world.store.scan(*place, KeyRange(), limit=10**6, deadline=FAR) for place in memory.scopes}
    return {place: kept for place, each in rows.items() if (kept := [row for row in each if row[0] != b"\x00"])}


def at(number: int) -> Reference:
    """Keys of several namespaces, groups and depths; one in eight of another kind."""
    path: list[tuple[bytes, int | bytes | None]] = [(b"K" if number % 8 else b"L", number + 1)]
    if number % 3:
        path.insert(0, (b"P", number % 5 + 1))
    return reference(*path, namespace=NAMESPACES[number % len(NAMESPACES)])


def in_threads(*work: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - told to the test's thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failed:
        raise failed[0]
