"""TLS on a non-blocking socket, with the face of a plain one: recv and send raise BlockingIOError, as a socket does."""

import select
import socket
import ssl
from contextlib import suppress
from pathlib import Path

_HANDSHAKE_RECORD = b"\x16"
_RECORD_BYTES = 16 * 1024
_READ = select.EPOLLIN | select.EPOLLONESHOT
_WRITE = select.EPOLLOUT | select.EPOLLONESHOT


class PlainTextClient(Exception):
    """The client does not speak TLS. From now on the socket passes bytes through, so that it can be told so."""


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """A context for TLS 1.2 and later. Raises OSError (ssl.SSLError) for files that are missing or do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    return context


class TlsSocket:
    """The handshake happens inside the first calls of recv. `wants` says what to wait for after a BlockingIOError."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.wants = _READ
        self._plain: socket.socket | None = sock
        self._tls: ssl.SSLSocket | None = None
        self._context = context
        self._shaken = False
        self._passing = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes and all that TLS has already decrypted. Raises PlainTextClient, once."""
        if self._passing:
            return socket.socket.recv(self._sock, size)
        tls = self._tls or self._begin()
        if tls is None:
            return b""
        try:
            if not self._shaken:
                tls.do_handshake()
                self._shaken = True
            data: bytes = tls.recv(size)
            while pending := tls.pending():
                data += tls.recv(pending)
        except ssl.SSLError as error:
            raise self._translated(error) from None
        return data

    def send(self, data: bytes | memoryview) -> int:
        """At most one record; a call that blocked must be repeated with the same data."""
        self.wants = _WRITE
        if self._passing or self._tls is None:
            return socket.socket.send(self._sock, data)
        try:
            return self._tls.send(data[:_RECORD_BYTES])
        except ssl.SSLError as error:
            raise self._translated(error) from None

    def shutdown(self, how: int) -> None:
        """Towards the client's end a close_notify goes first; after that, what is read is not decrypted any more."""
        if how == socket.SHUT_WR and self._tls is not None:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
            self._passing = True
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        self._sock.close()

    @property
    def _sock(self) -> socket.socket:
        sock = self._tls or self._plain
        assert sock is not None
        return sock

    def _begin(self) -> ssl.SSLSocket | None:
        assert self._plain is not None
        first = self._plain.recv(1, socket.MSG_PEEK)
        if not first:
            return None
        if first != _HANDSHAKE_RECORD:
            self._passing = True
            raise PlainTextClient("this port speaks TLS: use https")
        self._tls = self._context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
        self._plain = None
        return self._tls

    def _translated(self, error: ssl.SSLError) -> OSError:
        if isinstance(error, ssl.SSLWantReadError):
            self.wants = _READ
        elif isinstance(error, ssl.SSLWantWriteError):
            self.wants = _WRITE
        else:
            return ConnectionAbortedError(f"TLS: {error}")
        return BlockingIOError()
