"""A store in this process's memory: the readable reference for what every other store must do."""

import threading
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Consistency,
    Durable,
    Expectation,
    KeyRange,
    Operation,
    Reader,
    Row,
    Rows,
    Table,
    addresses,
    row_writes,
)
from adapters.errors import Conflict, Unavailable, Unsupported
from adapters.url import StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.BATCH,
    compare_and_set=True,
    versioned_writes=False,
    ordered=True,
    reverse_scan=True,
    snapshot=True,
    consistency=Consistency.STRONG,
    durable=Durable.MEMORY,
    shared=False,  # several processes would each have their own
)


class _ScopeRows:
    """The rows of one scope: values by key, and the keys in order."""

    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}

    def copy(self) -> "_ScopeRows":
        twin = _ScopeRows()
        twin.keys = self.keys.copy()
        twin.values = self.values.copy()
        return twin

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def scan(self, keys: KeyRange, limit: int, reverse: bool) -> list[Row]:
        low = bisect_left(self.keys, keys.start)
        high = len(self.keys) if keys.stop is None else bisect_left(self.keys, keys.stop)
        if limit <= 0 or low >= high:
            return []
        found = self.keys[max(low, high - limit) : high][::-1] if reverse else self.keys[low : min(high, low + limit)]
        return [(key, self.values[key]) for key in found]


_Place = tuple[Table, bytes]


class _View:
    """What a snapshot sees: the live rows, except of scopes written since, of which a writer left a copy here."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store
        self.kept: dict[_Place, _ScopeRows] = {}

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        del deadline, settle  # nothing here waits
        with self._store.lock:
            return [self._rows((table, scope)).values.get(key) for table, scope, _, key in addresses]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        del deadline
        with self._store.lock:
            return self._rows((table, scope)).scan(keys, limit, reverse)

    def _rows(self, place: _Place) -> _ScopeRows:
        self._store.check()
        return self.kept.get(place) or self._store.scopes.get(place) or _NOTHING


_NOTHING = _ScopeRows()


class MemoryStore:
    """All rows under one lock. Cheap while nothing is written during a snapshot; such a write copies its scope once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scopes: defaultdict[_Place, _ScopeRows] = defaultdict(_ScopeRows)
        self._views: list[_View] = []
        self._live = _View(self)
        self._snapshots = threading.local()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def ensure_tables(self) -> None:
        self.check()

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        return self._live.read(addresses, deadline=deadline, settle=settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self._live.fetch(table, scopes, keys, deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        return self._live.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        del deadline
        operations = [*operations, *row_writes(rows)]
        if getattr(self._snapshots, "open", 0):
            raise Unsupported("a thread does not write inside its own snapshot: leave the snapshot first")
        with self.lock:
            self.check()
            for index, operation in enumerate(operations):
                self._verify(index, operation.address, operation.expect)
            for place in {operation.address[:2] for operation in operations}:
                self._keep_for_snapshots(place)
            for operation in operations:
                self._apply(operation)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._snapshot()

    @contextmanager
    def _snapshot(self) -> Iterator[Reader]:
        self.check()
        view = _View(self)
        with self.lock:
            self._views.append(view)
        self._snapshots.open = getattr(self._snapshots, "open", 0) + 1
        try:
            yield view
        finally:
            self._snapshots.open -= 1
            with self.lock:
                self._views.remove(view)

    def drop_tables(self) -> None:
        with self.lock:
            for place in list(self.scopes):
                self._keep_for_snapshots(place)
            self.scopes.clear()

    def check(self) -> None:
        if self._closed:
            raise Unavailable("this memory store is closed")

    def close(self) -> None:
        self._closed = True

    def _verify(self, index: int, address: Address, expect: Expectation) -> None:
        if expect is ANY:
            return
        table, scope, _, key = address
        rows = self.scopes.get((table, scope), _NOTHING)
        current = rows.values.get(key)
        if current != (None if expect is ABSENT else expect):
            raise Conflict(f"operation {index} found another value than expected", index=index, current=current)

    def _apply(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            return
        table, scope, _, key = operation.address
        rows = self.scopes[table, scope]
        if operation.value is None:
            rows.delete(key)
        else:
            rows.put(key, operation.value)

    def _keep_for_snapshots(self, place: _Place) -> None:
        wanting = [view for view in self._views if place not in view.kept]
        if wanting:
            copy = self.scopes[place].copy()
            for view in wanting:
                view.kept[place] = copy


def open_url(url: StoreUrl) -> MemoryStore:
    """`memory:`. Takes no place and no options: each opening is a new, empty store."""
    if url.place:
        raise Unsupported(f"memory: takes no place, found {url.place!r}; write just 'memory:'")
    url.options.finish()
    return MemoryStore()
