"""The kinds `__Stat_*__`, computed when they are asked for: every entity of the project, or namespace, is read once.

`__Stat_Total__`, `__Stat_Kind__` and so on stand in the default namespace and count all namespaces; their twins
`__Stat_Ns_Total__` ... stand in each namespace and count that one. Names and properties: the SDK's ext/db/stats.py.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from adapters.contract import KeyRange, Reader, Row, Table, after_prefix
from pbserver.datastore import catalog, composites, entities, keys, made_up, metadata, tables, values
from pbserver.datastore.composites import Composite
from pbserver.datastore.encoding import integer, read_text, text
from pbserver.datastore.errors import Timeout
from pbserver.datastore.keys import Key
from pbserver.datastore.made_up import MadeUp
from protos.entity_pb2 import EntityProto, Property, PropertyValue

_PREFIX = b"__Stat_"
_PAGE = 500

#: What a property's type is called, by its meaning, else by the field of its value.
_BY_MEANING = {
    Property.BLOB: "Blob",
    Property.TEXT: "Text",
    Property.BYTESTRING: "ShortBlob",
    Property.ATOM_CATEGORY: "Category",
    Property.ATOM_LINK: "Link",
    Property.GD_WHEN: "Date/Time",
    Property.GD_EMAIL: "Email",
    Property.GD_IM: "IM",
    Property.GD_PHONENUMBER: "PhoneNumber",
    Property.GD_POSTALADDRESS: "PostalAddress",
    Property.GD_RATING: "Rating",
    Property.BLOBKEY: "BlobKey",
    Property.ENTITY_PROTO: "EmbeddedEntity",
}
_BY_FIELD = {1: "Integer", 2: "Boolean", 3: "String", 4: "Float", 5: "GeoPt", 8: "User", 12: "Key"}


@dataclass(slots=True)
class Sum:
    """What is counted of a set of entities or properties, in entities (or values), bytes and index rows."""

    count: int = 0
    entity_bytes: int = 0
    builtin_index_bytes: int = 0
    builtin_index_count: int = 0
    composite_index_bytes: int = 0
    composite_index_count: int = 0

    def add(self, entity_bytes: int, built_in: Iterable[Row] = (), composite: Iterable[Row] = ()) -> None:
        self.count += 1
        self.entity_bytes += entity_bytes
        for key, value in built_in:
            self.builtin_index_count += 1
            self.builtin_index_bytes += len(key) + len(value)
        for key, value in composite:
            self.composite_index_count += 1
            self.composite_index_bytes += len(key) + len(value)


#: What a sum is of: values of the statistic's own properties, such as (kind, type of property).
Label = tuple[str | int, ...]


@dataclass(slots=True)
class _Sums:
    """All sums, by the statistic (its name without prefix and underscores) and label."""

    by_statistic: dict[str, dict[Label, Sum]] = field(default_factory=dict)

    def of(self, statistic: str, *label: str | int) -> Sum:
        return self.by_statistic.setdefault(statistic, {}).setdefault(label, Sum())


class _Statistic(NamedTuple):
    """`labels` are the properties that say what is counted; `key_name` names the entity of a label."""

    labels: tuple[str, ...] = ()
    key_name: Callable[[Label], str] = lambda label: str(label[0]) if len(label) == 1 else json.dumps(label)


_STATISTICS = {
    "Total": _Statistic((), lambda _: "total_entity_usage"),
    "Namespace": _Statistic(("subject_namespace",)),
    "Kind": _Statistic(("kind_name",)),
    "Kind_IsRootEntity": _Statistic(("kind_name",)),
    "Kind_NotRootEntity": _Statistic(("kind_name",)),
    "PropertyType": _Statistic(("property_type",)),
    "PropertyType_Kind": _Statistic(("kind_name", "property_type")),
    "PropertyName_Kind": _Statistic(("kind_name", "property_name")),
    "PropertyType_PropertyName_Kind": _Statistic(("kind_name", "property_name", "property_type")),
    "Kind_CompositeIndex": _Statistic(("kind_name", "index_id")),
}


def is_statistic(kind: bytes | None) -> bool:
    """Whether an encoded kind is one of those above."""
    return kind is not None and kind.startswith(_PREFIX) and _name(kind) in _STATISTICS


def _name(kind: bytes) -> str:
    return read_text(kind, 0)[0].decode().removeprefix("__Stat_").removeprefix("Ns_").removesuffix("__")


def results(partition: bytes, kind: bytes, reader: Reader, deadline: float) -> MadeUp:
    """The entities of a statistic's (encoded) kind in a partition. Raises Timeout when they take too long."""
    project = keys.project_of(partition)
    app, database, namespace = keys.partition_names(partition)
    of_one = kind.startswith(_PREFIX + b"Ns_")
    if not of_one and namespace:
        return MadeUp(())
    namespaces = [namespace] if of_one else [*metadata.live_namespaces(reader, project, deadline)]
    sums = _Sums()
    indexes = catalog.read(reader, project, deadline=deadline)
    for each in namespaces:
        counted = keys.partition(app, database, each)
        for counted_kind in metadata.live_kinds(reader, counted, deadline):
            if not counted_kind.startswith(_PREFIX):
                written = tuple(index for index in indexes.of_kind(counted_kind) if index.is_written)
                for key, proto, size in _entities(reader, counted, counted_kind, deadline):
                    _count(sums, key, proto, size, written, each.decode())
    name = _name(kind)
    now = time.time_ns() // 1000
    return MadeUp(
        made_up.finished(_entity(partition, kind, _STATISTICS[name], label, found, now))
        for label, found in sums.by_statistic.get(name, {}).items()
    )


def _entities(reader: Reader, partition: bytes, kind: bytes, deadline: float) -> Iterator[tuple[Key, EntityProto, int]]:
    """All entities of a kind, and their size in bytes."""
    start, stop = tables.KIND_ROW, after_prefix(tables.KIND_ROW)
    while True:
        if time.monotonic() > deadline:
            raise Timeout("the statistics were not computed in time: they read every entity")
        rows = reader.scan(Table.INDEXES, partition + kind, KeyRange(start, stop), limit=_PAGE, deadline=deadline)
        scopes, columns = tables.entity_columns(partition, rows)
        for row, stored in zip(rows, reader.fetch(Table.GROUPS, scopes, columns, deadline=deadline), strict=True):
            if stored is not None:
                data = entities.unframe(stored)
                yield tables.key_of_row(partition, kind, row), EntityProto.FromString(data), len(data)
        if len(rows) < _PAGE:
            return
        start = rows[-1][0] + b"\x00"


def _count(
    sums: _Sums, key: Key, proto: EntityProto, size: int, written: tuple[Composite, ...], namespace: str
) -> None:
    kind = read_text(key.kind, 0)[0].decode()
    built_in = entities.index_rows(key, proto).items()
    found = entities.property_values(proto)
    by_index = {index.id: composites.entries(index, key, found).items() for index in written}
    composite = [row for rows in by_index.values() for row in rows]
    place = "Kind_IsRootEntity" if key.root == len(key.path) else "Kind_NotRootEntity"
    for each in (sums.of("Total"), sums.of("Namespace", namespace), sums.of("Kind", kind), sums.of(place, kind)):
        each.add(size, built_in, composite)
    for index_id, rows in by_index.items():
        if rows:
            sums.of("Kind_CompositeIndex", kind, index_id).add(sum(len(row) + len(value) for row, value in rows))
    for prop in proto.property:
        row = entities.property_prefix(prop.name) + values.encode(prop.value) + key.path
        _count_property(sums, kind, prop, [(row, tables.row_value(key, repeated=False))])
    for prop in proto.raw_property:
        _count_property(sums, kind, prop, [])


def _count_property(sums: _Sums, kind: str, prop: Property, rows: list[Row]) -> None:
    name, its_type, size = prop.name.decode(), _type(prop), prop.ByteSize()
    for each in (
        sums.of("PropertyType", its_type),
        sums.of("PropertyType_Kind", kind, its_type),
        sums.of("PropertyName_Kind", kind, name),
        sums.of("PropertyType_PropertyName_Kind", kind, name, its_type),
    ):
        each.add(size, rows)


def _type(prop: Property) -> str:
    fields = prop.value.ListFields()
    if not fields:
        return "NULL"
    return _BY_MEANING.get(prop.meaning) or _BY_FIELD[fields[0][0].number]


def _entity(partition: bytes, kind: bytes, statistic: _Statistic, label: Label, found: Sum, now: int) -> EntityProto:
    name = statistic.key_name(label)
    identifier = keys.NAME + text(name.encode()) if name else keys.ID + integer(1)  # the default namespace has no name
    proto = made_up.entity(partition, kind + identifier)
    for prop, value in zip(statistic.labels, label, strict=True):
        _add(proto, prop, value)
    _add(proto, "bytes", found.entity_bytes + found.builtin_index_bytes + found.composite_index_bytes)
    _add(proto, "count", found.count)
    proto.property.add(
        name=b"timestamp", multiple=False, meaning=Property.GD_WHEN, value=PropertyValue(int64_value=now)
    )
    for each in ("entity", "builtin_index", "composite_index"):
        _add(proto, f"{each}_bytes", getattr(found, f"{each}_bytes"))
    for each in ("builtin_index", "composite_index"):
        _add(proto, f"{each}_count", getattr(found, f"{each}_count"))
    return proto


def _add(proto: EntityProto, name: str, value: str | int) -> None:
    prop = proto.property.add(name=name.encode(), multiple=False)
    if isinstance(value, int):
        prop.value.int64_value = value
    else:
        prop.value.string_value = value.encode()
