"""One kept-alive connection of a load generator, and the operation under way on it."""

import re
import socket
from typing import NamedTuple

ANSWER_SECONDS = 60.0
_CONNECT_SECONDS = 1.0
_READ_BYTES = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Address(NamedTuple):
    host: str
    port: int


class Failed(Exception):
    """A wrong answer, or none."""


class Broken(Failed):
    """The connection is gone."""


class Line:
    """`number`: among the lines of its generator."""

    __slots__ = ("began", "busy", "chunks", "missing", "number", "size", "sock")

    def __init__(self, number: int, address: Address) -> None:
        self.number = number
        self.open(address)

    def open(self, address: Address) -> None:
        """Connects, also anew. Raises OSError."""
        self.sock = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(None)  # it is read when epoll says so, and requests fit the kernel's buffer
        self.busy = False
        self.began = 0.0  # when the operation was meant to begin
        self.size = 0  # of the operation's answers so far
        self.chunks: list[bytes] = []
        self.missing = 0

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Broken(f"a connection broke: {error}") from error

    def receive(self) -> bytes | None:
        """The body of the answer, once it is whole."""
        try:
            data = self.sock.recv(_READ_BYTES)
        except OSError as error:
            raise Broken(f"a connection broke: {error}") from error
        if not data:
            raise Broken("the server closed a connection")
        if self.missing:
            self.chunks.append(data)
            self.missing -= len(data)
        else:
            end = data.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(data, 0, end)
            if length is None or not data.startswith(b"HTTP/1.1 200"):
                raise Failed(f"not the answer to a call: {data[:200]!r}")
            body = data[end:]
            self.missing = int(length[1]) - len(body)
            if not self.missing:
                return body
            self.chunks = [body]
        if self.missing:
            return None
        body = b"".join(self.chunks)
        self.chunks = []
        return body
