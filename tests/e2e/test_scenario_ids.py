"""Ids given out by size, by maximum and by reserved keys, for roots and for children."""

import contextlib
from typing import Any

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import db, ndb

pytestmark = pytest.mark.usefixtures("sdk")

each_place = pytest.mark.parametrize("parent", [None, "parent"], ids=["root", "child"])


class Ticket(ndb.Model):
    holder = ndb.StringProperty()


class OldTicket(db.Model):
    holder = db.StringProperty()


def above(parent: str | None) -> Any:
    return ndb.Key("Desk", parent) if parent else None


def old_key(number: int, parent: str | None) -> Any:
    return db.Key.from_path("OldTicket", number, parent=db.Key.from_path("Desk", parent) if parent else None)


def put_auto(count: int, parent: str | None) -> list[int]:
    """Ids of so many attempts; Google's server may ask to try again, which is not what these tests are about."""
    found = []
    for _ in range(count):
        with contextlib.suppress(datastore_errors.BadRequestError):
            found.append(Ticket(parent=above(parent)).put().id())
    assert found
    return found


def reserve(*numbers: int, parent: str | None) -> None:
    ndb.get_context()._conn._reserve_keys([ndb.Key(Ticket, number, parent=above(parent)) for number in numbers])


@each_place
def test_ids_by_size_and_by_maximum_never_overlap(parent: str | None) -> None:
    given: list[int] = []
    for size, step in ((1, 10), (7, 3), (500, 1), (3, 200)):
        first, last = Ticket.allocate_ids(size=size, parent=above(parent))
        assert last - first + 1 == size
        start, end = Ticket.allocate_ids(max=last + step, parent=above(parent))
        assert (start, end) == (last + 1, last + step)
        given += [*range(first, last + 1), *range(start, end + 1)]
    assert len(set(given)) == len(given)
    assert not set(given) & set(put_auto(30, parent))


@each_place
def test_a_maximum_that_is_below_what_was_given_out_gives_nothing(parent: str | None) -> None:
    _, last = Ticket.allocate_ids(size=50, parent=above(parent))
    start, end = Ticket.allocate_ids(max=last - 20, parent=above(parent))
    assert (start, end) == (last + 1, last)
    assert Ticket.allocate_ids(size=1, parent=above(parent))[0] == last + 1


@each_place
def test_reserved_keys_are_not_given_out(parent: str | None) -> None:
    first, _ = Ticket.allocate_ids(size=1, parent=above(parent))
    auto = Ticket(parent=above(parent)).put().id()
    reserved = [*range(first + 1, first + 20), *range(auto + 1, auto + 30, 2)]
    reserve(*reserved, parent=parent)
    start, end = Ticket.allocate_ids(size=40, parent=above(parent))
    assert not set(range(start, end + 1)) & set(reserved)
    assert not set(put_auto(60, parent)) & set(reserved)
    assert Ticket.query().count() >= 2


@each_place
def test_reserved_keys_can_be_put_and_reserved_again(parent: str | None) -> None:
    for _ in range(2):
        reserve(1000, 1001, parent=parent)
    keys = ndb.put_multi([Ticket(id=number, parent=above(parent), holder=f"h{number}") for number in (1000, 1001)])
    reserve(1000, parent=parent)
    assert [ticket.holder for ticket in ndb.get_multi(keys)] == ["h1000", "h1001"]
    assert not {1000, 1001} & set(put_auto(30, parent))


@each_place
def test_an_id_range_of_ones_own_choice_is_empty_contended_or_in_use(parent: str | None) -> None:
    _, last = Ticket.allocate_ids(size=1, parent=above(parent))
    far = last + 10_000
    assert db.allocate_id_range(old_key(far, parent), far, far + 9) == db.KEY_RANGE_EMPTY
    assert db.allocate_id_range(old_key(far, parent), far, far + 9) == db.KEY_RANGE_CONTENTION
    OldTicket(key=old_key(far + 100, parent)).put()
    assert db.allocate_id_range(old_key(far, parent), far + 90, far + 110) == db.KEY_RANGE_COLLISION
    first, _ = db.allocate_ids(old_key(1, parent), 1)
    assert first > far + 110


@each_place
def test_auto_ids_of_a_failed_transaction_are_not_given_out_again(parent: str | None) -> None:
    taken: list[int] = []

    def work() -> None:
        taken.extend(key.id() for key in ndb.put_multi([Ticket(parent=above(parent)) for _ in range(6)]))
        raise ndb.Rollback

    ndb.transaction(work, xg=True)
    assert len(set(taken)) == 6
    assert Ticket.query().count() == 0
    first, last = Ticket.allocate_ids(size=5, parent=above(parent))
    assert not set(taken) & {*range(first, last + 1), *put_auto(20, parent)}


@pytest.mark.parametrize("count", [1, 50])
def test_auto_ids_inside_a_transaction_are_found_after_it(count: int) -> None:
    desk = ndb.Key("Desk", "one")

    def work() -> list[Any]:
        keys = ndb.put_multi([Ticket(parent=desk, holder=f"h{number:02}") for number in range(count)])
        assert all(key.id() for key in keys)
        return keys

    keys = ndb.transaction(work)
    assert len(set(keys)) == count
    assert [ticket.holder for ticket in ndb.get_multi(keys)] == [f"h{number:02}" for number in range(count)]
    assert sorted(Ticket.query(ancestor=desk).fetch(keys_only=True)) == sorted(keys)


def test_large_ids_come_back_exactly_and_keep_their_order() -> None:
    numbers = [2**53 - 1, 2**53 + 1, 2**62 + 1, 2**63 - 1]
    keys = ndb.put_multi([Ticket(id=number, holder=str(number)) for number in reversed(numbers)])
    assert [ticket.holder for ticket in ndb.get_multi(keys)] == [str(number) for number in reversed(numbers)]
    assert [key.id() for key in Ticket.query().fetch(keys_only=True)] == numbers
    assert set(put_auto(5, None)).isdisjoint(numbers)
