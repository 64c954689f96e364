"""LongValuesStore: values of any length over a store that limits them.

A value that does not fit is cut into pieces, rows under a fresh random id in a scope of this layer's own, one for each
scope of their owners (0xfd + digest, same table, so volatile pieces keep to volatile tables). The row itself holds a
*pointer*. Values that
begin with 0xff are escaped; every other short value stands as it is.

The pieces are written before the pointer and deleted after the row that pointed to them has changed, so at any
atomicity a pointer never leads to pieces that are not all there yet, and a crash leaves only pieces that nothing
points to: `sweep` finds those by the owner's address, which stands before the value. A reader whose pointer was
overwritten between its two reads reads the row again (in a snapshot, where the store has them).

Conditions compare whole values: the pointer that was found to lead to an equal value is what the store below compares.

What a write replaces is known of single operations, which are read first; long values that `Rows` replace (index
rows, none of them long in practice) wait for the sweep, as do those of two unconditional writers who race.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from types import TracebackType

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
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
    addresses,
    is_conditional,
    swept,
)
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers.pieces import (
    ID_BYTES,
    MARK,
    SHORTEST_LIMIT,
    Missing,
    Pointer,
    born_before,
    contents,
    cut,
    inline,
    pieces_scope,
    pointer_in,
)
from adapters.layers.sifting import sifted_scan

PIECES_PER_CALL = 8
FRAME_BYTES = 64  # of a batch of one piece: its key
SWEPT_AT_ONCE = 64


class _LongReader:
    """One reader's rows with their whole values."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        found = self._reader.read(addresses, deadline=deadline, settle=settle)
        return self.whole(addresses, found, deadline)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        found = self._reader.fetch(table, scopes, keys, deadline=deadline)
        return self.whole(addresses(table, scopes, keys), found, deadline) if _marked(found) else found

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        def fetch(span: KeyRange, most: int) -> list[Row]:
            return self._reader.scan(table, scope, span, limit=most, reverse=reverse, deadline=deadline)

        def sift(rows: list[Row]) -> list[Row]:
            if not _marked(value for _, value in rows):
                return rows
            places = [Address(table, scope, b"", key) for key, _ in rows]
            values = self.whole(places, [value for _, value in rows], deadline)
            return [(key, value) for (key, _), value in zip(rows, values, strict=True) if value is not None]

        return sifted_scan(fetch, sift, keys, limit=limit, reverse=reverse)

    def whole(self, addresses: Sequence[Address], found: Sequence[bytes | None], deadline: float) -> list[bytes | None]:
        """The values behind what was found. Where pieces are gone, all rows are read again, so that they are of one
        state if the store reads them so.
        """
        if not _marked(found):
            return [*found]
        values = list(found)
        while gone := self._fill(values, addresses, deadline):
            again = self._reader.read(addresses, deadline=deadline, settle=True)
            for index in gone:
                if again[index] == found[index]:
                    raise Corrupt(f"pieces of the long value at {addresses[index]!r:.200} are missing")
            found, values = again, list(again)
        return values

    def _fill(self, values: list[bytes | None], addresses: Sequence[Address], deadline: float) -> list[int]:
        """Puts values in the place of what is stored; the rows whose pieces are gone."""
        marked = [index for index, stored in enumerate(values) if stored is not None and stored[:1] == MARK]
        gone = []
        for table in {addresses[index].table for index in marked}:
            mine = [index for index in marked if addresses[index].table is table]
            stored = [values[index] for index in mine]
            for index, value in zip(mine, contents(table, stored, self._pieces(deadline)), strict=True):
                if isinstance(value, Missing):
                    gone.append(index)
                else:
                    values[index] = value
        return gone

    def _pieces(self, deadline: float) -> Callable[[Sequence[Address]], list[bytes | None]]:
        return lambda wanted: self._reader.read(wanted, deadline=deadline, settle=True)


def _marked(values: Iterable[bytes | None]) -> bool:
    return any(value is not None and value[:1] == MARK for value in values)


class _Snapshot:
    """A store's snapshot, read through this layer."""

    def __init__(self, inner: AbstractContextManager[Reader]) -> None:
        self._inner = inner

    def __enter__(self) -> Reader:
        return _LongReader(self._inner.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)


class _Translation:
    """One call in stored values."""

    def __init__(self, most: int, piece_bytes: int) -> None:
        self._most = most
        self._piece_bytes = piece_bytes
        self.pieces: list[Write] = []
        self.pointers: dict[Address, Pointer] = {}  #: the new ones

    def operation(self, operation: Operation) -> Operation:
        if isinstance(operation, Check) or operation.value is None:
            return operation
        return operation._replace(value=self.stored(operation.address, operation.value))

    def rows(self, rows: Rows) -> Rows:
        table, scope, place, values, _ = rows
        if all(value is None or inline(value, self._most) is value for value in values.values()):
            return rows
        stored = {
            key: None if value is None else self.stored(Address(table, scope, place, key), value)
            for key, value in values.items()
        }
        return rows._replace(values=stored)

    def stored(self, address: Address, value: bytes) -> bytes:
        short = inline(value, self._most)
        if short is not None:
            return short
        pointer, pieces = cut(value, address, self._piece_bytes)
        self.pointers[address] = pointer
        self.pieces += pieces
        return pointer.stored()


class LongValuesStore:
    """A store without a value limit. `sweep_after_seconds`: see sweep."""

    LEAVES_BEHIND = True

    def __init__(self, store: OrderedStore, sweep_after_seconds: float = 3600.0) -> None:
        limits = store.capabilities
        if limits.max_value_bytes is None or limits.max_value_bytes < SHORTEST_LIMIT:
            raise Unsupported(f"longvalues stands only over a store with max_value_bytes of {SHORTEST_LIMIT} or more")
        self.inner = store
        self._reader = _LongReader(store)
        self._most = limits.max_value_bytes
        self._piece_bytes = min(self._most, (limits.max_batch_bytes or self._most + FRAME_BYTES) - FRAME_BYTES)
        self._at_once = 1 if limits.max_batch_bytes else min(PIECES_PER_CALL, limits.max_batch or PIECES_PER_CALL)
        self._snapshots = limits.snapshot
        self._sweep_after_seconds = sweep_after_seconds
        self.layout = f"longvalues max_value_bytes={self._most} piece_bytes={self._piece_bytes}"
        self._capabilities = replace(limits, max_value_bytes=None)
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        found = self.inner.read(addresses, deadline=deadline, settle=settle)
        if not _marked(found):
            return found
        if not self._snapshots:
            return self._reader.whole(addresses, found, deadline)
        with self.snapshot() as reader:
            return reader.read(addresses, deadline=deadline, settle=settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        found = self.inner.fetch(table, scopes, keys, deadline=deadline)
        return self.read(addresses(table, scopes, keys), deadline=deadline) if _marked(found) else found

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        if not self._snapshots:
            return self._reader.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        rows = self.inner.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        if not _marked(value for _, value in rows):
            return rows
        with self.snapshot() as reader:
            return reader.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.inner.snapshot())

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        translation = _Translation(self._most, self._piece_bytes)
        wanted = [*map(translation.operation, operations)]
        bulk = [*map(translation.rows, rows)]
        known = self._known(operations, deadline)
        self._write_pieces(translation.pieces, deadline)
        try:
            self._write_rows(operations, wanted, bulk, known, deadline)
        except StoreError as error:
            if error.applied is Applied.NO:
                self._forget([(address.table, pointer) for address, pointer in translation.pointers.items()], deadline)
            raise
        self._clean(operations, translation, known, deadline)

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Also deletes the pieces of the scope's long values that nothing points to.

        Young ones are left alone: their writer may not have come to the pointer yet. A writer that pauses longer than
        `sweep_after_seconds` between the two, on whatever clock, would lose its value: keep it far above any deadline.
        """
        before = int((time.time() - self._sweep_after_seconds) * 1000)
        removed = 0
        old = born_before(self.inner, table, pieces_scope(scope), before, deadline)
        while some := [*islice(old, SWEPT_AT_ONCE)]:
            owners = [owner for _, owner in some if owner is not None]
            found = self.inner.read(owners, deadline=deadline, settle=True)
            used = {pointer.id for stored in found if (pointer := pointer_in(stored))}
            useless = [(table, pointer) for pointer, _ in some if pointer.id not in used]
            self._forget(useless, deadline)
            removed += sum(pointer.count for _, pointer in useless)
        for each in (scope, pieces_scope(scope)):
            removed += swept(self.inner, table, each, deadline=deadline)
        return removed

    def _known(self, operations: Sequence[Operation], deadline: float) -> list[bytes | None]:
        """What is stored where it matters: under unconditional writes, and where a long value is expected."""
        matters = [self._matters(each) for each in operations]
        wanted = [each.address for each, needed in zip(operations, matters, strict=True) if needed]
        found = iter(self.inner.read(wanted, deadline=deadline, settle=any(map(is_conditional, operations))))
        return [next(found) if needed else None for needed in matters]

    def _matters(self, operation: Operation) -> bool:
        if is_conditional(operation):
            return isinstance(operation.expect, bytes) and inline(operation.expect, self._most) is None
        return isinstance(operation, Write)

    def _write_pieces(self, pieces: Sequence[Write], deadline: float) -> None:
        try:
            for start in range(0, len(pieces), self._at_once):
                self.inner.write(pieces[start : start + self._at_once], deadline=deadline)
        except StoreError as error:
            raise error.restated(Applied.NO) from error  # nobody sees pieces without their pointer
        if pieces and time.monotonic() > deadline:
            raise Unavailable("the deadline passed while the pieces of a long value were being written")

    def _write_rows(
        self,
        operations: Sequence[Operation],
        wanted: Sequence[Operation],
        rows: Sequence[Rows],
        known: list[bytes | None],
        deadline: float,
    ) -> None:
        """`known` is brought up to date while others change what the conditions are about."""
        while True:
            expected = [
                self._expectation(each, stored, deadline) for each, stored in zip(operations, known, strict=True)
            ]
            below = [each._replace(expect=expect) for each, expect in zip(wanted, expected, strict=True)]
            try:
                self.inner.write(below, rows=rows, deadline=deadline)
            except Conflict as conflict:
                operation = operations[conflict.index]
                known[conflict.index] = conflict.current
                (current,) = self._reader.whole([operation.address], [conflict.current], deadline)
                if current != (None if operation.expect is ABSENT else operation.expect):
                    raise Conflict(str(conflict), index=conflict.index, current=current) from conflict
            else:
                return
            if time.monotonic() > deadline:
                raise Unavailable("the deadline passed while others were writing the same rows")

    def _expectation(self, operation: Operation, stored: bytes | None, deadline: float) -> Expectation:
        """What must be stored for the caller's condition to hold. A pointer that is nowhere never holds: the store
        below then finds out which condition of the call fails first.
        """
        if not isinstance(operation.expect, bytes):
            return operation.expect
        short = inline(operation.expect, self._most)
        if short is not None:
            return short
        if pointer_in(stored) is not None and stored is not None:
            pieces = contents(operation.address.table, [stored], self._reader._pieces(deadline))
            if pieces == [operation.expect]:
                return stored
        return Pointer(bytes(ID_BYTES), 0).stored()

    def _clean(
        self, operations: Sequence[Operation], new: _Translation, known: Sequence[bytes | None], deadline: float
    ) -> None:
        """Deletes the pieces of what was replaced, and of what lost: a write may have lost by its version."""
        old = {
            each.address: pointer
            for each, stored in zip(operations, known, strict=True)
            if isinstance(each, Write) and (pointer := pointer_in(stored))
        }
        looked_at = [each.address for each in operations if each.address in old or each.address in new.pointers]
        if not looked_at:
            return
        try:
            now = self.inner.read(looked_at, deadline=deadline, settle=True)
        except StoreError:
            return  # the write itself is done; the sweep comes after
        there = {pointer.id for stored in now if (pointer := pointer_in(stored))}
        gone = [*old.items(), *((each, new.pointers[each]) for each in looked_at if each in new.pointers)]
        self._forget([(address.table, pointer) for address, pointer in gone if pointer.id not in there], deadline)

    def _forget(self, pointers: Sequence[tuple[Table, Pointer]], deadline: float) -> None:
        """Deletes pieces that nothing points to. Whatever goes wrong: the sweep comes after."""
        deletes = [Write(address, None, ANY) for table, pointer in pointers for address in pointer.pieces(table)]
        try:
            for start in range(0, len(deletes), self._at_once):
                self.inner.write(deletes[start : start + self._at_once], deadline=deadline)
        except StoreError:
            return
