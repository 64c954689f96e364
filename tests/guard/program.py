"""What the guard counts: calls answered by the real parts of a worker, in this process and on one thread.

Run under callgrind by tests.guard.counting. Between two blocks of calls it calls a C function that nobody else does
(MARKER); callgrind writes down its count there and begins anew.
"""

import gc
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from adapters.build import open_store
from bench import calls, data
from pbserver.dispatch import CALLS, OUTCOMES, build_application
from pbserver.frontends.connection import Connection, Port
from pbserver.metrics import Metrics
from pbserver.settings import load
from protos.entity_pb2 import EntityProto

#: What is counted, and how many requests of it make a block.
BLOCKS = {"calibration": 40, "no-op": 40, "get": 40, "put": 20, "query of 1,000": 2}
REPEATS = 2
ENTITIES = 1000
_MOST_BYTES = 1 << 21
_MOST_STEPS = 100  # of which any request and any answer needs fewer
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def mark() -> None:
    """MARKER, in C."""
    os.getloadavg()


def count_from_now() -> None:
    """Counting from the start would take seven times as long, most of it for imports."""
    asked = subprocess.Popen(["vgdb", f"--pid={os.getpid()}", "instrumentation", "on"], stdout=subprocess.DEVNULL)
    while asked.poll() is None:  # awake: valgrind looks for orders while we work
        pass
    if asked.returncode:
        sys.exit(f"vgdb ended with {asked.returncode}; nothing is counted")


class Client:
    """A connection of the hot port, served by whoever asks."""

    def __init__(self, store: str) -> None:
        settings = load(None, {"store": store, "workers": 1})
        metrics = Metrics(CALLS, OUTCOMES, workers=1, threads=1)
        application = build_application(settings, open_store(store), metrics.workers[0], worker_index=0)
        self._sock, served = socket.socketpair()
        for end in (self._sock, served):
            end.setblocking(False)
        port = Port(application, settings.http, lambda: None)
        self._connection = Connection(served, port, time.monotonic())

    def call(self, request: bytes) -> bytes:
        """The answer's body."""
        self._sock.sendall(request)
        received = self._some()
        start = received.index(b"\r\n\r\n") + 4
        length = _LENGTH.search(received, 0, start)
        whole = start + int(length[1] if length else 0)
        while len(received) < whole:
            received += self._some()
        if calls.is_error(received[start:]):
            sys.exit(f"a call was answered with an error: {received[-300:]!r}")
        return received[start:]

    def _some(self) -> bytes:
        """Has the server go on until there is something of the answer."""
        for _ in range(_MOST_STEPS):
            self._connection.advance(time.monotonic())
            with suppress(BlockingIOError):
                return self._sock.recv(_MOST_BYTES)
        sys.exit("the server does not answer")


def calibration(message: bytes) -> None:
    """Work of the same sort as the server's, that no change of ours touches: messages, bytes, calls, dictionaries."""
    proto = EntityProto.FromString(message)
    rows = {}
    for prop in proto.property:
        value = prop.value
        content = b"%020d" % value.int64_value if value.HasField("int64_value") else value.string_value
        rows[_row(prop.name, content)] = len(content)
    size = 0
    for key in sorted(rows):
        size += rows[key] + len(key)
    proto.property[0].value.int64_value = size
    proto.SerializeToString()


def _row(name: str | bytes, content: bytes) -> bytes:
    name = name if isinstance(name, bytes) else name.encode()
    return b"\x00".join((name, content.replace(b"\x00", b"\x00\xff"), b"%d" % len(content)))


def count(store: str) -> None:
    """MARKER, then every block so often, and MARKER after each."""
    client = Client(store)
    gets = data.gets(b"Thing", ENTITIES)
    puts = calls.Fresh(data.single_puts(b"Fresh", 200), _prefix=b"guarding")
    message = data.entity(b"Thing", 1, random.Random(1))
    query = calls.request(b"RunQuery", data.kind_query(b"Thing", ENTITIES))
    work: dict[str, Callable[[], object]] = {
        "calibration": lambda: calibration(message),
        "no-op": lambda: client.call(data.touch()),
        "get": lambda: client.call(gets.pop()),
        "put": lambda: client.call(puts.begin(0)),
        "query of 1,000": lambda: _whole(client, query),
    }
    gc.collect()
    gc.disable()
    for name, count in BLOCKS.items():
        _times(count, work[name])
    count_from_now()
    for name, count in BLOCKS.items():
        for _ in range(REPEATS):
            mark()
            _times(count, work[name])
    mark()
    os._exit(0)  # what would be closed and freed now need not be counted


def _whole(client: Client, query: bytes) -> None:
    answer = client.call(query)
    if len(answer) < ENTITIES * data.ENTITY_BYTES:
        sys.exit(f"a query was answered with {len(answer)} bytes")


def _times(count: int, work: Callable[[], object]) -> None:
    for _ in range(count):
        work()


def fill(store: str) -> None:
    """Stores what is got and queried."""
    client = Client(store)
    for request in data.puts(data.entities(b"Thing", ENTITIES), at_once=50):
        client.call(request)


if __name__ == "__main__":
    {"fill": fill, "count": count}[sys.argv[1]](sys.argv[2])
