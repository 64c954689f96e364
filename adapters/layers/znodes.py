"""Znodes: the connection of one process to ZooKeeper. Nothing is repeated that may change something.

Unavailable means that ZooKeeper was not asked (NO), or that it was and did not answer (UNKNOWN): a request may still
arrive then, even minutes later. Sessions come and go unnoticed, since nothing here lives by them.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError

from adapters.errors import Applied, Corrupt, Unavailable, Unsupported

SESSION_SECONDS = 10.0
#: A broken connection is noticed within a session's time. What is not answered by then was lost with it.
ANSWER_SECONDS = SESSION_SECONDS
CONNECT_SECONDS = 10.0
DEFAULT_ROOT = "/pbserver"

_WHERE = re.compile(r"([^,/\s]+:\d+(?:,[^,/\s]+:\d+)*)((?:/[\w-][\w.-]*)*)")
_UNANSWERED = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_REFUSED = (AuthFailedError, NoAuthError)


class Node(NamedTuple):
    data: bytes
    version: int  #: rises by one with every change


class Znodes:
    """The znodes below one path, by names such as `layout` or `buckets/7`. Thread-safe."""

    def __init__(self, where: str) -> None:
        """`where` is HOST:PORT,HOST:PORT/CHROOT. Raises Unsupported if not, Unavailable if nobody answers there."""
        match = _WHERE.fullmatch(where)
        if match is None:
            raise Unsupported(f"option zookeeper={where!r} is not HOST:PORT,HOST:PORT/CHROOT")
        self.where = where
        self._root = match[2] or DEFAULT_ROOT
        self._pid = os.getpid()
        self._closed = False
        once = {"max_tries": 0}
        always = {"max_tries": -1, "max_delay": 1.0}
        self._client = KazooClient(match[1], SESSION_SECONDS, command_retry=once, connection_retry=always)
        self._connected = self._client.start_async()
        try:
            self._await_connection(time.monotonic() + CONNECT_SECONDS)
        except BaseException:
            self.close()
            raise

    def read(self, names: Sequence[str], deadline: float) -> list[Node | None]:
        """What stands there now, or stood there after the call began; None where there is no znode."""

        def begin(client: Any) -> list[Any]:
            return [client.sync_async(self._root), *(client.get_async(self._path(name)) for name in names)]

        while True:
            try:
                _, *found = self._answers(begin, deadline)
            except Unavailable as error:
                if error.applied is Applied.NO or time.monotonic() >= deadline:
                    raise error.restated(Applied.NO) from error
            else:
                return [None if isinstance(each, NoNodeError) else Node(each[0], each[1].version) for each in found]

    def swap(self, name: str, data: bytes, version: int, deadline: float) -> int | None:
        """Changes the znode if it still has the version: its new version, or None if it has not."""
        (answer,) = self._answers(lambda client: [client.set_async(self._path(name), data, version)], deadline)
        if isinstance(answer, NoNodeError):
            raise Corrupt(f"zookeeper {self.where}: {self._path(name)} is gone; restore ZooKeeper's data")
        return None if isinstance(answer, BadVersionError) else answer.version

    def create(self, nodes: Mapping[str, bytes], deadline: float) -> None:
        """Creates all of them or, if one is there already, none."""

        def begin(client: Any) -> list[Any]:
            transaction = client.transaction()
            for name, data in nodes.items():
                transaction.create(self._path(name), data)
            return [transaction.commit_async()]

        self._answers(lambda client: [client.ensure_path_async(self._root)], deadline)
        self._answers(begin, deadline)

    def close(self) -> None:
        """Idempotent. In a forked process it does nothing: the connection is the parent's."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        with suppress(WriterNotClosedException):  # it waits for a server that is gone, in a thread that may die
            self._client.stop()
            self._client.close()
        self._connected.set()  # wakes those who wait for it

    def _answers(self, begin: Callable[[Any], list[Any]], deadline: float) -> list[Any]:
        """What `begin` asks for, in order, with the errors in place that answer the question too."""
        self._await_connection(deadline)
        until = min(deadline, time.monotonic() + ANSWER_SECONDS)
        return [self._answer(each, until) for each in begin(self._client)]

    def _answer(self, pending: Any, until: float) -> Any:
        try:
            return pending.get(timeout=max(0.0, until - time.monotonic()))
        except (BadVersionError, NodeExistsError, NoNodeError) as answer:
            return answer
        except _UNANSWERED as error:
            raise Unavailable(f"zookeeper {self.where}: no answer ({type(error).__name__})", Applied.UNKNOWN) from error
        except _REFUSED as error:
            raise Unavailable(f"zookeeper {self.where}: refused ({type(error).__name__})") from error

    def _await_connection(self, deadline: float) -> None:
        if os.getpid() != self._pid:
            raise Unsupported(
                f"zookeeper {self.where}: opened by process {self._pid}; a forked process must open its own"
            )
        self._refuse_if_closed()
        left = min(deadline - time.monotonic(), threading.TIMEOUT_MAX)
        if left <= 0:
            raise Unavailable(f"zookeeper {self.where}: the deadline passed")
        connected = self._connected.wait(left)
        self._refuse_if_closed()
        if not connected:
            raise Unavailable(f"zookeeper {self.where}: no connection within {left:.1f} s; is it running?")

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"zookeeper {self.where}: the store is closed")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
