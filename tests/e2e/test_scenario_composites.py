"""Composite indexes: declared, built, followed by writes, deleted; no answer may depend on where they stand."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from google.appengine.api import datastore, datastore_admin, datastore_errors
from google.appengine.datastore import entity_bytes_pb2
from google.appengine.ext import db, ndb

from tests.e2e.sdk import APP, REFEREE
from tests.e2e.server import wait_until

pytestmark = pytest.mark.usefixtures("sdk")

CompositeIndex = entity_bytes_pb2.CompositeIndex


class House(ndb.Model):
    town = ndb.StringProperty()
    rooms = ndb.IntegerProperty()
    price = ndb.IntegerProperty()
    kinds = ndb.StringProperty(repeated=True)


def index(kind: str, *names: str, ancestor: bool = False) -> Any:
    """What is sent to declare an index; "-name" for a descending property."""
    found = CompositeIndex(app_id=APP, id=0, state=CompositeIndex.WRITE_ONLY)
    found.definition.entity_type = kind
    found.definition.ancestor = ancestor
    for name in names:
        prop = found.definition.property.add(name=name.removeprefix("-"))
        prop.direction = prop.DESCENDING if name.startswith("-") else prop.ASCENDING
    return found


def create(declared: Any) -> Any:
    sent = CompositeIndex()
    sent.CopyFrom(declared)
    declared.id = datastore_admin.CreateIndex(sent)
    return declared


def states() -> list[Any]:
    return [each.state for each in datastore_admin.GetIndices()]


def until_built() -> None:
    """Returns when every index serves. Google's implementation has to be told."""
    for each in datastore_admin.GetIndices() if REFEREE else ():
        if each.state == CompositeIndex.WRITE_ONLY:
            each.state = CompositeIndex.READ_WRITE
            datastore_admin.UpdateIndex(each)
    wait_until(lambda: set(states()) == {CompositeIndex.READ_WRITE}, "the end of the index builds")


INDEXES = [
    ("House", ("town", "price"), False),
    ("House", ("town", "-price"), False),
    ("House", ("rooms", "-price"), False),
    ("House", ("town", "rooms", "price"), False),
    ("House", ("-price",), True),
    ("House", ("town", "-rooms"), True),
    ("House", ("kinds", "price"), False),
]


def create_all() -> list[Any]:
    return [create(index(kind, *names, ancestor=ancestor)) for kind, names, ancestor in INDEXES]


class Case(NamedTuple):
    query: Callable[[], Any]
    wanted: Callable[[Any], bool]
    value: Callable[[Any], Any]


def street() -> Any:
    return ndb.Key("Street", "s1")


CASES = {
    "equal-above": Case(
        lambda: House.query(House.town == "a", House.price > 6).order(House.price),
        lambda e: e.town == "a" and e.price > 6,
        lambda e: e.price,
    ),
    "equal-down": Case(
        lambda: House.query(House.town == "b").order(-House.price), lambda e: e.town == "b", lambda e: -e.price
    ),
    "two-orders": Case(
        lambda: House.query().order(House.rooms, -House.price), lambda _: True, lambda e: (e.rooms, -e.price)
    ),
    "two-equal-order": Case(
        lambda: House.query(House.town == "a", House.rooms == 3).order(House.price),
        lambda e: (e.town, e.rooms) == ("a", 3),
        lambda e: e.price,
    ),
    "ancestor-order": Case(
        lambda: House.query(ancestor=street()).order(-House.price),
        lambda e: e.key.parent() == street(),
        lambda e: -e.price,
    ),
    "ancestor-equal-below": Case(
        lambda: House.query(House.town == "b", House.rooms < 4, ancestor=street()).order(-House.rooms),
        lambda e: e.key.parent() == street() and e.town == "b" and e.rooms < 4,
        lambda e: -e.rooms,
    ),
    "repeated-equal-order": Case(
        lambda: House.query(House.kinds == "brick").order(House.price), lambda e: "brick" in e.kinds, lambda e: e.price
    ),
    "repeated-two-equal-order": Case(
        lambda: House.query(House.kinds == "brick", House.kinds == "old").order(House.price),
        lambda e: {"brick", "old"} <= set(e.kinds),
        lambda e: e.price,
    ),
    "without-index": Case(
        lambda: House.query(House.rooms >= 2).order(-House.rooms, House.town),
        lambda e: e.rooms >= 2,
        lambda e: (-e.rooms, e.town),
    ),
}


def house(number: int) -> House:
    return House(
        key=ndb.Key("Street", f"s{number % 3}", House, f"h{number:03}"),
        town="ab"[number % 5 > 2],
        rooms=number * 7 % 5 + 1,
        price=number * 11 % 17,
        kinds=[("brick", "wood")[number % 2], ("old", "new", "brick")[number % 3]],
    )


@pytest.fixture
def houses(sdk: None) -> dict[Any, Any]:
    """90 houses by their keys."""
    found = [house(number) for number in range(90)]
    ndb.put_multi(found)
    return {each.key: each for each in found}


def check(houses: dict[Any, Any]) -> None:
    """Every case finds exactly what the entities say: whole, by offset, by cursor and counted."""
    for name, case in CASES.items():
        chosen = sorted(filter(case.wanted, houses.values()), key=lambda each: (case.value(each), each.key))
        wanted = [each.key for each in chosen]
        assert len(wanted) > 3, name
        assert case.query().fetch(keys_only=True) == wanted, name
        assert case.query().fetch(3, offset=1, keys_only=True) == wanted[1:4], name
        page, cursor, _ = case.query().fetch_page(2)
        rest = case.query().fetch(start_cursor=cursor, keys_only=True, batch_size=5)
        assert [each.key for each in page] + rest == wanted, name
        assert case.query().count() == len(wanted), name


def test_answers_are_the_same_before_while_and_after_indexes_are_built(houses: dict[Any, Any]) -> None:
    check(houses)
    create_all()
    check(houses)
    until_built()
    check(houses)
    for each in datastore_admin.GetIndices():
        datastore_admin.DeleteIndex(each)
    check(houses)


def test_built_indexes_follow_puts_updates_and_deletes(houses: dict[Any, Any]) -> None:
    create_all()
    until_built()
    for number in range(0, 90, 4):
        changed = house(number)
        changed.town, changed.price, changed.kinds = "a", number % 7, ["brick", "old", "brick"]
        houses[changed.put()] = changed
    for number in range(90, 110):
        houses[house(number).put()] = house(number)
    gone = [key for number, key in enumerate(houses) if number % 9 == 1]
    ndb.delete_multi(gone)
    check({key: each for key, each in houses.items() if key not in gone})


def test_indexes_that_are_being_built_follow_puts_updates_and_deletes(houses: dict[Any, Any]) -> None:
    create_all()
    for number in range(0, 120, 3):
        changed = house(number)
        changed.price += 1
        houses[changed.put()] = changed
        key, _ = houses.popitem()
        key.delete()
    check(houses)
    until_built()
    check(houses)


def test_indexes_follow_transactions_that_commit_and_no_others(houses: dict[Any, Any]) -> None:
    create_all()
    until_built()

    def work(*, fail: bool) -> None:
        for number in range(10):
            House(parent=street(), id=f"n{number}", town="a", rooms=3, price=number, kinds=["brick", "old"]).put()
        next(iter(houses)).delete()
        if fail:
            raise ndb.Rollback

    ndb.transaction(lambda: work(fail=True), xg=True)
    check(houses)
    ndb.transaction(lambda: work(fail=False), xg=True)
    del houses[next(iter(houses))]
    new = [House(parent=street(), id=f"n{n}", town="a", rooms=3, price=n, kinds=["brick", "old"]) for n in range(10)]
    check({**houses, **{each.key: each for each in new}})


def test_created_indexes_are_listed_until_they_are_deleted() -> None:
    created = create_all()
    assert len({each.id for each in created}) == len(INDEXES)
    listed = {each.id: each.definition for each in datastore_admin.GetIndices()}
    assert listed == {each.id: each.definition for each in created}
    datastore_admin.DeleteIndex(next(each for each in datastore_admin.GetIndices() if each.id == created[0].id))
    left = {each.id for each in created[1:]}
    wait_until(lambda: {each.id for each in datastore_admin.GetIndices()} == left, "the end of the deleted index")


def test_the_sdk_shows_an_index_as_it_was_declared() -> None:
    create(index("House", "town", "-price", ancestor=True))
    until_built()
    [(found, state)] = datastore.GetIndexes()
    assert state == datastore.Index.SERVING
    assert (found.Kind(), found.HasAncestor()) == ("House", True)
    assert found.Properties() == [("town", datastore.Index.ASCENDING), ("price", datastore.Index.DESCENDING)]
    assert len(db.get_indexes()) == 1


def test_an_index_is_created_once() -> None:
    create(index("House", "town", "price"))
    with pytest.raises(datastore_errors.BadRequestError, match="already exists"):
        create(index("House", "town", "price"))
    create(index("House", "town", "-price"))
    create(index("House", "town", "price", ancestor=True))
    assert len(states()) == 3


def test_a_deleted_index_can_be_created_again(houses: dict[Any, Any]) -> None:
    for _ in range(2):
        create_all()
        until_built()
        check(houses)
        for each in datastore_admin.GetIndices():
            datastore_admin.DeleteIndex(each)
        first = next(iter(houses))
        first.delete()
        del houses[first]


def test_an_index_that_was_never_created_cannot_be_updated_or_deleted() -> None:
    unknown = index("House", "town")
    unknown.id = 4711
    for change in (datastore_admin.UpdateIndex, datastore_admin.DeleteIndex):
        with pytest.raises(datastore_errors.BadRequestError):
            change(unknown)
