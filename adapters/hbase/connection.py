"""Connections with the Thrift servers."""

import select
import socket
import time
from collections.abc import Callable, Hashable
from typing import Any

from thriftpy2.protocol.cybin.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TClient
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory, TSocket

from adapters.errors import StoreError, Unsupported
from adapters.hbase.codec import wire
from adapters.hbase.errors import TRANSLATED, translated
from adapters.hbase.nodes import Place
from adapters.hosts import Host
from adapters.pool import CONNECT_SECONDS, Pool

ANSWER_SECONDS = 10.0  # then another one is asked: the server may be frozen, or wait for a region that moves
LOOK_SECONDS = 0.03  # how often what the master does is looked at


class Session:
    """One connection, used by one thread at a time."""

    kind: Hashable = None  # all are alike

    def __init__(self, place: Place, host: Host, deadline: float) -> None:
        """Raises Unavailable, and Unsupported for what is no Thrift2 server."""
        self.node = host
        self.where = place.at(host)
        self.is_reusable = False
        self.trouble = ""  #: what the server is to blame for
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
        self.is_reusable = True
        return answer

    def order(self, method: str, *arguments: Any, deadline: float) -> None:
        """Sends a request without an answer of interest, and without waiting for it; `receive` gets its errors."""
        names = [name for _, (_, name, *_) in sorted(getattr(wire.THBaseService, method + "_args").thrift_spec.items())]
        given = dict(zip(names, arguments, strict=True))
        self._exchanged(self._client._send, method, **given, deadline=deadline, wrote=True)

    def receive(self, method: str, *, deadline: float) -> None:
        self._exchanged(self._client._recv, method, deadline=deadline, wrote=True)
        self.is_reusable = True

    def _exchanged(self, call: Callable[..., Any], *what: Any, deadline: float, wrote: bool, **named: Any) -> Any:
        self.is_reusable = False
        seconds = _seconds_until(deadline)
        self._socket.settimeout(seconds)
        try:
            return call(*what, **named)
        except TRANSLATED as error:
            self.is_reusable = isinstance(error, wire.TIOError | TApplicationException)
            failure = translated(error, self.where, self._table, wrote=wrote)
            if not self.is_reusable and not (isinstance(error, TimeoutError) and seconds < CONNECT_SECONDS):
                self.trouble = str(failure)
            raise failure from error

    @property
    def is_stale(self) -> bool:
        """Whether there is an answer, or the server has closed it, as it does with idle ones after a minute."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def abandon(self) -> None:
        self._transport.close()


def _seconds_until(deadline: float) -> float:
    """As a socket takes it."""
    return min(max(deadline - time.monotonic(), 0.001), 3600.0)


class Servers:
    """Every Thrift server; the one given first is asked as long as it answers. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Opens nothing."""
        self._place = place
        self._pool = Pool(place.where, place.hosts, self._connected)

    def ask(
        self, method: str, *arguments: Any, deadline: float, wrote: bool = False, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """One call of the service. Raises Unavailable, with applied=UNKNOWN for a write that was sent; with each
        server's cause when none can be reached. Raises Unsupported for what is no Thrift2 server.
        """
        with self._pool.session(deadline) as session:
            return session.ask(method, *arguments, deadline=min(deadline, time.monotonic() + seconds), wrote=wrote)

    def order(self, method: str, *arguments: Any, done: Callable[[], bool], deadline: float) -> None:
        """Asks for what the master does, and returns when `done`; the server itself looks for that ever less often."""
        with self._pool.session(deadline) as session:
            session.order(method, *arguments, deadline=deadline)
            while not session.is_stale and time.monotonic() < deadline:
                if done():
                    return
                time.sleep(LOOK_SECONDS)
            session.receive(method, deadline=deadline)

    def close(self) -> None:
        self._pool.close()

    def _connected(self, host: Host, kind: None, deadline: float) -> Session:
        del kind
        session = Session(self._place, host, deadline)
        try:
            session.check_kind(deadline)
        except StoreError:
            session.abandon()
            raise
        return session
