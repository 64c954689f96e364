"""Group commit: the writes that wait while one transaction is synced share the next one.

A thread that finds nobody committing leads at once; the others queue. The leader takes all that wait, applies each
batch or records its conflict, commits once, hands the lead to the first one still waiting and wakes its group.
Nothing is acknowledged before the commit that contains it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import lmdb

from adapters.contract import ABSENT, ANY, Check, Operation, Rows
from adapters.errors import Applied, Conflict, StoreError, Unavailable
from adapters.lmdb.connection import Connection
from adapters.lmdb.errors import translated

_SPARE_PAGES = 256  # for LMDB's list of free pages
_PAGES_PER_ROW = 8  # the path to a row, and a split of some of it
_LEAST_PAGE_BYTES = 4096


class Batch:
    """One write call, ready to apply, and what became of it."""

    __slots__ = ("checks", "deletes", "done", "failure", "leads", "puts", "wake")

    def __init__(self, operations: Sequence[Operation], rows: Sequence[Rows] = ()) -> None:
        self.checks: list[tuple[int, bytes, bytes | None]] = []  #: position, key, value that must be there
        self.puts: list[tuple[bytes, bytes]] = []
        self.deletes: list[bytes] = []
        self.failure: StoreError | None = None
        self.done = False
        self.leads = False
        self.wake: threading.Lock | None = None
        self._encode(operations)
        for table, scope, _, values, _ in rows:
            self._encode_rows(table._value_ + scope, values)

    def _encode(self, operations: Sequence[Operation]) -> None:
        puts = self.puts
        for index, operation in enumerate(operations):
            table, scope, _, key = operation[0]
            stored_key = table._value_ + scope + key
            expect = operation.expect
            if expect is not ANY:
                self.checks.append((index, stored_key, None if expect is ABSENT else expect))
            if isinstance(operation, Check):
                continue
            value = operation.value
            if value is None:
                self.deletes.append(stored_key)
            else:
                puts.append((stored_key, value))

    def _encode_rows(self, prefix: bytes, values: Mapping[bytes, bytes | None]) -> None:
        if None in values.values():
            self.deletes += [prefix + key for key, value in values.items() if value is None]
        self.puts += [(prefix + key, value) for key, value in values.items() if value is not None]

    def most_pages(self) -> int:
        """More pages of the data file than `apply` and its commit can touch."""
        value_bytes = sum([len(value) for _, value in self.puts])
        return _SPARE_PAGES + _PAGES_PER_ROW * (len(self.puts) + len(self.deletes)) + value_bytes // _LEAST_PAGE_BYTES

    def apply(self, txn: "lmdb.Transaction[bytes]") -> bool:
        """Whether it was applied; otherwise `failure` holds the Conflict and the transaction is as it was."""
        get = txn.get
        for index, key, wanted in self.checks:
            current = get(key)
            if current != wanted:
                text = f"operation {index} found another value than expected"
                self.failure = Conflict(text, index=index, current=current)
                return False
        self.failure = None
        if self.puts:
            txn.cursor().putmulti(self.puts)
        for key in self.deletes:
            txn.delete(key)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How long a leader waits for company and how much it takes."""

    wait_seconds: float = 0.0
    max_group: int = 0  #: 0: all that wait


class Committer:
    """The only writer of one environment in this process. `commits` and `batches` count for metrics."""

    def __init__(self, connection: Connection, grouping: Grouping) -> None:
        self.commits = 0
        self.batches = 0
        self._connection = connection
        self._grouping = grouping
        self._mutex = threading.Lock()
        self._company = threading.Condition(self._mutex)
        self._pending: deque[Batch] = deque()
        self._leading = False
        self._reserves = not connection.options.synced

    def write(self, operations: Sequence[Operation], rows: Sequence[Rows], deadline: float) -> None:
        """Returns once committed. Raises Conflict, Unavailable (applied: UNKNOWN once a leader had taken it), ..."""
        batch = Batch(operations, rows)
        with self._mutex:
            leads = not self._leading
            if leads:
                self._leading = True
            else:
                self._enqueue(batch)
        if leads or self._follow(batch, deadline):
            self._lead(batch, deadline)
        if batch.failure is not None:
            raise batch.failure

    @property
    def leading(self) -> bool:
        """Whether a thread is committing now."""
        return self._leading

    @property
    def waiting(self) -> int:
        """Write calls queued behind it."""
        return len(self._pending)

    def clear(self, deadline: float) -> None:
        """Deletes every row, in one transaction."""

        def drop(txn: "lmdb.Transaction[bytes]") -> bool:
            txn.drop(self._connection.database, delete=False)
            return True

        self._until_it_fits(lambda: self._transact(drop), deadline)

    def _enqueue(self, batch: Batch) -> None:
        batch.wake = threading.Lock()
        batch.wake.acquire()
        self._pending.append(batch)
        if self._grouping.wait_seconds:
            self._company.notify()

    def _follow(self, batch: Batch, deadline: float) -> bool:
        """Waits until another thread has committed `batch` (False) or passes the lead to this one (True)."""
        assert batch.wake is not None
        if batch.wake.acquire(timeout=_seconds_until(deadline)):
            return batch.leads
        with self._mutex:
            if batch in self._pending:
                self._pending.remove(batch)
                raise Unavailable("the deadline passed before the write was begun")
        if batch.leads:
            self._hand_over()
            raise Unavailable("the deadline passed before the write was begun")
        if batch.done:
            return False
        raise Unavailable("the deadline passed while the write was being committed", Applied.UNKNOWN)

    def _lead(self, own: Batch, deadline: float) -> None:
        group = [own]
        failure: StoreError | None = Unavailable("the thread that led this group of commits failed", Applied.UNKNOWN)
        try:
            if self._grouping.wait_seconds:
                self._wait_for_company(deadline)
            self._until_it_fits(lambda: self._transact(lambda txn: self._apply(txn, group)), deadline)
            failure = None
        except StoreError as error:
            failure = error
        finally:
            if failure is not None:
                for batch in group:
                    batch.failure = failure
            self._hand_over()
            self._release(group)

    def _wait_for_company(self, deadline: float) -> None:
        most = self._grouping.max_group
        with self._mutex:
            seconds = min(self._grouping.wait_seconds, _seconds_until(deadline))
            self._company.wait_for(lambda: 0 < most <= len(self._pending) + 1, seconds)

    def _apply(self, txn: "lmdb.Transaction[bytes]", group: list[Batch]) -> bool:
        """Takes what waits into `group`, applies it all; whether anything changed."""
        with self._mutex:
            while self._pending and (len(group) < self._grouping.max_group or not self._grouping.max_group):
                group.append(self._pending.popleft())
        self.batches += len(group)
        if self._reserves:
            self._connection.reserve(sum([batch.most_pages() for batch in group]))
        return any([batch.apply(txn) for batch in group])

    def _transact(self, body: "Callable[[lmdb.Transaction[bytes]], bool]") -> None:
        """Commits what `body` did, and counts it if that was anything; what it raises leaves no trace.

        The driver's `abort` waits until no thread of the process is inside any call of this environment: beside busy
        readers that is never. So a transaction that changed nothing is committed, which writes nothing either, and
        one that failed is aborted while no reader enters.
        """
        txn = self._connection.begin(None, None, True)
        try:
            changed = body(txn)
        except BaseException:
            with self._connection.gate.entries_stopped():
                txn.abort()
            raise
        number = txn.id()
        try:
            txn.commit()
        except lmdb.MapFullError:
            raise
        except lmdb.Error as error:
            raise self._connection.failed(error, number) from error
        self.commits += changed

    def _until_it_fits(self, attempt: Callable[[], None], deadline: float) -> None:
        connection = self._connection
        gate = connection.gate
        slot = gate.threads.slot
        writers = connection.writers
        while True:
            slot.busy += 1
            try:
                if gate.shut:
                    gate.wait(slot, deadline)
                writers.acquire(deadline)
                try:
                    return attempt()
                finally:
                    writers.release()
            except (lmdb.MapFullError, lmdb.MapResizedError):
                pass
            except lmdb.Error as error:
                raise translated(error, connection.path) from error
            finally:
                slot.busy -= 1
            connection.grow(deadline)

    def _hand_over(self) -> None:
        with self._mutex:
            if not self._pending:
                self._leading = False
                return
            heir = self._pending.popleft()
            heir.leads = True
        assert heir.wake is not None
        heir.wake.release()

    def _release(self, group: list[Batch]) -> None:
        for batch in group[1:]:
            batch.done = True
            assert batch.wake is not None
            batch.wake.release()


def _seconds_until(deadline: float) -> float:
    return max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))
