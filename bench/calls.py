"""What a load generator sends: operations of one or more requests, as ready-made bytes.

Instances travel to the generator's process by pickle, so they hold bytes and numbers only.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from protos import datastore_v3_pb2 as v3
from protos import remote_api_pb2 as remote_api

Single = TypeVar("Single", bound="Calls")

#: Stands where a fresh key name goes, twice per entity (key and entity group); as long as what replaces it.
NAME = b"name-comes-here!"
_HEAD = (
    b"POST /rpc_http HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: python-urllib3\r\nAccept-Encoding: identity\r\n"
    b"X-Google-RPC-Service-Deadline: %d\r\nX-Google-RPC-Service-Endpoint: app-engine-apis\r\n"
    b"X-Google-RPC-Service-Method: /VMRemoteAPI.CallRemoteAPI\r\nContent-type: application/octet-stream\r\n"
    b"Content-Length: %d\r\n\r\n%b"
)


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


def request(method: bytes, message: Message | bytes, deadline_seconds: int = 60) -> bytes:
    """A whole HTTP request, with the headers an App Engine runtime sends."""
    payload = message if isinstance(message, bytes) else message.SerializeToString()
    envelope = remote_api.Request(service_name=b"datastore_v3", method=method, request=payload, request_id=b"bench")
    body = envelope.SerializeToString()
    return _HEAD % (deadline_seconds, len(body), body)


class Calls(Protocol):
    """The operations of one generator. `line` numbers the connection; each has one operation under way at a time."""

    least_bytes: int  #: what all answers of one operation have together; fewer mean that something is missing
    name: str  #: of the operation

    def begin(self, line: int) -> bytes | None:
        """The first request of a new operation; None: this connection has nothing more to do."""
        ...

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        """The next request of the same operation; None when it is finished. `answer` is no error."""
        ...

    def part(self, line: int) -> "Calls":
        """What the operation under way is one of, where there are several kinds."""
        ...


class Alone:
    """Of operations that are all of one kind."""

    __slots__ = ()

    def part(self: Single, line: int) -> Single:
        del line
        return self


@dataclass(slots=True)
class Cycle(Alone):
    """Operations of one request each, over and over."""

    requests: Sequence[bytes]
    least_bytes: int = 0
    name: str = "operation"
    _at: int = 0

    def begin(self, line: int) -> bytes:
        del line
        self._at += 1
        return self.requests[self._at % len(self.requests)]

    def go_on(self, line: int, answer: bytes) -> None:
        del line, answer


@dataclass(slots=True)
class Fresh(Alone):
    """Puts of an entity that was never there before: each request is a template with a new key name put in."""

    templates: Sequence[bytes]
    least_bytes: int = 0
    name: str = "operation"
    _at: int = 0
    _prefix: bytes = b""  # drawn in the generator's process, so that no two of them use the same names

    def begin(self, line: int) -> bytes:
        del line
        self._at += 1
        self._prefix = self._prefix or os.urandom(4).hex().encode()
        template = self.templates[self._at % len(self.templates)]
        return template.replace(NAME, b"%b%08d" % (self._prefix, self._at))

    def go_on(self, line: int, answer: bytes) -> None:
        del line, answer


@dataclass(slots=True)
class WholeQuery(Alone):
    """RunQuery, and Next until nothing is left. `count`: results asked for in one answer."""

    queries: Sequence[bytes]
    count: int
    least_bytes: int = 0
    name: str = "operation"
    _at: int = 0

    def begin(self, line: int) -> bytes:
        del line
        self._at += 1
        return self.queries[self._at % len(self.queries)]

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        del line
        cursor = first_cursor(answer)
        if cursor is None:
            return None
        return request(b"Next", v3.NextRequest(cursor=v3.Cursor.FromString(cursor), count=self.count))


@dataclass(slots=True)
class Mix:
    """Operations drawn from several kinds by weight, in an order that is the same in every run."""

    parts: Sequence[Calls]
    weights: Sequence[int]
    seed: int = 2
    least_bytes: int = 0
    name: str = "mix"
    _under_way: dict[int, Calls] = field(default_factory=dict)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def begin(self, line: int) -> bytes | None:
        part = self._random.choices(self.parts, self.weights)[0]
        self._under_way[line] = part
        return part.begin(line)

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        return self._under_way[line].go_on(line, answer)

    def part(self, line: int) -> Calls:
        return self._under_way[line].part(line)


@dataclass(slots=True)
class InOrder:
    """Each connection goes through its own list of operations once; all of one connection's follow one another."""

    lists: Sequence[Sequence[tuple[Calls, int]]]  #: by connection: what, and how often
    least_bytes: int = 0
    name: str = "list"
    _left: dict[int, list[Calls]] = field(default_factory=dict)
    _under_way: dict[int, Calls] = field(default_factory=dict)

    def begin(self, line: int) -> bytes | None:
        left = self._left.get(line)
        if left is None:
            left = self._left[line] = [calls for calls, count in reversed(self.lists[line]) for _ in range(count)]
        if not left:
            return None
        part = self._under_way[line] = left.pop()
        return part.begin(line)

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        return self._under_way[line].go_on(line, answer)

    def part(self, line: int) -> Calls:
        return self._under_way[line].part(line)


def first_cursor(answer: bytes) -> bytes | None:
    """The cursor (QueryResult, field 1) of a query that is not finished, found without reading the results.

    It is there only when there are more; serialized, it comes before everything else.
    """
    start = _payload_start(answer)
    if answer[start : start + 1] != b"\x0a":
        return None
    return answer[start + 2 : start + 2 + answer[start + 1]]


def is_error(answer: bytes) -> bool:
    """Whether an envelope holds anything but `response`."""
    if answer[:1] != b"\x0a":
        return True
    size, at = 0, 1
    for shift in range(0, 35, 7):
        size |= (answer[at] & 0x7F) << shift
        at += 1
        if answer[at - 1] < 0x80:
            break
    return at + size != len(answer)


def error_name(answer: bytes) -> str:
    """What an envelope that is_error says, in the protocol's names."""
    response = remote_api.Response.FromString(answer)
    if response.HasField("application_error"):
        code = response.application_error.code
        known: str = v3.Error.ErrorCode.Name(code) if code in v3.Error.ErrorCode.values() else f"error {code}"
        return known
    if response.HasField("rpc_error"):
        code = response.rpc_error.code
        known = (
            remote_api.RpcError.ErrorCode.Name(code) if code in remote_api.RpcError.ErrorCode.values() else str(code)
        )
        return f"rpc error {known}"
    return "no answer in the envelope"


def _payload_start(answer: bytes) -> int:
    at = 1
    while answer[at] >= 0x80:
        at += 1
    return at + 1
