"""CutKeysStore: long keys and scopes over any store that limits them, without rows of its own.

A scope longer than half the limit is replaced by 0xfe and its digest: a scan fixes its scope, so scopes need no order.
In each scope, keys shorter than a *cut* stand as they are. Of a longer key its first bytes, as many as the cut, stand
as a *stem*, followed by a digest of the whole key; the rest of the key stands before the value:

    length of the rest (4 bytes) rest value

Every address is computed from the caller's alone, and every row stays one row: conditions and versions pass straight
through, and so does whatever atomicity the store below has.

No whole key is as long as a stem, so all stored keys that begin with one belong to long keys, lie together, and stand
where they should among the others: only inside such a group the order is that of the digests. A scan that meets a
group reads all of it and sorts. It holds as many rows of a group as it may return, and one page; but it reads the whole
group, however few of its rows it returns. So rows whose keys share a stem are the price of this layer: it is meant for
limits that few keys pass (see README.md). `longkeys` has no such price, and needs more of the store.
"""

import hashlib
import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from types import TracebackType

from adapters.contract import (
    Address,
    Capabilities,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    addresses,
    after_prefix,
    swept,
)
from adapters.errors import Conflict, Corrupt, Unsupported

SCOPE = b"\xfe"
DIGEST_BYTES = 32
LENGTH_BYTES = 4
SHORTEST_LIMIT = 128
#: Scope and key, where the store below limits values too: their length is taken from the value's.
LONGEST_KEY_BYTES = 1 << 16
PAGE_ROWS = 256

_KEY = itemgetter(0)


class Cuts:
    """What a key limit makes of addresses and values."""

    def __init__(self, max_key_bytes: int) -> None:
        if max_key_bytes < SHORTEST_LIMIT:
            raise Unsupported(f"keys of {max_key_bytes} bytes are too short to cut; {SHORTEST_LIMIT} are needed")
        self.scope_bytes = max_key_bytes // 2
        self.row_bytes = max_key_bytes - DIGEST_BYTES - 1  # one is kept back, for a scan that goes on behind a row

    def cut(self, scope: bytes) -> int:
        """How long the stems are in a scope as it is stored: keys of this length and above are cut."""
        return self.row_bytes - len(scope)

    def fit(self, scopes: Collection[bytes], keys: Collection[bytes]) -> bool:
        """Whether all rows of such columns surely stand as they are."""
        longest = max(map(len, scopes), default=0)
        return longest <= self.scope_bytes and longest + max(map(len, keys), default=0) < self.row_bytes

    def all_fit(self, addresses: Sequence[Address]) -> bool:
        for _, scope, _, key in addresses:
            if len(scope) + len(key) >= self.row_bytes or len(scope) > self.scope_bytes:
                return False
        return True

    def scope(self, scope: bytes) -> bytes:
        return scope if len(scope) <= self.scope_bytes else SCOPE + hashlib.sha256(scope).digest()

    def address(self, address: Address) -> Address:
        scope = self.scope(address.scope)
        return address._replace(scope=scope, key=self.key(scope, address.key))

    def key(self, scope: bytes, key: bytes) -> bytes:
        cut = self.cut(scope)
        return key if len(key) < cut else key[:cut] + hashlib.sha256(key).digest()

    def value(self, scope: bytes, key: bytes, value: bytes) -> bytes:
        """What stands for a value. `scope`: as it is stored; `key`: whole."""
        cut = self.cut(scope)
        if len(key) < cut:
            return value
        return (len(key) - cut).to_bytes(LENGTH_BYTES, "big") + key[cut:] + value

    def content(self, address: Address, stored: bytes | None) -> bytes | None:
        """The value in what stands at the caller's address. Raises Corrupt when it belongs to another key."""
        scope = self.scope(address.scope)
        cut = self.cut(scope)
        if stored is None or len(address.key) < cut:
            return stored
        rest, value = _parted(stored)
        if rest != address.key[cut:]:
            raise Corrupt(f"the row of {address!r:.200} holds that of a key that ends in {rest!r:.100}")
        return value

    def operation(self, operation: Operation) -> Operation:
        address = operation.address
        scope = self.scope(address.scope)
        below = operation._replace(address=address._replace(scope=scope, key=self.key(scope, address.key)))
        if isinstance(operation.expect, bytes):
            below = below._replace(expect=self.value(scope, address.key, operation.expect))
        if isinstance(below, Write) and below.value is not None:
            below = below._replace(value=self.value(scope, address.key, below.value))
        return below

    def rows(self, rows: Rows) -> Rows:
        if self.fit((rows.scope,), rows.values):
            return rows
        scope = self.scope(rows.scope)
        return rows._replace(scope=scope, values=self._values(scope, rows.values))

    def _values(self, scope: bytes, values: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        return {
            self.key(scope, key): None if value is None else self.value(scope, key, value)
            for key, value in values.items()
        }


def _parted(stored: bytes) -> tuple[bytes, bytes]:
    """The rest of the key, and the value."""
    end = LENGTH_BYTES + int.from_bytes(stored[:LENGTH_BYTES], "big")
    if len(stored) <= end:
        raise Corrupt(f"a long key's row is cut off: {stored!r:.60}; it was not written through `cutkeys`")
    return stored[LENGTH_BYTES:end], stored[end:]


class _CutReader:
    """One reader's rows under their whole keys."""

    def __init__(self, reader: Reader, cuts: Cuts) -> None:
        self._reader = reader
        self._cuts = cuts

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        cuts = self._cuts
        if cuts.all_fit(addresses):
            return self._reader.read(addresses, deadline=deadline, settle=settle)
        found = self._reader.read([*map(cuts.address, addresses)], deadline=deadline, settle=settle)
        return [*map(cuts.content, addresses, found)]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        if self._cuts.fit(scopes, keys):
            return self._reader.fetch(table, scopes, keys, deadline=deadline)
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        scope = self._cuts.scope(scope)
        cut = self._cuts.cut(scope)

        def fetch(span: KeyRange, most: int) -> list[Row]:
            return self._reader.scan(table, scope, span, limit=most, reverse=reverse, deadline=deadline)

        low = keys.start[:cut]
        high = keys.stop if keys.stop is None or len(keys.stop) < cut else after_prefix(keys.stop[:cut])
        first = fetch(KeyRange(low, high), limit)
        if not first or ((low, high) == keys and cut + DIGEST_BYTES not in map(len, map(_KEY, first))):
            return first
        stored = _paged(fetch, first, KeyRange(low, high), limit, reverse=reverse)
        return _sorted(stored, cut, keys, limit, reverse=reverse)


def _paged(
    fetch: Callable[[KeyRange, int], list[Row]], found: list[Row], keys: KeyRange, limit: int, *, reverse: bool
) -> Iterator[Row]:
    """The stored rows one by one, fetched as they are asked for; `found`: those that the first `limit` brought."""
    while True:
        yield from found
        if len(found) < limit:
            return
        last = found[-1][0]
        keys = KeyRange(keys.start, last) if reverse else KeyRange(last + b"\x00", keys.stop)
        limit = PAGE_ROWS
        found = fetch(keys, limit)


def _sorted(stored: Iterator[Row], cut: int, keys: KeyRange, limit: int, *, reverse: bool) -> list[Row]:
    """The rows of the range under their whole keys. Asks for no stored row that it does not need."""
    pick = heapq.nlargest if reverse else heapq.nsmallest
    rows: list[Row] = []
    for stem, group in groupby(stored, lambda row: row[0][:cut] if len(row[0]) > cut else None):
        wanted = limit - len(rows)
        if stem is None:
            rows += islice(group, wanted)
        else:
            whole = ((stem + rest, value) for _, found in group for rest, value in (_parted(found),))
            rows += pick(wanted, (row for row in whole if _inside(row, keys)), _KEY)
        if len(rows) >= limit:
            break
    return rows


def _inside(row: Row, keys: KeyRange) -> bool:
    return keys.start <= row[0] and (keys.stop is None or row[0] < keys.stop)


class _Snapshot:
    """A store's snapshot, read through this layer."""

    def __init__(self, inner: AbstractContextManager[Reader], cuts: Cuts) -> None:
        self._inner = inner
        self._cuts = cuts

    def __enter__(self) -> Reader:
        return _CutReader(self._inner.__enter__(), self._cuts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)


def claimed(below: Capabilities) -> Capabilities:
    """What a CutKeysStore claims over a store with such capabilities."""
    most = below.max_value_bytes
    return replace(
        below,
        max_key_bytes=None if most is None else LONGEST_KEY_BYTES,
        max_value_bytes=None if most is None else most - LENGTH_BYTES - LONGEST_KEY_BYTES,
    )


class CutKeysStore(_CutReader):
    """A store without a key limit, or, where values are limited, with one of LONGEST_KEY_BYTES."""

    def __init__(self, store: OrderedStore) -> None:
        limits = store.capabilities
        if limits.max_key_bytes is None:
            raise Unsupported("cutkeys stands only over a store with max_key_bytes")
        super().__init__(store, Cuts(limits.max_key_bytes))
        self.inner = store
        self._capabilities = claimed(limits)
        self.layout = f"cutkeys max_key_bytes={limits.max_key_bytes}"
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        cuts = self._cuts
        below = operations
        if not cuts.all_fit([each[0] for each in operations]):
            below = [*map(cuts.operation, operations)]
        try:
            self.inner.write(below, rows=[*map(cuts.rows, rows)], deadline=deadline)
        except Conflict as conflict:
            current = cuts.content(operations[conflict.index].address, conflict.current)
            if current == conflict.current:
                raise
            raise Conflict(str(conflict), index=conflict.index, current=current) from conflict

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.inner.snapshot(), self._cuts)

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        return swept(self.inner, table, self._cuts.scope(scope), deadline=deadline)
