"""SplitStore: calls of any size over a store that limits them and writes row by row anyway.

Rows without conditions may be applied in any part and order at atomicity ROW, so a call over the limit becomes several,
one after the other. Above ROW a call is applied as one, or one for each scope, and cannot be taken apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from adapters.contract import (
    Atomicity,
    Capabilities,
    Operation,
    OrderedStore,
    Rows,
    Table,
    Write,
    row_writes,
    swept,
)
from adapters.errors import Applied, StoreError, Unsupported

#: Of a row's scope and key, where the store below limits the bytes of a call and not those.
KEY_BYTES = 1 << 16


def whole(below: Capabilities) -> Capabilities:
    """What a SplitStore claims over a store with such capabilities: a row must fit a call."""
    most = below.max_batch_bytes
    limits = [each for each in (below.max_value_bytes, most and most - (below.max_key_bytes or KEY_BYTES)) if each]
    return replace(below, max_batch=None, max_batch_bytes=None, max_value_bytes=min(limits, default=None))


class SplitStore:
    """A store without a limit on calls."""

    def __init__(self, store: OrderedStore) -> None:
        limits = store.capabilities
        if limits.atomicity is not Atomicity.ROW:
            raise Unsupported("split stands only over a store with atomicity ROW")
        self.inner = store
        self._most_rows = limits.max_batch
        self._most_bytes = limits.max_batch_bytes
        self._capabilities = whole(limits)
        self.read, self.fetch, self.scan, self.snapshot = store.read, store.fetch, store.scan, store.snapshot
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        parts = list(self._parts([*operations, *row_writes(rows)]))
        if len(parts) < 2:
            return self.inner.write(operations, rows=rows, deadline=deadline)
        for number, part in enumerate(parts):
            try:
                self.inner.write(part, deadline=deadline)
            except StoreError as error:
                if number and error.applied is Applied.NO:  # the parts before it were applied
                    raise error.restated(Applied.UNKNOWN) from error
                raise
        return None

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        return swept(self.inner, table, scope, deadline=deadline)

    def _parts(self, operations: Sequence[Operation]) -> Iterator[list[Operation]]:
        part: list[Operation] = []
        size = 0
        for operation in operations:
            more = _size(operation)
            if part and (len(part) == self._most_rows or (self._most_bytes and size + more > self._most_bytes)):
                yield part
                part, size = [], 0
            part.append(operation)
            size += more
        if part:
            yield part


def _size(operation: Operation) -> int:
    _, scope, _, key = operation.address
    value = operation.value if isinstance(operation, Write) else None
    return len(scope) + len(key) + len(value or b"")
