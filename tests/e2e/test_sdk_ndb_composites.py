"""ndb: queries that no single index serves in their order; they are answered all the same."""

from itertools import pairwise
from typing import Any

import pytest
from google.appengine.ext import ndb

pytestmark = pytest.mark.usefixtures("sdk")


class Car(ndb.Model):
    make = ndb.StringProperty()
    year = ndb.IntegerProperty()
    price = ndb.IntegerProperty()
    tags = ndb.StringProperty(repeated=True)


@pytest.fixture
def cars(sdk: None) -> list[Car]:
    """Sixty cars in two lots."""
    found = [
        Car(
            key=ndb.Key("Lot", f"l{number % 2}", Car, f"c{number:02}"),
            make="abc"[number % 3],
            year=2000 + number * 7 % 11,
            price=number * 13 % 17,
            tags=[f"t{number % 4}", f"t{number % 5}", "all"],
        )
        for number in range(60)
    ]
    ndb.put_multi(found)
    return found


def wanted(cars: list[Any], condition: Any, *by: tuple[str, bool]) -> list[Any]:
    """Keys of the cars that meet `condition`, sorted by attributes (name, descending), at last by key."""
    chosen = sorted((car for car in cars if condition(car)), key=lambda car: car.key)
    for name, descending in reversed(by):
        chosen.sort(key=lambda car: getattr(car, name), reverse=descending)
    return [car.key for car in chosen]


def check(query: Any, expected: list[Any]) -> None:
    """The query finds `expected`, whole, by offset, by cursor, and counted."""
    assert query.fetch(keys_only=True) == expected
    assert [car.key for car in query] == expected
    assert query.fetch(5, offset=3, keys_only=True) == expected[3:8]
    assert query.count() == len(expected)
    page, cursor, _ = query.fetch_page(4, keys_only=True)
    assert page + query.fetch(start_cursor=cursor, keys_only=True) == expected


def test_two_equalities(cars: list[Car]) -> None:
    check(Car.query(Car.make == "a", Car.year == 2003), wanted(cars, lambda car: car.make == "a" and car.year == 2003))
    check(Car.query(Car.tags == "t1", Car.tags == "t2"), wanted(cars, lambda car: {"t1", "t2"} <= set(car.tags)))


@pytest.mark.parametrize("descending", [False, True])
def test_an_equality_and_an_order(cars: list[Car], descending: bool) -> None:
    order = -Car.year if descending else Car.year
    check(Car.query(Car.make == "b").order(order), wanted(cars, lambda car: car.make == "b", ("year", descending)))


@pytest.mark.parametrize("descending", [False, True])
def test_an_equality_and_an_inequality(cars: list[Car], descending: bool) -> None:
    order = -Car.year if descending else Car.year
    query = Car.query(Car.make == "c", Car.year > 2004).order(order)
    check(query, wanted(cars, lambda car: car.make == "c" and car.year > 2004, ("year", descending)))


@pytest.mark.parametrize("years", [False, True])
@pytest.mark.parametrize("prices", [False, True])
def test_two_orders(cars: list[Car], years: bool, prices: bool) -> None:
    query = Car.query().order(-Car.year if years else Car.year, -Car.price if prices else Car.price)
    check(query, wanted(cars, lambda _: True, ("year", years), ("price", prices)))


def test_an_ancestor_with_filters_and_orders(cars: list[Car]) -> None:
    lot = ndb.Key("Lot", "l1")
    here = [car for car in cars if car.key.parent() == lot]
    check(Car.query(Car.make == "a", ancestor=lot), wanted(here, lambda car: car.make == "a"))
    check(Car.query(Car.price >= 9, ancestor=lot), wanted(here, lambda car: car.price >= 9, ("price", False)))
    check(Car.query(ancestor=lot).order(-Car.price), wanted(here, lambda _: True, ("price", True)))
    check(
        Car.query(Car.make == "b", ancestor=lot).order(Car.year, -Car.price),
        wanted(here, lambda car: car.make == "b", ("year", False), ("price", True)),
    )


def test_a_key_filter_with_an_equality(cars: list[Car]) -> None:
    middle = sorted(car.key for car in cars)[30]
    query = Car.query(Car.make == "a", Car.key > middle)
    check(query, wanted(cars, lambda car: car.make == "a" and car.key > middle))


def test_batches_of_a_sorted_query_follow_each_other(cars: list[Car]) -> None:
    found = list(Car.query(Car.tags == "all").order(-Car.year, Car.price).iter(batch_size=7))
    assert len(found) == 60
    assert all((-before.year, before.price) <= (-after.year, after.price) for before, after in pairwise(found))
