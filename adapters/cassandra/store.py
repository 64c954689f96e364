"""CassandraStore: one table of rows behind the contract.

A call's conditions, and what is written beside them, are one conditional batch; once it is won, everything else of the
call follows, one batch for each partition, all at once. A read is one query for all scopes that are asked for the same
keys; what is asked of one scope is always in one query, so it is seen in one state.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from threading import Lock

from adapters.cassandra import codec
from adapters.cassandra.codec import Lookup, Plan, Scope, Statement
from adapters.cassandra.connection import Answer, Connection, Kind, Request, outlasting
from adapters.cassandra.nodes import OVERHEAD_BYTES, Place, parse_place
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
    addresses,
)
from adapters.errors import Applied, StoreError, Unavailable, Unsupported
from adapters.url import StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.SCOPE,
    compare_and_set=True,
    versioned_writes=True,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.REPLICATED,  # as nodes are set unless told otherwise; an open store states its own
    shared=True,
    remote=True,
    version_horizon_seconds=codec.GC_GRACE_SECONDS,
    max_key_bytes=codec.KEY_BYTES,
    max_value_bytes=8_347_648,  # as above
)
CHECK_SECONDS = 10.0
OPEN_SECONDS = 60.0  # for tables that several servers create at once, on nodes that have just been started
PATIENCE_SECONDS = 60.0  # of calls that have no deadline
TURNS = 1024
_CHECKED = Lookup(Table.LONGKEYS, [b"check"], [b""])


class CassandraStore:
    """Thread-safe; opened once per process, after any fork."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._buckets = range(place.buckets)
        self._connection = Connection(place)
        self._turns = [Lock() for _ in range(TURNS)]
        found = self._connection.facts
        self._most = found.max_mutation_bytes - OVERHEAD_BYTES
        self._capabilities = replace(CAPABILITIES, durable=found.durable, max_value_bytes=found.max_value_bytes)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def ensure_tables(self) -> None:
        deadline = time.monotonic() + OPEN_SECONDS
        self._connection.create_tables(deadline)
        buckets = outlasting(self._recorded_buckets, deadline)
        if buckets != self._place.buckets:
            raise Unsupported(
                f"{self._connection.where}: the rows there are spread over {buckets} buckets, not over "
                f"{self._place.buckets}; give buckets={buckets}"
            )

    def _recorded_buckets(self) -> int:
        """What was recorded first; by this call, where nothing was."""
        deadline = time.monotonic() + CHECK_SECONDS
        found = self._connection.ask(Request(Kind.READ, [Statement(codec.BUCKETS)]), deadline).rows
        if not found:
            record = Statement(codec.RECORD_BUCKETS, [self._place.buckets])
            self._connection.ask(Request(Kind.PAXOS, [record]), deadline)
            found = self._connection.ask(Request(Kind.SETTLED_READ, [Statement(codec.BUCKETS)]), deadline).rows
        buckets: int = found[0][0]
        return buckets

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        lookups = codec.lookups(addresses, 1) if settle else codec.lookups(addresses)
        asked = [(each.table, request) for each in lookups for request in self._requests(each, settle)]
        found: dict[tuple[Table, bytes, bytes], bytes] = {}
        answers = self._connection.run([request for _, request in asked], deadline)
        for (table, _), answer in zip(asked, answers, strict=True):
            codec.add_found(found, table, answer.rows)
        return [found.get((table, scope, key)) for table, scope, _, key in addresses]

    def _requests(self, lookup: Lookup, settle: bool) -> Iterator[Request]:
        """To settle is to ask one partition at a time, and only where there may be conditions: bucket 0."""
        if not settle:
            yield Request(Kind.READ, [lookup.values(self._buckets)])
            return
        yield Request(Kind.SETTLED_READ, [lookup.values(self._buckets[:1])])
        if lookup.table in codec.SPREAD and len(self._buckets) > 1:
            yield Request(Kind.READ, [lookup.values(self._buckets[1:])])

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        if table in codec.SPREAD:
            return self._scan_buckets(table, scope, keys, limit, reverse, deadline)
        if _is_empty(keys, limit):
            return []
        statement = codec.range_of_scope(table, scope, keys, limit, reverse)
        rows = self._connection.ask(Request(Kind.READ, [statement]), deadline).rows
        return [(key, versioned if unversioned is None else unversioned) for key, unversioned, versioned in rows]

    def _scan_buckets(
        self, table: Table, scope: bytes, keys: KeyRange, limit: int, reverse: bool, deadline: float
    ) -> list[Row]:
        rows: list[Row] = []
        buckets = self._place.buckets
        while not _is_empty(keys, limit - len(rows)):
            each = codec.share(limit - len(rows), buckets)
            statement = codec.range_of_buckets(table, scope, keys, each, reverse, buckets)
            found = self._connection.ask(Request(Kind.READ, [statement]), deadline).rows
            complete, end = codec.merged(found, each, reverse)
            rows += complete
            if end is None:
                break
            keys = KeyRange(keys.start, end) if reverse else KeyRange(end + b"\x00", keys.stop)
        return rows[:limit]

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        plan = codec.planned(operations, rows, self._place.buckets)
        for statements in plan.certain.values():
            codec.check_size(statements, self._most)
        if plan.leading is not None:
            scope, statements = plan.leading
            codec.check_size(statements, self._most)
            (answer,) = self._by_paxos({scope: statements}, deadline)
            if not answer.rows[0][0]:
                raise plan.check_found(_met(answer))
        try:
            self._write_rest(plan, deadline)
        except StoreError as error:
            if plan.leading is None or error.applied is Applied.UNKNOWN:
                raise
            raise error.restated(Applied.UNKNOWN) from error

    def _write_rest(self, plan: Plan, deadline: float) -> None:
        """What has no condition; in any order, and each partition as one."""
        if plan.removed:
            lookups = codec.lookups(plan.removed)
            requests = [Request(Kind.READ, [each.ages(self._buckets)]) for each in lookups]
            for lookup, answer in zip(lookups, self._connection.run(requests, deadline), strict=True):
                plan.remove(lookup, answer.rows)
        versioned = [
            Request(Kind.WRITE, part)
            for statements in plan.versioned.values()
            for part in codec.parts(statements, min(codec.PART_BYTES, self._most))
        ]
        certain = {scope: codec.without_condition(statements) for scope, statements in plan.certain.items()}
        try:
            if certain and not all(answer.rows[0][0] for answer in self._by_paxos(certain, deadline)):
                raise codec.cannot_be(self._connection.where)
            self._connection.run(versioned, deadline)
        except StoreError as error:
            if len(versioned) + len(certain) == 1 or error.applied is Applied.UNKNOWN:
                raise
            raise error.restated(Applied.UNKNOWN) from error

    def _by_paxos(self, batches: Mapping[Scope, Sequence[Statement]], deadline: float) -> list[Answer]:
        requests = [Request(Kind.PAXOS, statements) for statements in batches.values()]
        with self._turn(batches, deadline):
            return self._connection.run(requests, deadline)

    @contextmanager
    def _turn(self, scopes: Mapping[Scope, object], deadline: float) -> Iterator[None]:
        """Threads that change one scope wait here for each other: rounds of Paxos that meet undo one another."""
        with ExitStack() as held:
            for number in sorted({hash(scope) % TURNS for scope in scopes}):
                lock = self._turns[number]
                if not lock.acquire(timeout=min(max(deadline - time.monotonic(), 0), PATIENCE_SECONDS)):
                    raise Unavailable(
                        f"{self._connection.where}: others wrote rows of the same scope until the deadline"
                    )
                held.callback(lock.release)
            yield

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("cassandra has no snapshots")

    def drop_tables(self) -> None:
        """Every node must be up for it, and is waited for: a minute."""
        self._connection.truncate()

    def check(self) -> None:
        request = Request(Kind.READ, [_CHECKED.values(self._buckets)])
        self._connection.ask(request, time.monotonic() + CHECK_SECONDS)

    def close(self) -> None:
        self._connection.close()


def _is_empty(keys: KeyRange, limit: int) -> bool:
    return limit <= 0 or (keys.stop is not None and keys.start >= keys.stop)


def _met(answer: Answer) -> dict[bytes, bytes | None]:
    """What a batch that was not applied found, by key; absent rows are left out."""
    if "k" not in answer.columns:
        return {}
    key, value = answer.columns.index("k"), answer.columns.index("l")
    return {row[key]: row[value] for row in answer.rows}


def open_url(url: StoreUrl) -> CassandraStore:
    """`cassandra:HOST:PORT,HOST:PORT/KEYSPACE?user=NAME&password_file=PATH|password=TEXT&datacenter=NAME&replication=N&
    buckets=N&consistency=quorum|local_quorum&serial=serial|local_serial`. The hosts are nodes of one cluster.
    """
    return CassandraStore(parse_place(url))
