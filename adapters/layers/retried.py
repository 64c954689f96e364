"""RetriedStore: repeats what may be repeated when the database does not answer, within the caller's deadline.

Reads are repeated on Unavailable. A write is repeated when nothing of it was applied, or when it holds no condition:
then a second application changes nothing that the first did not. (An unversioned write that others may overwrite in
between is not quite that: it can take effect twice, with theirs in the middle. Rows with several writers carry a
version or a condition.) A conditional write whose outcome is unknown is never repeated: only its caller can tell its
own success from another's.

Pauses double, and each is drawn between nothing and its full length, so that callers cut off together do not return
together. A pause that would pass the deadline is not made: the last error is raised at once.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from adapters.contract import (
    Address,
    Capabilities,
    KeyRange,
    Operation,
    OrderedStore,
    PointStore,
    Reader,
    Row,
    Rows,
    Table,
    is_conditional,
    swept,
)
from adapters.errors import Applied, StoreError, Unavailable

T = TypeVar("T")
FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 2.0


class _Retries:
    """How often and how long; one for all threads."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.closed = False
        self._sleep = sleep
        self._random = random.Random()  # noqa: S311 - jitter

    def run(self, work: Callable[[], T], deadline: float, may_repeat: Callable[[StoreError], bool]) -> T:
        longest = FIRST_PAUSE_SECONDS
        while True:
            try:
                return work()
            except Unavailable as error:
                pause = self._random.uniform(0, longest)
                if self.closed or not may_repeat(error) or time.monotonic() + pause >= deadline:
                    raise
            self._sleep(pause)
            longest = min(2 * longest, LONGEST_PAUSE_SECONDS)


def _always(_: StoreError) -> bool:
    return True


def _if_not_applied(error: StoreError) -> bool:
    return error.applied is Applied.NO


class RetriedPoints:
    """A point store whose calls are repeated."""

    def __init__(self, store: PointStore, sleep: Callable[[float], None] = time.sleep) -> None:
        self.inner = store
        self._retries = _Retries(sleep)
        self.ensure_tables, self.drop_tables, self.check = store.ensure_tables, store.drop_tables, store.check

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        return self._retries.run(
            lambda: self.inner.read(addresses, deadline=deadline, settle=settle), deadline, _always
        )

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        """A write that was UNKNOWN once stays so: a later attempt that fails with NO speaks for itself only."""
        may_repeat = _if_not_applied if any(map(is_conditional, operations)) else _always
        unknown = False

        def attempt() -> None:
            nonlocal unknown
            try:
                self.inner.write(operations, rows=rows, deadline=deadline)
            except StoreError as error:
                if unknown and error.applied is Applied.NO:
                    raise error.restated(Applied.UNKNOWN) from error
                unknown = error.applied is Applied.UNKNOWN
                raise

        self._retries.run(attempt, deadline, may_repeat)

    def close(self) -> None:
        self._retries.closed = True
        self.inner.close()

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        return swept(self.inner, table, scope, deadline=deadline)


class RetriedStore(RetriedPoints):
    """An ordered store whose calls are repeated, except inside a snapshot, which may be gone with the connection."""

    inner: OrderedStore

    def __init__(self, store: OrderedStore, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(store, sleep)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self._retries.run(lambda: self.inner.fetch(table, scopes, keys, deadline=deadline), deadline, _always)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        return self._retries.run(
            lambda: self.inner.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline),
            deadline,
            _always,
        )

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self.inner.snapshot()
