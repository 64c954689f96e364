"""Connections with the Thrift servers, and the pool they come from."""

import select
import socket
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from thriftpy2.protocol.cybin.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory, TSocket

from adapters.errors import StoreError, Unavailable, Unsupported
from adapters.hbase.codec import wire
from adapters.hbase.errors import TRANSLATED, translated
from adapters.hbase.nodes import Place
from adapters.hosts import Host

CONNECT_SECONDS = 3.0  # a live Thrift server answers within that, whatever becomes of the regions
RETRY_SECONDS = 5.0  # a server that failed is asked again after that
ANSWER_SECONDS = 10.0  # then another one is asked: the server may be frozen, or wait for a region that moves
LOOK_SECONDS = 0.03  # how often what the master does is looked at
IDLE_KEPT = 16  # connections per server; more are opened when more threads ask at once


class Session:
    """One connection, used by one thread at a time."""

    def __init__(self, place: Place, host: Host, deadline: float) -> None:
        """Raises Unavailable, and Unsupported for what is no Thrift2 server."""
        self.where = place.at(host)
        self.intact = False  #: whether it may be asked again
        self.failed = False  #: whether the server is to blame for that
        self._table = place.table
        try:
            self._socket = socket.create_connection(host, _seconds_until(deadline))
        except OSError as error:
            raise translated(error, self.where, place.table) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        factory = TCyFramedTransportFactory() if place.framed else TCyBufferedTransportFactory()
        self._transport = factory.get_transport(TSocket(sock=self._socket))  # type: ignore[no-untyped-call]
        protocol: Any = TCyBinaryProtocol(self._transport)
        self._client = TClient(wire.THBaseService, protocol)

    def check_kind(self, deadline: float) -> None:
        """Asks what a frozen server does not answer, and another one does not know."""
        kind = self.ask("getThriftServerType", deadline=deadline)
        if kind != wire.TThriftServerType.TWO:
            raise Unsupported(f"{self.where}: this is HBase's Thrift1 server; give the port of a Thrift2 server")

    def ask(self, method: str, *arguments: Any, deadline: float, wrote: bool = False) -> Any:
        """The answer. Raises Unavailable, of a write UNKNOWN."""
        answer = self._exchanged(getattr(self._client, method), *arguments, deadline=deadline, wrote=wrote)
        self.intact = True
        return answer

    def order(self, method: str, *arguments: Any, deadline: float) -> None:
        """Sends a request without an answer of interest, and without waiting for it; `receive` gets its errors."""
        names = [name for _, (_, name, *_) in sorted(getattr(wire.THBaseService, method + "_args").thrift_spec.items())]
        given = dict(zip(names, arguments, strict=True))
        self._exchanged(self._client._send, method, **given, deadline=deadline, wrote=True)

    def receive(self, method: str, *, deadline: float) -> None:
        self._exchanged(self._client._recv, method, deadline=deadline, wrote=True)
        self.intact = True

    def _exchanged(self, call: Callable[..., Any], *what: Any, deadline: float, wrote: bool, **named: Any) -> Any:
        self.intact = False
        seconds = _seconds_until(deadline)
        self._socket.settimeout(seconds)
        try:
            return call(*what, **named)
        except TRANSLATED as error:
            self.intact = isinstance(error, wire.TIOError | TApplicationException)
            self.failed = not self.intact and not (isinstance(error, TimeoutError) and seconds < CONNECT_SECONDS)
            raise translated(error, self.where, self._table, wrote=wrote) from error

    @property
    def has_said_something(self) -> bool:
        """Whether there is an answer, or the server has closed it, as it does with idle ones after a minute."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def abandon(self) -> None:
        self._transport.close()


def _seconds_until(deadline: float) -> float:
    """As a socket takes it."""
    return min(max(deadline - time.monotonic(), 0.001), 3600.0)


class _Node:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.idle: list[Session] = []
        self.down_until = 0.0


class Pool:
    """Sessions with every Thrift server; the host given first is asked as long as it answers. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Opens nothing."""
        self._place = place
        self._lock = Lock()
        self._nodes = [_Node(host) for host in place.hosts]
        self._closed = False

    def ask(
        self, method: str, *arguments: Any, deadline: float, wrote: bool = False, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """One call of the service. Raises Unavailable, with applied=UNKNOWN for a write that was sent; with each
        server's cause when none can be reached. Raises Unsupported for what is no Thrift2 server.
        """
        session, node = self._borrowed(deadline)
        try:
            return session.ask(method, *arguments, deadline=min(deadline, time.monotonic() + seconds), wrote=wrote)
        finally:
            self._give_back(session, node)

    def order(self, method: str, *arguments: Any, done: Callable[[], bool], deadline: float) -> None:
        """Asks for what the master does, and returns when `done`; the server itself looks for that ever less often."""
        session, node = self._borrowed(deadline)
        try:
            session.order(method, *arguments, deadline=deadline)
            while not session.has_said_something and time.monotonic() < deadline:
                if done():
                    return
                time.sleep(LOOK_SECONDS)
            session.receive(method, deadline=deadline)
        finally:
            self._give_back(session, node)

    def close(self) -> None:
        """Sessions in use are closed when they are given back."""
        with self._lock:
            self._closed = True
        for node in self._nodes:
            self._drop_idle(node)

    def _borrowed(self, deadline: float) -> tuple[Session, _Node]:
        if self._closed:
            raise Unavailable(f"{self._place.where}: this store is closed")
        now = time.monotonic()
        if now >= deadline:
            raise Unavailable(f"{self._place.where}: the deadline has passed; nothing was asked")
        causes = []
        for node in sorted(self._nodes, key=lambda node: node.down_until > now):
            try:
                return self._idle(node) or self._connected(node, deadline), node
            except Unavailable as error:
                causes.append(error)
        if len(causes) == 1:
            raise causes[0]
        raise Unavailable("no Thrift server can be used: " + "; ".join(map(str, causes)))

    def _idle(self, node: _Node) -> Session | None:
        while True:
            with self._lock:
                session = node.idle.pop() if node.idle else None
            if session is None or not session.has_said_something:
                return session
            session.abandon()

    def _connected(self, node: _Node, deadline: float) -> Session:
        """A server that was down is tried by one thread at a time: others do not wait for it."""
        if node.down_until:
            node.down_until = time.monotonic() + RETRY_SECONDS
        session = None
        try:
            by = min(deadline, time.monotonic() + CONNECT_SECONDS)
            session = Session(self._place, node.host, by)
            session.check_kind(by)
        except StoreError:
            if session is not None:
                session.abandon()
            self._mark_down(node)
            raise
        node.down_until = 0.0
        return session

    def _give_back(self, session: Session, node: _Node) -> None:
        if session.failed:
            self._mark_down(node)
        if session.intact:
            with self._lock:
                if not self._closed and len(node.idle) < IDLE_KEPT:
                    node.idle.append(session)
                    return
        session.abandon()

    def _mark_down(self, node: _Node) -> None:
        node.down_until = time.monotonic() + RETRY_SECONDS
        self._drop_idle(node)

    def _drop_idle(self, node: _Node) -> None:
        with self._lock:
            idle, node.idle = node.idle, []
        for session in idle:
            session.abandon()
