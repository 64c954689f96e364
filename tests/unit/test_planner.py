"""From queries to scans: what is read, in which order, and what is left to check."""

from dataclasses import replace

import pytest

from adapters.contract import Table
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.planner import plan
from pbserver.datastore.queries import Op, Order, Query, normalize
from pbserver.datastore.ranges import Ascending, Descending, ValueDescending
from tests.unit.building import key, query

UP, DOWN = False, True
ROOT = key((b"P", 1))

SERVED_BY_ONE_SCAN = [
    ("kind", query(), Ascending),
    ("kind, keys descending", query(orders=[(b"__key__", DOWN)]), Descending),
    ("kind and ancestor", query(ancestor=ROOT), Ascending),
    ("kindless", query(kind=None), Ascending),
    ("kindless and ancestor", query(kind=None, ancestor=ROOT), Ascending),
    ("key range", query(filters=[(b"__key__", Op.GREATER, ROOT.path)]), Ascending),
    ("one key", query(filters=[(b"__key__", Op.EQUAL, ROOT.path)]), Ascending),
    ("equality", query(filters=[(b"p", Op.EQUAL, 1)]), Ascending),
    ("equality and ancestor", query(filters=[(b"p", Op.EQUAL, 1)], ancestor=ROOT), Ascending),
    ("equality, keys descending", query(filters=[(b"p", Op.EQUAL, 1)], orders=[(b"__key__", DOWN)]), Descending),
    ("inequality", query(filters=[(b"p", Op.LESS, 1)]), Ascending),
    ("range", query(filters=[(b"p", Op.LESS, 9), (b"p", Op.GREATER_OR_EQUAL, 1)], orders=[(b"p", UP)]), Ascending),
    ("order", query(orders=[(b"p", UP)]), Ascending),
    ("order descending", query(orders=[(b"p", DOWN)]), ValueDescending),
    ("order descending, keys too", query(orders=[(b"p", DOWN), (b"__key__", DOWN)]), Descending),
]


@pytest.mark.parametrize(
    ("asked", "source"), [each[1:] for each in SERVED_BY_ONE_SCAN], ids=[each[0] for each in SERVED_BY_ONE_SCAN]
)
def test_the_scan_answers_alone(asked: object, source: type) -> None:
    planned = plan(asked)  # type: ignore[arg-type]
    assert type(planned.source) is source
    assert not planned.check
    assert not planned.sort


def projecting(names: list[bytes], **asked: object) -> Query:
    made = query(**asked)  # type: ignore[arg-type]
    own = tuple(order for order in made.orders[:-1])
    return normalize(replace(made, orders=own, projection=tuple(names)))


def test_a_projection_of_one_property_reads_its_index_only() -> None:
    planned = plan(projecting([b"p"], filters=[(b"p", Op.GREATER, 1)]))
    assert type(planned.source) is Ascending
    assert (planned.check, planned.sort, planned.distinct_in) == (False, False, None)


def test_a_projection_is_ordered_by_what_it_projects() -> None:
    asked = projecting([b"q", b"p", b"r"], orders=[(b"r", DOWN)])
    assert asked.orders == (Order(b"r", DOWN), Order(b"p", UP), Order(b"q", UP), Order(b"__key__", UP))
    assert plan(asked).sort


@pytest.mark.parametrize(
    ("names", "asked", "message"),
    [
        ([b"p", b"p"], {}, "multiple times"),
        ([b"__x__"], {}, "not supported for the property: __x__"),
        ([b"p"], {"filters": [(b"p", Op.EQUAL, 1)]}, "equality filter"),
    ],
)
def test_an_illegal_projection_is_refused(names: list[bytes], asked: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        projecting(names, **asked)


CHECKED = [
    ("two equalities", query(filters=[(b"p", Op.EQUAL, 1), (b"q", Op.EQUAL, 2)]), False),
    ("two values of one property", query(filters=[(b"p", Op.EQUAL, 1), (b"p", Op.EQUAL, 2)]), False),
    ("equality and order", query(filters=[(b"p", Op.EQUAL, 1)], orders=[(b"q", UP)]), True),
    ("two orders", query(orders=[(b"p", UP), (b"q", DOWN)]), True),
    ("order and ancestor", query(orders=[(b"p", UP)], ancestor=ROOT), True),
    ("order, keys the other way", query(orders=[(b"p", UP), (b"__key__", DOWN)]), True),
]


@pytest.mark.parametrize(("asked", "sort"), [each[1:] for each in CHECKED], ids=[each[0] for each in CHECKED])
def test_entities_are_checked_where_no_scan_answers(asked: object, sort: bool) -> None:
    planned = plan(asked)  # type: ignore[arg-type]
    assert planned.check
    assert planned.sort is sort


def test_a_kindless_query_reads_the_table_of_all_kinds() -> None:
    source = plan(query(kind=None)).source
    assert isinstance(source, Ascending)
    assert (source.table, source.scope) == (Table.KINDLESS, ROOT.partition)


@pytest.mark.parametrize(
    ("filters", "orders", "expected"),
    [
        ([], [], [(b"__key__", UP)]),
        ([(b"p", Op.EQUAL, 1)], [(b"p", DOWN)], [(b"__key__", UP)]),
        ([(b"p", Op.LESS, 1)], [], [(b"p", UP), (b"__key__", UP)]),
        ([(b"p", Op.LESS, 1)], [(b"p", DOWN)], [(b"p", DOWN), (b"__key__", UP)]),
        ([], [(b"__key__", DOWN), (b"p", UP)], [(b"__key__", DOWN)]),
        ([], [(b"p", UP), (b"p", DOWN)], [(b"p", UP), (b"__key__", UP)]),
        ([(b"__key__", Op.EQUAL, ROOT.path)], [(b"p", UP)], [(b"__key__", UP)]),
    ],
)
def test_implicit_orders_are_spelled_out(
    filters: list[tuple[bytes, Op, object]], orders: list[tuple[bytes, bool]], expected: list[tuple[bytes, bool]]
) -> None:
    assert query(filters=filters, orders=orders).orders == tuple(Order(*each) for each in expected)


@pytest.mark.parametrize(
    ("filters", "orders", "kind", "message"),
    [
        ([(b"p", Op.LESS, 1), (b"q", Op.LESS, 1)], [], b"K", "Only one inequality filter .* both p and q"),
        ([(b"p", Op.LESS, 1)], [(b"q", UP)], b"K", "first sort property is q but the inequality filter is on p"),
        ([(b"p", Op.EQUAL, 1)], [], None, "kind is required for non-__key__ filters"),
        ([], [(b"__key__", DOWN)], None, "kind is required for all orders except __key__ ascending"),
        ([(b"p", Op.EQUAL, n) for n in range(101)], [], b"K", "query is too large"),
    ],
)
def test_an_illegal_query_is_refused_in_googles_words(
    filters: list[tuple[bytes, Op, object]], orders: list[tuple[bytes, bool]], kind: bytes | None, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        query(kind, filters, orders)
