"""Defects of AppScale's history that had to do with transactions, each as a test named after its symptom."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from google.appengine.api import api_base_pb2, apiproxy_stub_map, datastore, datastore_errors
from google.appengine.datastore import datastore_pb
from google.appengine.ext import ndb
from google.appengine.runtime import apiproxy_errors

from tests.e2e.sdk import APP, in_threads

pytestmark = pytest.mark.usefixtures("sdk")

TOGETHER_SECONDS = 20
PATIENCE = 500  #: attempts; the SDK's four are for an app that would rather fail
BAD_REQUEST = datastore_pb.Error.BAD_REQUEST
CONCURRENT = datastore_pb.Error.CONCURRENT_TRANSACTION


class Purse(ndb.Model):
    coins = ndb.IntegerProperty()
    owners = ndb.StringProperty(repeated=True)


class Receipt(ndb.Model):
    coins = ndb.IntegerProperty()


def elsewhere(work: Callable[[], Any]) -> Any:
    """Does `work` as another client, to the end, now."""
    return in_threads(1, lambda _: work(), [None])[0]


def call(method: str, request: Any, answer: Any) -> Any:
    apiproxy_stub_map.MakeSyncCall("datastore_v3", method, request, answer)
    return answer


def begin(*, xg: bool = False) -> Any:
    request = datastore_pb.BeginTransactionRequest(app=APP, allow_multiple_eg=xg)
    return call("BeginTransaction", request, datastore_pb.Transaction())


def put_in(transaction: Any, *entities: Any) -> Any:
    request = datastore_pb.PutRequest(entity=[entity._to_pb() for entity in entities], transaction=transaction)
    return call("Put", request, datastore_pb.PutResponse())


def get_in(transaction: Any, *keys: Any) -> None:
    call(
        "Get",
        datastore_pb.GetRequest(key=[key.reference() for key in keys], transaction=transaction),
        datastore_pb.GetResponse(),
    )


def commit(transaction: Any) -> int:
    """The error code; 0 when it committed."""
    try:
        call("Commit", transaction, datastore_pb.CommitResponse())
    except apiproxy_errors.ApplicationError as error:
        return int(error.application_error)
    return 0


def test_contended_transactions_do_not_lose_each_others_writes() -> None:
    """Taking the lock answered False and nobody looked, so everybody held it."""
    key = Purse(id="shared", coins=0, owners=[]).put()

    def take(owner: str) -> None:
        purse = key.get()
        purse.coins += 1
        purse.owners.append(owner)
        purse.put()

    owners = [f"o{number:02}" for number in range(30)]
    in_threads(10, lambda owner: ndb.transaction(lambda: take(owner), retries=PATIENCE), owners)
    assert key.get().coins == 30
    assert sorted(key.get().owners) == owners
    assert [Purse.query(Purse.owners == owner).count() for owner in owners] == [1] * 30


#: Every way to see an entity of value 99 below or beside purse "a".
VIEWS: dict[str, Callable[[], int]] = {
    "get": lambda: sum(purse is not None and purse.coins == 99 for purse in ndb.get_multi(purses())),
    "kind": lambda: sum(purse.coins == 99 for purse in Purse.query()),
    "value": lambda: Purse.query(Purse.coins == 99).count(),
    "repeated-value": lambda: Purse.query(Purse.owners == "new").count(),
    "range": lambda: Purse.query(Purse.coins > 50).count(),
    "ancestor": lambda: Purse.query(ancestor=ndb.Key(Purse, "a")).count() - 1,
    "ancestor-value": lambda: Purse.query(Purse.coins == 99, ancestor=ndb.Key(Purse, "a")).count(),
    "kindless": lambda: len(ndb.Query().fetch(keys_only=True)) - 2,
    "projection": lambda: sum(purse.coins == 99 for purse in Purse.query().fetch(projection=["coins"])),
}


def purses() -> list[Any]:
    return [ndb.Key(Purse, "a"), ndb.Key(Purse, "b"), ndb.Key(Purse, "a", Purse, "child")]


def write_everywhere() -> None:
    for key in purses():
        Purse(key=key, coins=99, owners=["new", "newer"]).put()
    Receipt(parent=purses()[0], coins=99).put()
    ndb.get_context().flush()


@pytest.fixture
def two_purses(sdk: None) -> None:
    ndb.put_multi([Purse(id=name, coins=10, owners=["old"]) for name in "ab"])


def what_is_seen() -> dict[str, int]:
    return {name: view() for name, view in VIEWS.items()}


NOTHING = dict.fromkeys(VIEWS, 0)


def test_writes_are_not_visible_before_commit(two_purses: None) -> None:
    """Writes of a transaction went into the tables at once."""
    seen: dict[str, int] = {}

    def work() -> None:
        write_everywhere()
        seen.update(elsewhere(what_is_seen))

    ndb.transaction(work, xg=True)
    assert seen == NOTHING
    assert all(what_is_seen().values())


def _roll_back() -> None:
    write_everywhere()
    raise ndb.Rollback


def _conflict() -> None:
    purses()[0].get()
    write_everywhere()
    elsewhere(lambda: Purse(id="a", coins=10, owners=["old"]).put())


def _go_away() -> None:
    transaction = begin(xg=True)
    put_in(transaction, *(Purse(key=key, coins=99, owners=["new"]) for key in purses()))


def test_a_failed_transaction_leaves_no_index_rows(two_purses: None) -> None:
    """Entities were rolled back, their index rows were not."""
    ndb.transaction(_roll_back, xg=True)
    assert what_is_seen() == NOTHING
    _go_away()
    assert what_is_seen() == NOTHING
    with pytest.raises(datastore_errors.TransactionFailedError):
        ndb.transaction(_conflict, xg=True, retries=0)
    assert what_is_seen() == NOTHING
    assert Purse.query(Purse.owners == "old").count() == 2
    assert [purse.coins for purse in Purse.query().order(Purse.coins)] == [10, 10]


def test_a_failed_transaction_leaves_the_index_rows_it_would_have_removed(two_purses: None) -> None:
    """Index rows were deleted before the commit, and missing when it failed."""

    def work() -> None:
        purses()[0].get()
        ndb.delete_multi(purses()[:2])
        ndb.get_context().flush()
        elsewhere(lambda: Purse(id="a", coins=11, owners=["old"]).put())

    with pytest.raises(datastore_errors.TransactionFailedError):
        ndb.transaction(work, xg=True, retries=0)
    assert [purse.coins for purse in Purse.query().order(Purse.coins)] == [10, 11]
    assert Purse.query(Purse.owners == "old").count() == 2


def test_a_contended_transaction_is_reported_as_concurrent_not_timeout(two_purses: None) -> None:
    """Two transactions that each waited for the other's group were both ended by TIMEOUT, after it."""
    first, second = purses()[:2]
    meeting = Barrier(2)

    def cross(mine_and_other: tuple[Any, Any]) -> int:
        mine, other = mine_and_other
        transaction = begin(xg=True)
        get_in(transaction, mine)
        meeting.wait(TOGETHER_SECONDS)
        refused = 0
        try:
            get_in(transaction, other)
            put_in(transaction, Purse(key=other, coins=20))
        except apiproxy_errors.ApplicationError as error:
            refused = int(error.application_error)
        meeting.wait(TOGETHER_SECONDS)
        return refused or commit(transaction)

    assert sorted(in_threads(2, cross, [(first, second), (second, first)])) == [0, CONCURRENT]
    assert sorted(purse.coins for purse in Purse.query()) == [10, 20]


def test_two_transactions_that_lock_crosswise_end_at_once_when_repeated(two_purses: None) -> None:
    """The same, by an app that repeats: it went from one time-out to the next."""
    first, second = purses()[:2]

    def move(keys: list[Any]) -> None:
        for key in keys:
            purse = key.get()
            purse.coins += 1
            purse.put()

    def work(number: int) -> None:
        order = [first, second] if number % 2 else [second, first]
        for _ in range(PATIENCE):
            try:
                return ndb.transaction(lambda: move(order), xg=True, retries=0)
            except datastore_errors.TransactionFailedError:
                continue
        raise AssertionError(f"no success in {PATIENCE} attempts")

    in_threads(6, work, range(24))
    assert [purse.coins for purse in ndb.get_multi([first, second])] == [34, 34]


def test_retrying_a_commit_does_not_duplicate_auto_id_entities(two_purses: None) -> None:
    """A commit that was sent again, because its answer was lost, wrote its new entities again under new ids."""
    transaction = begin()
    parent = purses()[0]
    answer = put_in(transaction, *(Receipt(parent=parent, coins=number) for number in range(3)))
    assert len(answer.key) == 3
    assert commit(transaction) == 0
    for _ in range(3):
        assert commit(transaction) in {0, BAD_REQUEST}
    assert [receipt.coins for receipt in Receipt.query().order(Receipt.coins)] == [0, 1, 2]
    assert {key.id() for key in Receipt.query().fetch(keys_only=True)} == {
        each.path.element[-1].id for each in answer.key
    }


def test_a_commit_sent_by_many_at_once_writes_auto_id_entities_once(two_purses: None) -> None:
    """Repeated at the same time, each of them found the transaction still open."""
    transaction = begin()
    put_in(transaction, Receipt(parent=purses()[0], coins=1))
    ends = in_threads(8, lambda _: commit(transaction), range(8))
    assert ends.count(0) >= 1
    assert Receipt.query().count() == 1


def test_a_transaction_that_is_repeated_leaves_one_auto_id_entity(two_purses: None) -> None:
    """Entities of the attempts that had failed were left behind."""
    attempts: list[Any] = []

    def work() -> Any:
        purse = purses()[0].get()
        attempts.append(Receipt(parent=purse.key, coins=purse.coins).put())
        if len(attempts) < 3:
            elsewhere(lambda: Purse(key=purse.key, coins=len(attempts)).put())
        return attempts[-1]

    kept = ndb.transaction(work, retries=5)
    assert len(attempts) == 3
    assert Receipt.query().fetch(keys_only=True) == [kept]


def test_a_write_that_failed_is_not_reported_as_done() -> None:
    """Every exception of a database was caught and answered as success."""
    too_large = datastore.Entity("Heavy", name="x")
    too_large["blob"] = datastore.datastore_types.Blob(b"x" * 1_100_000)
    with pytest.raises((datastore_errors.Error, apiproxy_errors.Error)):
        datastore.Put(too_large)
    finished = begin()
    assert commit(finished) == 0
    for method, request in (
        ("Put", datastore_pb.PutRequest(entity=[Receipt(id=1)._to_pb()], transaction=finished)),
        ("Delete", datastore_pb.DeleteRequest(key=[ndb.Key(Receipt, 1).reference()], transaction=finished)),
        ("Rollback", finished),
    ):
        answer = {"Put": datastore_pb.PutResponse, "Delete": datastore_pb.DeleteResponse}.get(
            method, api_base_pb2.VoidProto
        )
        with pytest.raises(apiproxy_errors.ApplicationError):
            call(method, request, answer())
    assert datastore.Query().Count() == 0


def test_a_delete_is_final_and_finds_its_entity_in_every_index(two_purses: None) -> None:
    """A failed remove was repeated for ever or given up in silence: the entity stayed in some of the indexes."""
    child = Purse(key=purses()[2], coins=99, owners=["new", "newer"]).put()
    ndb.delete_multi([child] * 3)
    assert what_is_seen() == NOTHING
