"""What passes between the hot port and the application behind it: a request, an answer, and nothing else."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


def _nothing() -> None:
    """Nobody waits for this thread."""


class Request:
    """One call, read whole. `headers` has lower-cased names, keeps the first of a repeated name, and is shared
    between requests with the same head: read it, never change it. `path` is without the query. `arrived` is
    time.monotonic() when the last byte was there. Call `hand_over` before what may take long, such as waiting for a
    database: other requests are then answered meanwhile.
    """

    __slots__ = ("arrived", "body", "hand_over", "headers", "method", "path")

    def __init__(
        self,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        arrived: float,
        hand_over: Callable[[], None] = _nothing,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.arrived = arrived
        self.hand_over = hand_over


class Answer(NamedTuple):
    """One reply; Content-Length, Date and Connection are added by the port."""

    status: int
    body: bytes
    content_type: bytes = b"application/octet-stream"


class Application(Protocol):
    """Called on any of the server's threads, on several at once."""

    def answer(self, request: Request) -> Answer:
        """May block. What it raises becomes a 500 and closes the connection."""
        ...

    def too_large(self, path: bytes, detail: str) -> Answer:
        """The answer for a body over a limit; sent before the body is read, then the connection closes."""
        ...
