"""Ids: given out by the server alone, in ranges, and inside transactions, and never twice."""

import contextlib
from typing import Any

import pytest
from google.appengine.api import datastore, datastore_errors
from google.appengine.api.datastore_types import Key
from google.appengine.ext import db, ndb

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")


class Thing(ndb.Model):
    value = ndb.IntegerProperty()


class Old(db.Model):
    pass


def test_a_fresh_store_starts_its_ids_at_one() -> None:
    assert Thing().put().id() == 1


def test_auto_ids_are_positive_and_fit_into_53_bits() -> None:
    numbers = [key.id() for key in ndb.put_multi([Thing() for _ in range(100)])]
    assert len(set(numbers)) == 100
    assert all(0 < number < 2**53 for number in numbers)


def test_a_range_by_size_is_inclusive_and_as_long_as_asked() -> None:
    for size in (1, 2, 10, 1000):
        start, end = datastore.AllocateIds(Key.from_path("Thing", 1), size=size)
        assert end - start + 1 == size
        assert start > 0


def test_ranges_follow_each_other_without_overlap() -> None:
    ranges = [datastore.AllocateIds(Key.from_path("Thing", 1), size=10) for _ in range(20)]
    numbers = [number for start, end in ranges for number in range(start, end + 1)]
    assert len(set(numbers)) == 200


def test_a_range_by_max_reserves_up_to_it() -> None:
    start, _ = datastore.AllocateIds(Key.from_path("Thing", 1), size=1)
    wanted = start + 500
    start, end = datastore.AllocateIds(Key.from_path("Thing", 1), max=wanted)
    assert start <= end == wanted
    later, _ = datastore.AllocateIds(Key.from_path("Thing", 1), size=1)
    assert later > wanted


def test_a_range_by_a_max_that_is_taken_is_empty_or_beyond() -> None:
    _, taken = datastore.AllocateIds(Key.from_path("Thing", 1), size=100)
    start, end = datastore.AllocateIds(Key.from_path("Thing", 1), max=taken - 50)
    assert start > taken
    assert end == start - 1
    later, _ = datastore.AllocateIds(Key.from_path("Thing", 1), size=1)
    assert later > taken


@pytest.mark.parametrize("parent", [None, "parent"])
def test_ndb_and_db_allocate_for_roots_and_for_children(parent: str | None) -> None:
    above = ndb.Key("Parent", parent) if parent else None
    first, last = Thing.allocate_ids(size=5, parent=above)
    assert last - first == 4
    keys = Thing.allocate_ids(size=3, parent=above)
    assert keys[0] > last
    assert len(Thing.allocate_ids(max=keys[1] + 100, parent=above)) == 2
    old = db.allocate_ids(db.Key.from_path("Old", 1), 5)
    assert old[1] - old[0] == 4


def test_an_allocated_id_can_be_put_and_is_not_given_out_again() -> None:
    first, last = Thing.allocate_ids(size=20)
    keys = ndb.put_multi([Thing(id=number, value=number) for number in range(first, last + 1)])
    autos = [Thing(value=-1).put() for _ in range(40)]
    assert not set(keys) & set(autos)
    assert [thing.value for thing in ndb.get_multi(keys)] == list(range(first, last + 1))


def test_an_auto_id_never_lands_on_an_entity_that_chose_its_own_id() -> None:
    chosen = ndb.put_multi([Thing(id=number, value=number) for number in range(1, 60)])
    autos = []
    for _ in range(100):
        with contextlib.suppress(datastore_errors.BadRequestError):  # Google's: "already in use, please try again"
            autos.append(Thing(value=-1).put())
    assert len(autos) >= 41
    assert not set(chosen) & set(autos)
    assert [thing.value for thing in ndb.get_multi(chosen)] == list(range(1, 60))
    assert Thing.query().count() == 59 + len(autos)


def test_auto_ids_below_different_parents_work() -> None:
    parents = [ndb.Key("Parent", number + 1) for number in range(10)]
    keys = [Thing(parent=parent).put() for parent in parents for _ in range(5)]
    assert len(set(keys)) == 50
    assert [key.parent() for key in keys] == [parent for parent in parents for _ in range(5)]


def test_the_same_id_in_two_namespaces_is_two_entities() -> None:
    keys = [Thing(id=1, namespace=space, value=number).put() for number, space in enumerate(("", "a", "b"))]
    assert [thing.value for thing in ndb.get_multi(keys)] == [0, 1, 2]


@pytest.mark.parametrize("parent", [None, "parent"])
def test_no_id_is_given_out_twice_to_threads_that_put_and_allocate(parent: str | None) -> None:
    above = ndb.Key("Parent", parent) if parent else None

    def one(kind: int) -> list[Any]:
        if kind == 0:
            return [Thing(parent=above).put().id()]
        if kind == 1:
            return [key.id() for key in ndb.put_multi([Thing(parent=above) for _ in range(5)])]
        if kind == 2:
            return [ndb.transaction(lambda: Thing(parent=above).put(), retries=200).id()]
        first, last = Thing.allocate_ids(size=7, parent=above)
        return list(range(first, last + 1))

    given = [number for numbers in in_threads(16, one, [at % 4 for at in range(320)]) for number in numbers]
    assert len(given) == 80 * (1 + 5 + 1 + 7)
    assert len(set(given)) == len(given)
    assert Thing.query(ancestor=above).count() == 80 * (1 + 5 + 1)
