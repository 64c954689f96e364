"""A hot port with a small application behind it, and a client that sends exactly the bytes it is told to."""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pbserver.frontends.http import Answer, HttpServer, Request
from pbserver.settings import HttpSettings

PATIENCE = 10.0
HOST = b"Host: test\r\n"


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.005)


def post(body: bytes = b"", *, path: bytes = b"/echo", headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (path, HOST, headers, len(body), body)


class Echo:
    """Answers with method, path and body; some paths misbehave."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.entered = threading.Event()
        self.release = threading.Event()
        self.large = bytes(50 * 1024 * 1024)

    def answer(self, request: Request) -> Answer:
        self.seen.append(request)
        if request.path == b"/raise":
            raise ZeroDivisionError("the application's own bug")
        if request.path == b"/block":
            self.entered.set()
            assert self.release.wait(PATIENCE)
        if request.path == b"/large":
            return Answer(200, self.large)
        text = b"%b %b %b" % (request.method, request.path, request.body)
        return Answer(404 if request.path == b"/missing" else 200, text, b"text/plain")

    def too_large(self, path: bytes, detail: str) -> Answer:
        return Answer(200, b"too large: %b: %b" % (path, detail.encode()))


class HotPort:
    """A server on a free port, closed at the end whatever happens."""

    def __init__(self, *, threads: int = 2, tls: ssl.SSLContext | None = None, **limits: float) -> None:
        self.application = Echo()
        listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = listener.getsockname()[1]
        settings = HttpSettings.model_validate(limits)
        self.server = HttpServer([listener], self.application, threads=threads, settings=settings, tls=tls)

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.application.release.set()
        assert self.server.close()

    def client(self) -> "Client":
        return Client(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE))


class Reply:
    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Client:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def call(self, data: bytes) -> Reply:
        self.send(data)
        return self.reply()

    def reply(self, *, bodyless: bool = False) -> Reply:
        while b"\r\n\r\n" not in self._unread:
            self._more()
        end = self._unread.index(b"\r\n\r\n")
        lines = bytes(self._unread[:end]).split(b"\r\n")
        del self._unread[: end + 4]
        status = int(lines[0].split()[1])
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines[1:])}
        length = 0 if bodyless else int(headers.get(b"content-length", b"0"))
        while len(self._unread) < length:
            self._more()
        body = bytes(self._unread[:length])
        del self._unread[:length]
        return Reply(status, headers, body)

    def _more(self) -> None:
        data = self.sock.recv(1 << 20)
        assert data, f"closed by the server after {bytes(self._unread[:200])!r}"
        self._unread += data

    def is_closed(self) -> bool:
        """Waits for the server to close; True unless something else comes first."""
        try:
            return not self._unread and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
