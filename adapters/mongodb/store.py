"""MongoStore: two collections of rows behind the contract.

Every row is written by itself, as MongoDB's documents are. Rows without conditions are one unordered command; a
condition is a filter on the value. Transactions of a replica set are not used: no server that has them was at hand to
prove it on.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import cast

from pymongo import ASCENDING, DESCENDING
from pymongo.errors import DuplicateKeyError

from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Consistency,
    Durable,
    KeyRange,
    Operation,
    Reader,
    Row,
    Rows,
    Table,
    addresses,
    is_conditional,
)
from adapters.errors import Applied, Conflict, StoreError, Unsupported
from adapters.mongodb import codec
from adapters.mongodb.connection import Connection
from adapters.mongodb.nodes import VALUE_BYTES, Place, parse_place
from adapters.url import StoreUrl

HORIZON_SECONDS = 86_400.0
CAPABILITIES = Capabilities(
    atomicity=Atomicity.ROW,
    compare_and_set=True,
    versioned_writes=True,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.SYNCED,
    shared=True,
    remote=True,
    version_horizon_seconds=HORIZON_SECONDS,
    max_key_bytes=codec.KEY_BYTES,
    max_value_bytes=VALUE_BYTES,
)
PATIENCE_SECONDS = 60.0  # of calls that have no deadline
CHECK_SECONDS = 10.0
LARGEST_BATCH = (1 << 31) - 1
_ONE_BY_ONE_ON_FERRETDB = 10  # rows asked for alone: it reads its whole collection to find several


class MongoStore:
    """Thread-safe; opened once per process, after any fork."""

    LEAVES_BEHIND = True

    def __init__(self, place: Place) -> None:
        self._connection = Connection(place)
        self._one_by_one = _ONE_BY_ONE_ON_FERRETDB if place.one_writer else 1

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def ensure_tables(self) -> None:
        self._connection.create(time.monotonic() + PATIENCE_SECONDS)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        rows = [codec.name(address) for address in addresses]
        with self._connection.collections(deadline) as collections:
            if len(rows) <= self._one_by_one:
                asked = zip(addresses, rows, strict=True)
                return [codec.value_in(collections[each.table.volatile].find_one({"_id": row})) for each, row in asked]
            found: dict[str, bytes | None] = {}
            for volatile, collection in enumerate(collections):
                mine = [row for row, each in zip(rows, addresses, strict=True) if each.table.volatile == volatile]
                for some in codec.queries(mine):
                    documents = collection.find({"_id": {"$in": some}}, batch_size=len(some) + 1).to_list()
                    found.update((each["_id"], codec.value_in(each)) for each in documents)
        return [*map(found.get, rows)]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        within = codec.within(table, scope, keys)
        if within is None or limit <= 0:
            return []
        with self._connection.collections(deadline) as collections:
            found = collections[table.volatile].find(
                {"_id": within, **codec.ALIVE},
                sort=[("_id", DESCENDING if reverse else ASCENDING)],
                limit=limit,
                batch_size=min(limit + 1, LARGEST_BATCH),  # in one answer, and one that says it is the last
            )
            return codec.rows_in(found.to_list(), scope)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if operations and is_conditional(operations[0]):
            self._write_if(operations[0], deadline)
            return
        changes = codec.changes(operations, rows, int(time.time() * 1000))
        if not changes:
            return
        volatile = (operations[0].address.table if operations else rows[0].table).volatile
        try:
            with self._connection.collections(deadline, writing=True) as collections:
                collections[volatile].bulk_write(changes, ordered=False)
        except StoreError as error:
            if len(changes) == 1 or error.applied is Applied.UNKNOWN:
                raise
            raise error.restated(Applied.UNKNOWN) from error  # the driver may have sent several commands

    def _write_if(self, operation: Operation, deadline: float) -> None:
        """The only operation of its call."""
        address = operation.address
        wanted = None if operation.expect is ABSENT else cast(bytes, operation.expect)
        value = wanted if isinstance(operation, Check) else operation.value
        while value == wanted or not self._replaced(address, wanted, value, deadline):
            (current,) = self.read([address], deadline=deadline)
            if current != wanted:
                raise Conflict("operation 0 found another value than expected", index=0, current=current)
            if value == wanted:
                return
            if wanted is None:  # a tombstone, or it has gone meanwhile
                with self._connection.collections(deadline, writing=True) as collections:
                    collections[address.table.volatile].delete_one({"_id": codec.name(address), **codec.DEAD})

    def _replaced(self, address: Address, wanted: bytes | None, value: bytes | None, deadline: float) -> bool:
        """Whether there was what was wanted; then there is the value now."""
        row = codec.name(address)
        with self._connection.collections(deadline, writing=True) as collections:
            collection = collections[address.table.volatile]
            if wanted is None:
                try:
                    collection.insert_one({"_id": row, "r": {"d": value}})
                except DuplicateKeyError:
                    return False
                return True
            there = {"_id": row, "r.d": wanted}
            if value is None:
                return collection.delete_one(there).deleted_count == 1
            return collection.update_one(there, {"$set": {"r.d": value}}).matched_count == 1

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Removes the tombstones that are older than the horizon."""
        oldest = int((time.time() - HORIZON_SECONDS) * 1000)
        old = {"_id": codec.within(table, scope, KeyRange()), "r.t": {"$lt": oldest}}
        with self._connection.collections(deadline, writing=True) as collections:
            return collections[table.volatile].delete_many(old).deleted_count

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("mongodb: its snapshots are not used")

    def drop_tables(self) -> None:
        self._connection.drop(time.monotonic() + PATIENCE_SECONDS)

    def check(self) -> None:
        with self._connection.collections(time.monotonic() + CHECK_SECONDS) as (rows, _):
            rows.find_one({"_id": ""})

    def close(self) -> None:
        self._connection.close()


def open_url(url: StoreUrl) -> MongoStore:
    """`mongodb:HOST:PORT,HOST:PORT/DATABASE?user=NAME&password_file=PATH|password=TEXT&replica_set=NAME&
    tls=off|on|verify&tls_ca=PATH&one_writer=no|yes`. The hosts are one replica set's, or one cluster's
    routers.
    """
    return MongoStore(parse_place(url))
