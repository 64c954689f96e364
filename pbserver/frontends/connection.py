"""One client's connection: reads, has requests answered, writes; one thread at a time, and none while it waits."""

import math
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

import structlog

from pbserver.frontends.exchange import Answer, Application, Request
from pbserver.frontends.reader import HEAD_END, BufferBudget, Head, HeadCache, Phase, Refusal, RequestReader
from pbserver.frontends.replies import CONTINUE, Persistence, ReplyHeads
from pbserver.frontends.tls import PlainTextClient, TlsSocket
from pbserver.settings import HttpSettings

READ = select.EPOLLIN | select.EPOLLONESHOT
WRITE = select.EPOLLOUT | select.EPOLLONESHOT
CLOSE = 0
_FIRST_READ_BYTES = 16 * 1024
_NEXT_READ_BYTES = 256 * 1024
_JOINED_BODY_BYTES = 32 * 1024  # up to here one copy is cheaper than a second send
_LINGER_SECONDS = 2.0
_INTERNAL_ERROR = Answer(500, b"internal error\n", b"text/plain")

_log = structlog.get_logger("pbserver.http")


class State(Enum):
    """What a connection is doing; all but RESTING go the general way, and each has its own timeout."""

    RESTING = "waits for a request"
    RECEIVING = "has part of a request"
    SENDING = "has output that the client did not take yet"
    LINGERING = "was answered for the last time and reads until the client closes"


class Port:
    """What all connections of a server share."""

    def __init__(self, application: Application, settings: HttpSettings, hand_over: Callable[[], None]) -> None:
        self.application = application
        self.hand_over = hand_over
        self.settings = settings
        self.idle_seconds = settings.idle_timeout_seconds
        self.heads = HeadCache(settings)
        self.replies = ReplyHeads()
        self.budget = BufferBudget(settings.max_buffered_bytes)
        self.draining = False

    def answer(self, request: Request) -> Answer | None:
        """The application's answer; None when it raised, which is logged here, once."""
        try:
            return self.application.answer(request)
        except Exception:  # noqa: BLE001 - whatever it is, the thread must live
            _log.exception("the application failed on a request", path=request.path, thread=threading.get_ident())
            return None

    def refuse(self, refusal: Refusal) -> Answer:
        if refusal.path is not None:
            try:
                return self.application.too_large(refusal.path, refusal.detail)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("the application failed to refuse a request", path=refusal.path)
        return Answer(refusal.status, refusal.detail.encode() + b"\n", b"text/plain")


class Connection:
    """`advance` does what can be done without waiting and returns what to wait for: READ, WRITE or CLOSE.

    It raises OSError when the client is gone. Everything but `deadline`, `state`, `retire` and `expire` belongs to the
    thread that got the event. Those two never close anything themselves: they make the socket readable, so that
    whichever thread gets that event does.
    """

    __slots__ = (
        "_closing",
        "_output",
        "_polite",
        "_port",
        "_reader",
        "_recv",
        "_seen",
        "_send",
        "_tls",
        "deadline",
        "expired",
        "sock",
        "state",
    )

    def __init__(self, sock: socket.socket | TlsSocket, port: Port, now: float) -> None:
        self.sock = sock
        self.state = State.RESTING
        self.expired = False
        self.deadline = now + port.idle_seconds
        self._port = port
        self._recv = sock.recv
        self._send = sock.send
        self._tls = sock if isinstance(sock, TlsSocket) else None
        if self._tls is not None:
            self.deadline = now + port.settings.header_timeout_seconds
        self._reader: RequestReader | None = None
        self._output: deque[memoryview] = deque()
        self._closing = False  # after the output
        self._polite = False  # the client said itself that it sends nothing more
        self._seen: tuple[Phase, int] | None = None

    def advance(self, now: float) -> int:
        """The hot path: one recv, one known head, one answer, one send. Anything else goes the general way."""
        if self.state is not State.RESTING:
            return self._resume(now)
        try:
            data = self._recv(_FIRST_READ_BYTES)
        except BlockingIOError:
            return self._blocked(READ)
        except PlainTextClient as mistake:
            return self._refuse(Refusal(400, str(mistake)), now)
        port = self._port
        end = data.find(HEAD_END) + 4
        raw = data[:end]
        head = port.heads.known.get(raw) or port.heads.learn(raw)
        if len(data) - end != head.length:
            return self._take(data, now)
        answer = port.answer(Request(head.method, head.path, head.headers, data[end:], now, port.hand_over))
        if answer is None or port.draining:
            return self._write_last(answer or _INTERNAL_ERROR, now)
        status, body, content_type = answer
        start = port.replies.kept.get((status, content_type)) or port.replies.for_kept(status, content_type)
        return self._write_kept(start, body, now)

    def _write_kept(self, start: bytes, body: bytes, now: float) -> int:
        size = len(body)
        if size <= _JOINED_BODY_BYTES:
            reply = b"%b%d\r\n\r\n%b" % (start, size, body)
            try:
                sent = self._send(reply)
            except BlockingIOError:
                sent = 0
            if sent == len(reply):
                self.deadline = now + self._port.idle_seconds
                return READ
            self._output.append(memoryview(reply)[sent:])
        else:
            self._put(start, body)
        return self._settle(now) if self._flush(now) else self._blocked(WRITE)

    def retire(self) -> None:
        """Lets an idle connection end; a request that is already there is still answered. Any thread may call."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RD)

    def expire(self) -> None:
        """Ends the wait whose deadline has passed; called by the sweep, from any thread."""
        if self.state is State.RESTING:
            self.retire()
            return
        self.expired = True
        with suppress(OSError):
            # The reading end is enough to wake a reader, and leaves the writing end for a 408.
            self.sock.shutdown(socket.SHUT_RD if self.state is State.RECEIVING else socket.SHUT_RDWR)

    def close(self) -> None:
        """Releases the socket and what was buffered; called by the thread that holds the connection."""
        if self._reader is not None:
            self._reader.close()
        self._output.clear()
        with suppress(OSError):
            self.sock.close()

    def _blocked(self, interest: int) -> int:
        return interest if self._tls is None else self._tls.wants

    def _resume(self, now: float) -> int:
        if self.expired:
            return self._cut_off()
        if self.state is State.SENDING:
            return self._serve(now) if self._flush(now) else self._blocked(WRITE)
        try:
            data = self._recv(_NEXT_READ_BYTES)
        except BlockingIOError:
            return self._blocked(READ)
        if self.state is State.LINGERING:
            return READ if data else CLOSE
        return self._take(data, now)

    def _take(self, data: bytes, now: float) -> int:
        if not data:
            return CLOSE
        if self._reader is None:
            self._reader = RequestReader(self._port.settings, self._port.budget)
        self._reader.feed(data)
        return self._serve(now)

    def _serve(self, now: float) -> int:
        """Answers the requests that are whole, in order, and stops while the client does not take the answers."""
        reader = self._reader
        while reader is not None and reader.ready and not self._closing:
            head, body = reader.ready.popleft()
            self._respond(head, body, now)
            reader.release(len(body))
            if not self._flush(now):
                return self._blocked(WRITE)
        if reader is not None and not self._closing:
            if reader.refusal is not None:
                return self._refuse(reader.refusal, now)
            if reader.wants_continue():
                self._output.append(memoryview(CONTINUE))
                if not self._flush(now):
                    return self._blocked(WRITE)
        return self._settle(now)

    def _respond(self, head: Head, body: bytes, now: float) -> None:
        port = self._port
        self.deadline = math.inf  # a call takes the time it takes
        answer = port.answer(Request(head.method, head.path, head.headers, body, now, port.hand_over))
        self._polite = answer is not None and not head.keep_alive
        self._closing = answer is None or not head.keep_alive or port.draining
        answer = answer or _INTERNAL_ERROR
        kept = Persistence.KEPT_HTTP10 if head.http10 else Persistence.KEPT
        persistence = Persistence.CLOSED if self._closing else kept
        self._put(
            port.replies.start_of(answer.status, answer.content_type, persistence),
            answer.body,
            bodyless=head.method == b"HEAD",
        )

    def _refuse(self, refusal: Refusal, now: float) -> int:
        return self._write_last(self._port.refuse(refusal), now)

    def _write_last(self, answer: Answer, now: float) -> int:
        self._closing = True
        start = self._port.replies.start_of(answer.status, answer.content_type, Persistence.CLOSED)
        self._put(start, answer.body)
        return self._settle(now) if self._flush(now) else self._blocked(WRITE)

    def _put(self, start: bytes, body: bytes, *, bodyless: bool = False) -> None:
        head = b"%b%d\r\n\r\n" % (start, len(body))
        if bodyless or len(body) <= _JOINED_BODY_BYTES:
            self._output.append(memoryview(head if bodyless else head + body))
        else:
            self._output.extend((memoryview(head), memoryview(body)))

    def _flush(self, now: float) -> bool:
        """Writes what the client takes. False: some is left, and the write timeout runs anew if any of it moved."""
        moved = False
        output = self._output
        try:
            while output:
                sent = self._send(output[0])
                moved = True
                if sent == len(output[0]):
                    output.popleft()
                else:
                    output[0] = output[0][sent:]
        except BlockingIOError:
            if moved or self.state is not State.SENDING:
                self.deadline = now + self._port.settings.write_timeout_seconds
            self.state = State.SENDING
            self._seen = None
            return False
        return True

    def _settle(self, now: float) -> int:
        """With all output gone: the next state, its deadline, and what to wait for."""
        reader, settings = self._reader, self._port.settings
        resting = reader is None or reader.phase is Phase.IDLE
        if self._closing or (resting and self._port.draining):
            return self._finish(now)
        if reader is None or resting:
            self.state = State.RESTING
            self.deadline = now + settings.idle_timeout_seconds
            return READ
        self.state = State.RECEIVING
        seen = (reader.phase, reader.begun)
        if seen != self._seen:
            in_head = reader.phase is Phase.HEAD
            self.deadline = now + (settings.header_timeout_seconds if in_head else settings.body_timeout_seconds)
            self._seen = seen
        return READ

    def _finish(self, now: float) -> int:
        """Closes, or half-closes and reads on: closing on unread input would reset, and could destroy the answer."""
        if self._polite:
            return CLOSE
        self.state = State.LINGERING
        self.deadline = now + _LINGER_SECONDS
        self.sock.shutdown(socket.SHUT_WR)
        return READ

    def _cut_off(self) -> int:
        if self.state is State.RECEIVING:
            refusal = Refusal(
                408, "the request did not come whole in time (header_timeout_seconds, body_timeout_seconds)"
            )
            self._put(
                self._port.replies.start_of(408, b"text/plain", Persistence.CLOSED), refusal.detail.encode() + b"\n"
            )
            with suppress(OSError):
                self._send(self._output[0])
        return CLOSE
