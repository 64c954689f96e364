"""google.appengine.api.datastore: plain entities, kindless queries, and every type of value in one property."""

import datetime
from typing import Any

import pytest
from google.appengine.api import datastore, datastore_errors, datastore_types, users
from google.appengine.datastore.datastore_query import QueryOptions

from tests.e2e.sdk import REFEREE, Calls

pytestmark = pytest.mark.usefixtures("sdk")

Key = datastore_types.Key.from_path


def put(kind: str, name: str, parent: Any = None, **properties: Any) -> Any:
    entity = datastore.Entity(kind, name=name, parent=parent)
    entity.update(properties)
    return datastore.Put(entity)


def names(found: Any) -> list[str]:
    return [(entity if isinstance(entity, datastore_types.Key) else entity.key()).name() for entity in found]


def by_value(direction: Any = datastore.Query.ASCENDING) -> Any:
    query = datastore.Query("Mixed")
    query.Order(("value", direction))
    return query


#: In the Datastore's order of values.
MIXED: list[tuple[str, Any]] = [
    ("none", None),
    ("int-min", -(2**63)),
    ("int-minus", -1),
    ("int-zero", 0),
    ("int", 7),
    ("time", datetime.datetime(2000, 1, 1)),
    ("int-max", 2**63 - 1),
    ("false", False),
    ("true", True),
    ("text-empty", ""),
    ("text-nul", "\x00"),
    ("text-nuls", "\x00\x00"),
    ("text", "a"),
    ("text-newline", "a\n"),
    ("text-longer", "ab"),
    ("bytes", datastore_types.ByteString(b"ab\x01")),
    ("link", datastore_types.Link("http://example.com")),
    ("text-unicode", "é"),
    ("bytes-high", datastore_types.ByteString(b"\xff\xff")),
    ("minus-infinity", float("-inf")),
    ("float-minus", -1.5),
    ("float-tiny-minus", -5e-324),
    ("float-tiny", 5e-324),
    ("float-one", 1.0),
    ("float-huge", 1.7976931348623157e308),
    ("infinity", float("inf")),
    ("point-south", datastore_types.GeoPt(-10, 170)),
    ("point-west", datastore_types.GeoPt(1, -20)),
    ("point-east", datastore_types.GeoPt(1, 20)),
    ("user-a", users.User("a@example.com", _auth_domain="gmail.com")),
    ("user-b", users.User("b@example.com", _auth_domain="gmail.com")),
    ("key-id", lambda: Key("A", 1)),
    ("key-name", lambda: Key("A", "1")),
    ("key-child", lambda: Key("A", "1", "B", 1)),
    ("key-kind", lambda: Key("B", 1)),
]


@pytest.fixture
def mixed(sdk: None) -> dict[str, Any]:
    values = {name: value() if callable(value) else value for name, value in MIXED}
    for name in reversed(values):
        put("Mixed", name, value=values[name])
    return values


def test_values_of_every_type_sort_by_type_and_then_by_value(mixed: dict[str, Any]) -> None:
    assert names(by_value().Run()) == list(mixed)
    assert names(by_value(datastore.Query.DESCENDING).Run()) == list(mixed)[::-1]


def test_values_of_every_type_come_back_as_they_were_put(mixed: dict[str, Any]) -> None:
    found = {entity.key().name(): entity["value"] for entity in datastore.Query("Mixed").Run()}
    assert found == mixed
    assert {name: type(value) for name, value in found.items()} == {name: type(mixed[name]) for name in found}


@pytest.mark.parametrize("name", [name for name, _ in MIXED])
def test_comparisons_with_a_value_of_any_type(mixed: dict[str, Any], name: str) -> None:
    value, at, whole = mixed[name], list(mixed).index(name), list(mixed)
    for operator, wanted in (
        ("=", whole[at : at + 1]),
        ("<", whole[:at]),
        ("<=", whole[: at + 1]),
        (">", whole[at + 1 :]),
        (">=", whole[at:]),
    ):
        query = datastore.Query("Mixed", {f"value {operator}": value})
        assert names(query.Run()) == wanted, operator
        query.Order(("value", datastore.Query.DESCENDING))
        assert names(query.Run()) == wanted[::-1], operator


def test_an_entity_with_every_type_in_one_repeated_property_is_found_by_each(sdk: None) -> None:
    values = [value() if callable(value) else value for _, value in MIXED]
    key = put("Heap", "all", value=values)
    for value in values:
        assert [entity.key() for entity in datastore.Query("Heap", {"value =": value}).Run()] == [key]
    if not REFEREE:  # Python 3 cannot sort what it would have to: "'<' not supported between 'int' and 'str'"
        assert datastore.Query("Heap", {"value >=": None}).Count() == 1
    assert datastore.Get(key)["value"] == values


def test_a_missing_entity_raises_and_get_multi_says_none() -> None:
    here = put("Thing", "here")
    with pytest.raises(datastore_errors.EntityNotFoundError):
        datastore.Get(Key("Thing", "no"))
    assert datastore.Get([here, Key("Thing", "no")])[1] is None


def test_kindless_queries_find_every_kind_in_key_order() -> None:
    root = put("B", "root")
    wanted = [put("A", "a"), root, put("A", "child", root), put("C", "child", root), put("C", "c")]
    query = datastore.Query()
    assert list(query.Run(keys_only=True)) == wanted
    assert [entity.key() for entity in query.Run()] == wanted
    assert query.Count() == 5
    assert list(query.Run(keys_only=True, limit=2, offset=1)) == wanted[1:3]


def test_kindless_queries_take_key_filters_and_the_ascending_key_order() -> None:
    keys = [put("A", "a"), put("B", "b"), put("B", "b2"), put("C", "c")]
    assert list(datastore.Query(None, {"__key__ >": keys[1]}).Run(keys_only=True)) == keys[2:]
    assert list(datastore.Query(None, {"__key__ <=": keys[1]}).Run(keys_only=True)) == keys[:2]
    assert list(datastore.Query(None, {"__key__ =": keys[2]}).Run(keys_only=True)) == [keys[2]]
    ordered = datastore.Query(None, {"__key__ >=": keys[1], "__key__ <": keys[3]})
    ordered.Order(("__key__", datastore.Query.ASCENDING))
    assert list(ordered.Run(keys_only=True)) == keys[1:3]


def test_kindless_ancestor_queries_find_the_whole_tree_and_nothing_else() -> None:
    root = put("Tree", "root")
    branch = put("Branch", "b", root)
    leaves = [put("Leaf", f"l{number}", branch) for number in range(3)]
    put("Leaf", "other", put("Tree", "roots"))
    query = datastore.Query()
    query.Ancestor(root)
    assert list(query.Run(keys_only=True)) == [root, branch, *leaves]
    assert list(query.Run(keys_only=True, limit=2, offset=2)) == leaves[:2]
    below = datastore.Query(None, {"__key__ >": branch})
    below.Ancestor(root)
    assert list(below.Run(keys_only=True)) == leaves


def test_kindless_queries_go_on_from_their_cursors() -> None:
    wanted = [put(kind, f"n{number}") for kind in "ABC" for number in range(7)]
    found: list[Any] = []
    cursor = None
    while len(found) < len(wanted):
        query = datastore.Query(cursor=cursor)
        page = list(query.Run(keys_only=True, limit=4, produce_cursors=True))
        assert page
        found += page
        cursor = query.GetCursor()
    assert found == wanted


@pytest.mark.parametrize(("limit", "wanted"), [(None, 12), (5, 5), (12, 12), (13, 12)])
def test_count_with_limit_and_offset(limit: int | None, wanted: int) -> None:
    for number in range(12):
        put("Counted", f"n{number:02}", value=number)
    for query in (datastore.Query("Counted"), datastore.Query("Counted", {"value >=": 0}), datastore.Query()):
        assert query.Count(limit) == wanted
        assert query.Count(limit, offset=4) == min(wanted, 8)
        assert query.Count(limit, offset=12) == query.Count(limit, offset=100) == 0
        assert query.Count(0) == 0


def test_results_come_by_next_with_batches_of_any_size() -> None:
    for number in range(35):
        put("Counted", f"n{number:02}", value=number)
    for batch in (1, 2, 34, 35, 36):
        with Calls() as calls:
            found = names(datastore.Query("Counted").Run(config=QueryOptions(batch_size=batch)))
        assert found == [f"n{number:02}" for number in range(35)]
        assert calls.count("datastore_v3.Next") >= 34 // batch - 1


def test_limit_and_offset_hold_across_batches() -> None:
    for number in range(35):
        put("Counted", f"n{number:02}", value=number)
    found = names(datastore.Query("Counted").Run(config=QueryOptions(batch_size=4, limit=17, offset=9)))
    assert found == [f"n{number:02}" for number in range(9, 26)]


def test_put_multi_gives_each_entity_its_own_key_in_order() -> None:
    keys = datastore.Put([datastore.Entity("Auto") for _ in range(30)])
    assert len({key.id() for key in keys}) == 30
    assert [entity.key() for entity in datastore.Get(keys)] == keys
    datastore.Delete(keys[:29])
    assert list(datastore.Query("Auto").Run(keys_only=True)) == keys[29:]


def test_there_are_no_composite_indexes_to_list() -> None:
    assert list(datastore.GetIndexes()) == []
