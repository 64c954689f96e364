"""What the server remembers between two calls of one client: open transactions and unfinished queries.

They are rows of the volatile table `sessions`, so that any worker of any node can answer the next call. A handle is
its minute of birth and a random part: `milliseconds since 2020 << 22 | random`; whether it is too old needs no read.
"""

import random
import time

from adapters.contract import ABSENT, Atomicity, KeyRange, OrderedStore, Row, Table, Write
from adapters.errors import Conflict
from pbserver.datastore.scanning import every_row
from pbserver.datastore.tables import (
    meta_address,
    session_address,
    session_key,
    session_minute,
    session_scope,
)

EPOCH_SECONDS = 1_577_836_800  #: 2020-01-01T00:00Z
KEPT_SECONDS = 3600  #: then a handle is forgotten
_SWEPT = "sessions swept to minute"
_PAGE = 500

_random = random.SystemRandom()


def new_handle() -> int:
    """63 bits: positive in every language's signed 64-bit integer."""
    milliseconds = int((time.time() - EPOCH_SECONDS) * 1000)
    return milliseconds << 22 | _random.getrandbits(22)


def age_seconds(handle: int) -> float:
    """How long ago the handle was made; negative for one from the future."""
    return time.time() - EPOCH_SECONDS - (handle >> 22) / 1000


class Sessions:
    """Rows under handles. A `part` is the row's name below its handle; an empty handle has none."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store
        self._versioned = store.capabilities.atomicity is not Atomicity.BATCH

    def create(self, part: bytes, value: bytes, *, deadline: float) -> int:
        """Stores `value` under a fresh handle and returns the handle."""
        while True:
            handle = new_handle()
            try:
                self._store.write([Write(session_address(handle, part), value, ABSENT)], deadline=deadline)
            except Conflict:
                continue
            return handle

    def read(self, handle: int, *parts: bytes, deadline: float) -> list[bytes | None]:
        return self._store.read([session_address(handle, part) for part in parts], deadline=deadline)

    def put(self, handle: int, rows: list[tuple[bytes, bytes]], *, version: int, deadline: float) -> None:
        """Stores rows (part, value) under a handle.

        Where writes may arrive late or twice, one of a higher version is not overwritten.
        """
        given = version if self._versioned else None
        self._store.write(
            [Write(session_address(handle, part), value, version=given) for part, value in rows], deadline=deadline
        )

    def replace(self, handle: int, part: bytes, old: bytes, new: bytes, *, deadline: float) -> bool:
        """Changes a row if it still holds `old`; whether it did."""
        try:
            self._store.write([Write(session_address(handle, part), new, old)], deadline=deadline)
        except Conflict:
            return False
        return True

    def scan(self, handle: int, first: bytes, stop: bytes, *, deadline: float) -> list[Row]:
        """The rows with first <= part < stop, as (part, value), in order of their parts."""
        prefix = session_key(handle)
        keys = KeyRange(prefix + first, prefix + stop)
        rows = every_row(self._store, Table.SESSIONS, session_scope(handle), keys, deadline=deadline)
        return [(key[len(prefix) :], value) for key, value in rows]

    def delete(self, handle: int, parts: list[bytes], *, deadline: float) -> None:
        self._store.write([Write(session_address(handle, part), None) for part in parts], deadline=deadline)

    def sweep(self, *, deadline: float) -> int:
        """Deletes what has outlived KEPT_SECONDS; returns how many rows. One process of a cluster is enough."""
        address = meta_address(_SWEPT)
        oldest_kept = session_minute(new_handle()) - KEPT_SECONDS // 60
        known = self._store.read([address], deadline=deadline)[0]
        first = int(known) if known else oldest_kept
        deleted = sum(self._sweep_minute(minute, deadline) for minute in range(first, oldest_kept))
        if first < oldest_kept or known is None:
            self._store.write([Write(address, b"%d" % max(first, oldest_kept))], deadline=deadline)
        return deleted

    def _sweep_minute(self, minute: int, deadline: float) -> int:
        scope = session_scope(minute * 60_000 << 22)
        deleted = 0
        while rows := self._store.scan(Table.SESSIONS, scope, KeyRange(), limit=_PAGE, deadline=deadline):
            addresses = [session_address(int.from_bytes(key[:8], "big"), key[8:]) for key, _ in rows]
            self._store.write([Write(address, None) for address in addresses], deadline=deadline)
            deleted += len(rows)
        return deleted
