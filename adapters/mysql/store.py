"""MySqlStore: one table of rows behind the contract.

A write call is one transaction in two round trips: statements that fail when an expectation does not hold and the
changes, then COMMIT unless one of them has failed; where the server runs nothing after a failure (no Galera), short
ones are one round trip. A call that is one statement commits itself. Failed expectations,
deadlocks and lost certification end in a rollback and a look at the rows: if one is not as expected, that is the
Conflict, else the transaction begins again.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from zlib import crc32

import pymysql

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
    Write,
    addresses,
    is_conditional,
)
from adapters.errors import Applied, StoreError, Unavailable, Unsupported
from adapters.mysql import codec
from adapters.mysql.codec import Batch, Place
from adapters.mysql.connection import Mode, Servers, Session, answer_by
from adapters.mysql.errors import ROLLED_BACK, UNMET, is_certain, number, translated
from adapters.mysql.nodes import LONGEST_PACKET_BYTES, parse_place, value_bytes
from adapters.mysql.nodes import Place as Where
from adapters.url import StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.BATCH,
    compare_and_set=True,
    versioned_writes=False,
    ordered=True,
    reverse_scan=True,
    snapshot=True,
    consistency=Consistency.STRONG,
    durable=Durable.SYNCED,  # as servers are set unless told otherwise; an open store states its own
    shared=True,
    remote=True,
    max_key_bytes=codec.KEY_BYTES,
    max_value_bytes=value_bytes(LONGEST_PACKET_BYTES),  # as above
)
PATIENCE_SECONDS = 60.0  # of calls that have no deadline
CHECK_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.1


class _SessionReads:
    """Reads in one session, `alone`: outside a transaction."""

    def __init__(self, session: Session, *, alone: bool) -> None:
        self._session = session
        self._alone = alone

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        places = [(table._value_[0], scope + key) for table, scope, _, key in addresses]
        if len(places) <= 1:
            return [self._value(place, deadline) for place in places]
        statements = codec.selections(places)
        answers = self._session.ask(codec.one_view(statements) if self._alone else statements, deadline)
        return [*map(codec.found_rows(answers).get, places)]

    def _value(self, place: Place, deadline: float) -> bytes | None:
        (rows,) = self._session.ask([codec.lookup(place)], deadline)
        return rows[0][0] if rows else None

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        statement = codec.range_selection(table, scope, keys, limit, reverse)
        if statement is None:
            return []
        (rows,) = self._session.ask([statement], deadline)
        cut = len(scope)
        return [(key[cut:], value) for key, value in rows]


@contextmanager
def _snapshot(servers: Servers, mine: threading.local) -> Iterator[Reader]:
    """A transaction that only reads, in a session of its own. `mine` counts those of each thread."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with servers.session(servers.nearest, deadline) as session:
        session.ask(codec.BEGIN_SNAPSHOT, deadline)
        mine.snapshots = getattr(mine, "snapshots", 0) + 1
        try:
            yield _SessionReads(session, alone=False)
        finally:
            mine.snapshots -= 1
            if session.intact:
                with suppress(StoreError):  # what was read is right all the same
                    session.ask([codec.COMMIT], time.monotonic() + PATIENCE_SECONDS)


class MySqlStore:
    """Thread-safe; opened once per process, after any fork."""

    def __init__(self, where: Where) -> None:
        self._engine = where.engine
        self._servers = Servers(where)
        found = self._servers.facts
        self._certified = found.galera
        self._mine = threading.local()
        self._capabilities = replace(
            CAPABILITIES,
            # NDB reads each row as it is committed when its turn comes: no view holds over several.
            atomicity=Atomicity.ROW if where.engine == "ndbcluster" else Atomicity.BATCH,
            snapshot=where.engine != "ndbcluster",
            durable=found.durable(where.engine),
            max_value_bytes=value_bytes(found.max_packet_bytes),
            max_batch_bytes=found.max_transaction_bytes,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def ensure_tables(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._servers.session(self._servers.nearest, deadline) as session:
            if not self._tables_fit(session, deadline):
                session.ask(codec.creation(self._engine), deadline)
                self._tables_fit(session, deadline)

    def _tables_fit(self, session: Session, deadline: float) -> bool:
        """Whether all is there. Raises Unsupported for a table of another engine or with other keys."""
        (tables,) = session.ask([codec.LAYOUT], deadline)
        for table, engine, kind in tables:
            if table == "pbserver_rows" and (engine.lower(), kind.lower()) != (self._engine, codec.KEY_TYPE):
                raise Unsupported(
                    f"mysql {session.where}: table {table} has engine {engine} and keys {kind}, where "
                    f"{self._engine} and {codec.KEY_TYPE} are needed; name another database, or the engine it has"
                )
        if len(tables) < codec.TABLES:
            return False
        ((guards,),) = session.ask([codec.COUNT_GUARDS], deadline)
        return bool(guards == (codec.GUARDS,))

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        node = _node_for(addresses[0].scope) if addresses else self._servers.nearest
        with self._servers.session(node, deadline) as session:
            return _SessionReads(session, alone=True).read(addresses, deadline=deadline)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        with self._servers.session(_node_for(scope), deadline) as session:
            return _SessionReads(session, alone=True).scan(
                table, scope, keys, limit=limit, reverse=reverse, deadline=deadline
            )

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if not operations and not rows:
            return
        if getattr(self._mine, "snapshots", 0):
            raise Unsupported("a thread does not write inside its own snapshot: leave the snapshot first")
        batch = codec.sorted_out(operations, rows, certified=self._certified)
        node = _node_for(_leading_scope(operations, rows))
        pause = FIRST_PAUSE_SECONDS
        while True:
            if self._attempt(node, batch, deadline):
                return
            with self._servers.session(node, deadline) as session:
                batch.check_all(codec.found_rows(session.ask(codec.selections(batch.places), deadline)))
            if time.monotonic() + pause >= deadline:
                raise Unavailable(f"mysql {session.where}: others held the rows' locks until the deadline")
            time.sleep(random.uniform(0, pause))  # noqa: S311 - a back-off, not a secret
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def snapshot(self) -> AbstractContextManager[Reader]:
        if not self._capabilities.snapshot:
            raise Unsupported("mysql: ndbcluster has no snapshots")
        return _snapshot(self._servers, self._mine)

    def drop_tables(self) -> None:
        while True:
            deadline = time.monotonic() + PATIENCE_SECONDS
            with self._servers.session(self._servers.nearest, deadline) as session:
                try:
                    *_, left = session.run([codec.DELETE_SOME, codec.CHECK], deadline)
                except pymysql.MySQLError as error:
                    if number(error) not in ROLLED_BACK:
                        raise translated(error, session.where, Applied.UNKNOWN) from error
                else:
                    if not left:
                        return

    def check(self) -> None:
        deadline = time.monotonic() + CHECK_SECONDS
        with self._servers.session(self._servers.nearest, deadline) as session:
            session.ask([codec.CHECK], deadline)

    def close(self) -> None:
        self._servers.close()

    def _attempt(self, node: int, batch: Batch, deadline: float) -> bool:
        """Whether it is committed; else it is rolled back, and worth another try if all is as expected."""
        statements = batch.statements(certified=self._certified)
        with self._servers.session(node, deadline, Mode.READING if len(statements) == 1 else Mode.WRITING) as session:
            applied = Applied.NO
            try:
                if len(statements) == 1:
                    applied = Applied.UNKNOWN
                    session.run(statements, deadline)
                elif statements and not self._certified and batch.size_bytes <= codec.STATEMENT_BYTES:
                    applied = Applied.UNKNOWN
                    session.run_until_failure([*statements, codec.COMMIT], deadline)
                elif statements:
                    session.run(statements, answer_by(deadline))
                    applied = Applied.UNKNOWN
                    session.run([codec.COMMIT], deadline)
            except pymysql.MySQLError as error:
                if number(error) in (*ROLLED_BACK, *UNMET):
                    _roll_back(session, deadline)
                    return False
                raise translated(error, session.where, Applied.NO if is_certain(error) else applied) from error
        return True


def _roll_back(session: Session, deadline: float) -> None:
    try:
        session.run([codec.ROLLBACK], answer_by(deadline))
    except pymysql.MySQLError as error:
        # Galera says so again when it had undone the transaction before it was asked to.
        if number(error) not in ROLLED_BACK:
            raise translated(error, session.where) from error


def _node_for(scope: bytes) -> int:
    """Groups keep to one node each: writers of one group on several nodes would undo each other's transactions."""
    return crc32(scope)


def _leading_scope(operations: Sequence[Operation], rows: Sequence[Rows]) -> bytes:
    """The scope of the first row that is contended for."""
    for operation in operations:
        if is_conditional(operation) and isinstance(operation, Write):
            return operation.address.scope
    return operations[0].address.scope if operations else rows[0].scope


def open_url(url: StoreUrl) -> MySqlStore:
    """`mysql:HOST:PORT,HOST:PORT/DATABASE?user=pbserver&password_file=PATH|password=TEXT&engine=innodb|ndbcluster&
    tls=off|on|verify&tls_ca=PATH`. Several hosts are nodes of one cluster.
    """
    return MySqlStore(parse_place(url))
