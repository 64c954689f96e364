"""VersionedStore: the contract's version rule over a store with compare-and-set but without versions.

Every value is stored with a frame before it; a versioned delete leaves a tombstone:

    00 value                               written without a version
    01 version (8 bytes) value
    02 version (8) milliseconds (8) place  deleted; the clock and the place are for `sweep`

A versioned write reads the row and, unless the row has this version or a higher one, replaces exactly what it read;
having lost a race it looks again at what it lost to. A write without a version or condition is passed on blindly and
leaves a row without version. One with a condition leaves the version the row had. Tombstones are invisible above, and
stay until `sweep` finds them older than the horizon.

At atomicity ROW each versioned row is a call of its own below, at SCOPE each scope, so that the store below applies
it at all; what the whole call promises is what that atomicity promises anyway.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Expectation,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    is_conditional,
    row_writes,
    swept,
)
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers.sifting import sifted_scan

PLAIN, VERSIONED, DELETED = b"\x00", b"\x01", b"\x02"
FRAME_BYTES = 9
SWEPT_AT_ONCE = 500

#: Operations with their positions in the caller's call.
_Part = list[tuple[int, Operation]]


def content(stored: bytes | None) -> bytes | None:
    """The value that callers see in what is stored."""
    if stored is None or stored[:1] == DELETED:
        return None
    if stored[:1] == PLAIN:
        return stored[1:]
    if stored[:1] == VERSIONED and len(stored) > FRAME_BYTES:
        return stored[FRAME_BYTES:]
    raise Corrupt(f"a row without this layer's frame: {stored!r:.60}; it was not written through `versioned`")


def version_of(stored: bytes | None) -> int | None:
    if stored is None or stored[:1] == PLAIN:
        return None
    return int.from_bytes(stored[1:FRAME_BYTES], "big")


def framed(value: bytes | None, version: int | None, place: bytes) -> bytes | None:
    """What to store; None where nothing remains of the row."""
    if version is None:
        return None if value is None else PLAIN + value
    number = version.to_bytes(8, "big")
    if value is not None:
        return VERSIONED + number + value
    return DELETED + number + int(time.time() * 1000).to_bytes(8, "big") + place


class _VersionedReader:
    """One reader's rows without their frames."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        return [*map(content, self._reader.read(addresses, deadline=deadline, settle=settle))]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return [*map(content, self._reader.fetch(table, scopes, keys, deadline=deadline))]

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        def fetch(span: KeyRange, most: int) -> list[Row]:
            return self._reader.scan(table, scope, span, limit=most, reverse=reverse, deadline=deadline)

        def live(rows: list[Row]) -> list[Row]:
            return [(key, value) for key, stored in rows if (value := content(stored)) is not None]

        return sifted_scan(fetch, live, keys, limit=limit, reverse=reverse)


class _Snapshot:
    """A store's snapshot, read through this layer."""

    def __init__(self, inner: AbstractContextManager[Reader]) -> None:
        self._inner = inner

    def __enter__(self) -> Reader:
        return _VersionedReader(self._inner.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)


class VersionedStore(_VersionedReader):
    """A store with versioned writes. `horizon_seconds`: how long the version of a deleted row is kept."""

    LEAVES_BEHIND = True

    def __init__(self, store: OrderedStore, horizon_seconds: float = 86_400.0) -> None:
        super().__init__(store)
        limits = store.capabilities
        if not limits.compare_and_set:
            raise Unsupported("versioned stands only over a store with compare_and_set")
        self.inner = store
        self._horizon_seconds = horizon_seconds
        self._atomicity = limits.atomicity
        most = limits.max_value_bytes
        self._capabilities = replace(
            limits,
            versioned_writes=True,
            version_horizon_seconds=horizon_seconds,
            max_value_bytes=None if most is None else most - FRAME_BYTES,
        )
        self.layout = "versioned"
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.inner.snapshot())

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if any(each.version is not None for each in rows):
            operations, rows = [*operations, *row_writes(rows)], ()
        if not any(map(_needs_look, operations)):
            blind = [_blind(each) for each in operations if isinstance(each, Write)]
            self.inner.write(blind, rows=_framed_rows(rows), deadline=deadline)
            return
        parts = self._parts([*operations, *row_writes(rows)])
        for number, part in enumerate(parts):
            try:
                self._write_part(part, deadline)
            except StoreError as error:
                if number:  # the parts before it were applied
                    raise error.restated(Applied.UNKNOWN) from error
                raise

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Also removes the tombstones that are older than the horizon."""
        oldest = int((time.time() - self._horizon_seconds) * 1000)
        removed, keys = 0, KeyRange()
        while True:
            rows = self.inner.scan(table, scope, keys, limit=SWEPT_AT_ONCE, deadline=deadline)
            for key, stored in rows:
                if stored[:1] == DELETED and int.from_bytes(stored[9:17], "big") < oldest:
                    removed += self._remove(Address(table, scope, stored[17:], key), stored, deadline)
            if len(rows) < SWEPT_AT_ONCE:
                return removed + swept(self.inner, table, scope, deadline=deadline)
            keys = KeyRange(rows[-1][0] + b"\x00")

    def _remove(self, address: Address, stored: bytes, deadline: float) -> int:
        try:
            self.inner.write([Write(address, None, stored)], deadline=deadline)
        except Conflict:
            return 0  # written again meanwhile
        return 1

    def _parts(self, operations: Sequence[Operation]) -> list[_Part]:
        """What one call to the store below may hold together; what holds the caller's condition is first."""
        numbered = list(enumerate(operations))
        if self._atomicity is Atomicity.BATCH:
            return [numbered]
        groups: dict[object, _Part] = {}
        for index, operation in numbered:
            alone = index if _needs_look(operation) else -1
            group = alone if self._atomicity is Atomicity.ROW else operation.address[:2]
            groups.setdefault(group, []).append((index, operation))
        return sorted(groups.values(), key=lambda part: not any(is_conditional(each) for _, each in part))

    def _write_part(self, part: _Part, deadline: float) -> None:
        known = self._look(part, deadline)
        while True:
            translated = [(index, below) for index, each in part if (below := _below(each, known.get(index)))]
            if not translated:
                return
            try:
                self.inner.write([below for _, below in translated], deadline=deadline)
            except Conflict as conflict:
                index = translated[conflict.index][0]
                known[index] = conflict.current
                _raise_if_meant(dict(part)[index], index, conflict)
            else:
                return
            if time.monotonic() > deadline:
                raise Unavailable("the deadline passed while others were writing the same rows")

    def _look(self, part: _Part, deadline: float) -> dict[int, bytes | None]:
        """What stands where versions are compared, and what conditions hope for: a row without version."""
        versioned = [
            (index, each.address) for index, each in part if isinstance(each, Write) and each.version is not None
        ]
        found = self.inner.read([address for _, address in versioned], deadline=deadline) if versioned else []
        known = {index: stored for (index, _), stored in zip(versioned, found, strict=True)}
        known |= {index: PLAIN + each.expect for index, each in part if isinstance(each.expect, bytes)}
        return known


def _needs_look(operation: Operation) -> bool:
    return is_conditional(operation) or (isinstance(operation, Write) and operation.version is not None)


def _blind(write: Write) -> Write:
    return write._replace(value=framed(write.value, None, b""))


def _framed_rows(rows: Sequence[Rows]) -> list[Rows]:
    return [
        each._replace(values={key: framed(value, None, b"") for key, value in each.values.items()}) for each in rows
    ]


def _below(operation: Operation, stored: bytes | None) -> Operation | None:
    """The operation on frames, given what is or is hoped to be stored; None: the write loses."""
    expect: Expectation = ABSENT if stored is None else stored
    if isinstance(operation, Check):
        return Check(operation.address, expect if is_conditional(operation) else ANY)
    held = version_of(stored)
    place = operation.address.place
    if operation.version is not None:
        if held is not None and held >= operation.version:
            return None
        return Write(operation.address, framed(operation.value, operation.version, place), expect)
    if not is_conditional(operation):
        return _blind(operation)
    return Write(operation.address, framed(operation.value, held, place), expect)


def _raise_if_meant(operation: Operation, index: int, conflict: Conflict) -> None:
    """Raises the conflict if the caller's own condition failed, not just this layer's guess at the frame."""
    if not is_conditional(operation):
        return
    current = content(conflict.current)
    if current != (None if operation.expect is ABSENT else operation.expect):
        raise Conflict(str(conflict), index=index, current=current) from conflict
