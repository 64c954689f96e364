"""MeasuredStore: counts what a store is asked and what becomes of it, for a Recorder of the caller's.

It stands right above the adapter, so it sees what the database sees: every attempt of a retried call, every row the
layers add. Rows of reads are those found, rows of writes those given; bytes are of keys and values.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, TypeVar

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
    Write,
    swept,
)
from adapters.errors import StoreError

T = TypeVar("T")
Size = tuple[int, int]  #: rows and bytes


class Recorder(Protocol):
    """Takes one observation for each call, from any thread, after the call has ended."""

    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        """`call`: read, fetch, scan, write, snapshot. `outcome`: ok, or the error's class in lower case; for errors
        of writes whose outcome is open, `unknown` stands behind it. A snapshot's time is how long it was held.
        """
        ...


class _Clock:
    """Runs calls and tells the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def run(self, call: str, work: Callable[[], T], size: Callable[[T], Size]) -> T:
        begun = time.perf_counter()
        try:
            result = work()
        except Exception as error:
            self.tell(call, outcome(error), (0, 0), begun)
            raise
        self.tell(call, "ok", size(result), begun)
        return result

    def tell(self, call: str, outcome: str, size: Size, begun: float) -> None:
        seconds = time.perf_counter() - begun
        self._recorder.observe(call, outcome, rows=size[0], size_bytes=size[1], seconds=seconds)


def outcome(error: Exception) -> str:
    if isinstance(error, StoreError):
        name = type(error).__name__.lower()
        return name if error.applied.value == "no" else f"{name} {error.applied.value}"
    return "bug"


class _MeasuredReader:
    def __init__(self, reader: Reader, clock: _Clock) -> None:
        self._reader = reader
        self._clock = clock

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        reader = self._reader
        return self._clock.run("read", lambda: reader.read(addresses, deadline=deadline, settle=settle), _values_size)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self._clock.run(
            "fetch", lambda: self._reader.fetch(table, scopes, keys, deadline=deadline), _values_size
        )

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        return self._clock.run(
            "scan",
            lambda: self._reader.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline),
            _rows_size,
        )


class MeasuredPoints:
    """A point store, measured."""

    def __init__(self, store: PointStore, recorder: Recorder) -> None:
        self.inner = store
        self._clock = _Clock(recorder)
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        store = self.inner
        return self._clock.run("read", lambda: store.read(addresses, deadline=deadline, settle=settle), _values_size)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        size = _written_size(operations, rows)
        return self._clock.run(
            "write", lambda: self.inner.write(operations, rows=rows, deadline=deadline), lambda _: size
        )

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        return swept(self.inner, table, scope, deadline=deadline)


class MeasuredStore(_MeasuredReader, MeasuredPoints):
    """An ordered store, measured; its snapshots too."""

    inner: OrderedStore

    def __init__(self, store: OrderedStore, recorder: Recorder) -> None:
        MeasuredPoints.__init__(self, store, recorder)
        _MeasuredReader.__init__(self, store, self._clock)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.inner.snapshot(), self._clock)


class _Snapshot:
    def __init__(self, inner: AbstractContextManager[Reader], clock: _Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._begun = 0.0

    def __enter__(self) -> Reader:
        self._begun = time.perf_counter()
        return _MeasuredReader(self._inner.__enter__(), self._clock)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)
        self._clock.tell("snapshot", "ok", (0, 0), self._begun)


def _values_size(values: Iterable[bytes | None]) -> Size:
    found = [len(value) for value in values if value is not None]
    return len(found), sum(found)


def _rows_size(rows: Sequence[Row]) -> Size:
    return len(rows), sum(len(key) + len(value) for key, value in rows)


def _written_size(operations: Sequence[Operation], rows: Sequence[Rows]) -> Size:
    """Without an object for each row: this is counted for every write."""
    count, size = len(operations), 0
    for operation in operations:
        (_, scope, _, key), value = operation.address, operation.value if isinstance(operation, Write) else None
        size += len(scope) + len(key) + len(value or b"")
    for _, scope, _, values, _ in rows:
        count += len(values)
        size += len(scope) * len(values) + sum(map(len, values)) + sum(map(len, filter(None, values.values())))
    return count, size
