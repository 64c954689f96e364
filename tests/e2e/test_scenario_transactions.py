"""Transactions that overlap: queries inside them, long reads, and what is possible after each way to fail."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import ndb

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")

TOGETHER_SECONDS = 20


class Seat(ndb.Model):
    number = ndb.IntegerProperty()
    taken = ndb.BooleanProperty(default=False)


def hall(name: str) -> Any:
    return ndb.Key("Hall", name)


def elsewhere(work: Callable[[], Any]) -> Any:
    """Does `work` as another client, to the end, now."""
    return in_threads(1, lambda _: work(), [None])[0]


def outcome(work: Callable[[], Any], **options: Any) -> str:
    """How a transaction that is tried once ends."""
    try:
        ndb.transaction(work, retries=0, **options)
    except datastore_errors.TransactionFailedError:
        return "conflict"
    return "committed"


def count_and_add(hall_name: str, meeting: Barrier) -> Callable[[], None]:
    """Counts the seats of a hall, waits for the other transaction to have done so, and adds one seat."""

    def work() -> None:
        number = Seat.query(ancestor=hall(hall_name)).count()
        meeting.wait(TOGETHER_SECONDS)
        Seat(parent=hall(hall_name), number=number).put()

    return work


@pytest.mark.parametrize("ancestor", ["exists", "is-missing"])
def test_queries_inside_two_transactions_on_different_groups_both_succeed(ancestor: str) -> None:
    if ancestor == "exists":
        ndb.put_multi([Seat(parent=hall(name), number=0) for name in "ab"])
    meeting = Barrier(2)
    ends = in_threads(2, lambda name: outcome(count_and_add(name, meeting)), "ab")
    assert ends == ["committed", "committed"]
    assert [Seat.query(ancestor=hall(name)).count() for name in "ab"] == [1 + (ancestor == "exists")] * 2


@pytest.mark.parametrize("ancestor", ["exists", "is-missing"])
def test_of_queries_inside_two_transactions_on_the_same_group_exactly_one_succeeds(ancestor: str) -> None:
    if ancestor == "exists":
        Seat(parent=hall("a"), number=0).put()
    meeting = Barrier(2)
    ends = in_threads(2, lambda name: outcome(count_and_add(name, meeting)), "aa")
    assert sorted(ends) == ["committed", "conflict"]
    numbers = [seat.number for seat in Seat.query(ancestor=hall("a")).order(Seat.number)]
    assert numbers == ([0, 1] if ancestor == "exists" else [0])


@pytest.mark.parametrize("clients", [5])
def test_of_many_cross_group_transactions_that_share_one_group_exactly_one_succeeds(clients: int) -> None:
    shared = Seat(id="shared", number=0).put()
    meeting = Barrier(clients)

    def work(client: int) -> str:
        def take() -> None:
            seat = shared.get()
            meeting.wait(TOGETHER_SECONDS)
            seat.number += 1
            ndb.put_multi([seat, Seat(id=f"own{client}", number=client)])

        return outcome(take, xg=True)

    assert sorted(in_threads(clients, work, range(clients))) == ["committed"] + ["conflict"] * (clients - 1)
    assert shared.get().number == 1
    assert Seat.query().count() == 2


def test_a_query_inside_a_transaction_sees_the_state_at_its_beginning() -> None:
    ndb.put_multi([Seat(parent=hall("a"), id=f"s{number:02}", number=number) for number in range(20)])

    def work() -> list[str]:
        Seat(parent=hall("a"), id="new", number=99).put()
        ndb.Key(Seat, "s00", parent=hall("a")).delete()
        ndb.get_context().flush()
        query = Seat.query(Seat.number >= 0, ancestor=hall("a")).order(-Seat.number)
        return [key.id() for key in query.iter(keys_only=True)]  # of entities ndb would hide the deleted one itself

    assert ndb.transaction(work) == [f"s{number:02}" for number in range(19, -1, -1)]
    assert Seat.query(ancestor=hall("a")).count() == 20


@pytest.mark.parametrize("changed", ["other-group", "same-group"])
def test_a_long_transactional_read_is_of_one_state_or_is_refused(changed: str) -> None:
    """200 entities read in batches of 20, while another client changes them all between the batches."""
    names = ["a", "b"]
    ndb.put_multi([Seat(parent=hall(name), id=number + 1, number=0) for name in names for number in range(100)])

    def change(value: int) -> None:
        target = "a" if changed == "same-group" else "elsewhere"
        seats = [Seat(parent=hall(target), id=number + 1, number=value) for number in range(100)]
        ndb.transaction(lambda: ndb.put_multi(seats), retries=0)

    def work() -> set[int]:
        seen = set()
        for name in names:
            for at, seat in enumerate(Seat.query(ancestor=hall(name)).iter(batch_size=20)):
                seen.add(seat.number)
                if at % 50 == 10:
                    elsewhere(lambda at=at: change(at))
        return seen

    try:
        seen = ndb.transaction(work, xg=True, retries=0)
    except datastore_errors.TransactionFailedError:
        assert changed == "same-group"
    else:
        assert seen == {0}


def test_a_long_transaction_survives_the_work_of_others() -> None:
    seats = ndb.put_multi([Seat(parent=hall("a"), id=number + 1, number=number) for number in range(100)])

    def busy() -> None:
        for number in range(40):
            key = Seat(parent=hall("b"), number=number).put()
            key.delete()

    def work() -> int:
        before = [seat.number for seat in ndb.get_multi(seats)]
        elsewhere(busy)
        assert [seat.number for seat in ndb.get_multi(seats)] == before
        Seat(parent=hall("a"), id="sum", number=sum(before)).put()
        return sum(before)

    assert ndb.transaction(work, retries=0) == 4950
    assert Seat.query(Seat.number == 4950).count() == 1


class _Mistake(Exception):
    pass


def _conflict(key: Any) -> None:
    seat = key.get()
    elsewhere(lambda: Seat(key=key, number=5).put())
    seat.number = 77
    seat.put()


def _refused(key: Any) -> None:
    Seat(key=key, number=77).put()
    Seat.query().fetch()  # no ancestor


def _too_many_groups(key: Any) -> None:
    Seat(key=key, number=77).put()
    ndb.get_multi([ndb.Key(Seat, number) for number in range(1, 30)])


def _mistake(key: Any) -> None:
    Seat(key=key, number=77).put()
    Seat(parent=key, number=77).put()
    raise _Mistake


#: What is done, what it raises, and the number afterwards.
FAILURES: dict[str, tuple[Callable[[Any], None], type[Exception], int]] = {
    "conflict": (_conflict, datastore_errors.TransactionFailedError, 5),
    "refused-query": (_refused, datastore_errors.BadRequestError, 1),
    "too-many-groups": (_too_many_groups, datastore_errors.BadRequestError, 1),
    "mistake": (_mistake, _Mistake, 1),
}


@pytest.mark.parametrize(("fail", "error", "number"), FAILURES.values(), ids=FAILURES)
def test_after_a_failure_nothing_is_left_and_the_next_transaction_succeeds(
    fail: Callable[[Any], None], error: type[Exception], number: int
) -> None:
    key = Seat(id="one", number=1).put()
    for _ in range(3):
        with pytest.raises(error):
            ndb.transaction(lambda: fail(key), xg=True, retries=0)
        assert key.get().number == number
        assert Seat.query(Seat.number == 77).count() == 0
    for value in (10, 11):
        ndb.transaction(lambda value=value: Seat(key=key, number=value).put(), retries=0)
    assert key.get().number == 11
    assert Seat.query().count() == 1


def test_transactions_that_were_abandoned_do_not_hold_up_others() -> None:
    """Twenty clients read and write the seat, and go away without commit or rollback."""
    key = Seat(id="one", number=1).put()
    connection = ndb.get_context()._conn
    for _ in range(20):
        transaction = connection.new_transaction()
        [seat] = transaction.get([key])
        seat.number = 77
        transaction.put([seat])
    ndb.transaction(lambda: Seat(key=key, number=2).put(), retries=0)
    assert key.get().number == 2


@pytest.mark.parametrize("change", ["put", "delete", "child"])
def test_a_non_transactional_change_invalidates_a_transaction_that_only_wrote_elsewhere(change: str) -> None:
    key = Seat(id="guard", number=1).put()
    changes: dict[str, Callable[[], Any]] = {
        "put": lambda: Seat(key=key, number=2).put(),
        "delete": key.delete,
        "child": lambda: Seat(parent=key, number=2).put(),
    }

    def work() -> None:
        Seat.query(ancestor=key).fetch()
        elsewhere(changes[change])
        Seat(id="other", number=3).put()

    assert outcome(work, xg=True) == "conflict"
    assert ndb.Key(Seat, "other").get() is None
    assert outcome(lambda: (Seat.query(ancestor=key).fetch(), Seat(id="other", number=3).put()), xg=True) == "committed"


def test_twenty_cross_group_counters_in_twenty_threads_lose_nothing() -> None:
    keys = ndb.put_multi([Seat(id=name, number=0) for name in ("left", "right")])

    def increment() -> None:
        for seat in ndb.get_multi(keys):
            seat.number += 1
            seat.put()

    def work(_: int) -> None:
        for _attempt in range(500):
            if outcome(increment, xg=True) == "committed":
                return
        raise AssertionError("no success in 500 attempts")

    in_threads(20, work, range(20))
    assert [seat.number for seat in ndb.get_multi(keys)] == [20, 20]
