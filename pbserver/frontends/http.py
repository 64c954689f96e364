"""The hot port: a fixed set of threads shares one epoll; the thread that gets an event does all the work of it.

No request is handed from thread to thread, and no thread waits for a client: a slow client holds a connection, never
a thread. Each descriptor is armed for one event (EPOLLONESHOT), so a connection has one thread at a time. One thread
at a time asks for events (watch.py).
"""

import errno
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import structlog

from pbserver.frontends.connection import CLOSE, READ, Connection, Port, State
from pbserver.frontends.exchange import Answer, Application, Request
from pbserver.frontends.tls import TlsSocket
from pbserver.frontends.watch import Duty, Watch
from pbserver.settings import HttpSettings

__all__ = ["Answer", "Application", "HttpServer", "Request"]

_SWEEP_SECONDS = 1.0
_ACCEPTED_AT_ONCE = 64
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = structlog.get_logger("pbserver.http")


class HttpServer:
    """Serves `application` on listening sockets it is given and then owns. start, drain and close: one caller."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        application: Application,
        *,
        threads: int,
        settings: HttpSettings,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._settings = settings
        self._tls = tls
        self._watch = Watch()
        self._port = Port(application, settings, self._watch.hand_over)
        self._connections: dict[int, Connection] = {}
        self._epoll = select.epoll()
        self._paused: set[int] = set()
        self._stopped = False
        self._empty = threading.Event()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sweep_lock = threading.Lock()
        self._next_sweep = time.monotonic() + _SWEEP_SECONDS
        self._threads = [
            threading.Thread(target=self._work, name=f"http-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        """Accepts from now on; returns at once."""
        self._epoll.register(self._wake_fd, select.EPOLLIN)  # not one-shot: it wakes every thread
        for fd, listener in self._listeners.items():
            listener.setblocking(False)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
            self._epoll.register(fd, READ)
        for thread in self._threads:
            thread.start()

    def connection_count(self) -> int:
        return len(self._connections)

    def drain(self) -> None:
        """Stops accepting, lets calls under way be answered, ends idle connections; up to drain_seconds.

        Connections that were waiting in the kernel's queue are still taken and answered.
        """
        self._port.draining = True
        self._port.heads.close()
        for fd, listener in list(self._listeners.items()):
            with suppress(OSError, ValueError):
                self._epoll.unregister(fd)
            self._accept_waiting(listener)
            listener.close()
        self._listeners.clear()
        for connection in list(self._connections.values()):
            if connection.state is State.RESTING:
                connection.retire()
        if self._connections:
            self._empty.wait(self._settings.drain_seconds)

    def close(self) -> bool:
        """Ends everything at once. False: a thread is still inside the application, and ends with the process."""
        self._stopped = True
        os.eventfd_write(self._wake_fd, 1)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(1.0)
        if any(thread.is_alive() for thread in self._threads):
            return False  # it may still touch its descriptors; they go with the process
        for connection in list(self._connections.values()):
            self._close(connection, connection.sock.fileno())
        for listener in self._listeners.values():
            listener.close()
        self._epoll.close()
        os.close(self._wake_fd)
        return True

    def _work(self) -> None:
        duty = self._watch.duty()
        while not self._stopped:
            self._watch.lead(duty)
            self._serve_while_leading(duty)
        self._watch.hand_over()

    def _serve_while_leading(self, duty: Duty) -> None:
        poll = self._epoll.poll
        modify = self._epoll.modify
        find = self._connections.get
        clock = time.monotonic
        while duty.leads and not self._stopped:
            duty.busy_since = 0.0
            for fd, _ in poll(_SWEEP_SECONDS, 1):
                connection = find(fd)
                if connection is None:
                    self._accept(fd)
                    continue
                try:
                    duty.busy_since = now = clock()
                    interest = connection.advance(now)
                except OSError:  # the client is gone
                    interest = CLOSE
                except Exception:  # noqa: BLE001 - a bug costs its connection, not the thread
                    _log.exception("a connection failed", state=connection.state.value)
                    interest = CLOSE
                if interest:
                    modify(fd, interest)
                else:
                    self._close(connection, fd)
            if clock() >= self._next_sweep:
                self._sweep()

    def _accept(self, fd: int) -> None:
        listener = self._listeners.get(fd)
        if listener is None:  # the wake-up of close(), or a listener that drain() has just taken away
            return
        if self._accept_waiting(listener):
            with suppress(OSError, ValueError):  # drain() may have closed it
                self._epoll.modify(fd, READ)
        else:
            self._paused.add(fd)

    def _accept_waiting(self, listener: socket.socket) -> bool:
        """Takes what waits in the kernel's queue. False: no more can be taken now; the sweep will try again."""
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self._connections) >= self._settings.max_connections:
                return False
            try:
                sock, _address = listener.accept()
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    _log.error("no further connection can be taken for now", reason=str(error))
                    return False
                continue  # that client went away while it waited
            self._add(sock)
        return True

    def _add(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        fd = sock.fileno()
        channel = sock if self._tls is None else TlsSocket(sock, self._tls)
        connection = Connection(channel, self._port, time.monotonic())
        self._connections[fd] = connection
        if self._port.draining:
            connection.retire()
        self._epoll.register(fd, READ)

    def _close(self, connection: Connection, fd: int) -> None:
        self._connections.pop(fd, None)  # first: the number may be used again as soon as it is closed
        connection.close()
        if self._paused:
            self._resume_accepting()
        if self._port.draining and not self._connections:
            self._empty.set()

    def _resume_accepting(self) -> None:
        while self._paused:
            with suppress(KeyError, OSError, ValueError):  # another thread was faster, or drain() closed it
                self._epoll.modify(self._paused.pop(), READ)

    def _sweep(self) -> None:
        """About once a second, by whichever thread comes by: timeouts, the Date header, paused listeners."""
        if not self._sweep_lock.acquire(blocking=False):
            return
        try:
            now = time.monotonic()
            if now < self._next_sweep:
                return
            self._next_sweep = now + _SWEEP_SECONDS
            self._port.replies.refresh()
            for connection in list(self._connections.values()):
                if connection.deadline <= now:
                    connection.expire()
            if self._paused and not self._port.draining:
                self._resume_accepting()
        finally:
            self._sweep_lock.release()
