"""Sessions with the nodes."""

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from typing import Any

import pymysql
from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS

from adapters.errors import StoreError
from adapters.hosts import Host
from adapters.mysql.codec import Statement
from adapters.mysql.errors import BAD_NODE, LOST, cause, number, translated
from adapters.mysql.nodes import QUESTIONS, Facts, Place, check_fit, facts
from adapters.pool import CONNECT_SECONDS, Pool

LOCK_WAIT_SECONDS = 5  # then a transaction lets go of its locks and begins again
ANSWER_SECONDS = 10.0  # longer than lock waits, and than Galera needs to do without a node; then another one is asked

Found = Sequence[tuple[Any, ...]]

_SETTINGS = (
    Statement(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', foreign_key_checks = 1,"
        f" innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}"
    ),
    Statement("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
)


class Mode(Enum):
    """How a session is set, for good: setting it anew would cost every write and every read a statement."""

    READING = auto()  #: each statement commits itself; it sees what any node has committed
    WRITING = auto()  #: statements wait for COMMIT; what they see may be late on Galera, which certification finds


#: Without wsrep_sync_wait 29 of 300 reads on another node than the write were stale.
_GALERA_MODES = {
    Mode.READING: Statement("SET SESSION autocommit = 1, SESSION wsrep_sync_wait = 1"),
    Mode.WRITING: Statement("SET SESSION autocommit = 0, SESSION wsrep_sync_wait = 0"),
}
_MODES = {
    Mode.READING: Statement("SET SESSION autocommit = 1"),
    Mode.WRITING: Statement("SET SESSION autocommit = 0"),
}


class Session(Connection):
    """One connection, used by one thread at a time."""

    server_status: int  # these are the driver's
    _sock: socket.socket
    _result: MySQLResult | None
    _write_bytes: Callable[[bytes], None]

    def __init__(self, place: Place, host: Host, mode: Mode, timeout: float) -> None:
        self.node = host
        self.kind: Mode = mode
        self.where = f"{host}/{place.database}"
        self.intact = False  #: whether all that was last asked has succeeded
        self.failure: int | None = None  #: the number of the last error
        super().__init__(
            host=host.name,
            port=host.port,
            user=place.user,
            password=place.password,
            database=place.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=timeout,
            read_timeout=timeout,
            write_timeout=timeout,
            ssl=place.tls,
            ssl_disabled=place.tls is None,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )
        self._binding = self.cursor()  # of values to statements

    def run(self, statements: Sequence[Statement], deadline: float) -> list[Found]:
        """Sends them together: one round trip. The rows of each.

        All of them are run, whatever becomes of the others; then the first error is raised, as the driver has it. So
        what must not be done alone is not sent with what commits it.
        """
        with self._asking(deadline):
            failure: pymysql.MySQLError | None = None
            results: list[Found] = []
            self._write_bytes(b"".join(_packet(self._text(statement)) for statement in statements))
            for _ in statements:
                self._next_seq_id = 1  # each answers a packet of its own
                try:
                    results.append(self._answer())
                except pymysql.MySQLError as error:
                    failure = failure or error
                    if not self.open or number(error) in LOST:
                        raise
            if failure is not None:
                raise failure
            return results

    def run_until_failure(self, statements: Sequence[Statement], deadline: float) -> None:
        """Sends them as one text: those after the first that fails are not run, so COMMIT may be among them. They are
        one packet, so they have to be short.

        Not for Galera, which may undo a transaction between two of them without a word, and the rest commits: with a
        rival on another node, 4 of 9,912 left half a transaction behind on MariaDB 10.11.
        """
        with self._asking(deadline):
            self._write_bytes(_packet(b";".join(map(self._text, statements))))
            self._next_seq_id = 1
            for _ in statements:
                self._answer()

    @contextmanager
    def _asking(self, deadline: float) -> Iterator[None]:
        """Notes what becomes of what is asked within the block."""
        self._read_timeout = self._write_timeout = _seconds_until(deadline)
        self.intact = False
        try:
            yield
        except pymysql.MySQLError as error:
            self.failure = number(error)
            raise
        self.intact = True

    def _text(self, statement: Statement) -> bytes:
        return self._binding.mogrify(statement.text, statement.values).encode()

    def _answer(self) -> Found:
        self.next_result()
        assert self._result is not None
        return self._result.rows or ()

    def ask(self, statements: Sequence[Statement], deadline: float) -> list[Found]:
        """The same for statements that commit nothing of value, its errors translated."""
        try:
            return self.run(statements, answer_by(deadline))
        except pymysql.MySQLError as error:
            raise translated(error, self.where) from error

    @property
    def trouble(self) -> str:
        return cause(self.failure) if self.failure in BAD_NODE else ""

    @property
    def is_reusable(self) -> bool:
        return self.intact and not self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS

    @property
    def is_stale(self) -> bool:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def abandon(self) -> None:
        """Closes it if it is still open; a transaction under way is rolled back by the server."""
        if self.open:
            self.close()


def _packet(sql: bytes) -> bytes:
    return (len(sql) + 1).to_bytes(3, "little") + b"\x00" + bytes([COMMAND.COM_QUERY]) + sql


def answer_by(deadline: float) -> float:
    """When to give up what can be asked again elsewhere."""
    return min(deadline, time.monotonic() + ANSWER_SECONDS)


def _seconds_until(deadline: float) -> float:
    """As a socket takes it."""
    return min(max(deadline - time.monotonic(), 0.001), 3600.0)


class Servers:
    """Every node, numbered alike in all PBServers; those that are reached must fit the first. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Raises Unavailable when no node can be reached."""
        hosts = sorted(place.hosts)
        self.nearest = hosts.index(place.hosts[0])  #: the number of the host given first
        self._place = place
        self._known: Facts | None = None
        self._pool = Pool(f"mysql {place.database}", hosts, self._connected)
        with self.session(self.nearest, time.monotonic() + CONNECT_SECONDS * (len(hosts) + 1)):
            pass

    @property
    def facts(self) -> Facts:
        """What the node first reached says of itself."""
        assert self._known is not None
        return self._known

    def session(self, preferred: int, deadline: float, mode: Mode = Mode.READING) -> AbstractContextManager[Session]:
        """Lends a session with node number `preferred` (modulo their number), or with the next that answers.

        Raises Unavailable with each node's cause when none does, Unsupported for a node that does not fit the store.
        """
        return self._pool.session(deadline, kind=mode, first=preferred)

    def close(self) -> None:
        self._pool.close()

    def _connected(self, host: Host, mode: Mode, deadline: float) -> Session:
        session = None
        try:
            session = Session(self._place, host, mode, _seconds_until(deadline))
            self._begin(session, deadline)
        except pymysql.MySQLError as error:
            if session is not None:
                session.abandon()
            raise translated(error, f"{host}/{self._place.database}") from error
        except StoreError:
            if session is not None:
                session.abandon()
            raise
        return session

    def _begin(self, session: Session, deadline: float) -> None:
        answers = session.run([*_SETTINGS, *QUESTIONS], deadline)
        found = facts({name: value for rows in answers for name, value in rows})
        check_fit(found, self._known, self._place, session.node)
        session.run([(_GALERA_MODES if found.galera else _MODES)[session.kind]], deadline)
        if self._known is None:
            self._known = found
