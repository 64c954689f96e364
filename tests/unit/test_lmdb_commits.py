"""Group commit without a database: deadlines, failing leaders, handing over."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import pytest

from adapters.contract import Address, Table, Write
from adapters.errors import Applied, StoreError, Unavailable
from adapters.lmdb.commits import Committer, Grouping
from adapters.lmdb.connection import Options
from adapters.lmdb.errors import translated
from adapters.lmdb.gate import Gate

COMMIT = 7


class FakeTransaction:
    def __init__(self, on_commit: Callable[[], None]) -> None:
        self.commit = on_commit

    def id(self) -> int:
        return COMMIT

    def get(self, key: bytes) -> bytes | None:
        raise AssertionError(f"nothing here expects anything of {key!r}")

    def cursor(self) -> Any:
        return self

    def putmulti(self, rows: list[tuple[bytes, bytes]]) -> None:
        assert rows

    def abort(self) -> None:
        pass


class FakeWriteLock:
    def acquire(self, deadline: float) -> None:
        pass

    def release(self) -> None:
        pass


class FakeConnection:
    """Transactions whose commits wait for `let_go`, then do what `outcome` says."""

    def __init__(self) -> None:
        self.path = Path("fake")
        self.gate = Gate()
        self.options = Options(map_mib=1, synced=True)
        self.writers = FakeWriteLock()
        self.committing = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.outcome: Exception | None = None

    def begin(self, *_: object) -> FakeTransaction:
        return FakeTransaction(self.on_commit)

    def failed(self, error: lmdb.Error, commit: int) -> StoreError:
        assert commit == COMMIT
        return translated(error, self.path, Applied.UNKNOWN)

    def on_commit(self) -> None:
        self.committing.release()
        assert self.let_go.acquire(timeout=30)
        if self.outcome is not None:
            raise self.outcome


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def committer(connection: FakeConnection) -> Committer:
    return Committer(connection, Grouping())  # type: ignore[arg-type]


def write(committer: Committer, number: int, seconds: float = 30) -> None:
    address = Address(Table.META, b"s", b"", b"%d" % number)
    committer.write([Write(address, b"v")], (), time.monotonic() + seconds)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0)


def queued(pool: ThreadPoolExecutor, committer: Committer, number: int, seconds: float = 30) -> "Future[None]":
    """A write that waits behind a leader."""
    before = committer.waiting
    future = pool.submit(write, committer, number, seconds)
    until(lambda: committer.waiting > before)
    return future


def test_a_write_taken_by_a_leader_times_out_as_unknown(connection: FakeConnection, committer: Committer) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(write, committer, 1)
        assert connection.committing.acquire(timeout=30)
        heir = queued(pool, committer, 2)
        taken = queued(pool, committer, 3, seconds=0.2)
        connection.let_go.release()  # the heir now leads and takes the third along
        assert connection.committing.acquire(timeout=30)
        error = taken.exception(30)
        connection.let_go.release()
        assert isinstance(error, Unavailable)
        assert error.applied is Applied.UNKNOWN
        assert (first.exception(30), heir.exception(30)) == (None, None)
    assert (committer.commits, committer.batches) == (2, 3)


def test_a_write_still_queued_times_out_as_not_applied(connection: FakeConnection, committer: Committer) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(write, committer, 1)
        assert connection.committing.acquire(timeout=30)
        error = queued(pool, committer, 2, seconds=0.05).exception(30)
        connection.let_go.release()
        assert isinstance(error, Unavailable)
        assert error.applied is Applied.NO
        assert first.exception(30) is None
    assert not committer.leading
    assert committer.waiting == 0


def test_a_failed_commit_is_unknown_to_all_of_its_group(connection: FakeConnection, committer: Committer) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(write, committer, 1)
        assert connection.committing.acquire(timeout=30)
        others = [queued(pool, committer, number) for number in (2, 3)]
        connection.let_go.release()
        assert connection.committing.acquire(timeout=30)
        connection.outcome = lmdb.DiskError("mdb_txn_commit")
        connection.let_go.release()
        errors = [other.exception(30) for other in others]
        assert first.exception(30) is None
    assert all(isinstance(error, Unavailable) and error.applied is Applied.UNKNOWN for error in errors)
    assert "disk is full" in str(errors[0])
    assert not committer.leading


def test_a_bug_in_the_leader_reaches_its_caller_and_leaves_nobody_waiting(
    connection: FakeConnection, committer: Committer
) -> None:
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(write, committer, 1)
        assert connection.committing.acquire(timeout=30)
        others = [queued(pool, committer, number) for number in (2, 3)]
        connection.let_go.release()
        assert connection.committing.acquire(timeout=30)
        connection.outcome = KeyError("bug")
        connection.let_go.release()
        errors = [other.exception(30) for other in others]
        assert first.exception(30) is None
    assert isinstance(errors[0], KeyError)
    assert isinstance(errors[1], Unavailable)
    assert errors[1].applied is Applied.UNKNOWN
    assert not committer.leading
