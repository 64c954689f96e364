"""What is wrong with an entity, and with a row that says it leads to one, as a reader sees them. Nothing is written.

In one state of an entity group its entities, their rows and its head agree, or are wrong, whatever a server writes
meanwhile. Whether what a reader sees is one state, states.py knows.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from google.protobuf.message import DecodeError

from adapters.contract import Address, KeyRange, Reader, Row, Table
from pbserver.datastore import catalog, composites, entities, heads, keys, tables, values
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.composites import Composite, State
from pbserver.datastore.encoding import END
from pbserver.datastore.errors import BadRequest, Internal
from pbserver.datastore.groups import slot_of
from pbserver.datastore.keys import Key
from pbserver.verification.problem import Fault, Problem
from protos.entity_pb2 import EntityProto, PropertyValue

SLOT_BYTES = 8
PAGE_ENTITIES = 50  #: of a group, read at once: each may have a MiB
_FRAMED_VERSION = b"\x58"
_VERSION_BYTES = 10  # with its tag
_MOST_REMEMBERED_ROWS = 50_000


class Unreadable(Exception):
    """A stored entity that cannot be what was written; the message says why."""


class Due(NamedTuple):
    """The rows of table `indexes` that an entity must have, and those of indexes being built that it may have."""

    needed: dict[bytes, bytes]
    allowed: dict[bytes, bytes]


class View:
    """One look at one project. `steady`: heads are nothing but slots. Used by one thread, as long as the reader is."""

    def __init__(self, reader: Reader, project: bytes, *, steady: bool, deadline: float) -> None:
        self.reader = reader
        self.deadline = deadline
        self._steady = steady
        self.project = project
        self.catalog_row = reader.read([catalog.catalog_address(project)], deadline=deadline)[0]
        self.indexes = _parsed(self.catalog_row)
        self._due: dict[tuple[bytes, bytes], Due | Unreadable] = {}
        self._remembered = 0

    def catalog_problem(self) -> Problem | None:
        if self.indexes is not None:
            return None
        address = catalog.catalog_address(self.project)
        return Problem(Fault.UNREADABLE_CATALOG, address, None, keys.app_of(self.project).decode(errors="replace"))

    def stored(self, key: Key) -> bytes | None:
        return self.reader.read([tables.entity_address(key)], deadline=self.deadline)[0]

    def is_absent(self, address: Address) -> bool:
        return self.reader.read([address], deadline=self.deadline)[0] is None

    def entity_problems(self, found: Iterable[tuple[Key, bytes]]) -> Iterator[Problem]:
        """All that is wrong with stored entities, their rows and their groups. What they must have is read for some
        of them at once: a call of the store for each would be most of what a verification costs.
        """
        sound: list[tuple[Key, bytes, Due]] = []
        for key, stored in found:
            place = tables.entity_address(key)
            try:
                due = self._rows_due(key, stored)
            except Unreadable as error:
                yield Problem(Fault.UNREADABLE_ENTITY, place, key, str(error))
                continue
            if _key_inside(stored) == key:
                sound.append((key, stored, due))
            else:
                yield Problem(Fault.MISPLACED_ENTITY, place, key)
        for start in range(0, len(sound), PAGE_ENTITIES):
            some = sound[start : start + PAGE_ENTITIES]
            rows = iter(
                self.reader.read([each for key, _, due in some for each in _needed(key, due)], deadline=self.deadline)
            )
            for key, stored, due in some:
                yield from self._problems_of(key, stored, due, rows)

    def _problems_of(self, key: Key, stored: bytes, due: Due, read: Iterator[bytes | None]) -> Iterator[Problem]:
        """`read`: what stands at the addresses of _needed, and of the entities to come."""
        head, listed, kindless = islice(read, 3)
        yield from self._head_problems(key, stored, head)
        if listed is None:
            yield Problem(Fault.UNLISTED_KIND, listing_address(key), key)
        yield from _row_problems(key, kindless_address(key), kindless, tables.row_value(key, repeated=False))
        wanted = [*due.needed.items(), *due.allowed.items()]
        for index, ((row, value), found) in enumerate(zip(wanted, islice(read, len(wanted)), strict=True)):
            if found is not None or index < len(due.needed):
                yield from _row_problems(key, row_address(key, row), found, value)

    def _head_problems(self, key: Key, stored: bytes, head: bytes | None) -> Iterator[Problem]:
        address = tables.head_address(key.group)
        if head is None:
            yield Problem(Fault.MISSING_HEAD, address, key)
        elif not self.is_head(head):
            yield unreadable_head(key)
        elif slot_of(head) < entities.version(stored):
            yield Problem(Fault.LOW_HEAD, address, key, f"{slot_of(head)} < {entities.version(stored)}")

    def is_head(self, head: bytes) -> bool:
        """Whether a group's head can be read."""
        if self._steady:
            return len(head) == SLOT_BYTES
        try:
            return heads.decode(head).raw is not None
        except Internal:
            return False

    def head(self, group: bytes) -> bytes | None:
        return self.reader.read([tables.head_address(group)], deadline=self.deadline)[0]

    def highest_version(self, group: bytes) -> int:
        """Of the entities in a group; 0 where there are none."""
        highest, start = 0, tables.head_address(group).key + b"\x00"
        while True:
            rows = self.reader.scan(Table.GROUPS, group, KeyRange(start), limit=PAGE_ENTITIES, deadline=self.deadline)
            highest = max([highest, *(entities.version(stored) for _, stored in rows if has_version(stored))])
            if len(rows) < PAGE_ENTITIES:
                return highest
            start = rows[-1][0] + b"\x00"

    def index_row_problems(self, partition: bytes, kind: bytes, rows: list[Row]) -> Iterator[Problem]:
        """What is wrong with rows of one kind's scope, seen from the rows: entities without their kindless row too."""
        leading = [(row, key_of(partition, kind, row)) for row in rows]
        found = [key for _, key in leading if key is not None]
        entity_rows = self._entities(found)
        kindless = self.reader.fetch(
            Table.KINDLESS, [key.partition for key in found], [key.path for key in found], deadline=self.deadline
        )
        without = dict.fromkeys(key for key, row in zip(found, kindless, strict=True) if row is None)
        stored = dict(zip(found, entity_rows, strict=True))
        for (row, value), key in leading:
            entity = stored[key] if key is not None else None
            if self._is_phantom(row, key, entity):
                address = Address(Table.INDEXES, partition + kind, key.path if key else b"", row)
                yield Problem(Fault.PHANTOM_ROW, address, key, value=value)
        yield from self.entity_problems((key, entity) for key in without if (entity := stored[key]) is not None)

    def kindless_problems(self, partition: bytes, rows: list[Row]) -> Iterator[Problem]:
        """Which kindless rows lead to no entity."""
        leading = [(row, value, key_of_path(partition, row)) for row, value in rows]
        stored = iter(self._entities([key for _, _, key in leading if key is not None]))
        for row, value, key in leading:
            if key is None or next(stored) is None:
                yield Problem(Fault.PHANTOM_ROW, Address(Table.KINDLESS, partition, row, row), key, value=value)

    def _entities(self, found: list[Key]) -> list[bytes | None]:
        places = [*map(tables.entity_address, found)]
        return self.reader.fetch(
            Table.GROUPS, [place.scope for place in places], [place.key for place in places], deadline=self.deadline
        )

    def _is_phantom(self, row: bytes, key: Key | None, stored: bytes | None) -> bool:
        if row.startswith(tables.COMPOSITE_ROW):
            if self.indexes is None:
                return False
            composite = self.indexes.find(int.from_bytes(row[1:5], "big"))
            if composite is not None and not composite.is_written:
                return False  # being removed, or waiting for it
        if key is None or stored is None:
            return True
        try:
            return not self._has_row(key, stored, row)
        except Unreadable:
            return False  # nobody knows which rows it has

    def _has_row(self, key: Key, stored: bytes, row: bytes) -> bool:
        """Whether an entity has a row, without making all it has: that would cost their square. Raises Unreadable."""
        if row == tables.KIND_ROW + key.path:
            return True
        if row.startswith(tables.COMPOSITE_ROW):
            due = self._rows_due(key, stored)
            return row in due.needed or row in due.allowed
        for prop in _parsed_entity(stored).property:
            prefix = entities.property_prefix(prop.name)
            if row.startswith(prefix) and row == prefix + _encoded(prop.value) + key.path:
                return True
        return False

    def _rows_due(self, key: Key, stored: bytes) -> Due:
        """Remembers some: the rows of an entity with many values lie close together. Raises Unreadable."""
        name = (key.partition, key.path)
        due = self._due.get(name)
        if due is None:
            try:
                due = rows_due(key, stored, self.indexes.of_kind(key.kind) if self.indexes is not None else ())
                self._remembered += len(due.needed) + len(due.allowed)
            except Unreadable as error:
                due = error
            if self._remembered > _MOST_REMEMBERED_ROWS:
                self._due.clear()
                self._remembered = 0
            self._due[name] = due
        if isinstance(due, Unreadable):
            raise due
        return due


def rows_due(key: Key, stored: bytes, of_kind: tuple[Composite, ...]) -> Due:
    """Raises Unreadable."""
    if not has_version(stored):
        raise Unreadable("it does not end in a version")
    try:
        proto = entities.parse(stored)
        needed = entities.index_rows(key, proto)
        allowed: dict[bytes, bytes] = {}
        found = entities.property_values(proto) if of_kind else {}
        for each in of_kind:
            if each.is_written and not composites.size(each, key, found).is_too_large:
                into = needed if each.state is State.SERVING else allowed
                into.update(composites.entries(each, key, found))
    except (Internal, BadRequest, IndexError) as error:
        raise Unreadable(str(error).partition(";")[0]) from error
    return Due(needed, allowed)


def _needed(key: Key, due: Due) -> list[Address]:
    """Whose rows say whether an entity is as it should be."""
    rows = [row_address(key, row) for row in (*due.needed, *due.allowed)]
    return [tables.head_address(key.group), listing_address(key), kindless_address(key), *rows]


def has_version(stored: bytes) -> bool:
    """Whether a stored entity ends as all of them do."""
    return stored[-_VERSION_BYTES : 1 - _VERSION_BYTES] == _FRAMED_VERSION and stored[-1] < 0x80


def unreadable_head(key: Key) -> Problem:
    """The problem of all entities in a key's group, told of their root."""
    root = key_of_path(key.partition, key.path[: key.root])
    return Problem(Fault.UNREADABLE_HEAD, tables.head_address(key.group), root)


def _parsed_entity(stored: bytes) -> EntityProto:
    try:
        return entities.parse(stored)
    except (Internal, IndexError) as error:
        raise Unreadable(str(error)) from error


def _encoded(value: PropertyValue) -> bytes:
    try:
        return values.encode(value)
    except BadRequest as error:
        raise Unreadable(str(error)) from error


def _key_inside(stored: bytes) -> Key | None:
    try:
        return keys.from_reference(entities.parse(stored).key)
    except BadRequest:
        return None


def _row_problems(key: Key, address: Address, found: bytes | None, wanted: bytes) -> Iterator[Problem]:
    if found is None:
        yield Problem(Fault.MISSING_ROW, address, key)
    elif found != wanted:
        yield Problem(Fault.WRONG_ROW, address, key)


def _parsed(row: bytes | None) -> Indexes | None:
    """None: nobody can read it."""
    try:
        return catalog.parse(row)
    except (DecodeError, BadRequest, ValueError):
        return None


def kindless_address(key: Key) -> Address:
    return Address(Table.KINDLESS, key.partition, key.path, key.path)


def row_address(key: Key, row: bytes) -> Address:
    return Address(Table.INDEXES, key.partition + key.kind, key.path, row)


def listing_address(key: Key) -> Address:
    """The row of table `kinds` that leads to the entity's kind."""
    return tables.kind_address(keys.project_of(key.partition), keys.partition_names(key.partition)[2], key.kind)


def key_of_path(partition: bytes, path: bytes) -> Key | None:
    """The key with an encoded path; None when it is no path."""
    try:
        steps = keys.self_and_ancestors(path)
        if not steps or steps[-1] != path:
            return None
        last = path[len(steps[-2]) :] if len(steps) > 1 else path
        return Key(partition, path, len(steps[0]), last[: last.index(END) + 1])
    except (ValueError, IndexError):
        return None


def key_of(partition: bytes, kind: bytes, row: Row) -> Key | None:
    """The key that a row of a kind's scope leads to; None when it can lead to none of that kind."""
    content, value = row
    if len(value) != len(tables.row_value(_SHORTEST, repeated=False)):
        return None
    key = key_of_path(partition, tables.row_path(content, value))
    if key is None or key.kind != kind or tables.key_of_row(partition, kind, row) != key:
        return None
    return key


_SHORTEST = Key(b"", b"", 0, b"")
