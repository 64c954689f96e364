"""Answers to bytes: response heads are formatted once a second, not once a request."""

import time
from enum import Enum

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}


class Persistence(Enum):
    """What an answer says about its connection; the value is the header line."""

    KEPT = b""  # HTTP/1.1 keeps without saying so
    KEPT_HTTP10 = b"Connection: keep-alive\r\n"
    CLOSED = b"Connection: close\r\n"


class ReplyHeads:
    """Everything of a response head before the length, by status and type. Any thread may call."""

    def __init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Brings the Date header up to date; called about once a second."""
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()
        self._date = date
        self.kept: dict[tuple[int, bytes], bytes] = {}

    def for_kept(self, status: int, content_type: bytes) -> bytes:
        """The start of an answer on an HTTP/1.1 connection that stays open; remembered in `kept`."""
        start = self.start_of(status, content_type, Persistence.KEPT)
        self.kept[status, content_type] = start
        return start

    def start_of(self, status: int, content_type: bytes, persistence: Persistence) -> bytes:
        return b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\n%bContent-Length: " % (
            status,
            _REASONS.get(status, b"Status"),
            self._date,
            content_type,
            persistence.value,
        )
