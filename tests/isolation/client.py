"""A client that notes everything it does: one kept-alive connection, raw protobufs, one transaction at a time.

Objects are named `root` or `root/child`; a root is an entity group of its own.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from struct import Struct
from typing import Any, NamedTuple

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from protos.remote_api_pb2 import Response
from tests.e2e.wire import ANSWERS, APP, HEADERS, blob, entity, envelope, key, put_request
from tests.isolation.history import History, How, Outcome, Read, Transaction, Write

KIND = b"Object"
IDS_PER_CLIENT = 10_000_000

_ANSWER_SECONDS = 60
_CONNECT_SECONDS = 30
_ID = Struct("<q")
_LEAST = -(2**62)
_NOT_APPLIED = {v3.Error.CONCURRENT_TRANSACTION, v3.Error.BAD_REQUEST}


class LostError(Exception):
    """No answer came; what was asked may have been done."""


class RefusedError(Exception):
    """The server answered with an error. `applied`: whether a write may have happened all the same."""

    def __init__(self, name: str, *, applied: bool) -> None:
        super().__init__(name)
        self.applied = applied


class Connection:
    """Connects when it is first needed, and again after a loss."""

    def __init__(self, port: int) -> None:
        self.calls = 0
        self._port = port
        self._http: HTTPConnection | None = None

    def open(self) -> None:
        """Connects unless it is; waits for a server that is just being restarted."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        while self._http is None:
            http = HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS)
            try:
                http.connect()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                self._http = http

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def call(self, method: str, message: Any) -> Any:
        """The answer. Raises LostError, RefusedError."""
        if self._http is None:
            raise LostError("the connection was lost before")
        self.calls += 1
        body = envelope(method.encode(), message.SerializePartialToString())
        try:
            self._http.request("POST", "/rpc_http", body, HEADERS)
            reply = self._http.getresponse().read()
        except (OSError, HTTPException) as error:
            self.close()
            raise LostError(str(error)) from error
        response = Response.FromString(reply)
        if response.HasField("rpc_error"):
            raise RefusedError(f"rpc error {response.rpc_error.code}: {response.rpc_error.detail}", applied=True)
        if response.HasField("application_error"):
            code = response.application_error.code
            raise RefusedError(v3.Error.ErrorCode.Name(code), applied=code not in _NOT_APPLIED)
        return ANSWERS[method].FromString(response.response)


class State(NamedTuple):
    """An object as it was read."""

    seen: tuple[int, ...] = ()
    value: int = 0


class Attempt:
    """One transaction under way. Without a `handle` its calls are plain."""

    def __init__(self, connection: Connection, fresh: Callable[[], int], handle: v3.Transaction | None) -> None:
        self.reads: list[Read] = []
        self.writes: list[Write] = []
        self._connection = connection
        self._fresh = fresh
        self._handle = handle

    def get(self, *names: str) -> list[State]:
        """The objects, by one Get."""
        request = v3.GetRequest(key=map(to_key, names), transaction=self._handle)
        found = self._connection.call("Get", request).entity
        return [
            self._note(name, each.entity if each.HasField("entity") else None, each.version if each.version else None)
            for name, each in zip(names, found, strict=True)
        ]

    def query(self, root: str, children: Iterable[str], *, by_value: bool = False, count: int = 1000) -> list[State]:
        """A whole entity group by an ancestor query, in batches of `count`; the states of root and children.

        by_value: through the index of a property.
        """
        query = v3.Query(app=APP, kind=KIND, ancestor=to_key(root), count=count, transaction=self._handle)
        if by_value:
            query.filter.add(op=v3.Query.Filter.GREATER_THAN).property.add(
                name=b"number", multiple=False
            ).value.int64_value = _LEAST
        result = self._connection.call("RunQuery", query)
        found, versions = list(result.result), list(result.version)
        while result.more_results:
            result = self._connection.call("Next", v3.NextRequest(cursor=result.cursor, count=count))
            found += result.result
            versions += result.version
        stored = {to_name(EntityProto.FromString(data).key): data for data in found}
        told = dict(zip(stored, versions, strict=False))
        wanted = [root, *children]
        unexpected = [name for name in stored if name not in wanted]
        return [self._note(name, stored.get(name), told.get(name)) for name in [*wanted, *unexpected]][: len(wanted)]

    def _note(self, name: str, data: bytes | None, version: int | None) -> State:
        state = to_state(data) if data is not None else State()
        self.reads.append(Read(name, state.seen, state.value if data is not None else None, version))
        return state

    def append(self, states: dict[str, State], values: dict[str, int]) -> None:
        """Puts objects with one more id each, by one Put."""
        chains = [(name, (*states[name].seen, self._fresh()), value) for name, value in values.items()]
        self._put(chains, How.APPEND)

    def put(self, *names: str) -> None:
        """Puts objects without a look at what they were, by one Put."""
        identifiers = [self._fresh() for _ in names]
        self._put([(name, (each,), each % 1000) for name, each in zip(names, identifiers, strict=True)], How.PUT)

    def _put(self, chains: Sequence[tuple[str, tuple[int, ...], int]], how: How) -> None:
        self.writes += [Write(name, chain[-1], how, value) for name, chain, value in chains]
        entities = [to_entity(name, chain, value) for name, chain, value in chains]
        answer = self._connection.call("Put", put_request(*entities, transaction=self._handle))
        self._set_versions(dict(zip([name for name, _, _ in chains], answer.version, strict=False)))

    def delete(self, *names: str) -> None:
        self.writes += [Write(name, self._fresh(), How.DELETE) for name in names]
        answer = self._connection.call("Delete", v3.DeleteRequest(key=map(to_key, names), transaction=self._handle))
        self._set_versions(dict(zip(names, answer.version, strict=False)))

    def commit(self) -> None:
        answer = self._connection.call("Commit", self._handle)
        self._set_versions({to_name(each.root_entity_key): each.version for each in answer.version})

    def rollback(self) -> None:
        """Tries to; a transaction nobody commits comes to nothing by itself."""
        with suppress(RefusedError, LostError):
            if self._handle is not None:  # else it was never begun
                self._connection.call("Rollback", self._handle)

    def _set_versions(self, versions: dict[str, int]) -> None:
        self.writes = [write._replace(version=versions.get(write.object, write.version)) for write in self.writes]


class Client:
    """`history` grows by every transaction it is asked for."""

    def __init__(self, number: int, port: int) -> None:
        self.random = random.Random(number)
        self.history: History = []
        self.connection = Connection(port)
        self._number = number
        self._serial = 0

    def _fresh(self) -> int:
        self._serial += 1
        return self._number * IDS_PER_CLIENT + self._serial

    def plain(self, name: str, act: Callable[[Attempt], object]) -> None:
        """Acts by one call outside of transactions."""
        self.connection.open()
        attempt = Attempt(self.connection, self._fresh, None)
        calls = self.connection.calls
        start = time.monotonic_ns()
        outcome, problem = Outcome.OK, ""
        try:
            act(attempt)
        except RefusedError as error:
            outcome, problem = (Outcome.UNKNOWN if error.applied else Outcome.FAIL), str(error)
        except LostError as error:
            outcome, problem = Outcome.UNKNOWN, f"lost: {error}"
        self._record(name, attempt, start, calls, outcome, problem)

    def plain_get(self, *names: str) -> None:
        """Gets objects by one plain call, which promises nothing about one of them beside another: a line each."""
        self.plain("get", lambda attempt: attempt.get(*names))
        whole = self.history.pop()
        alone = [replace(whole, reads=(read,), calls=int(i == 0)) for i, read in enumerate(whole.reads)]
        self.history += alone or [whole]

    def transaction(self, name: str, act: Callable[[Attempt], bool], *, read_only: bool = False) -> None:
        """Acts in a cross-group transaction, which is committed if `act` returns True, else rolled back."""
        self.connection.open()
        attempt = Attempt(self.connection, self._fresh, None)
        calls = self.connection.calls
        start = time.monotonic_ns()
        committing = False
        outcome, problem = Outcome.FAIL, ""
        try:
            handle = self.connection.call("BeginTransaction", _begin(read_only=read_only))
            attempt = Attempt(self.connection, self._fresh, handle)
            committing = act(attempt)
            if committing:
                attempt.commit()
                outcome = Outcome.OK
            else:
                attempt.rollback()
        except RefusedError as error:
            problem = str(error)
            outcome = Outcome.UNKNOWN if committing and error.applied else Outcome.FAIL
            if not committing:
                attempt.rollback()
        except LostError as error:
            outcome, problem = (Outcome.UNKNOWN if committing else Outcome.FAIL), f"lost: {error}"
        self._record(name, attempt, start, calls, outcome, problem)

    def _record(self, name: str, done: Attempt, start: int, calls: int, outcome: Outcome, error: str) -> None:
        self.history.append(
            Transaction(
                client=self._number,
                name=name,
                start=start,
                end=time.monotonic_ns(),
                outcome=outcome,
                error=error,
                calls=self.connection.calls - calls,
                reads=tuple(done.reads),
                writes=tuple(done.writes),
            )
        )


def _begin(*, read_only: bool) -> v3.BeginTransactionRequest:
    mode = v3.BeginTransactionRequest.READ_ONLY if read_only else v3.BeginTransactionRequest.READ_WRITE
    return v3.BeginTransactionRequest(app=APP, allow_multiple_eg=True, mode=mode)


def to_key(name: str) -> Reference:
    return key(*(part for each in name.split("/") for part in (KIND, each.encode())))


def to_name(reference: Reference) -> str:
    return "/".join(element.name.decode() for element in reference.path.element)


def to_entity(name: str, chain: tuple[int, ...], value: int) -> EntityProto:
    """The list of ids is a blob, so that it costs little; the value has an index."""
    return blob(entity(to_key(name), number=value), b"chain", b"".join(map(_ID.pack, chain)))


def to_state(data: bytes) -> State:
    proto = EntityProto.FromString(data)
    chain = tuple(each for (each,) in _ID.iter_unpack(proto.raw_property[0].value.string_value))
    return State(chain, proto.property[0].value.int64_value)
