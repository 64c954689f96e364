"""A way to ZooKeeper that can be cut at the worst moment: around one `set`, whose answer nobody gets to know."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

SET_DATA = 5  # ZooKeeper's number for a versioned set


class Proxy:
    """Hands on frames between clients and a server, HOST:PORT.

    `lose_request` and `lose_answer`, each for the next `set` only: what others do meanwhile, before the connection is
    cut, without the request having reached the server or with its answer held back.
    """

    def __init__(self, server: str) -> None:
        host, _, port = server.partition(":")
        self._server = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.where = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.lose_request: list[Callable[[], object]] = []
        self.lose_answer: list[Callable[[], object]] = []
        self.refusing = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.refusing = True
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections there are."""
        for each in list(self._open):
            _end(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                _Connection(self, client, socket.create_connection(self._server))

    def keep(self, *sockets: socket.socket) -> None:
        self._open.update(sockets)


class _Connection:
    """One client's connection, and the number of the request whose answer is to be lost."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._lost: int | None = None
        self._meanwhile: Callable[[], object] | None = None
        proxy.keep(client, server)
        for hand_on in (self._requests, self._answers):
            threading.Thread(target=self._until_the_end, args=(hand_on,), daemon=True).start()

    def _until_the_end(self, hand_on: Callable[[], None]) -> None:
        with suppress(OSError):
            hand_on()
        _end(self._client)
        _end(self._server)

    def _requests(self) -> None:
        self._server.sendall(_frame(self._client))  # the greeting has no number
        while True:
            frame = _frame(self._client)
            number, kind = struct.unpack_from(">ii", frame, 4)
            if kind == SET_DATA and self._proxy.lose_request:
                self._proxy.lose_request.pop()()
                return
            if kind == SET_DATA and self._proxy.lose_answer:
                self._lost, self._meanwhile = number, self._proxy.lose_answer.pop()
            self._server.sendall(frame)

    def _answers(self) -> None:
        self._client.sendall(_frame(self._server))
        while True:
            frame = _frame(self._server)
            if self._meanwhile and struct.unpack_from(">i", frame, 4)[0] == self._lost:
                self._meanwhile()
                return
            self._client.sendall(frame)


def _frame(sock: socket.socket) -> bytes:
    head = _exactly(sock, 4)
    return head + _exactly(sock, struct.unpack(">i", head)[0])


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = sock.recv(size - len(data))
        if not some:
            raise ConnectionError
        data += some
    return data


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
