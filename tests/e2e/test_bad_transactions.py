"""Transactions that never were, are over, or are somebody else's."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf.message import Message

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import Reference
from tests.e2e.server import Server
from tests.e2e.wire import APP, Wire, assert_application_error, assert_bad_request, entity, key, put_request

HERE = key(b"K", 1)

EPOCH_SECONDS = 1_577_836_800  #: 2020-01-01T00:00Z; a handle is milliseconds since then, and 22 random bits


def handle_of(age_seconds: float, randomness: int = 12345) -> int:
    """The handle of a transaction that began so long ago."""
    return int((time.time() - age_seconds - EPOCH_SECONDS) * 1000) << 22 | randomness


def calls_in(transaction: v3.Transaction, at: Reference = HERE) -> dict[str, Message]:
    """Every call that can be part of a transaction."""
    return {
        "Get": v3.GetRequest(key=[at], transaction=transaction),
        "Put": put_request(entity(at, number=99), transaction=transaction),
        "Delete": v3.DeleteRequest(key=[at], transaction=transaction),
        "RunQuery": v3.Query(app=at.app, ancestor=at, transaction=transaction),
        "Commit": transaction,
        "Rollback": transaction,
    }


def refuse_all(wire: Wire, transaction: v3.Transaction, text: str = "") -> None:
    for method, message in calls_in(transaction).items():
        assert_bad_request(wire.reply(method, message), text)


@pytest.fixture
def stored(wire: Wire) -> Wire:
    wire.put(entity(HERE, number=1))
    return wire


@pytest.mark.parametrize(
    "handle",
    [lambda: 0, lambda: 1, lambda: 2**63, lambda: 2**64 - 1, lambda: handle_of(0), lambda: handle_of(-30)],
    ids=["0", "1", "2**63", "2**64-1", "fresh", "from-the-future"],
)
def test_a_handle_that_never_was_is_refused(stored: Wire, handle: Callable[[], int]) -> None:
    refuse_all(stored, v3.Transaction(handle=handle(), app=APP))
    assert stored.get(HERE) == [entity(HERE, number=1)]


@pytest.mark.parametrize("app", [b"", b"\xff"])
def test_a_transaction_needs_an_app(stored: Wire, app: bytes) -> None:
    assert_bad_request(stored.reply("BeginTransaction", v3.BeginTransactionRequest(app=app)), "app")


@pytest.mark.parametrize("age", [61, 3600, 10**8])
def test_an_expired_transaction_is_refused(stored: Wire, age: int) -> None:
    refuse_all(stored, v3.Transaction(handle=handle_of(age), app=APP), "expired or")


@pytest.mark.parametrize("end", ["Commit", "Rollback"])
def test_a_transaction_that_is_over_is_refused(stored: Wire, end: str) -> None:
    transaction = stored.begin()
    stored.call("Put", calls_in(transaction)["Put"])
    stored.call(end, transaction)
    refuse_all(stored, transaction, "expired or")
    assert stored.get(HERE) == [entity(HERE, number=99 if end == "Commit" else 1)]


def test_a_transaction_that_failed_is_over(stored: Wire) -> None:
    transaction = stored.begin()
    stored.call("Get", calls_in(transaction)["Get"])
    stored.call("Put", calls_in(transaction)["Put"])
    stored.put(entity(HERE, number=2))
    assert_application_error(stored.reply("Commit", transaction), v3.Error.CONCURRENT_TRANSACTION)
    for method in ("Get", "Put", "Delete", "RunQuery", "Commit"):
        assert_bad_request(stored.reply(method, calls_in(transaction)[method]))
    assert stored.get(HERE) == [entity(HERE, number=2)]


def test_a_transaction_of_another_app_is_refused(stored: Wire) -> None:
    transaction = stored.begin()
    stolen = v3.Transaction(handle=transaction.handle, app=b"other")
    for method, message in calls_in(stolen, key(b"K", 1, app=b"other")).items():
        assert_bad_request(stored.reply(method, message))
    refuse_all(stored, stolen)
    stored.call("Get", calls_in(transaction)["Get"])
    stored.call("Commit", transaction)


def test_a_transaction_cannot_touch_another_app(stored: Wire) -> None:
    transaction = stored.begin(xg=True)
    for method, message in calls_in(transaction, key(b"K", 1, app=b"other")).items():
        if method not in {"Commit", "Rollback"}:
            assert_bad_request(stored.reply(method, message))
    stored.call("Commit", transaction)
    assert stored.get(key(b"K", 1, app=b"other")) == [None]


def test_only_one_of_many_commits_of_one_transaction_succeeds(stored: Wire, server: Server) -> None:
    for number in range(10):
        transaction = stored.begin()
        at = key(b"K", b"race%d" % number)
        stored.call("Put", put_request(entity(at, number=number), transaction=transaction))

        def commit(_: int, transaction: v3.Transaction = transaction) -> bool:
            with Wire(server.port) as wire:
                return not wire.reply("Commit", transaction).HasField("application_error")

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(commit, range(6))) == 1
        assert stored.get(at) == [entity(at, number=number)]


def test_a_commit_and_a_rollback_at_once_agree_with_what_is_stored(stored: Wire, server: Server) -> None:
    for number in range(20):
        transaction = stored.begin()
        at = key(b"K", b"race%d" % number)
        stored.call("Put", put_request(entity(at, number=number), transaction=transaction))

        def end(method: str, transaction: v3.Transaction = transaction) -> bool:
            with Wire(server.port) as wire:
                return not wire.reply(method, transaction).HasField("application_error")

        with ThreadPoolExecutor(2) as pool:
            committed, _ = pool.map(end, ["Commit", "Rollback"])
        assert stored.get(at) == [entity(at, number=number) if committed else None]


def test_a_read_only_transaction_is_refused_writes(stored: Wire) -> None:
    request = v3.BeginTransactionRequest(app=APP, mode=v3.BeginTransactionRequest.READ_ONLY)
    transaction = stored.call("BeginTransaction", request)
    calls = calls_in(transaction)
    for method in ("Put", "Delete"):
        assert_bad_request(stored.reply(method, calls[method]), "read-only")
    for method in ("Get", "RunQuery", "Commit"):
        stored.call(method, calls[method])


def test_a_previous_transaction_is_rolled_back_by_its_successor(stored: Wire) -> None:
    first = stored.begin()
    stored.call("Put", calls_in(first)["Put"])
    again = v3.BeginTransactionRequest(app=APP, previous_transaction=first)
    assert_bad_request(stored.reply("BeginTransaction", again), "READ_WRITE")
    again.mode = v3.BeginTransactionRequest.READ_WRITE
    second = stored.call("BeginTransaction", again)
    refuse_all(stored, first)
    stored.call("Commit", second)
    again.previous_transaction.handle = 1  # one that never was does not matter
    stored.call("Rollback", stored.call("BeginTransaction", again))
    assert stored.get(HERE) == [entity(HERE, number=1)]


def test_a_query_in_a_transaction_needs_an_ancestor(stored: Wire) -> None:
    query = v3.Query(app=APP, kind=b"K", transaction=stored.begin())
    assert_bad_request(stored.reply("RunQuery", query), "ancestor")


def test_a_refused_call_leaves_the_transaction_open(stored: Wire) -> None:
    transaction = stored.begin()
    calls = calls_in(transaction)
    stored.call("Put", calls["Put"])
    assert_bad_request(stored.reply("Put", put_request(entity(key(b"K", 2)), transaction=transaction)), "xg=True")
    bad = put_request(entity(key(b"K", 1, b"__x__", 1)), transaction=transaction)
    assert_bad_request(stored.reply("Put", bad), "reserved")
    stored.call("Commit", transaction)
    assert stored.get(HERE, key(b"K", 2)) == [entity(HERE, number=99), None]


def test_a_batch_with_one_entity_too_large_buffers_none(stored: Wire) -> None:
    transaction = stored.begin()
    large = entity(key(b"K", 1, b"C", 1), text=b"x" * 1501)
    both = put_request(entity(key(b"K", 1, b"C", 2)), large, transaction=transaction)
    assert_bad_request(stored.reply("Put", both), "too long")
    stored.call("Commit", transaction)
    assert len(stored.query(ancestor=HERE)) == 1


def test_an_iteration_in_a_transaction_ends_with_it(stored: Wire) -> None:
    stored.put(*(entity(key(b"K", 1, b"C", number + 1)) for number in range(10)))
    transaction = stored.begin()
    first = stored.call("RunQuery", v3.Query(app=APP, ancestor=HERE, count=3, transaction=transaction))
    second = stored.call("Next", v3.NextRequest(cursor=first.cursor, count=3))
    assert len(second.result) == 3
    stored.call("Commit", transaction)
    assert_bad_request(stored.reply("Next", v3.NextRequest(cursor=first.cursor, count=3)))


def test_an_iteration_in_a_transaction_does_not_mix_two_states(stored: Wire) -> None:
    stored.put(*(entity(key(b"K", 1, b"C", number + 1)) for number in range(10)))
    transaction = stored.begin()
    first = stored.call("RunQuery", v3.Query(app=APP, ancestor=HERE, count=3, transaction=transaction))
    stored.put(entity(key(b"K", 1, b"C", 9), number=1))
    reply = stored.reply("Next", v3.NextRequest(cursor=first.cursor, count=100))
    assert_application_error(reply, v3.Error.CONCURRENT_TRANSACTION)
