"""Sessions with the nodes of a database, for drivers that have no pool of their own."""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import structlog

from adapters.errors import StoreError, Unavailable
from adapters.hosts import Host

CONNECT_SECONDS = 3.0  # a live node answers within that, whatever it is busy with
RETRY_SECONDS = 5.0  # a node that failed is asked again after that
IDLE_KEPT = 16  # sessions per node and kind; more are opened when more threads ask at once

log = structlog.get_logger()


class Session(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def node(self) -> Host: ...

    @property
    def kind(self) -> Hashable:
        """Sessions of one kind may stand for each other."""

    @property
    def is_reusable(self) -> bool:
        """Whether it may be lent again, after what was last done with it."""

    @property
    def is_stale(self) -> bool:
        """Whether the node has closed it while it was idle, or is about to: it has said something nobody asked for."""

    @property
    def trouble(self) -> str:
        """Why its node is not worth asking for a while; empty: it is."""

    def abandon(self) -> None:
        """Closes it; the node undoes or finishes what was under way."""


S = TypeVar("S", bound=Session)


class _Node(Generic[S]):
    def __init__(self, host: Host) -> None:
        self.host = host
        self.idle: dict[Hashable, list[S]] = {}
        self.down_until = 0.0  #: 0: nothing is known against it


class Pool(Generic[S]):
    """The session last used is used first; a node that failed is asked after all others. Thread-safe."""

    def __init__(self, where: str, hosts: Sequence[Host], connect: Callable[[Host, Any, float], S]) -> None:
        """Opens nothing. `where`: for errors. `connect(host, kind, deadline)` opens a session: it raises Unavailable
        where the node cannot serve now, Unsupported where it never will.
        """
        self._where = where
        self._connect = connect
        self._lock = Lock()
        self._nodes = {host: _Node[S](host) for host in hosts}
        self._closed = False

    @contextmanager
    def session(self, deadline: float, *, kind: Hashable = None, first: int = 0) -> Iterator[S]:
        """Borrows a session and gives it back."""
        session = self.borrow(deadline, kind=kind, first=first)
        try:
            yield session
        finally:
            self.give_back(session)

    def borrow(self, deadline: float, *, kind: Hashable = None, first: int = 0) -> S:
        """A session with node number `first` (modulo their number), or with the next that answers.

        Raises Unavailable with each node's cause when none does, and what `connect` raises beside it.
        """
        if self._closed:
            raise Unavailable(f"{self._where}: this store is closed")
        now = time.monotonic()
        if now >= deadline:
            raise Unavailable(f"{self._where}: the deadline has passed; nothing was asked")
        nodes = [*self._nodes.values()]
        first %= len(nodes)
        causes = []
        for node in sorted(nodes[first:] + nodes[:first], key=lambda node: node.down_until > now):
            try:
                return self._idle(node, kind) or self._connected(node, kind, deadline)
            except Unavailable as error:
                causes.append(error)
        if len(causes) == 1:
            raise causes[0]
        raise Unavailable(f"{self._where}: no node can be used: " + "; ".join(map(str, causes)))

    def give_back(self, session: S) -> None:
        """Every session borrowed comes back, whatever has happened to it."""
        node = self._nodes[session.node]
        if session.trouble:
            self._mark_down(node, session.trouble)
        if session.is_reusable:
            with self._lock:
                idle = node.idle.setdefault(session.kind, [])
                if not self._closed and len(idle) < IDLE_KEPT:
                    idle.append(session)
                    return
        session.abandon()

    def close(self) -> None:
        """Sessions in use are closed when they are given back."""
        with self._lock:
            self._closed = True
        for node in self._nodes.values():
            self._drop_idle(node)

    def _idle(self, node: _Node[S], kind: Hashable) -> S | None:
        while True:
            with self._lock:
                idle = node.idle.get(kind)
                session = idle.pop() if idle else None
            if session is None or not session.is_stale:
                return session
            session.abandon()

    def _connected(self, node: _Node[S], kind: Hashable, deadline: float) -> S:
        """A node that was down is tried by one thread at a time: others do not wait for it."""
        now = time.monotonic()
        if node.down_until:
            node.down_until = now + RETRY_SECONDS
        try:
            session = self._connect(node.host, kind, min(deadline, now + CONNECT_SECONDS))
        except StoreError as error:
            self._mark_down(node, str(error))
            raise
        if node.down_until:
            log.info("a node of the database is used again", store=self._where, node=str(node.host))
        node.down_until = 0.0
        return session

    def _mark_down(self, node: _Node[S], why: str) -> None:
        if not node.down_until:
            log.warning("a node of the database is left alone", store=self._where, node=str(node.host), cause=why)
        node.down_until = time.monotonic() + RETRY_SECONDS
        self._drop_idle(node)

    def _drop_idle(self, node: _Node[S]) -> None:
        with self._lock:
            idle, node.idle = [session for kept in node.idle.values() for session in kept], {}
        for session in idle:
            session.abandon()
