"""Metadata queries: which namespaces, kinds and properties there are, kept true by every put and delete."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from google.appengine.api import datastore, datastore_types, namespace_manager, users
from google.appengine.ext import db, ndb
from google.appengine.ext.db import metadata as db_metadata
from google.appengine.ext.ndb import metadata

pytestmark = pytest.mark.usefixtures("sdk")


def put(kind: str, name: str = "x", namespace: str = "", **properties: Any) -> Any:
    entity = datastore.Entity(kind, name=name, namespace=namespace)
    entity.update(properties)
    return datastore.Put(entity)


def names(found: Any) -> list[str]:
    return [key.name() for key in found]


def run(kind: str, filters: dict[str, Any] | None = None, **options: Any) -> Any:
    return datastore.Query(kind, filters or {}, keys_only=True).Run(**options)


def test_kinds_are_listed_in_order_and_once() -> None:
    for kind in ("Pear", "Apple", "apple", "Äpfel", "Fig"):
        for name in "ab":
            put(kind, name)
    assert metadata.get_kinds() == ["Apple", "Fig", "Pear", "apple", "Äpfel"]
    assert db_metadata.get_kinds() == metadata.get_kinds()


def test_an_empty_datastore_has_no_metadata() -> None:
    assert metadata.get_kinds() == metadata.get_namespaces() == metadata.get_properties_of_kind("Pear") == []
    assert metadata.get_representations_of_kind("Pear") == {}


def test_kinds_of_a_range() -> None:
    for kind in ("Pear", "Apple", "Kiwi", "Fig"):
        put(kind)
    for start, end, wanted in (
        ("Fig", None, ["Fig", "Kiwi", "Pear"]),
        (None, "Kiwi", ["Apple", "Fig"]),
        ("B", "L", ["Fig", "Kiwi"]),
        ("Fig", "Fig", []),
        ("Z", None, []),
        ("", "Z", ["Apple", "Fig", "Kiwi", "Pear"]),
    ):
        assert metadata.get_kinds(start, end) == wanted
        assert db_metadata.get_kinds(start, end) == wanted


def test_a_kind_is_listed_until_its_last_entity_is_deleted() -> None:
    keys = [put("Pear", f"p{number}", rank=number) for number in range(3)]
    put("Fig")
    for key in keys:
        assert metadata.get_kinds() == ["Fig", "Pear"]
        assert metadata.get_properties_of_kind("Pear") == ["rank"]
        datastore.Delete(key)
    assert metadata.get_kinds() == ["Fig"]
    assert metadata.get_properties_of_kind("Pear") == []
    datastore.Put(datastore.Entity("Pear"))
    assert metadata.get_kinds() == ["Fig", "Pear"]


def test_kinds_of_children_and_of_missing_parents() -> None:
    datastore.Put(datastore.Entity("Child", name="c", parent=datastore_types.Key.from_path("Missing", 1)))
    assert metadata.get_kinds() == ["Child"]


def test_kinds_and_properties_belong_to_their_namespace() -> None:
    put("Here", rank=1)
    put("There", namespace="tenant", weight=1)
    assert metadata.get_kinds() == ["Here"]
    assert metadata.get_properties_of_kind("There") == []
    namespace_manager.set_namespace("tenant")
    assert metadata.get_kinds() == ["There"]
    assert metadata.get_properties_of_kind("There") == ["weight"]
    namespace_manager.set_namespace("empty")
    assert metadata.get_kinds() == []


def test_namespaces_are_listed_until_they_are_empty() -> None:
    keys = [put("Pear", namespace=space) for space in ("", "b", "a", "a-b", "z")]
    assert metadata.get_namespaces() == ["", "a", "a-b", "b", "z"]
    assert db_metadata.get_namespaces() == metadata.get_namespaces()
    datastore.Delete(keys[0])
    datastore.Delete(keys[2])
    assert metadata.get_namespaces() == ["a-b", "b", "z"]


def test_namespaces_of_a_range() -> None:
    for space in ("c", "", "b", "a"):
        put("Pear", namespace=space)
    for start, end, wanted in (
        ("", "b", ["", "a"]),
        ("a", None, ["a", "b", "c"]),
        ("b", "c", ["b"]),
        ("d", None, []),
        (None, "", []),
    ):
        assert metadata.get_namespaces(start, end) == wanted


#: What is put, and what the representation of such a property is called.
REPRESENTATIONS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "integer": (lambda: 1, ["INT64"]),
    "moment": (lambda: datetime.datetime(2020, 1, 1), ["INT64"]),
    "truth": (lambda: True, ["BOOLEAN"]),
    "text": (lambda: "x", ["STRING"]),
    "bytes": (lambda: datastore_types.ByteString(b"x"), ["STRING"]),
    "link": (lambda: datastore_types.Link("http://example.com"), ["STRING"]),
    "floating": (lambda: 1.5, ["DOUBLE"]),
    "point": (lambda: datastore_types.GeoPt(1, 2), ["POINT"]),
    "user": (lambda: users.User("a@example.com", _auth_domain="gmail.com"), ["USER"]),
    "reference": (lambda: datastore_types.Key.from_path("A", 1), ["REFERENCE"]),
    "nothing": (lambda: None, ["NULL"]),
    "several": (lambda: [1, 2, 3], ["INT64"]),
}


def test_each_type_has_its_representation() -> None:
    put("Mixed", **{name: make() for name, (make, _) in REPRESENTATIONS.items()})
    wanted = {name: called for name, (_, called) in REPRESENTATIONS.items()}
    assert metadata.get_representations_of_kind("Mixed") == wanted
    assert db_metadata.get_representations_of_kind("Mixed") == wanted
    assert metadata.get_properties_of_kind("Mixed") == sorted(wanted)


def test_a_property_has_the_representations_of_all_entities_until_they_change() -> None:
    put("Loose", "a", value=1)
    put("Loose", "b", value="x")
    put("Loose", "c", value=[None, 2.5])
    assert sorted(metadata.get_representations_of_kind("Loose")["value"]) == ["DOUBLE", "INT64", "NULL", "STRING"]
    datastore.Delete(datastore_types.Key.from_path("Loose", "c"))
    assert sorted(metadata.get_representations_of_kind("Loose")["value"]) == ["INT64", "STRING"]
    put("Loose", "b", value=7)
    assert metadata.get_representations_of_kind("Loose") == {"value": ["INT64"]}
    put("Loose", "a", other=1)
    put("Loose", "b", other=1)
    assert metadata.get_representations_of_kind("Loose") == {"other": ["INT64"]}


def test_unindexed_properties_are_not_listed() -> None:
    put("Doc", text=datastore_types.Text("t"), blob=datastore_types.Blob(b"b"), title="x")
    assert metadata.get_properties_of_kind("Doc") == ["title"]


def test_properties_of_a_range() -> None:
    put("Doc", b=1, a=1, d=1, c=1)
    put("Docs", bb=1)
    assert metadata.get_properties_of_kind("Doc", "b", "d") == ["b", "c"]
    assert metadata.get_properties_of_kind("Doc", "bb") == ["c", "d"]
    assert metadata.get_properties_of_kind("Doc", None, "b") == ["a"]
    assert metadata.get_representations_of_kind("Doc", "d") == {"d": ["INT64"]}


def test_the_properties_of_all_kinds_come_by_kind_and_name() -> None:
    put("B", y=1, x=1)
    put("A", z=1)
    found = [(key.parent().name(), key.name()) for key in run("__property__")]
    assert found == [("A", "z"), ("B", "x"), ("B", "y")]
    above = datastore_types.Key.from_path("__kind__", "B", "__property__", "x")
    assert names(run("__property__", {"__key__ >": above})) == ["y"]


def test_metadata_queries_take_limits_offsets_and_counts() -> None:
    for number in range(12):
        put(f"K{number:02}")
    wanted = [f"K{number:02}" for number in range(12)]
    assert names(run("__kind__", limit=3)) == wanted[:3]
    assert names(run("__kind__", limit=3, offset=4)) == wanted[4:7]
    assert names(run("__kind__", batch_size=5)) == wanted
    assert datastore.Query("__kind__").Count() == 12
    assert metadata.Kind.query().count(5) == 5


def test_metadata_queries_go_on_from_their_cursors() -> None:
    for number in range(7):
        put(f"K{number}", rank=number)
    found: list[str] = []
    cursor, more = None, True
    while more:
        page, cursor, more = metadata.Kind.query().fetch_page(3, start_cursor=cursor)
        assert page
        found += [kind.kind_name for kind in page]
    assert found == [f"K{number}" for number in range(7)]


def test_metadata_follows_a_transaction_only_once_it_commits() -> None:
    class Fruit(db.Expando):
        pass

    def work(*, fail: bool) -> None:
        Fruit(key_name="f", color="red").put()
        if fail:
            raise db.Rollback

    db.run_in_transaction(lambda: work(fail=True))
    assert metadata.get_kinds() == []
    db.run_in_transaction(lambda: work(fail=False))
    assert metadata.get_representations_of_kind("Fruit") == {"color": ["STRING"]}


def test_the_version_of_a_group_grows_with_every_change_in_it() -> None:
    root = ndb.Key("Root", "r")
    child = datastore_types.Key.from_path("Root", "r", "Child", "c")
    seen = []
    for work in (
        lambda: put("Root", "r"),
        lambda: datastore.Put(datastore.Entity("Child", name="c", parent=child.parent())),
        lambda: datastore.Delete(child),
    ):
        work()
        seen.append(metadata.get_entity_group_version(root))
        put("Root", "other")
        assert metadata.get_entity_group_version(ndb.Key("Child", "c", parent=root)) == seen[-1]
    assert seen[0] < seen[1] < seen[2]
