"""What may be stored, in which form, and with which index rows."""

from typing import Any

import pytest

from adapters.contract import Table, addresses
from pbserver.datastore import entities, keys, tables
from pbserver.datastore.encoding import read_varint
from pbserver.datastore.errors import BadRequest, Internal
from protos.datastore_v3_pb2 import GetResponse, QueryResult
from protos.entity_pb2 import EntityProto, Property
from tests.unit.building import entity, key, proto, reference

AT = reference((b"P", b"root"), (b"K", 7))


def build(made: EntityProto) -> entities.Entity:
    return entities.build(keys.from_reference(made.key), made, made.SerializeToString())


def test_a_stored_entity_is_a_piece_of_both_answers() -> None:
    made = entity(AT, p=1)
    stored = entities.frame(made.data, 1_795_250_939_634)
    result = QueryResult.FromString(b"\x18\x00" + stored + stored)
    assert list(result.result) == [made.data, made.data]
    assert list(result.version) == [1_795_250_939_634] * 2
    got = GetResponse.FromString(b"\x0b" + stored + b"\x18" + entities.version_bytes(stored) + b"\x0c")
    assert (got.entity[0].entity, got.entity[0].version) == (made.data, 1_795_250_939_634)
    assert entities.unframe(stored) == made.data
    assert entities.version(stored) == 1_795_250_939_634


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**41, 2**63 - 1])
def test_a_padded_varint_has_nine_bytes_and_its_value(number: int) -> None:
    assert len(entities.padded(number)) == 9
    assert read_varint(entities.padded(number), 0) == (number, 9)


@pytest.mark.parametrize("bad", [b"\x12", b"\x12\x05abc", b"\x13\x00" + bytes(10)])
def test_a_stored_value_that_is_not_ours_is_named(bad: bytes) -> None:
    with pytest.raises((Internal, IndexError)):
        entities.unframe(bad)


def test_rows_are_one_for_the_kind_and_one_for_each_value() -> None:
    made = entity(AT, p=[3, 1, 3], q=b"x", r=None)
    path = key((b"P", b"root"), (b"K", 7)).path
    assert all(row.endswith(path) and tables.row_path(row, value) == path for row, value in made.rows.items())
    assert len(made.rows) == 1 + 2 + 1 + 1
    repeated = {row for row, value in made.rows.items() if tables.is_repeated(value)}
    assert len(repeated) == 2
    assert all(row.startswith(entities.property_prefix(b"p")) for row in repeated)


def test_rows_lead_to_their_entity() -> None:
    made, lone = entity(AT, p=1), entity(reference((b"K", b"n")), p=1)
    rows = [*made.rows.items(), *lone.rows.items()]
    expected = [tables.entity_address(made.key)] * 2 + [tables.entity_address(lone.key)] * 2
    for some in (slice(0, 4), slice(0, 2), slice(2, 4), slice(0, 0)):
        scopes, columns = tables.entity_columns(made.key.partition, rows[some])
        assert addresses(Table.GROUPS, scopes, columns) == expected[some]


def test_only_changed_rows_are_written() -> None:
    old, new = entity(AT, p=1, q=2), entity(AT, p=1, q=3)
    (changed,) = tables.index_changes(old.key, old.rows, new.rows)
    assert [(row in new.rows, value is None) for row, value in changed.values.items()] == [(True, False), (False, True)]
    assert tables.index_changes(old.key, old.rows, old.rows) == []
    made, kindless = tables.index_changes(old.key, {}, new.rows)
    assert made.values == new.rows
    assert (kindless.table, list(kindless.values)) == (Table.KINDLESS, [old.key.path])
    gone, kindless = tables.index_changes(old.key, old.rows, {})
    assert {*gone.values.values(), *kindless.values.values()} == {None}
    assert gone.values.keys() == old.rows.keys()


def with_property(**fields: Any) -> EntityProto:
    made = proto(AT)
    text = fields.pop("text", None)
    raw = fields.pop("raw", False)
    added = (made.raw_property if raw else made.property).add(name=b"p", multiple=False, **fields)
    added.value.SetInParent()
    if text is not None:
        added.value.string_value = text
    return made


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (proto(AT, __x__=1), "reserved property name '__x__'"),
        (with_property(text=b"x" * 1501), "Property p is too long. Maximum length is 1500"),
        (with_property(text=b"x" * 2084, meaning=Property.ATOM_LINK), "Maximum length is 2083"),
        (with_property(text=b"x", meaning=Property.TEXT), "must be in a raw_property field"),
        (with_property(text=b"x", meaning=Property.INDEX_VALUE), "incomplete properties"),
        (with_property(text=b"x", meaning=Property.INDEX_VALUE, raw=True), "incomplete properties"),
        (with_property(text=b"\xff"), "not valid UTF-8"),
        (with_property(text=b"\xff", raw=True), "not valid UTF-8"),
        (with_property(meaning=Property.BLOB, raw=True), "must have a string value"),
        (with_property(text=b"x" * 1_048_488, meaning=Property.BLOB, raw=True), "too long"),
        (proto(AT, **{f"p{n}": b"x" * 1500 for n in range(700)}), "entity is too big: .* the limit is 1048572 bytes"),
        (proto(AT, **{"n" * 1501: 1}), "a property name may have 1500 bytes"),
    ],
)
def test_an_entity_against_the_rules_is_refused(made: EntityProto, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        build(made)


@pytest.mark.parametrize(
    "made",
    [
        with_property(text=b"x" * 1500),
        with_property(text=b"x" * 2083, meaning=Property.ATOM_LINK),
        with_property(text=b"\xff", meaning=Property.BYTESTRING),
        with_property(text=b"\xff" * 5000, meaning=Property.BLOB, raw=True),
        with_property(text=b"x" * 1_000_000, meaning=Property.TEXT, raw=True),
    ],
)
def test_an_entity_at_the_limit_is_taken(made: EntityProto) -> None:
    assert build(made).data == made.SerializeToString()
