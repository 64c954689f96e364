"""Defects of AppScale's history that had to do with keys and ids, each as a test named after its symptom."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from google.appengine.api import datastore
from google.appengine.api.datastore_types import Key
from google.appengine.ext import ndb

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")


class Entry(ndb.Model):
    label = ndb.StringProperty()


def put(keys: Iterable[Any]) -> None:
    """An entity at each key, labelled with the key's path."""
    ndb.put_multi([Entry(key=key, label=repr(key.flat())) for key in keys])


def stay_apart(keys: list[Any]) -> None:
    """Each key has an entity of its own, which can be found, changed and deleted without the others."""
    put(reversed(keys))
    assert [entry.label for entry in ndb.get_multi(keys)] == [repr(key.flat()) for key in keys]
    assert Entry.query().count() == len(keys)
    for key in keys:
        assert Entry.query(Entry.label == repr(key.flat())).fetch(keys_only=True) == [key]
        assert Entry.query(Entry.key == key).fetch(keys_only=True) == [key]
    for at, key in enumerate(keys):
        key.delete()
        assert [entry is None for entry in ndb.get_multi(keys)] == [each <= at for each in range(len(keys))]


@pytest.mark.parametrize("name", ["~", "~~", "\x7f", "é", "日本", "\U0001f600", "\uffff", "\U0010ffff"], ids=ascii)
def test_keys_with_bytes_above_tilde_are_not_missing_from_a_kind_query(name: str) -> None:
    """Scans ended at "table/~", so what begins with a byte above it was in no result."""
    keys = [ndb.Key(Entry, "a"), ndb.Key(Entry, name), ndb.Key(Entry, name, Entry, name)]
    put(keys)
    assert Entry.query().fetch(keys_only=True) == keys
    assert Entry.query().order(-Entry.key).fetch(keys_only=True) == keys[::-1]
    assert Entry.query(Entry.key > keys[0]).fetch(keys_only=True) == keys[1:]
    assert Entry.query(ancestor=keys[1]).fetch(keys_only=True) == keys[1:]
    assert Entry.query(Entry.label > "").count() == 3
    assert ndb.Query().fetch(keys_only=True) == keys


@pytest.mark.parametrize("kind", ["~", "~kind", "\x7f", "Ünïcode", "種類"], ids=ascii)
def test_kinds_with_bytes_above_tilde_are_not_missing_from_kindless_queries(kind: str) -> None:
    """The end of a scan over all tables was a tilde as well."""
    keys = [datastore.Put(datastore.Entity(each, name="x")) for each in ("Aa", kind)]
    assert list(datastore.Query().Run(keys_only=True)) == keys
    assert list(datastore.Query(kind).Run(keys_only=True)) == keys[1:]


def test_values_with_bytes_above_tilde_are_not_missing_from_an_inequality() -> None:
    """Scans of a property's index ended at a tilde, too."""
    texts = ["a", "~", "~~", "\x7f", "é", "\U0010ffff"]
    for number, text in enumerate(texts):
        Entry(id=number + 1, label=text).put()
    assert [entry.label for entry in Entry.query(Entry.label >= "a").order(Entry.label)] == texts
    assert [entry.label for entry in Entry.query(Entry.label > "~").order(-Entry.label)] == texts[:1:-1]


def test_sixteen_digit_ids_sort_as_numbers() -> None:
    """Ids were padded to ten digits, so longer ones sorted as text."""
    numbers = [1, 9, 10, 9_999_999_999, 10_000_000_000, 99_999_999_999]
    numbers += [999_999_999_999_999, 1_000_000_000_000_000, 9_007_199_254_740_991, 2**62]
    for parent in (None, ndb.Key("Shelf", 10_000_000_000)):
        keys = [ndb.Key(Entry, number, parent=parent) for number in numbers]
        put(reversed(keys))
        query = Entry.query(ancestor=parent)
        assert query.fetch(keys_only=True) == keys
        assert query.filter(Entry.key > keys[3]).fetch(keys_only=True) == keys[4:]
        ndb.delete_multi(keys)


def test_ids_come_before_names() -> None:
    """Ids were written as text between the names."""
    identifiers: list[int | str] = [1, 2, 10, 2**62, "0", "00000000001", "1", "10", "2", "a"]
    roots = [ndb.Key(Entry, identifier) for identifier in identifiers]
    put(reversed(roots))
    assert Entry.query().fetch(keys_only=True) == roots
    assert Entry.query().order(-Entry.key).fetch(keys_only=True) == roots[::-1]
    assert Entry.query(Entry.key < ndb.Key(Entry, "0")).fetch(keys_only=True) == roots[:4]
    ndb.delete_multi(roots)
    children = [ndb.Key("Shelf", identifier, Entry, 1) for identifier in identifiers]
    put(reversed(children))
    assert Entry.query().fetch(keys_only=True) == children


def test_an_id_and_the_name_of_its_digits_stay_apart() -> None:
    """An id and a name with the same digits made the same row key."""
    stay_apart([ndb.Key(Entry, 7), ndb.Key(Entry, 70), ndb.Key(Entry, "0000000007"), ndb.Key(Entry, "7")])


def test_names_with_slashes_and_colons_do_not_collide() -> None:
    """Row keys were joined with "/", ":" and "___", which names may contain."""
    stay_apart(
        sorted(
            [
                ndb.Key(Entry, "a", Entry, "b"),
                ndb.Key(Entry, "a/b"),
                ndb.Key(Entry, "a:b"),
                ndb.Key(Entry, "a___b"),
                ndb.Key(Entry, "a/Entry:b"),
                ndb.Key(Entry, "a!Entry:b"),
                ndb.Key(Entry, "a", Entry, "b/Entry:c"),
                ndb.Key(Entry, "a", Entry, "b", Entry, "c"),
                ndb.Key(Entry, "a/Entry:b", Entry, "c"),
                ndb.Key(Entry, "a\x00b"),
                ndb.Key(Entry, "a\x00"),
                ndb.Key(Entry, "a\x00", Entry, "\x00b"),
                ndb.Key(Entry, "a\x01b"),
            ]
        )
    )


def test_kinds_with_separators_do_not_see_each_others_entities() -> None:
    """Table names were app, kind and suffix joined with "___"."""
    kinds = ["A", "A/B", "A:B", "A___", "A___B", "A___kinds", "A\x00", "A\x00B", "AB"]
    for kind in kinds:
        datastore.Put(datastore.Entity(kind, name=f"in {kind}"))
    for kind in kinds:
        assert [key.name() for key in datastore.Query(kind).Run(keys_only=True)] == [f"in {kind}"]


def test_namespaces_with_separators_do_not_see_each_others_entities() -> None:
    """App, namespace and kind were joined without escaping."""
    places = [("a", "b_c"), ("a_b", "c"), ("a", "b"), ("a-b", "c"), ("a.b", "c"), ("", "a___b"), ("a___b", "c")]
    for space, kind in places:
        datastore.Put(datastore.Entity(kind, name=f"{space} {kind}", namespace=space))
    for space, kind in places:
        found = datastore.Query(kind, namespace=space).Run(keys_only=True)
        assert [key.name() for key in found] == [f"{space} {kind}"]


def test_properties_and_values_with_separators_do_not_collide() -> None:
    """Index rows were property, value and key joined with "/"."""
    pairs = [("a", "b/c"), ("a/b", "c"), ("a", "b"), ("a/b/c", ""), ("a", "b\x00c"), ("a\x00b", "c"), ("a", "b\x00")]
    for number, (name, value) in enumerate(pairs):
        entity = datastore.Entity("Pair", id=number + 1)
        entity[name] = value
        datastore.Put(entity)
    for number, (name, value) in enumerate(pairs):
        found = datastore.Query("Pair", {f"{name} =": value}).Run(keys_only=True)
        assert [key.id() for key in found] == [number + 1]


def test_long_keys_that_share_255_characters_stay_apart() -> None:
    """Keys were cut at 255 characters."""
    long = "k" * 255
    keys = [ndb.Key(Entry, name) for name in (long, long + "a", long + "b", long + "b" * 200, "k" * 499 + "l")]
    stay_apart(sorted(keys))
    stay_apart(sorted(ndb.Key("Shelf", long, Entry, name) for name in ("a", "b", long)))


def test_long_values_that_share_255_characters_stay_apart() -> None:
    """Index values were cut where keys were."""
    texts = ["v" * 255 + tail for tail in ("", "a", "b", "b" * 1000)]
    for number, text in enumerate(texts):
        Entry(id=number + 1, label=text).put()
    for number, text in enumerate(texts):
        assert [key.id() for key in Entry.query(Entry.label == text).fetch(keys_only=True)] == [number + 1]
    assert [entry.label for entry in Entry.query().order(-Entry.label)] == texts[::-1]


def test_keys_differing_in_case_stay_apart() -> None:
    """Keys were compared without regard to case, and with the database's idea of accents and trailing blanks."""
    names = ["ABC", "ABc", "Abc", "abc", "abc ", "abc  ", "e", "é", "É", "e\u0301", "ss", "ß"]
    stay_apart(sorted(ndb.Key(Entry, name) for name in names))


def test_kinds_values_and_properties_differing_in_case_stay_apart() -> None:
    """Tables and values were compared without regard to case."""
    for kind in ("Case", "case", "CASE"):
        for name in ("Prop", "prop"):
            entity = datastore.Entity(kind, name=name)
            entity[name] = kind
            datastore.Put(entity)
    assert [key.name() for key in datastore.Query("case", {"prop =": "case"}).Run(keys_only=True)] == ["prop"]
    assert datastore.Query("case", {"prop =": "CASE"}).Count() == 0
    assert datastore.Query("CASE").Count() == 2


@pytest.mark.parametrize("parent", [None, "shelf"])
def test_allocate_ids_by_size_gives_a_range_not_start_equal_end(parent: str | None) -> None:
    """AllocateIds answered the same id as start and end, whatever size was asked for."""
    model_key = Key.from_path("Entry", 1, parent=Key.from_path("Shelf", parent) if parent else None)
    ranges = [datastore.AllocateIds(model_key, size=size) for size in (10, 2, 1, 100)]
    assert [end - start + 1 for start, end in ranges] == [10, 2, 1, 100]
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_ids_beyond_sixteen_digits_are_not_rounded() -> None:
    """Ids went through text and floating point on their way."""
    numbers = [2**53 + 1, 2**62 + 1, 2**63 - 1]
    stay_apart([ndb.Key(Entry, number) for number in numbers])


def test_entities_put_at_once_are_all_in_the_list_of_their_kind() -> None:
    """Lists of keys were read, extended and written back: of two that did so at once, one was lost."""
    keys = [ndb.Key(Entry, f"e{number:03}") for number in range(160)]
    in_threads(16, lambda key: Entry(key=key, label="same").put(), keys)
    assert Entry.query().fetch(keys_only=True) == keys
    assert Entry.query(Entry.label == "same").fetch(keys_only=True) == keys
    in_threads(16, lambda key: key.delete(), keys[::2])
    assert Entry.query().fetch(keys_only=True) == keys[1::2]
    assert Entry.query(Entry.label == "same").fetch(keys_only=True) == keys[1::2]


def test_kinds_that_begin_at_once_are_all_known() -> None:
    """The list of kinds was such a list as well."""
    kinds = [f"Kind{number:02}" for number in range(32)]
    in_threads(16, lambda kind: datastore.Put(datastore.Entity(kind, name="x")), kinds)
    assert [key.kind() for key in datastore.Query().Run(keys_only=True)] == kinds
    assert [key.name() for key in datastore.Query("__kind__").Run(keys_only=True)] == kinds
