"""From queries to scans: what is read, in which order, and what is left to check."""

from dataclasses import replace

import pytest

from adapters.contract import Table
from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.joins import MergeJoin
from pbserver.datastore.keys import encode_kind
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
    assert not planned.sort


def projecting(names: list[bytes], **asked: object) -> Query:
    made = query(**asked)  # type: ignore[arg-type]
    own = tuple(order for order in made.orders[:-1])
    return normalize(replace(made, orders=own, projection=tuple(names)))


def test_a_projection_of_one_property_reads_its_index_only() -> None:
    planned = plan(projecting([b"p"], filters=[(b"p", Op.GREATER, 1)]))
    assert type(planned.source) is Ascending
    assert (planned.sort, planned.distinct) == (False, False)


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


JOINED = [
    ("two equalities", query(filters=[(b"p", Op.EQUAL, 1), (b"q", Op.EQUAL, 2)]), 2),
    ("two values of one property", query(filters=[(b"p", Op.EQUAL, 1), (b"p", Op.EQUAL, 2)]), 2),
    ("three, with ancestor", query(filters=[(name, Op.EQUAL, 1) for name in (b"p", b"q", b"r")], ancestor=ROOT), 3),
    (
        "two, with a key range, backwards",
        query(
            filters=[(b"p", Op.EQUAL, 1), (b"q", Op.EQUAL, 1), (b"__key__", Op.LESS, ROOT.path)],
            orders=[(b"__key__", DOWN)],
        ),
        2,
    ),
]


@pytest.mark.parametrize(("asked", "ranges"), [each[1:] for each in JOINED], ids=[each[0] for each in JOINED])
def test_equalities_are_merge_joined(asked: Query, ranges: int) -> None:
    planned = plan(asked)
    assert isinstance(planned.source, MergeJoin)
    assert len(planned.source.prefixes) == ranges
    assert not planned.sort


SORTED = [
    ("equality and order", query(filters=[(b"p", Op.EQUAL, 1)], orders=[(b"q", UP)])),
    ("two orders", query(orders=[(b"p", UP), (b"q", DOWN)])),
    ("order and ancestor", query(orders=[(b"p", UP)], ancestor=ROOT)),
    ("order, keys the other way", query(orders=[(b"p", UP), (b"__key__", DOWN)])),
    ("equality and inequality of one property", query(filters=[(b"p", Op.EQUAL, 1), (b"p", Op.GREATER, 0)])),
]


@pytest.mark.parametrize("asked", [each[1] for each in SORTED], ids=[each[0] for each in SORTED])
def test_without_a_composite_index_results_are_sorted(asked: Query) -> None:
    assert plan(asked).sort


def index(
    number: int, *properties: tuple[bytes, bool], ancestor: bool = False, state: State = State.SERVING
) -> Composite:
    definition = Definition(encode_kind(b"K"), ancestor, tuple(Order(*each) for each in properties))
    return Composite(number, definition, state)


SERVED = [
    ("equality and order", SORTED[0][1], [index(1, (b"p", UP), (b"q", UP))], 1),
    ("direction of an equality does not matter", SORTED[0][1], [index(1, (b"p", DOWN), (b"q", UP))], 1),
    ("two orders", SORTED[1][1], [index(1, (b"p", UP), (b"q", DOWN))], 1),
    ("order and ancestor", SORTED[2][1], [index(1, (b"p", UP), ancestor=True)], 1),
    ("order, keys the other way", SORTED[3][1], [index(1, (b"p", UP), (b"__key__", DOWN))], 1),
    (
        "a join of two that end alike",
        query(filters=[(b"a", Op.EQUAL, 1), (b"b", Op.EQUAL, 1)], orders=[(b"q", DOWN)]),
        [index(1, (b"a", UP), (b"q", DOWN)), index(2, (b"b", UP), (b"q", DOWN))],
        2,
    ),
    (
        "two values by one index, twice",
        query(filters=[(b"a", Op.EQUAL, 1), (b"a", Op.EQUAL, 2)], orders=[(b"q", UP)]),
        [index(1, (b"a", UP), (b"q", UP))],
        2,
    ),
    (
        "ancestor by one index, equality by the other",
        query(filters=[(b"a", Op.EQUAL, 1)], orders=[(b"q", UP)], ancestor=ROOT),
        [index(1, (b"a", UP), (b"q", UP)), index(2, (b"q", UP), ancestor=True)],
        2,
    ),
]


@pytest.mark.parametrize(
    ("asked", "indexes", "ranges"), [each[1:] for each in SERVED], ids=[each[0] for each in SERVED]
)
def test_composite_indexes_serve(asked: Query, indexes: list[Composite], ranges: int) -> None:
    planned = plan(asked, indexes)
    assert not planned.sort
    if ranges == 1:
        assert isinstance(planned.source, Ascending | Descending)
        assert planned.prefix.startswith(indexes[0].prefix)
    else:
        assert isinstance(planned.source, MergeJoin)
        assert len(planned.source.prefixes) == ranges


NOT_SERVED = [
    ("the other direction", SORTED[1][1], index(1, (b"p", UP), (b"q", UP))),
    ("not built yet", SORTED[1][1], index(1, (b"p", UP), (b"q", DOWN), state=State.BUILDING)),
    ("being removed", SORTED[1][1], index(1, (b"p", UP), (b"q", DOWN), state=State.DELETING)),
    ("a property too many", SORTED[1][1], index(1, (b"x", UP), (b"p", UP), (b"q", DOWN))),
    ("for ancestors only", SORTED[1][1], index(1, (b"p", UP), (b"q", DOWN), ancestor=True)),
    ("no ancestors in it", SORTED[2][1], index(1, (b"x", UP), (b"p", UP))),
]


@pytest.mark.parametrize(("asked", "one"), [each[1:] for each in NOT_SERVED], ids=[each[0] for each in NOT_SERVED])
def test_an_index_that_does_not_fit_is_not_used(asked: Query, one: Composite) -> None:
    assert plan(asked, [one]).sort


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
