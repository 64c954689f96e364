"""Bytes to requests, without I/O: heads that were seen before, and an incremental reader for everything else.

A kept-alive client sends the same head again and again, so a whole request that comes in one piece is usually
recognised by the bytes of its head and needs no parser. What is split, pipelined, chunked or odd goes through
RequestReader.
"""

import threading
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import httptools

from pbserver.settings import HttpSettings

HEAD_END = b"\r\n\r\n"
_CACHED_HEAD_BYTES = 4096
_CACHED_HEADS = 512
_NEVER = -1_000_000  # a length no request has


class Phase(Enum):
    """Where in a message the input stands; each has its own timeout."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


class Refusal(NamedTuple):
    """A request that is not carried out. `path` is set when the application words the answer (a body over a limit)."""

    status: int
    detail: str
    path: bytes | None = None


class Head:
    """A request's head, parsed. `length` is the body's size, _NEVER where that or the framing is out of the common."""

    __slots__ = ("chunked", "expects", "headers", "http10", "keep_alive", "length", "method", "path")

    def __init__(self, method: bytes, target: bytes, version: str, headers: Mapping[bytes, bytes]) -> None:
        connection = headers.get(b"connection", b"").lower()
        self.method = method
        self.path = _path_of(target)
        self.headers = headers
        self.http10 = version == "1.0"
        self.keep_alive = b"keep-alive" in connection if self.http10 else b"close" not in connection
        self.chunked = b"transfer-encoding" in headers
        self.expects = not self.http10 and headers.get(b"expect", b"").lower() == b"100-continue"
        self.length = _NEVER if self.chunked else int(headers.get(b"content-length", b"0"))

    @property
    def is_plain(self) -> bool:
        """Whether a request with this head can be answered without looking at anything but its body's length."""
        odd = self.http10 or self.chunked or self.expects or not self.keep_alive
        return not odd and self.method in (b"POST", b"GET") and b"upgrade" not in self.headers


def _path_of(target: bytes) -> bytes:
    if target.startswith(b"/"):
        return target.partition(b"?")[0]
    try:
        return httptools.parse_url(target).path or b"/"
    except httptools.HttpParserInvalidURLError:
        return target


_UNKNOWN = Head(b"GET", b"/", "1.0", {})
_UNKNOWN.length = _NEVER


class BufferBudget:
    """Bytes of request bodies held at once by all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class HeadCache:
    """Heads by their bytes. `known` is read on the hot path without a lock; a lost entry is only parsed again."""

    def __init__(self, limits: HttpSettings) -> None:
        self.known: dict[bytes, Head] = {}
        self._limits = limits
        self._closed = False

    def close(self) -> None:
        """From now on every request takes the general way, which knows about draining."""
        self._closed = True
        self.known = {}

    def learn(self, raw: bytes) -> Head:
        """The head in `raw`; its length is impossible unless raw is one whole, plain head within the limits."""
        limits = self._limits
        if self._closed or len(raw) > min(_CACHED_HEAD_BYTES, limits.max_header_bytes) or not raw.endswith(HEAD_END):
            return _UNKNOWN
        reader = RequestReader(limits, BufferBudget(0))
        reader.feed(raw)
        head = reader.head
        refused = reader.refusal is not None
        # A body that begins inside raw would mean that the head ended earlier than the blank line found.
        whole = reader.phase is Phase.BODY or len(reader.ready) == 1
        reader.close()
        if head is None or refused or not whole or not head.is_plain:
            head = _UNKNOWN
        if len(self.known) >= _CACHED_HEADS:
            self.known = {}
        self.known[raw] = head
        return head


class _Enough(Exception):
    """The rest of the input is not wanted: the request was refused, or the client asked to close after it."""


class RequestReader:
    """Feed it bytes; whole requests gather in `ready`, in order. After a `refusal` or a closing request it is deaf.

    At most what one feed brings is held beyond the limits. Not thread-safe: one thread at a time.
    """

    def __init__(self, limits: HttpSettings, budget: BufferBudget) -> None:
        self.ready: deque[tuple[Head, bytes]] = deque()
        self.refusal: Refusal | None = None
        self.phase = Phase.IDLE
        self.head: Head | None = None
        self.begun = 0
        self.body_bytes = 0
        self._limits = limits
        self._budget = budget
        self._held = 0
        self._over = False
        self._progress = 0
        self._quiet_bytes = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    @property
    def is_over(self) -> bool:
        """Whether no further request will come out of this reader."""
        return self._over

    def wants_continue(self) -> bool:
        """Whether the client waits for 100 Continue before it sends the body; true once for a request."""
        head = self.head
        if head is None or not head.expects or self.phase is not Phase.BODY or self.body_bytes:
            return False
        head.expects = False
        return True

    def feed(self, data: bytes) -> None:
        """Takes the bytes received; never raises for what a client may send."""
        if self._over or self._parser is None:
            return
        before = self._progress
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._resume_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as error:
            if not self._over:
                raise error.__context__ or error from None
            return
        except httptools.HttpParserError as error:
            self._refuse_quietly(Refusal(400, f"this is not HTTP/1.1: {error}"))
            return
        self._watch_quiet_bytes(before, len(data))

    def release(self, size: int) -> None:
        """Gives `size` bytes of a body taken from `ready` back to the budget."""
        if size:
            self._held -= size
            self._budget.give_back(size)

    def close(self) -> None:
        """Gives everything held back, and lets go of the parser (they refer to each other)."""
        self.release(self._held)
        self.ready.clear()
        self._pieces = []
        self._parser = None
        self._over = True

    def _watch_quiet_bytes(self, progress_before: int, size: int) -> None:
        """Bounds what the parser may gather by itself: a header, trailer or chunk extension without an end."""
        if self._progress == progress_before:
            self._quiet_bytes += size
        else:
            only_began = self._progress == progress_before + 1 and self.phase is Phase.HEAD
            self._quiet_bytes = size if only_began else 0
        if self._quiet_bytes > self._limits.max_header_bytes and self.phase is not Phase.IDLE:
            self._refuse_quietly(self._headers_too_large())

    def _headers_too_large(self) -> Refusal:
        return Refusal(431, f"the headers are over max_header_bytes = {self._limits.max_header_bytes}")

    def _resume_without_upgrade(self, rest: bytes) -> None:
        """An Upgrade we do not offer is ignored: the same request goes on as HTTP/1.1, with its body."""
        head = self.head
        if self._over or head is None:
            return
        if head.method == b"CONNECT":
            self.on_message_complete(asked_to_close=True)
            return
        kept = [(name, value) for name, value in head.headers.items() if name != b"upgrade"]
        lines = b"".join(b"%b: %b\r\n" % pair for pair in kept)
        self.begun -= 1
        self._parser = httptools.HttpRequestParser(self)
        self.feed(b"%b %b HTTP/1.1\r\n%b\r\n%b" % (head.method, self._target, lines, rest))

    def _refuse_quietly(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self._over = True
        self._give_back_unfinished()

    def _refuse(self, refusal: Refusal) -> None:
        self._refuse_quietly(refusal)
        raise _Enough

    def _give_back_unfinished(self) -> None:
        self.release(self.body_bytes if self.phase is Phase.BODY else 0)
        self._pieces = []
        self.body_bytes = 0

    # What httptools calls while it parses.

    def on_message_begin(self) -> None:
        self._progress += 1
        self.begun += 1
        self.phase = Phase.HEAD
        self.head = None
        self.body_bytes = 0
        self._target = b""
        self._headers = {}

    def on_url(self, piece: bytes) -> None:
        self._target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is Phase.HEAD:  # trailers are dropped
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._progress += 1
        version = self._parser.get_http_version()
        size = len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers.items())
        if version not in ("1.1", "1.0"):
            self._refuse(Refusal(400, f"HTTP/{version} is not spoken here; use HTTP/1.1"))
        if size > self._limits.max_header_bytes:
            self._refuse(self._headers_too_large())
        if version == "1.1" and b"host" not in self._headers:
            self._refuse(Refusal(400, "an HTTP/1.1 request needs a Host header"))
        self.head = head = Head(self._parser.get_method(), self._target, version, self._headers)
        if head.length > self._limits.max_request_bytes:
            self._refuse(self._body_too_large(head, head.length))
        self.phase = Phase.BODY

    def on_body(self, piece: bytes) -> None:
        assert self.head is not None
        self._progress += 1
        size = self.body_bytes + len(piece)
        if size > self._limits.max_request_bytes:
            self._refuse(self._body_too_large(self.head, size))
        if not self._budget.take(len(piece)):
            self._refuse(Refusal(503, "too many request bodies are under way (max_buffered_bytes); try again"))
        self._held += len(piece)
        self.body_bytes = size
        self._pieces.append(piece)

    def on_message_complete(self, *, asked_to_close: bool = False) -> None:
        assert self.head is not None and self._parser is not None
        self._progress += 1
        if self._parser.should_upgrade() and not asked_to_close:
            return
        self.ready.append((self.head, b"".join(self._pieces)))
        self._pieces = []
        self.phase = Phase.IDLE
        if asked_to_close:
            self.head.keep_alive = False
        if not self.head.keep_alive:
            self._over = True
            if not asked_to_close:
                raise _Enough

    def _body_too_large(self, head: Head, size: int) -> Refusal:
        detail = f"the body has {size} bytes or more, over max_request_bytes = {self._limits.max_request_bytes}"
        return Refusal(413, detail, head.path)
