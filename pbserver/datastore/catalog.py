"""The composite indexes of each project: one row of table `meta`, changed by compare-and-set.

Every commit checks that the row is still what its index rows were made by, and every query reads it in the snapshot
it reads from. So from the commit that creates an index on every put writes it, on every server, and a query uses an
index only while it is complete.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Operation,
    OrderedStore,
    Reader,
    Write,
)
from adapters.errors import Conflict
from pbserver.datastore import keys
from pbserver.datastore.composites import Composite, Definition, State, checked
from pbserver.datastore.encoding import read_text
from pbserver.datastore.errors import BadRequest, Timeout
from pbserver.datastore.queries import Order
from pbserver.datastore.scanning import meta_rows
from pbserver.datastore.tables import meta_address
from protos import catalog_pb2
from protos.entity_pb2 import CompositeIndex, Index

_NAME = "indexes"
_PROGRESS = "index progress"
_PAGE = 1000

#: What a client may ask for; the Datastore itself decides when an index serves.
_ALLOWED = {
    State.BUILDING: {State.DELETING, State.ERROR},
    State.SERVING: {State.DELETING},
    State.ERROR: {State.DELETING},
    State.DELETING: {State.ERROR},
}


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of a project, as its row says. `serialized` is the row, None: there is none."""

    serialized: bytes | None = None
    next_id: int = 1
    all: tuple[Composite, ...] = ()
    by_kind: dict[bytes, tuple[Composite, ...]] = field(default_factory=dict)

    def of_kind(self, kind: bytes | None) -> tuple[Composite, ...]:
        """The indexes of an encoded kind."""
        return self.by_kind.get(kind, ()) if kind is not None else ()

    def find(self, index_id: int) -> Composite | None:
        return next((each for each in self.all if each.id == index_id), None)


def catalog_address(project: bytes) -> Address:
    return meta_address(_NAME, project)


def progress_address(project: bytes, index_id: int) -> Address:
    return meta_address(_PROGRESS, project + index_id.to_bytes(8, "big"))


@lru_cache(maxsize=256)
def parse(serialized: bytes | None) -> Indexes:
    """The indexes in a catalog row. Rows change seldom, so this is remembered."""
    if serialized is None:
        return Indexes()
    message = catalog_pb2.Catalog.FromString(serialized)
    found = tuple(_to_composite(entry) for entry in message.entry)
    kinds = dict.fromkeys(each.definition.kind for each in found)
    by_kind = {kind: tuple(each for each in found if each.definition.kind == kind) for kind in kinds}
    return Indexes(serialized, message.next_id, found, by_kind)


def _to_composite(entry: catalog_pb2.Catalog.Entry) -> Composite:
    index = entry.index
    return Composite(index.id, to_definition(index.definition), State(index.state), entry.note.decode())


def to_definition(index: Index) -> Definition:
    """The definition in a message, as it stands there."""
    properties = tuple(Order(each.name, each.direction == Index.DESCENDING) for each in index.property)
    return Definition(keys.encode_kind(index.entity_type), index.ancestor, properties)


def set_index(into: CompositeIndex, project: bytes, composite: Composite) -> None:
    """Sets a message to an index of a project."""
    app, database, _ = keys.partition_names(project)
    into.app_id = app
    if database:
        into.database_id = database
    into.id = composite.id
    into.state = composite.state.value  # type: ignore[assignment]
    definition = composite.definition
    into.definition.entity_type = read_text(definition.kind, 0)[0]
    into.definition.ancestor = definition.ancestor
    for name, descending in definition.properties:
        into.definition.property.add(name=name, direction=Index.DESCENDING if descending else Index.ASCENDING)


def _serialize(project: bytes, next_id: int, composites: Iterable[Composite]) -> bytes:
    message = catalog_pb2.Catalog(next_id=next_id)
    for each in composites:
        entry = message.entry.add(note=each.note.encode())
        set_index(entry.index, project, each)
    return message.SerializeToString()


def read(reader: Reader, project: bytes, *, deadline: float) -> Indexes:
    """The project's indexes as a reader sees them."""
    return parse(reader.read([catalog_address(project)], deadline=deadline)[0])


def projects(reader: Reader, *, deadline: float) -> list[bytes]:
    """The projects that have, or had, composite indexes."""
    return [project for project, _ in meta_rows(reader, _NAME, deadline=deadline)]


class Catalog:
    """Creates, changes and deletes indexes. Thread-safe; any number of processes may do so at once."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def read(self, project: bytes, *, deadline: float) -> Indexes:
        return read(self._store, project, deadline=deadline)

    def create(self, project: bytes, definition: Definition, *, deadline: float) -> Composite:
        """A new index, in state BUILDING. Raises BadRequest for a definition that exists or cannot be built."""
        definition = checked(definition)

        def add(indexes: Indexes) -> tuple[Composite, ...]:
            if _existing(indexes, definition) is not None:
                raise BadRequest("Index already exists.")
            return (*indexes.all, Composite(indexes.next_id, definition, State.BUILDING))

        return self._change(project, add, deadline).all[-1]

    def find(self, project: bytes, definition: Definition, *, deadline: float) -> Composite:
        """The index with this definition. Raises BadRequest when there is none."""
        found = _existing(self.read(project, deadline=deadline), checked(definition))
        if found is None:
            raise BadRequest("Index does not exist.")
        return found

    def update(self, project: bytes, definition: Definition, state: State, *, deadline: float) -> None:
        """What a client may do to the state of an index: to delete it, or to give up building it."""
        while True:
            found = self.find(project, definition, deadline=deadline)
            if state is found.state:
                return
            if found.state is State.BUILDING and state is State.SERVING:
                raise BadRequest(
                    f"index {found.id} is still being built; it serves by itself as soon as it is complete"
                )
            if state not in _ALLOWED[found.state]:
                raise BadRequest(f"cannot move index state from {found.state.value} to {state.value}")
            if self.move(project, found, state, deadline=deadline):
                return

    def delete(self, project: bytes, index_id: int, *, deadline: float) -> None:
        """No query uses the index any more; its rows go in the background. Raises BadRequest for an unknown id."""
        while True:
            found = self.read(project, deadline=deadline).find(index_id)
            if found is None:
                raise BadRequest(f"Index does not exist. (id {index_id})")
            if found.state is State.DELETING or self.move(project, found, State.DELETING, deadline=deadline):
                return

    def move(
        self,
        project: bytes,
        composite: Composite,
        state: State | None,
        *,
        deadline: float,
        note: str = "",
        operations: Iterable[Operation] = (),
    ) -> bool:
        """Moves an index to a state, or out of the catalog (None), together with other operations.

        False, and nothing written, when the index is no longer just as `composite` says.
        """
        moved = False

        def change(indexes: Indexes) -> tuple[Composite, ...]:
            nonlocal moved
            moved = composite in indexes.all
            new = () if state is None else (composite._replace(state=state, note=note),)
            return tuple(kept for each in indexes.all for kept in (new if each == composite else (each,)))

        self._change(project, change, deadline, operations)
        return moved

    def adopt(self, project: bytes, composites: Sequence[Composite], next_id: int, *, deadline: float) -> None:
        """Adds indexes of another store as they are there, but those whose ids exist; gives out no id below `next_id`.

        Whoever adds one that serves knows that the project has no entities yet.
        """

        def add(indexes: Indexes) -> tuple[Composite, ...]:
            return (*indexes.all, *(each for each in composites if indexes.find(each.id) is None))

        self._change(project, add, deadline, next_id=next_id)

    def _change(
        self,
        project: bytes,
        change: Callable[[Indexes], tuple[Composite, ...]],
        deadline: float,
        operations: Iterable[Operation] = (),
        next_id: int = 1,
    ) -> Indexes:
        address = catalog_address(project)
        while True:
            old = self.read(project, deadline=deadline)
            composites = change(old)
            next_id = max([next_id, old.next_id, *(each.id + 1 for each in composites)])
            if (composites, next_id) == (old.all, old.next_id):
                return old
            new = _serialize(project, next_id, composites)
            expected = ABSENT if old.serialized is None else old.serialized
            try:
                self._write(Write(address, new, expected), operations, deadline)
            except Conflict:
                if time.monotonic() > deadline:
                    raise Timeout("the catalog of indexes is contended; nothing was changed") from None
            else:
                return parse(new)

    def _write(self, change: Write, operations: Iterable[Operation], deadline: float) -> None:
        """Together where the store can; else the change first, since it decides."""
        if self._store.capabilities.atomicity is Atomicity.BATCH:
            self._store.write([change, *operations], deadline=deadline)
            return
        self._store.write([change], deadline=deadline)
        for each in operations:
            self._store.write([each], deadline=deadline)


def _existing(indexes: Indexes, definition: Definition) -> Composite | None:
    return next(
        (each for each in indexes.all if each.definition == definition and each.state is not State.DELETING), None
    )
