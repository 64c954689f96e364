"""Entities: what may be stored, the form they are stored in, and the index rows they have.

The stored value is `0x12 length EntityProto 0x58 version`: a piece of `QueryResult` (result, field 2; version,
field 11) and, as it stands, the inside of `GetResponse.Entity` (entity, field 2; field 11 is unknown there and
skipped). So reads splice stored bytes and never decode an entity. The version is a varint padded to nine bytes.
"""

from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pbserver.datastore import composites, tables, values
from pbserver.datastore.composites import MAX_ENTRIES, Composite
from pbserver.datastore.encoding import END, read_varint, text, varint
from pbserver.datastore.errors import BadRequest, Internal
from pbserver.datastore.keys import Key, check_utf8, to_reference
from protos.entity_pb2 import EntityProto, Property, PropertyValue

MAX_ENTITY_BYTES = 1_048_572
MAX_INDEXED_BYTES = 1500
MAX_LINK_BYTES = 2083
MAX_RAW_BYTES = 1_048_487

_VERSION_BYTES = 9
_STRING = PropertyValue.STRING_VALUE_FIELD_NUMBER
_BLOBS = frozenset((Property.BLOB, Property.ENTITY_PROTO, Property.TEXT))
_BYTES = _BLOBS | {Property.BYTESTRING}


class Entity(NamedTuple):
    """An entity that may be stored: its complete key, its serialized EntityProto, and its built-in index rows."""

    key: Key
    data: bytes
    rows: dict[bytes, bytes]
    proto: EntityProto


def parse(stored: bytes) -> EntityProto:
    """The entity in a stored value. Raises Internal for what is not one of ours."""
    try:
        return EntityProto.FromString(unframe(stored))
    except DecodeError as error:
        raise Internal("a stored entity cannot be read; run a verification of the store") from error


def build(key: Key, proto: EntityProto, data: bytes) -> Entity:
    """Checks everything the protocol asks of an entity. Raises BadRequest saying which property breaks which rule."""
    if len(data) > MAX_ENTITY_BYTES:
        raise BadRequest(f"entity is too big: {len(data)} bytes; the limit is {MAX_ENTITY_BYTES} bytes")
    for prop in proto.raw_property:
        _check_raw(prop)
    rows = index_rows(key, proto)
    if len(rows) > MAX_ENTRIES:
        composites.all_entries((), key, {}, len(rows))
    return Entity(key, data, rows, proto)


def all_rows(entity: Entity, of_kind: tuple[Composite, ...]) -> dict[bytes, bytes]:
    """The index rows of an entity whose kind has these composite indexes. Raises BadRequest where they are too many."""
    if not of_kind:
        return entity.rows
    found = property_values(entity.proto)
    return {**entity.rows, **composites.all_entries(of_kind, entity.key, found, len(entity.rows))}


def index_rows(key: Key, proto: EntityProto) -> dict[bytes, bytes]:
    """Key and value of every row the entity has in its kind's scope of table `indexes`. Hot: a put's largest part."""
    path = key.path
    single = tables.row_value(key, repeated=False)
    rows = {tables.KIND_ROW + path: single}
    names = []
    for prop in proto.property:
        name = prop.name
        fields = prop.value.ListFields()
        if len(fields) == 1:
            field, content = fields[0]
            number = field.number
            if number == _STRING and (len(content) > MAX_INDEXED_BYTES or not content.isascii()):
                _check_string(content, prop.meaning, name, MAX_INDEXED_BYTES)
            value = values.ENCODERS[number](content)
        else:
            value = values.encode(prop.value, name)
        meaning = prop.meaning
        if meaning:
            _check_indexed_meaning(meaning, name)
        rows[_row_name(name) + value + path] = single
        names.append(name)
    if len(rows) > len({*names}) + 1:
        _mark_repeated(key, rows)
    return rows


def _mark_repeated(key: Key, rows: dict[bytes, bytes]) -> None:
    """Marks the rows of properties with several values, so that queries find an entity once."""
    by_name: dict[bytes, list[bytes]] = {}
    for row in rows:
        if row.startswith(tables.PROPERTY_ROW):
            by_name.setdefault(row[: row.index(END, 1)], []).append(row)
    several = tables.row_value(key, repeated=True)
    for group in by_name.values():
        if len(group) > 1:
            rows.update(dict.fromkeys(group, several))


def property_values(proto: EntityProto) -> dict[bytes, list[bytes]]:
    """The encoded values of every indexed property."""
    found: dict[bytes, list[bytes]] = {}
    for prop in proto.property:
        found.setdefault(prop.name, []).append(values.encode(prop.value))
    return found


@lru_cache(maxsize=8192)
def _row_name(name: bytes) -> bytes:
    _check_name(name)
    return property_prefix(name)


def property_prefix(name: bytes) -> bytes:
    """How the rows of one property's index begin."""
    return tables.PROPERTY_ROW + text(name)


def _check_name(name: bytes) -> None:
    check_utf8(name, "property name")
    if len(name) > MAX_INDEXED_BYTES:
        raise BadRequest(f"a property name may have {MAX_INDEXED_BYTES} bytes, this one has {len(name)}")
    if name.startswith(b"__") and name.endswith(b"__") and len(name) >= 4:
        raise BadRequest(f"cannot store entity with reserved property name '{name.decode()}'")


def _check_indexed_meaning(meaning: int, name: bytes) -> None:
    if meaning in _BLOBS:
        raise BadRequest(f"BLOB, ENTITY_PROTO or TEXT property {name.decode()} must be in a raw_property field")
    if meaning == Property.INDEX_VALUE:
        raise BadRequest("Entities with incomplete properties cannot be written.")


def _check_string(value: bytes, meaning: int, name: bytes, limit: int) -> None:
    if len(value) > limit and (meaning != Property.ATOM_LINK or len(value) > MAX_LINK_BYTES):
        if meaning == Property.ATOM_LINK:
            limit = MAX_LINK_BYTES
        raise BadRequest(f"Property {name.decode()} is too long. Maximum length is {limit}.")
    if meaning not in _BYTES and not value.isascii():
        check_utf8(value, f'String property "{name.decode()}" value')


def _check_raw(prop: Property) -> None:
    name = prop.name
    _row_name(name)
    if prop.meaning == Property.INDEX_VALUE:
        raise BadRequest("Entities with incomplete properties cannot be written.")
    fields = prop.value.ListFields()
    if len(fields) > 1:
        raise BadRequest(f"PropertyValue for {name.decode()} has multiple value fields set")
    if fields and fields[0][0].number == _STRING:
        _check_string(fields[0][1], prop.meaning, name, MAX_RAW_BYTES)
    elif prop.meaning in _BLOBS:
        raise BadRequest(f"BLOB / ENTITY_PROTO / TEXT raw property {name.decode()} must have a string value")


def frame(data: bytes, version: int) -> bytes:
    """The stored value of an entity."""
    return b"".join((b"\x12", varint(len(data)), data, b"\x58", padded(version)))


def projected_frame(partition: bytes, path: bytes, projected: list[tuple[bytes, bytes]]) -> bytes:
    """A result of a projection query: `QueryResult.result` with the key and encoded index values by name."""
    proto = EntityProto(key=to_reference(partition, path))
    proto.entity_group.SetInParent()
    for name, value in projected:
        prop = proto.property.add(name=name, meaning=Property.INDEX_VALUE, multiple=False)
        prop.value.SetInParent()
        values.decode(value, 0, prop.value)
    data = proto.SerializeToString()
    return b"\x12" + varint(len(data)) + data


def padded(number: int) -> bytes:
    """A varint of always nine bytes, so that it can be cut off a stored value without looking for it."""
    return bytes(
        (
            number & 0x7F | 0x80,
            number >> 7 & 0x7F | 0x80,
            number >> 14 & 0x7F | 0x80,
            number >> 21 & 0x7F | 0x80,
            number >> 28 & 0x7F | 0x80,
            number >> 35 & 0x7F | 0x80,
            number >> 42 & 0x7F | 0x80,
            number >> 49 & 0x7F | 0x80,
            number >> 56 & 0x7F,
        )
    )


def version_bytes(stored: bytes) -> bytes:
    """The version of a stored value, as a varint ready to be sent."""
    return stored[-_VERSION_BYTES:]


def version(stored: bytes) -> int:
    return read_varint(stored, len(stored) - _VERSION_BYTES)[0]


def unframe(stored: bytes) -> bytes:
    """The EntityProto inside a stored value."""
    size, start = read_varint(stored, 1) if len(stored) > _VERSION_BYTES else (0, 0)
    if stored[:1] != b"\x12" or start + size + 1 + _VERSION_BYTES != len(stored):
        raise Internal("a stored entity is not one of ours; run a verification of the store")
    return stored[start : start + size]


def stored_rows(key: Key, stored: bytes, of_kind: tuple[Composite, ...]) -> dict[bytes, bytes]:
    """The index rows of what is stored. An index that is being built may lack some of them, and all of an entity that
    has too many: it will never serve.
    """
    proto = parse(stored)
    rows = index_rows(key, proto)
    if of_kind:
        found = property_values(proto)
        for each in of_kind:
            if each.is_written and not composites.size(each, key, found).is_too_large:
                rows.update(composites.entries(each, key, found))
    return rows
