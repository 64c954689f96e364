"""LongKeysStore: keys and scopes of any length, in exact byte order, over a store that limits them.

A key shorter than one chunk (C bytes) is stored as it is. Of a longer key the first C bytes stand as a *marker*: a row
of exactly C bytes whose value is the random id of a *node*. The rest of the key, possibly empty, stands in the node's
own scope (0xff + id, same table), cut again where it is still too long. No stored key but a marker has C bytes, so a
scan knows markers by their length and descends into them. Everything below a marker begins with the marker, and
nothing else in its scope does, so the walk is in byte order.

A scope longer than S bytes is replaced by a short one (0xfe + random id), found under the long scope's bytes taken as
a key in the scope ROOT of the same table: volatile tables keep to themselves. Scopes that begin with 0xfe or 0xff are
this layer's own.

Markers and substitutes are made by insert-if-absent within the batch that needs them first, and never deleted. A
writer that lost the race for one begins again with the winner's. Needs BATCH atomicity and snapshots below. The sizes
depend on the store's limit; other sizes would not find what is there.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

from adapters.contract import (
    ABSENT,
    Address,
    Capabilities,
    Check,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Rows,
    Sweepable,
    Table,
    Write,
    addresses,
    row_writes,
)
from adapters.errors import Conflict, Unavailable, Unsupported
from adapters.layers.chunks import ID_BYTES, NODE, ROOT, Level, Sizes, below, checked_id, marker_of

SUBSTITUTE = b"\xfe"
SWEPT_AT_ONCE = 500


class _LongReader:
    """One reader's rows under their full keys."""

    def __init__(self, reader: Reader, sizes: Sizes) -> None:
        self.reader = reader
        self._sizes = sizes

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        if self._sizes.all_fit(addresses):
            return self.reader.read(addresses, deadline=deadline, settle=settle)
        return self.read_long(addresses, deadline, settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        if self._sizes.columns_fit(scopes, keys):
            return self.reader.fetch(table, scopes, keys, deadline=deadline)
        return self.read_long(addresses(table, scopes, keys), deadline, settle=False)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        if self._sizes.simple(scope, keys):
            rows = self.reader.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
            if not self._sizes.marked(rows):
                return rows
        return self.scan_long(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def read_long(self, addresses: Sequence[Address], deadline: float, settle: bool) -> list[bytes | None]:
        found = self.locate(self.substituted(addresses, deadline), deadline)
        stored = [address for address in found if address is not None and self._sizes.fit(address)]
        values = iter(self.reader.read(stored, deadline=deadline, settle=settle))
        return [next(values) if address is not None and self._sizes.fit(address) else None for address in found]

    def scan_long(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool, deadline: float
    ) -> list[Row]:
        (place,) = self.substituted([Address(table, scope, b"", b"")], deadline)
        rows: list[Row] = []
        chunk = self._sizes.chunk
        levels = [] if place is None else [Level(place.scope, b"", keys, chunk)]
        while levels and len(rows) < limit:
            level = levels[-1]
            if level.rows:
                key, value = level.rows.popleft()
                if len(key) == chunk:
                    levels.append(level.below(key, value))
                else:
                    rows.append((level.prefix + key, value))
            elif level.exhausted:
                levels.pop()
            else:
                level.fetch(self.reader, table, limit - len(rows), reverse, deadline)
        return rows

    def substituted(self, addresses: Sequence[Address], deadline: float) -> list[Address | None]:
        """`addresses` with short scopes; None where the long scope has no substitute, so holds no row."""
        long = {address[:2] for address in addresses if len(address.scope) > self._sizes.scope}
        if not long:
            return list(addresses)
        names = [Address(table, ROOT, b"", scope) for table, scope in long]
        ids = self.read(names, deadline=deadline)
        scopes = {place: SUBSTITUTE + checked_id(found) for place, found in zip(long, ids, strict=True) if found}
        return [self._with_scope(address, scopes) for address in addresses]

    def _with_scope(self, address: Address, scopes: dict[tuple[Table, bytes], bytes]) -> Address | None:
        if len(address.scope) <= self._sizes.scope:
            return address
        scope = scopes.get(address[:2])
        return None if scope is None else address._replace(scope=scope)

    def locate(self, addresses: Sequence[Address | None], deadline: float) -> list[Address | None]:
        """Where the rows stand or would stand: an address whose key is still long has no marker there yet.

        One read for each chunk of the longest key, whatever the number of addresses.
        """
        found = list(addresses)
        chunk = self._sizes.chunk
        walking = [index for index, address in enumerate(found) if address is not None and len(address.key) >= chunk]
        while walking:
            here = [address for index in walking if (address := found[index]) is not None]
            nodes = self.reader.read([marker_of(address, chunk) for address in here], deadline=deadline)
            further = []
            for index, address, node in zip(walking, here, nodes, strict=True):
                if node is not None:
                    found[index] = deeper = below(address, node, chunk)
                    if len(deeper.key) >= chunk:
                        further.append(index)
            walking = further
        return found


class _Snapshot:
    """A store's snapshot, read through this layer."""

    def __init__(self, inner: AbstractContextManager[Reader], sizes: Sizes) -> None:
        self._inner = inner
        self._sizes = sizes

    def __enter__(self) -> Reader:
        return _LongReader(self._inner.__enter__(), self._sizes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)


class _Translation:
    """One batch in stored addresses: what must be made or still be absent first, then the caller's operations."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._made: dict[Address, bytes] = {}
        self._guards: dict[Address, None] = {}
        self.operations: list[Operation] = []
        self.owners: list[int] = []  #: for each of `operations`, the position of the caller's

    def preparations(self) -> list[Operation]:
        made: list[Operation] = [Write(address, value, ABSENT) for address, value in self._made.items()]
        return made + [Check(address, ABSENT) for address in self._guards if address not in self._made]

    def add(self, index: int, operation: Operation, found: Address) -> None:
        """`found` is where `locate` stopped; makes what is missing from there on, unless absence is all it takes."""
        if not self._sizes.fit(found) and _content_with_absence(operation):
            self._guards[marker_of(found, self._sizes.chunk)] = None
            return
        self.operations.append(operation._replace(address=self._made_down_to(found)))
        self.owners.append(index)

    def add_scope(self, found: Address, create: bool) -> bytes | None:
        """The substitute for a scope that has none: `found` is where its name would stand."""
        if create:
            name = self._made_down_to(found)
            return SUBSTITUTE + self._made.setdefault(name, os.urandom(ID_BYTES))
        missing = found if self._sizes.fit(found) else marker_of(found, self._sizes.chunk)
        self._guards[missing] = None
        return None

    def _made_down_to(self, address: Address) -> Address:
        chunk = self._sizes.chunk
        while len(address.key) >= chunk:
            node = self._made.setdefault(marker_of(address, chunk), os.urandom(ID_BYTES))
            address = below(address, node, chunk)
        return address


def _content_with_absence(operation: Operation) -> bool:
    """Whether the operation does nothing to a row that is absent, and holds for it."""
    return not (isinstance(operation, Write) and operation.value is not None) and not isinstance(
        operation.expect, bytes
    )


class LongKeysStore:
    """A store without a key limit. Short keys pass through after one look at their lengths."""

    def __init__(self, store: OrderedStore) -> None:
        limits = store.capabilities
        if limits.max_key_bytes is None:
            raise Unsupported("longkeys stands only over a store with max_key_bytes")
        self.inner = store
        self._sizes = Sizes(limits.max_key_bytes)
        self._capabilities = replace(limits, max_key_bytes=None)
        self.layout = f"longkeys scope_bytes={self._sizes.scope} chunk_bytes={self._sizes.chunk}"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def ensure_tables(self) -> None:
        self.inner.ensure_tables()

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        if self._sizes.all_fit(addresses):
            return self.inner.read(addresses, deadline=deadline, settle=settle)
        with self.inner.snapshot() as reader:
            return _LongReader(reader, self._sizes).read_long(addresses, deadline, settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        if self._sizes.columns_fit(scopes, keys):
            return self.inner.fetch(table, scopes, keys, deadline=deadline)
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        if self._sizes.simple(scope, keys):
            rows = self.inner.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
            if not self._sizes.marked(rows):
                return rows
        with self.inner.snapshot() as reader:
            return _LongReader(reader, self._sizes).scan_long(
                table, scope, keys, limit=limit, reverse=reverse, deadline=deadline
            )

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        sizes = self._sizes
        fit = all(sizes.columns_fit((scope,), values) for _, scope, _, values, _ in rows)
        if fit and sizes.all_fit([operation[0] for operation in operations]):
            return self.inner.write(operations, rows=rows, deadline=deadline)
        return self._write_long([*operations, *row_writes(rows)], deadline)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.inner.snapshot(), self._sizes)

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Markers and substitutes stay; passes on the scope and every node below it."""
        (place,) = _LongReader(self.inner, self._sizes).substituted([Address(table, scope, b"", b"")], deadline)
        if place is None or not isinstance(self.inner, Sweepable):
            return 0
        removed, scopes = 0, [place.scope]
        while scopes:
            each = scopes.pop()
            scopes += self._nodes(table, each, deadline)
            removed += self.inner.sweep(table, each, deadline=deadline)
        return removed

    def _nodes(self, table: Table, scope: bytes, deadline: float) -> Iterator[bytes]:
        """The scopes of the nodes that begin in one, by its markers."""
        keys = KeyRange()
        while True:
            rows = self.inner.scan(table, scope, keys, limit=SWEPT_AT_ONCE, deadline=deadline)
            yield from (NODE + checked_id(value) for key, value in rows if len(key) == self._sizes.chunk)
            if len(rows) < SWEPT_AT_ONCE:
                return
            keys = KeyRange(rows[-1][0] + b"\x00")

    def drop_tables(self) -> None:
        self.inner.drop_tables()

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()

    def _write_long(self, operations: Sequence[Operation], deadline: float) -> None:
        while True:
            translation = self._translate(operations, deadline)
            first = translation.preparations()
            try:
                return self.inner.write([*first, *translation.operations], deadline=deadline)
            except Conflict as conflict:
                if conflict.index >= len(first):
                    index = translation.owners[conflict.index - len(first)]
                    raise Conflict(str(conflict), index=index, current=conflict.current) from conflict
            if time.monotonic() > deadline:
                raise Unavailable("the deadline passed while others were writing keys with the same beginning")

    def _translate(self, operations: Sequence[Operation], deadline: float) -> _Translation:
        translation = _Translation(self._sizes)
        scopes = self._scopes(operations, translation, deadline)
        placed = []
        for index, operation in enumerate(operations):
            address = operation.address
            scope = scopes.get(address[:2], address.scope)
            if scope is not None:
                placed.append((index, operation, address._replace(scope=scope)))
        found = _LongReader(self.inner, self._sizes).locate([address for _, _, address in placed], deadline)
        for (index, operation, _), spot in zip(placed, found, strict=True):
            assert spot is not None
            translation.add(index, operation, spot)
        return translation

    def _scopes(
        self, operations: Sequence[Operation], translation: _Translation, deadline: float
    ) -> dict[tuple[Table, bytes], bytes | None]:
        """The substitute of every long scope; None: it has none, and no operation on it needs one."""
        long: dict[tuple[Table, bytes], bool] = {}
        for operation in operations:
            place = operation.address[:2]
            if len(place[1]) > self._sizes.scope:
                long[place] = long.get(place, False) or not _content_with_absence(operation)
        if not long:
            return {}
        reader = _LongReader(self.inner, self._sizes)
        names = reader.locate([Address(table, ROOT, b"", scope) for table, scope in long], deadline)
        there = [name for name in names if name is not None and self._sizes.fit(name)]
        ids = dict(zip(there, self.inner.read(there, deadline=deadline), strict=True))
        scopes: dict[tuple[Table, bytes], bytes | None] = {}
        for (place, create), name in zip(long.items(), names, strict=True):
            assert name is not None
            known = ids.get(name)
            scopes[place] = translation.add_scope(name, create) if known is None else SUBSTITUTE + checked_id(known)
        return scopes
