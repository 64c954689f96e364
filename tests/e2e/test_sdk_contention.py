"""ndb: many threads at once on the same entity groups."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import ndb

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")

PATIENCE = 500  #: retries; the SDK's three are for an app that would rather fail


class Counter(ndb.Model):
    value = ndb.IntegerProperty(default=0)


def patiently(work: Callable[[], Any]) -> Any:
    """A cross-group transaction, also repeated when a read finds that a commit came between: the SDK leaves that
    to the app.
    """
    for _ in range(PATIENCE):
        with contextlib.suppress(datastore_errors.TransactionFailedError):
            return ndb.transaction(work, xg=True, retries=PATIENCE)
    raise AssertionError(f"no success in {PATIENCE} attempts")


def increment(key: Any) -> int:
    counter = key.get()
    counter.value += 1
    counter.put()
    return counter.value


def test_twenty_threads_on_one_counter_lose_no_increment() -> None:
    key = Counter(id="one").put()
    seen = in_threads(20, lambda _: ndb.transaction(lambda: increment(key), retries=PATIENCE), range(100))
    assert sorted(seen) == list(range(1, 101))
    assert key.get().value == 100
    assert Counter.query(Counter.value == 100).count() == 1
    assert Counter.query().order(Counter.value).fetch(keys_only=True) == [key]


def test_twenty_threads_on_counters_of_their_own_never_fail() -> None:
    keys = ndb.put_multi([Counter(id=f"c{number}") for number in range(20)])

    def work(key: Any) -> list[int]:
        return [ndb.transaction(lambda: increment(key), retries=0) for _ in range(5)]

    assert in_threads(20, work, keys) == [[1, 2, 3, 4, 5]] * 20


def test_money_moved_between_accounts_is_neither_made_nor_lost() -> None:
    keys = ndb.put_multi([Counter(id=f"a{number}", value=100) for number in range(5)])

    def move(seed: int) -> None:
        source, target = random.Random(seed).sample(keys, 2)
        payer, payee = ndb.get_multi([source, target])
        amount = seed % 7
        payer.value -= amount
        payee.value += amount
        ndb.put_multi([payer, payee])

    def audit() -> int:
        return sum(counter.value for counter in ndb.get_multi(keys))

    def work(seed: int) -> int:
        if seed % 4:
            patiently(lambda: move(seed))
            return 500
        return patiently(audit)

    assert in_threads(8, work, range(1, 97)) == [500] * 96
    assert audit() == 500
    assert sum(counter.value for counter in Counter.query()) == 500


def test_of_many_who_insert_the_same_key_one_wins_and_all_see_it() -> None:
    def work(number: int) -> int:
        return Counter.get_or_insert("only", value=number).value

    assert len(set(in_threads(20, work, range(20)))) == 1
    assert Counter.query().count() == 1


def test_plain_puts_of_one_entity_leave_one_state_in_entity_and_index() -> None:
    in_threads(16, lambda number: Counter(id="hot", value=number).put(), range(160))
    value = ndb.Key(Counter, "hot").get().value
    assert [counter.value for counter in Counter.query().order(Counter.value)] == [value]
    assert sum(Counter.query(Counter.value == number).count() for number in range(160)) == 1


def test_puts_and_deletes_of_one_entity_leave_no_index_row_behind() -> None:
    key = ndb.Key(Counter, "hot")

    def work(number: int) -> None:
        if number % 3:
            Counter(key=key, value=number).put()
        else:
            key.delete()

    in_threads(16, work, range(160))
    key.delete()
    assert Counter.query().order(Counter.value).fetch(keys_only=True) == []
    assert Counter.query().count() == 0


def test_readers_never_see_half_of_a_transaction() -> None:
    root = ndb.Key("Pair", "p")
    halves = [ndb.Key(Counter, name, parent=root) for name in ("left", "right")]

    def work(number: int) -> bool:
        if number % 2:
            write = [Counter(key=key, value=number) for key in halves]
            ndb.transaction(lambda: ndb.put_multi(write), retries=PATIENCE)
            return True
        found = Counter.query(ancestor=root).fetch()
        return len(found) in {0, 2} and len({counter.value for counter in found}) <= 1

    assert all(in_threads(8, work, range(120)))
