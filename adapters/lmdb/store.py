"""LmdbStore: two environments behind the contract.

A row's key is table byte + scope + key. Reads take a transaction of their own, which LMDB gives without a lock;
rows and values are copied out before it ends. The reads rely on CPython ending a transaction with its last reference:
spelling out begin and abort costs as much again as the read.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import lmdb

from adapters.contract import (
    Address,
    Atomicity,
    Capabilities,
    Consistency,
    Durable,
    KeyRange,
    Operation,
    Reader,
    Row,
    Rows,
    Table,
    after_prefix,
)
from adapters.errors import Unsupported
from adapters.lmdb.commits import Committer, Grouping
from adapters.lmdb.connection import Connection, Options, open_volatile
from adapters.lmdb.errors import translated
from adapters.url import StoreUrl

MAX_VALUE_BYTES = 64 << 20  # LMDB takes 4 GiB; nothing here comes near, and one row should not double the map for ever
CAPABILITIES = Capabilities(
    atomicity=Atomicity.BATCH,
    compare_and_set=True,
    versioned_writes=False,
    ordered=True,
    reverse_scan=True,
    snapshot=True,
    consistency=Consistency.STRONG,
    durable=Durable.SYNCED,
    shared=True,
    max_key_bytes=510,  # as LMDB is usually built; an open store states its own
    max_value_bytes=MAX_VALUE_BYTES,
)
FIRST_ROWS = 16  # a scan reads that many rows, then twice as many: it reads at most about twice what it returns
PATIENCE_SECONDS = 60.0  # of calls that have no deadline
_VOLATILE = frozenset(table.value[0] for table in Table if table.volatile)
_FIRST_BYTE = itemgetter(0)

Transaction: TypeAlias = "lmdb.Transaction[bytes]"


class _Snapshot:
    """A transaction per environment, the volatile one's begun when first used."""

    def __init__(self, durable: Connection, volatile: Connection) -> None:
        self._durable = durable
        self._volatile = volatile
        self._open: dict[Connection, Transaction] = {}

    def __enter__(self) -> Reader:
        self._transaction(self._durable)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._open:
            connection, txn = self._open.popitem()
            txn.abort()
            connection.gate.threads.slot.busy -= 1

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        keys = [table._value_ + scope + key for table, scope, _, key in addresses]
        try:
            if _VOLATILE.isdisjoint(map(_FIRST_BYTE, keys)):
                return [*map(self._open[self._durable].get, keys)]
            return [self._transaction(self._connection(key)).get(key) for key in keys]
        except lmdb.Error as error:
            raise translated(error, self._durable.path) from error

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        connection = self._connection(table._value_)
        try:
            return _get_many(self._transaction(connection), _stored_keys(table, scopes, keys))
        except lmdb.Error as error:
            raise translated(error, connection.path) from error

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        prefix = table._value_ + scope
        connection = self._connection(prefix)
        try:
            return _scan(self._transaction(connection), prefix, keys, limit, reverse)
        except lmdb.Error as error:
            raise translated(error, connection.path) from error

    def _connection(self, key: bytes) -> Connection:
        return self._volatile if key[0] in _VOLATILE else self._durable

    def _transaction(self, connection: Connection) -> Transaction:
        txn = self._open.get(connection)
        return txn if txn is not None else self._begin(connection)

    def _begin(self, connection: Connection) -> Transaction:
        deadline = time.monotonic() + PATIENCE_SECONDS
        slot = connection.gate.threads.slot
        while True:
            slot.busy += 1
            try:
                if connection.gate.shut:
                    connection.gate.wait(slot, deadline)
                txn = self._open[connection] = connection.begin()
            except lmdb.Error as error:
                failure = error
            else:
                return txn
            finally:
                if connection not in self._open:
                    slot.busy -= 1
            connection.recover(failure, deadline)


class LmdbStore:
    """Thread-safe; opened once per process and path, after any fork."""

    def __init__(self, path: Path, *, durability: str, grouping: Grouping, map_mib: int) -> None:
        synced = durability != "none"
        self.durable_connection = Connection(path, Options(map_mib=map_mib, synced=synced))
        try:
            self._volatile = open_volatile(path / "volatile", Options(map_mib=map_mib, synced=False, volatile=True))
        except BaseException:
            self.durable_connection.close()
            raise
        self.durable_commits = Committer(self.durable_connection, grouping)
        self.volatile_commits = Committer(self._volatile, Grouping())
        self._capabilities = replace(
            CAPABILITIES,
            durable=Durable.SYNCED if synced else Durable.MEMORY,
            max_key_bytes=self.durable_connection.env.max_key_size() - 1,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def commits(self) -> int:
        """Transactions committed by this process, each synced once; compare with `batches`."""
        return self.durable_commits.commits

    @property
    def batches(self) -> int:
        """Write calls that went into those transactions."""
        return self.durable_commits.batches

    def ensure_tables(self) -> None:
        self.check()

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        keys = [table._value_ + scope + key for table, scope, _, key in addresses]
        connection = self.durable_connection
        if not _VOLATILE.isdisjoint(map(_FIRST_BYTE, keys)):
            if not _VOLATILE.issuperset(map(_FIRST_BYTE, keys)):
                return [self.read([address], deadline=deadline)[0] for address in addresses]
            connection = self._volatile
        gate = connection.gate
        slot = gate.threads.slot
        while True:
            slot.busy += 1
            try:
                if gate.shut:
                    gate.wait(slot, deadline)
                return [*map(connection.begin().get, keys)]
            except lmdb.Error as error:
                failure = error
            finally:
                slot.busy -= 1
            connection.recover(failure, deadline)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        with self.snapshot() as reader:
            return reader.fetch(table, scopes, keys, deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        prefix = table._value_ + scope
        connection = self._volatile if prefix[0] in _VOLATILE else self.durable_connection
        gate = connection.gate
        slot = gate.threads.slot
        while True:
            slot.busy += 1
            try:
                if gate.shut:
                    gate.wait(slot, deadline)
                return _scan(connection.begin(), prefix, keys, limit, reverse)
            except lmdb.Error as error:
                failure = error
            finally:
                slot.busy -= 1
            connection.recover(failure, deadline)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if not operations and not rows:
            return
        if self.durable_connection.gate.threads.slot.busy:
            raise Unsupported("a thread does not write inside its own snapshot: leave the snapshot first")
        table = operations[0][0][0] if operations else rows[0][0]
        volatile = table._value_[0] in _VOLATILE
        (self.volatile_commits if volatile else self.durable_commits).write(operations, rows, deadline)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return _Snapshot(self.durable_connection, self._volatile)

    def drop_tables(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.durable_commits.clear(deadline)
        self.volatile_commits.clear(deadline)

    def check(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.read([Address(table, b"", b"", b"check") for table in (Table.META, Table.SESSIONS)], deadline=deadline)

    def close(self) -> None:
        self.durable_connection.close()
        self._volatile.close()


def _stored_keys(table: Table, scopes: Sequence[bytes], keys: Sequence[bytes]) -> list[bytes]:
    prefix = table._value_
    return [prefix + scope + key for scope, key in zip(scopes, keys, strict=True)]


def _get_many(txn: Transaction, keys: list[bytes]) -> list[bytes | None]:
    """Values in the order of `keys`. One cursor for all: keys that lie close together are found from one another."""
    found = txn.cursor().getmulti(keys)
    if len(found) == len(keys):
        return [value for _, value in found]
    by_key = dict(found)
    return [*map(by_key.get, keys)]


def _scan(txn: Transaction, prefix: bytes, keys: KeyRange, limit: int, reverse: bool) -> list[Row]:
    low = prefix + keys.start
    high = after_prefix(prefix) if keys.stop is None else prefix + keys.stop
    if limit <= 0 or high is None or low >= high:
        return []
    rows = _descending(txn, low, high, limit) if reverse else _ascending(txn, low, high, limit)
    cut = len(prefix)
    return [(key[cut:], value) for key, value in rows]


def _ascending(txn: Transaction, low: bytes, high: bytes, limit: int) -> list[Row]:
    cursor = txn.cursor()
    return _walk(cursor.iternext(), limit, lambda key: key >= high) if cursor.set_range(low) else []


def _descending(txn: Transaction, low: bytes, high: bytes, limit: int) -> list[Row]:
    cursor = txn.cursor()
    found = cursor.prev() if cursor.set_range(high) else cursor.last()
    return _walk(cursor.iterprev(), limit, lambda key: key < low) if found else []


def _walk(source: Iterator[Row], limit: int, past: Callable[[bytes], bool]) -> list[Row]:
    """Up to `limit` rows before the first whose key is `past` the range; `past` is asked once for many rows."""
    wanted = FIRST_ROWS
    rows: list[Row] = []
    while len(rows) < limit:
        before = len(rows)
        rows += islice(source, min(wanted, limit - before))
        if len(rows) == before:
            break
        if past(rows[-1][0]):
            del rows[bisect_left(rows, True, key=lambda row: past(row[0])) :]
            break
        wanted *= 2
    return rows


def open_url(url: StoreUrl) -> LmdbStore:
    """`lmdb:PATH?durability=sync|group|none&group_milliseconds=5&max_group=0&map_mib=256`. PATH is a directory."""
    options = url.options
    durability = options.choice("durability", ("sync", "group", "none"), "sync")
    milliseconds = options.integer("group_milliseconds", 5, 0, 1000)
    max_group = options.integer("max_group", 0, 0, 100_000)
    map_mib = options.integer("map_mib", 256, 1, 16 << 20)
    options.finish()
    if not url.place:
        raise Unsupported("lmdb: no path given; write lmdb:/var/lib/pbserver/data")
    wait_seconds = milliseconds / 1000 if durability == "group" else 0.0
    grouping = Grouping(wait_seconds=wait_seconds, max_group=max_group)
    return LmdbStore(Path(url.place), durability=durability, grouping=grouping, map_mib=map_mib)
