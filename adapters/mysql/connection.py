"""Sessions with the nodes, and the pool they come from."""

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from threading import Lock
from typing import Any

import pymysql
from pymysql.connections import Connection, MySQLResult
from pymysql.constants import COMMAND, SERVER_STATUS

from adapters.errors import StoreError, Unavailable
from adapters.hosts import Host
from adapters.mysql.codec import Statement
from adapters.mysql.errors import BAD_NODE, LOST, number, translated
from adapters.mysql.nodes import QUESTIONS, Facts, Place, check_fit, facts

CONNECT_SECONDS = 3.0  # a live node answers within that, whatever it is busy with
RETRY_SECONDS = 5.0  # a node that failed is asked again after that
LOCK_WAIT_SECONDS = 5  # then a transaction lets go of its locks and begins again
ANSWER_SECONDS = 10.0  # longer than lock waits, and than Galera needs to do without a node; then another one is asked
IDLE_KEPT = 16  # connections per node; more are opened when more threads ask at once

Found = Sequence[tuple[Any, ...]]

_SETTINGS = (
    Statement(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', foreign_key_checks = 1,"
        f" innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}"
    ),
    Statement("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"),
)


class Mode(Enum):
    """How a session is set. Another mode is set only between transactions."""

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

    def __init__(self, place: Place, host: Host, timeout: float) -> None:
        self.node = host
        self.where = f"{host}/{place.database}"
        self.intact = False  #: whether all that was last asked has succeeded
        self.failure: int | None = None  #: the number of the last error
        self._modes = _MODES
        self._mode: Mode | None = None
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
        )

    def run(self, statements: Sequence[Statement], deadline: float, mode: Mode = Mode.READING) -> list[Found]:
        """Sends them together: one round trip. The rows of each.

        All of them are run, whatever becomes of the others; then the first error is raised, as the driver has it. So
        what must not be done alone is not sent with what commits it. (As one text of several statements they would
        end at the first error. But Galera may undo a transaction between two of them without a word, and the rest
        commits: with a rival on another node, 4 of 9,912 left half a transaction behind on MariaDB 10.11.)
        """
        setting = [] if mode is self._mode else [self._modes[mode]]
        self._mode = mode
        self._read_timeout = self._write_timeout = _seconds_until(deadline)
        self.intact = False
        failure: pymysql.MySQLError | None = None
        results: list[Found] = []
        try:
            self._write_bytes(b"".join(map(self._command, [*setting, *statements])))
            for _ in range(len(setting) + len(statements)):
                try:
                    results.append(self._answer())
                except pymysql.MySQLError as error:
                    failure = failure or error
                    if not self.open or number(error) in LOST:
                        raise
        except pymysql.MySQLError as error:
            self.failure = number(error)
            raise
        if failure is not None:
            self.failure = number(failure)
            raise failure
        self.intact = True
        return results[len(setting) :]

    def _command(self, statement: Statement) -> bytes:
        sql = self.cursor().mogrify(statement.text, statement.values).encode()
        return (len(sql) + 1).to_bytes(3, "little") + b"\x00" + bytes([COMMAND.COM_QUERY]) + sql

    def _answer(self) -> Found:
        self._next_seq_id = 1
        self.next_result()
        assert self._result is not None
        return self._result.rows or ()

    def meets_galera(self) -> None:
        """To be called before the first statement that reads or writes rows."""
        self._modes, self._mode = _GALERA_MODES, None

    def ask(self, statements: Sequence[Statement], deadline: float) -> list[Found]:
        """The same for statements that commit nothing of value, its errors translated."""
        try:
            return self.run(statements, answer_by(deadline))
        except pymysql.MySQLError as error:
            raise translated(error, self.where) from error

    @property
    def is_reusable(self) -> bool:
        return self.intact and not self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed an idle connection, or is about to: it has sent something nobody asked for."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def abandon(self) -> None:
        """Closes it if it is still open; a transaction under way is rolled back by the server."""
        if self.open:
            self.close()


def answer_by(deadline: float) -> float:
    """When to give up what can be asked again elsewhere."""
    return min(deadline, time.monotonic() + ANSWER_SECONDS)


def _seconds_until(deadline: float) -> float:
    """As a socket takes it."""
    return min(max(deadline - time.monotonic(), 0.001), 3600.0)


class _Node:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.idle: list[Session] = []
        self.down_until = 0.0


class Pool:
    """Sessions with every node; the one last used is used first. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Raises what `borrow` raises when no node can be reached."""
        self._place = place
        self._lock = Lock()
        self._nodes = {host: _Node(host) for host in sorted(place.hosts)}  # numbered alike in every server
        self.nearest = [*self._nodes].index(place.hosts[0])  #: the number of the host given first
        self._closed = False
        self._known: Facts | None = None
        self.give_back(self.borrow(self.nearest, time.monotonic() + CONNECT_SECONDS * (len(self._nodes) + 1)))

    @property
    def facts(self) -> Facts:
        """What the node first reached says of itself."""
        assert self._known is not None
        return self._known

    def borrow(self, preferred: int, deadline: float) -> Session:
        """A session with node number `preferred` (modulo their number), or with the next that answers.

        Raises Unavailable with each node's cause when none does, Unsupported for a node that does not fit the store.
        """
        if self._closed:
            raise self._unavailable("this store is closed")
        now = time.monotonic()
        if now >= deadline:
            raise self._unavailable("the deadline has passed; nothing was asked")
        nodes = [*self._nodes.values()]
        first = preferred % len(nodes)
        causes = []
        for node in sorted(nodes[first:] + nodes[:first], key=lambda node: node.down_until > now):
            session = self._idle(node)
            try:
                return session or self._connected(node, deadline)
            except Unavailable as error:
                causes.append(error)
        if len(causes) == 1:
            raise causes[0]
        raise self._unavailable("no node can be used: " + "; ".join(map(str, causes)))

    def give_back(self, session: Session) -> None:
        """Every session borrowed comes back, whatever has happened to it."""
        node = self._nodes[session.node]
        if session.failure in BAD_NODE:
            self._mark_down(node)
        if session.is_reusable:
            with self._lock:
                if not self._closed and len(node.idle) < IDLE_KEPT:
                    node.idle.append(session)
                    return
        session.abandon()

    @contextmanager
    def session(self, preferred: int, deadline: float) -> Iterator[Session]:
        """Borrows a session and gives it back."""
        session = self.borrow(preferred, deadline)
        try:
            yield session
        finally:
            self.give_back(session)

    def close(self) -> None:
        """Sessions in use are closed when they are given back."""
        with self._lock:
            self._closed = True
        for node in self._nodes.values():
            self._drop_idle(node)

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"mysql {self._place.database}: {why}")

    def _idle(self, node: _Node) -> Session | None:
        while True:
            with self._lock:
                session = node.idle.pop() if node.idle else None
            if session is None or not session.is_stale:
                return session
            session.abandon()

    def _connected(self, node: _Node, deadline: float) -> Session:
        """Raises Unavailable. A node that was down is tried by one thread at a time: others do not wait for it."""
        timeout = min(CONNECT_SECONDS, _seconds_until(deadline))
        if node.down_until:
            node.down_until = time.monotonic() + RETRY_SECONDS
        session = None
        try:
            session = Session(self._place, node.host, timeout)
            self._begin(session, time.monotonic() + timeout)
        except pymysql.MySQLError as error:
            failure: StoreError = translated(error, f"{node.host}/{self._place.database}")
            failure.__cause__ = error
        except StoreError as error:
            failure = error
        else:
            node.down_until = 0.0
            return session
        if session is not None:
            session.abandon()
        self._mark_down(node)
        raise failure

    def _begin(self, session: Session, deadline: float) -> None:
        answers = session.run([*_SETTINGS, *QUESTIONS], deadline)
        found = facts({name: value for rows in answers for name, value in rows})
        check_fit(found, self._known, self._place, session.node)
        if found.galera:
            session.meets_galera()
        if self._known is None:
            self._known = found

    def _mark_down(self, node: _Node) -> None:
        node.down_until = time.monotonic() + RETRY_SECONDS
        self._drop_idle(node)

    def _drop_idle(self, node: _Node) -> None:
        with self._lock:
            idle, node.idle = node.idle, []
        for session in idle:
            session.abandon()
