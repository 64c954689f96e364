"""HBaseStore: one table of HBase's behind the contract.

A row of HBase is what it changes as one, so a call is applied row by row: a condition by checkAndPut, everything else
by one request for all puts and one for all deletes. Reads are one request, scans one for each page.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Lock
from typing import Any

from adapters.contract import (
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
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported
from adapters.hbase import codec
from adapters.hbase.connection import LOOK_SECONDS, Servers
from adapters.hbase.nodes import HORIZON_SECONDS, Facts, Place, facts, parse_place, table_creation
from adapters.url import StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.ROW,
    compare_and_set=True,
    versioned_writes=True,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.REPLICATED,  # as HDFS comes; a table that exists says more
    shared=True,
    remote=True,
    version_horizon_seconds=HORIZON_SECONDS,
    max_key_bytes=codec.KEY_BYTES,
    max_value_bytes=codec.VALUE_BYTES,
)
CHECK_SECONDS = 10.0
SCHEMA_SECONDS = 60.0  # for what changes tables
GETS_AT_ONCE = 100
_CHECKED = codec.get(codec.row_key(Address(Table.LONGKEYS, b"check", b"", b"")))


class HBaseStore:
    """Thread-safe; opened once per process, after any fork."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._servers = Servers(place)
        self._schema_lock = Lock()
        self._has_table = False
        self._capabilities = CAPABILITIES
        try:
            deadline = time.monotonic() + CHECK_SECONDS
            if self._servers.ask("tableExists", place.table_name, deadline=deadline):
                self._look(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def ensure_tables(self) -> None:
        with self._schema_lock:
            if self._has_table:
                return
            deadline = time.monotonic() + SCHEMA_SECONDS
            if not self._exists(deadline):
                try:
                    creation = table_creation(self._place)
                    self._servers.ask("createTable", *creation, deadline=deadline, wrote=True, seconds=SCHEMA_SECONDS)
                except Unavailable:
                    if not self._exists(deadline):  # another server was faster, and may still be at it
                        raise
            if self._is("Disabled", deadline):  # by a drop that was broken off
                self._order("enableTable", self._place.table_name, until="Enabled", deadline=deadline)
            while not self._is("Enabled", deadline):
                time.sleep(LOOK_SECONDS)
            self._look(deadline)
            self._has_table = True

    def _exists(self, deadline: float) -> bool:
        exists: bool = self._servers.ask("tableExists", self._place.table_name, deadline=deadline)
        return exists

    def _order(self, method: str, *arguments: Any, until: str, deadline: float) -> None:
        """Something the master does. A table that is truncated is missing for a moment."""

        def done() -> bool:
            try:
                return self._is(until, deadline)
            except Unavailable:
                return False

        self._servers.order(method, *arguments, done=done, deadline=deadline)

    def _is(self, state: str, deadline: float) -> bool:
        found: bool = self._servers.ask(f"isTable{state}", self._place.table_name, deadline=deadline)
        return found

    def _look(self, deadline: float) -> None:
        descriptor = self._servers.ask("getTableDescriptor", self._place.table_name, deadline=deadline)
        regions = self._servers.ask("getAllRegionLocations", self._place.table, deadline=deadline)
        servers = {(region.serverName.hostName, region.serverName.port) for region in regions}
        found: Facts = facts(descriptor, servers, self._place.where)
        self._capabilities = replace(CAPABILITIES, durable=found.durable, version_horizon_seconds=found.horizon_seconds)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        """A region has one server, so every read sees all that was written before; there is nothing to settle."""
        return [codec.value_of(result) for result in self._results(list(map(codec.row_key, addresses)), deadline)]

    def _results(self, rows: Sequence[bytes], deadline: float) -> list[Any]:
        results: list[Any] = []
        for start in range(0, len(rows), GETS_AT_ONCE):
            gets = [codec.get(row) for row in rows[start : start + GETS_AT_ONCE]]
            results += self._servers.ask("getMultiple", self._place.table, gets, deadline=deadline)
        return results

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        found: list[Row] = []
        span = codec.span(table, scope, keys, reverse=reverse)
        at_once = codec.rows_at_first(table)
        while len(found) < limit and span.start < span.stop:
            request, asked = span.request(min(limit - len(found), at_once))
            results = self._servers.ask("getScannerResults", self._place.table, request, asked, deadline=deadline)
            found += span.rows_of(results)
            if len(results) < asked:
                break
            span = span.after(results[-1].row)
            at_once = codec.rows_at_once(results)
        return found[:limit]

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if operations and is_conditional(operations[0]):
            self._write_if(operations[0], deadline)
            return
        plan = codec.planned(operations, rows)
        if plan.removed:
            plan.remove(self._results([codec.row_key(write.address) for write in plan.removed], deadline))
        sent = 0
        for method, requests in (("putMultiple", plan.puts), ("deleteMultiple", plan.deletes)):
            for part in codec.parts(requests):
                try:
                    self._servers.ask(method, self._place.table, part, deadline=deadline, wrote=True)
                except StoreError as error:
                    if sent and error.applied is Applied.NO:
                        raise error.restated(Applied.UNKNOWN) from error
                    raise
                sent += 1

    def _write_if(self, operation: Operation, deadline: float) -> None:
        """Tried again when it has failed, but what it expects is there when that is looked at."""
        row, wanted = codec.row_key(operation.address), codec.wanted(operation)
        mark = codec.new_mark()
        while True:
            if not isinstance(operation, Check):
                put = codec.unversioned(operation.address, operation.value or b"", mark)
                condition = (row, codec.CELLS, codec.UNVERSIONED, wanted)
                if self._servers.ask("checkAndPut", self._place.table, *condition, put, deadline=deadline, wrote=True):
                    return
            (found,) = self._servers.ask("getMultiple", self._place.table, [codec.get(row, mark)], deadline=deadline)
            current = codec.value_of(found)
            if codec.has_mark(found):
                return
            if current != wanted:
                raise Conflict("operation 0 found another value than expected", index=0, current=current)
            if isinstance(operation, Check):
                return

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("hbase has no snapshots")

    def drop_tables(self) -> None:
        """Takes seconds: the table is closed and made anew. Other servers' calls wait for it."""
        deadline = time.monotonic() + SCHEMA_SECONDS
        name = self._place.table_name
        with self._schema_lock:
            if not self._is("Disabled", deadline):
                self._order("disableTable", name, until="Disabled", deadline=deadline)
            self._order("truncateTable", name, True, until="Enabled", deadline=deadline)

    def check(self) -> None:
        self._servers.ask("getMultiple", self._place.table, [_CHECKED], deadline=time.monotonic() + CHECK_SECONDS)

    def close(self) -> None:
        self._servers.close()


def open_url(url: StoreUrl) -> HBaseStore:
    """`hbase:HOST:PORT,HOST:PORT/TABLE?transport=buffered|framed`. The hosts are Thrift2 servers of one cluster."""
    return HBaseStore(parse_place(url))
