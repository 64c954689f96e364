"""`more_results` in all its cases: it says whether the same query, with the same limit, has results left for Next."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from google.appengine.api import apiproxy_stub_map, datastore
from google.appengine.api.datastore_types import Key
from google.appengine.datastore import datastore_pb

from tests.e2e.sdk import APP

pytestmark = pytest.mark.usefixtures("sdk")

TOTAL = 10


def call(method: str, request: Any) -> Any:
    answer = datastore_pb.QueryResult()
    apiproxy_stub_map.MakeSyncCall("datastore_v3", method, request, answer)
    return answer


def kind() -> Any:
    return datastore_pb.Query(app=APP, kind="Leaf")


def ordered() -> Any:
    query = kind()
    query.order.add(property="rank", direction=datastore_pb.Query.Order.DESCENDING)
    return query


def equal() -> Any:
    query = kind()
    where = query.filter.add(op=datastore_pb.Query.Filter.EQUAL)
    where.property.add(name="even", multiple=False).value.booleanValue = True
    return query


def two_equal() -> Any:
    query = equal()
    where = query.filter.add(op=datastore_pb.Query.Filter.EQUAL)
    where.property.add(name="color", multiple=False).value.stringValue = b"red"
    return query


def at_least() -> Any:
    query = kind()
    where = query.filter.add(op=datastore_pb.Query.Filter.GREATER_THAN_OR_EQUAL)
    where.property.add(name="rank", multiple=False).value.int64Value = TOTAL
    return query


def sorted_in_memory() -> Any:
    query = kind()
    query.order.add(property="color")
    query.order.add(property="rank", direction=datastore_pb.Query.Order.DESCENDING)
    where = query.filter.add(op=datastore_pb.Query.Filter.EQUAL)
    where.property.add(name="even", multiple=False).value.booleanValue = True
    return query


def below(query: Any) -> Any:
    query.ancestor.CopyFrom(Key.from_path("Tree", "full")._ToPb())
    return query


#: Each has TOTAL results.
QUERIES: dict[str, Callable[[], Any]] = {
    "kind": lambda: datastore_pb.Query(app=APP, kind="Flat"),
    "ancestor": lambda: below(kind()),
    "kindless": lambda: datastore_pb.Query(app=APP, name_space="small"),
    "kindless-ancestor": lambda: below(datastore_pb.Query(app=APP)),
    "equal": equal,
    "two-equal": two_equal,
    "at-least": at_least,
    "ordered-ancestor": lambda: below(ordered()),
    "sorted-in-memory": sorted_in_memory,
}

each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
each_form = pytest.mark.parametrize("keys_only", [False, True], ids=["entities", "keys"])


class Case(NamedTuple):
    """What is asked; how many results come at once, how many are skipped, and whether there are more."""

    limit: int | None
    offset: int
    count: int
    found: int
    skipped: int
    more: bool


CASES = [
    Case(None, 0, 9, 9, 0, True),
    Case(None, 0, 10, 10, 0, False),
    Case(None, 0, 11, 10, 0, False),
    Case(None, 0, 0, 0, 0, True),
    Case(5, 0, 4, 4, 0, True),
    Case(5, 0, 5, 5, 0, False),
    Case(5, 0, 6, 5, 0, False),
    Case(9, 0, 20, 9, 0, False),
    Case(10, 0, 9, 9, 0, True),
    Case(10, 0, 10, 10, 0, False),
    Case(11, 0, 10, 10, 0, False),
    Case(11, 0, 20, 10, 0, False),
    Case(0, 0, 5, 0, 0, False),
    Case(None, 3, 6, 6, 3, True),
    Case(None, 3, 7, 7, 3, False),
    Case(None, 3, 0, 0, 3, True),
    Case(None, 9, 5, 1, 9, False),
    Case(None, 10, 5, 0, 10, False),
    Case(None, 12, 5, 0, 10, False),
    Case(6, 3, 5, 5, 3, True),
    Case(6, 3, 6, 6, 3, False),
    Case(7, 3, 7, 7, 3, False),
    Case(8, 3, 7, 7, 3, False),
    Case(8, 3, 6, 6, 3, True),
    Case(1, 9, 5, 1, 9, False),
    Case(1, 10, 5, 0, 10, False),
]


@pytest.fixture
def stored(sdk: None) -> None:
    leaves = [_entity("Leaf", parent=Key.from_path("Tree", "full"), rank=rank) for rank in range(TOTAL)]
    others = [_entity("Leaf", parent=Key.from_path("Tree", f"t{rank}"), rank=rank) for rank in range(TOTAL, 2 * TOTAL)]
    for number, leaf in enumerate([*leaves, *others]):
        leaf.update({"even": number % 2 == 0, "color": "red"})
    flat = [_entity("Flat", rank=rank) for rank in range(TOTAL)]
    small = [_entity(f"Small{rank % 3}", namespace="small", rank=rank) for rank in range(TOTAL)]
    datastore.Put([*leaves, *others, *flat, *small])


def _entity(kind: str, *, rank: int, **options: Any) -> Any:
    entity = datastore.Entity(kind, name=f"n{rank:02}", **options)
    entity["rank"] = rank
    return entity


def ask(query: Any, case: Case, *, keys_only: bool) -> Any:
    query.keys_only = keys_only
    query.offset, query.count = case.offset, case.count
    if case.limit is not None:
        query.limit = case.limit
    return query


@each_query
@each_form
def test_more_results_of_the_first_answer(stored: None, query: Callable[[], Any], keys_only: bool) -> None:
    for case in CASES:
        result = call("RunQuery", ask(query(), case, keys_only=keys_only))
        found = (len(result.result), result.skipped_results, result.more_results)
        assert found == (case.found, case.skipped, case.more), case
        assert result.HasField("cursor") == case.more
        assert result.keys_only == keys_only
        assert all(bool(each.property) != keys_only for each in result.result)


#: Limit, offset, size of a batch; the sizes of all answers.
BATCHES = [
    (None, 0, 4, [4, 4, 2]),
    (None, 0, 5, [5, 5]),
    (None, 2, 4, [4, 4]),
    (9, 0, 3, [3, 3, 3]),
    (9, 0, 4, [4, 4, 1]),
    (10, 0, 5, [5, 5]),
    (12, 0, 5, [5, 5]),
    (7, 1, 3, [3, 3, 1]),
    (20, 8, 1, [1, 1]),
]


def batches(query: Any, case: Case) -> list[list[Any]]:
    """The keys of every answer, to the last."""
    result = call("RunQuery", ask(query, case, keys_only=True))
    found = [[each.key for each in result.result]]
    while result.more_results:
        assert len(found) <= TOTAL, "no end"
        result = call("Next", datastore_pb.NextRequest(cursor=result.cursor, count=case.count))
        found.append([each.key for each in result.result])
    return found


@each_query
def test_more_results_of_every_batch(stored: None, query: Callable[[], Any]) -> None:
    [whole] = batches(query(), Case(None, 0, 100, TOTAL, 0, more=False))
    for limit, offset, count, sizes in BATCHES:
        found = batches(query(), Case(limit, offset, count, sizes[0], offset, more=True))
        assert [len(each) for each in found] == sizes, (limit, offset, count)
        assert [key for keys in found for key in keys] == whole[offset:][:limit]


@each_query
def test_next_without_a_count_gives_as_many_as_the_query_asked_for(stored: None, query: Callable[[], Any]) -> None:
    result = call("RunQuery", ask(query(), Case(None, 1, 4, 4, 1, more=True), keys_only=True))
    for found, more in ((4, True), (1, False)):
        result = call("Next", datastore_pb.NextRequest(cursor=result.cursor))
        assert (len(result.result), result.skipped_results, result.more_results) == (found, 0, more)


@each_query
def test_more_results_up_to_an_end_cursor(stored: None, query: Callable[[], Any]) -> None:
    until = query()
    until.count, until.compile = 4, True
    cursor = call("RunQuery", until).compiled_cursor
    for count, more in ((3, True), (4, False), (5, False)):
        ended = query()
        ended.end_compiled_cursor.CopyFrom(cursor)
        ended.count = count
        result = call("RunQuery", ended)
        assert (len(result.result), result.more_results) == (min(count, 4), more)


@pytest.mark.parametrize("query", [kind, ordered], ids=["kind", "ordered"])
def test_more_results_when_nothing_matches(query: Callable[[], Any]) -> None:
    for case in CASES:
        result = call("RunQuery", ask(query(), case, keys_only=False))
        assert (len(result.result), result.skipped_results, result.more_results) == (0, 0, False)
