"""Queries that make no sense, and cursors that belong to no query."""

from typing import Any

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import IndexPostfix, PropertyValue, Reference
from tests.e2e.wire import APP, Wire, assert_bad_request, assert_rpc_error, entity, envelope, key

Filter = v3.Query.Filter
Order = v3.Query.Order
DOWN = Order.DESCENDING


def where(name: bytes, operator: Any, value: PropertyValue | int) -> v3.Query.Filter:
    """One filter."""
    found = Filter(op=operator)
    prop = found.property.add(name=name, multiple=False)
    prop.value.CopyFrom(value if isinstance(value, PropertyValue) else PropertyValue(int64_value=value))
    return found


def key_value(reference: Reference) -> PropertyValue:
    value = PropertyValue()
    value.referencevalue.app = reference.app
    if reference.name_space:
        value.referencevalue.name_space = reference.name_space
    for element in reference.path.element:
        into = value.referencevalue.pathelement.add(type=element.type)
        if element.HasField("name"):
            into.name = element.name
        elif element.HasField("id"):
            into.id = element.id
    return value


def two_filters_in_one() -> v3.Query.Filter:
    both = where(b"a", Filter.EQUAL, 1)
    both.property.append(where(b"b", Filter.EQUAL, 1).property[0])
    return both


QUERIES: dict[str, tuple[dict[str, Any], str]] = {
    "limit": ({"kind": b"K", "limit": -1}, "negative"),
    "offset": ({"kind": b"K", "offset": -1}, "negative"),
    "count": ({"kind": b"K", "count": -1}, "negative"),
    "two-inequalities": (
        {"kind": b"K", "filter": [where(b"a", Filter.LESS_THAN, 1), where(b"b", Filter.GREATER_THAN, 1)]},
        "Only one inequality filter per query is supported. Encountered both a and b",
    ),
    "inequality-of-key-and-property": (
        {
            "kind": b"K",
            "filter": [
                where(b"a", Filter.LESS_THAN, 1),
                where(b"__key__", Filter.GREATER_THAN, key_value(key(b"K", 1))),
            ],
        },
        "Only one inequality filter",
    ),
    "first-order": (
        {"kind": b"K", "filter": [where(b"a", Filter.LESS_THAN, 1)], "order": [Order(property=b"b")]},
        "The first sort property must be the same as the property to which the inequality filter is applied",
    ),
    "key-order-first": (
        {
            "kind": b"K",
            "filter": [where(b"a", Filter.LESS_THAN, 1)],
            "order": [Order(property=b"__key__"), Order(property=b"a")],
        },
        "The first sort property must be the same",
    ),
    "two-inequalities-not-utf8": (
        {"kind": b"K", "filter": [where(b"\xff", Filter.LESS_THAN, 1), where(b"\xfe", Filter.GREATER_THAN, 1)]},
        "",
    ),
    "first-order-not-utf8": (
        {"kind": b"K", "filter": [where(b"a", Filter.LESS_THAN, 1)], "order": [Order(property=b"\xff")]},
        "",
    ),
    "kindless-filter": ({"filter": [where(b"a", Filter.EQUAL, 1)]}, "kind is required for non-__key__ filters"),
    "kindless-order": ({"order": [Order(property=b"a")]}, "kind is required for all orders"),
    "kindless-key-down": ({"order": [Order(property=b"__key__", direction=DOWN)]}, "kind is required for all orders"),
    "empty-filter": ({"kind": b"K", "filter": [Filter(op=Filter.EQUAL)]}, "expected 1"),
    "two-filters-in-one": ({"kind": b"K", "filter": [two_filters_in_one()]}, "expected 1"),
    "key-filter-with-a-number": ({"kind": b"K", "filter": [where(b"__key__", Filter.EQUAL, 1)]}, "must be a Key"),
    "key-filter-of-another-app": (
        {"kind": b"K", "filter": [where(b"__key__", Filter.EQUAL, key_value(key(b"K", 1, app=b"other")))]},
        "app",
    ),
    "key-filter-of-another-namespace": (
        {"kind": b"K", "filter": [where(b"__key__", Filter.EQUAL, key_value(key(b"K", 1, namespace=b"other")))]},
        "namespace",
    ),
    "key-filter-incomplete": (
        {"kind": b"K", "filter": [where(b"__key__", Filter.EQUAL, key_value(key(b"K", None)))]},
        "",
    ),
    "key-filter-without-path": (
        {"kind": b"K", "filter": [where(b"__key__", Filter.EQUAL, key_value(key()))]},
        "",
    ),
    "ancestor-of-another-app": ({"kind": b"K", "ancestor": key(b"K", 1, app=b"other")}, "app"),
    "ancestor-of-another-namespace": ({"kind": b"K", "ancestor": key(b"K", 1, namespace=b"other")}, "namespace"),
    "ancestor-without-path": ({"kind": b"K", "ancestor": key()}, ""),
    "too-many-parts": (
        {"kind": b"K", "filter": [where(b"p%d" % number, Filter.EQUAL, 1) for number in range(101)]},
        "too large",
    ),
    "two-values-in-one": (
        {"kind": b"K", "filter": [where(b"a", Filter.EQUAL, PropertyValue(int64_value=1, string_value=b"x"))]},
        "multiple value fields",
    ),
    "unknown-operator": ({"kind": b"K", "filter": [where(b"a", Filter.CONTAINED_IN_REGION, 1)]}, ""),
    "kind-not-utf8": ({"kind": b"\xff"}, "UTF-8"),
    "namespace-not-utf8": ({"kind": b"K", "name_space": b"\xff"}, "UTF-8"),
    "empty-kind": ({"kind": b""}, ""),
    "kind-too-long": ({"kind": b"k" * 1501}, "1500"),
}


@pytest.fixture
def stored(wire: Wire) -> Wire:
    """Ten entities with ranks 0 to 9."""
    wire.put(*(entity(key(b"K", rank + 1), rank=rank, a=rank) for rank in range(10)))
    return wire


@pytest.mark.parametrize(("fields", "text"), QUERIES.values(), ids=QUERIES)
def test_a_senseless_query_is_refused(stored: Wire, fields: dict[str, Any], text: str) -> None:
    query = v3.Query(app=APP, **fields)
    assert_bad_request(stored.reply("RunQuery", query), text)
    assert_bad_request(stored.reply("Count", query), text)


def test_limits_of_zero_and_huge_ones_are_allowed(stored: Wire) -> None:
    assert stored.query(kind=b"K", limit=0) == []
    assert len(stored.query(kind=b"K", limit=2**31 - 1, count=2**31 - 1)) == 10
    assert stored.query(kind=b"K", offset=2**31 - 1) == []
    result = stored.call("RunQuery", v3.Query(app=APP, kind=b"K", count=0))
    assert list(result.result) == []
    assert result.more_results


def order_by_rank(**fields: Any) -> v3.Query:
    return v3.Query(app=APP, kind=b"K", order=[Order(property=b"rank")], compile=True, **fields)


def cursor_at(values: list[tuple[bytes, int]], at: Reference | None) -> v3.CompiledCursor:
    cursor = v3.CompiledCursor()
    cursor.postfix_position.before = False
    for name, value in values:
        cursor.postfix_position.index_value.add(property_name=name, value=PropertyValue(int64_value=value))
    if at is not None:
        cursor.postfix_position.key.CopyFrom(at)
    return cursor


def test_the_cursor_of_a_query_is_understood(stored: Wire) -> None:
    result = stored.call("RunQuery", order_by_rank(limit=3, count=3))
    assert result.compiled_cursor == result.result_compiled_cursor[2]
    written_out = cursor_at([(b"rank", 2)], key(b"K", 3))
    for cursor in (result.compiled_cursor, written_out):
        found = stored.call("RunQuery", order_by_rank(compiled_cursor=cursor, count=100))
        assert len(found.result) == 7


CURSORS: dict[str, v3.CompiledCursor] = {
    "of-another-order": cursor_at([(b"a", 2)], key(b"K", 3)),
    "without-its-value": cursor_at([], key(b"K", 3)),
    "with-a-value-more": cursor_at([(b"rank", 2), (b"a", 2)], key(b"K", 3)),
    "without-its-key": cursor_at([(b"rank", 2)], None),
    "of-another-app": cursor_at([(b"rank", 2)], key(b"K", 3, app=b"other")),
    "of-another-namespace": cursor_at([(b"rank", 2)], key(b"K", 3, namespace=b"other")),
    "with-an-incomplete-key": cursor_at([(b"rank", 2)], key(b"K", None)),
    "with-no-path": cursor_at([(b"rank", 2)], key()),
    "absolute": v3.CompiledCursor(absolute_position={"key": b"garbage"}),
    "empty-postfix": v3.CompiledCursor(postfix_position=IndexPostfix()),
}


@pytest.mark.parametrize("cursor", CURSORS.values(), ids=CURSORS)
def test_a_cursor_of_another_query_is_refused(stored: Wire, cursor: v3.CompiledCursor) -> None:
    assert_bad_request(stored.reply("RunQuery", order_by_rank(compiled_cursor=cursor)))
    assert_bad_request(stored.reply("RunQuery", order_by_rank(end_compiled_cursor=cursor)))


def test_a_cursor_of_an_order_that_is_not_utf8_is_refused(stored: Wire) -> None:
    query = v3.Query(app=APP, kind=b"K", order=[Order(property=b"\xff")])
    query.compiled_cursor.CopyFrom(cursor_at([(b"rank", 2)], key(b"K", 3)))
    assert_bad_request(stored.reply("RunQuery", query))
    query.compiled_cursor.CopyFrom(cursor_at([], key(b"K", 3)))
    assert_bad_request(stored.reply("RunQuery", query))


def test_a_cursor_of_garbage_is_a_parse_error(stored: Wire) -> None:
    whole = order_by_rank().SerializeToString()
    for field in (b"\xf2\x01", b"\xfa\x01"):  # compiled_cursor, end_compiled_cursor
        assert_rpc_error(stored.send(envelope(b"RunQuery", whole + field + b"\x03\xff\xff\xff")), "PARSE_ERROR")


def first_batch(wire: Wire) -> v3.Cursor:
    cursor: v3.Cursor = wire.call("RunQuery", v3.Query(app=APP, kind=b"K", count=2)).cursor
    assert cursor.HasField("cursor")
    return cursor


@pytest.mark.parametrize("number", [0, 1, 2**63, 2**64 - 1])
def test_next_with_a_cursor_that_never_was_is_refused(stored: Wire, number: int) -> None:
    request = v3.NextRequest(cursor=v3.Cursor(cursor=number, app=APP))
    assert_bad_request(stored.reply("Next", request), "not found")


def test_next_with_the_cursor_of_another_app_is_refused(stored: Wire) -> None:
    cursor = first_batch(stored)
    stolen = v3.NextRequest(cursor=v3.Cursor(cursor=cursor.cursor, app=b"other"))
    assert_bad_request(stored.reply("Next", stolen), "not found")
    assert len(stored.call("Next", v3.NextRequest(cursor=cursor, count=100)).result) == 8


def test_next_with_negative_numbers_is_refused(stored: Wire) -> None:
    cursor = first_batch(stored)
    assert_bad_request(stored.reply("Next", v3.NextRequest(cursor=cursor, count=-1)), "negative")
    assert_bad_request(stored.reply("Next", v3.NextRequest(cursor=cursor, offset=-1)), "negative")


def test_a_query_that_is_finished_has_no_next(stored: Wire) -> None:
    cursor = first_batch(stored)
    assert not stored.call("Next", v3.NextRequest(cursor=cursor, count=100)).more_results
    assert_bad_request(stored.reply("Next", v3.NextRequest(cursor=cursor)), "not found")


def test_a_deleted_cursor_has_no_next_and_deleting_it_again_is_no_error(stored: Wire) -> None:
    cursor = first_batch(stored)
    for _ in range(2):
        stored.call("DeleteCursor", cursor)
    assert_bad_request(stored.reply("Next", v3.NextRequest(cursor=cursor)), "not found")


def test_another_app_cannot_delete_a_cursor(stored: Wire) -> None:
    cursor = first_batch(stored)
    stored.reply("DeleteCursor", v3.Cursor(cursor=cursor.cursor, app=b"other"))
    assert len(stored.call("Next", v3.NextRequest(cursor=cursor, count=100)).result) == 8
