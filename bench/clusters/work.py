"""The entities that are worked on, and the operations as everybody carries them out."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from adapters.contract import Address, Table
from bench import data
from bench.calls import Calls, Cycle, WholeQuery, request
from pbserver.datastore import entities, keys
from pbserver.datastore.tables import entity_address, head_address, index_changes
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto

OPERATIONS = ("insert", "read", "update", "delete", "query")
QUERIED = b"Queried"
ROWS = 1000  #: that a query returns
_STORED = 50  # entities that are read and changed


class IndexRow(NamedTuple):
    table: Table
    scope: bytes
    key: bytes


@dataclass(frozen=True)
class Thing:
    """An entity of data.entity, and the rows that PBServer keeps of it."""

    message: bytes  #: the serialized EntityProto

    @cached_property
    def proto(self) -> EntityProto:
        return EntityProto.FromString(self.message)

    @cached_property
    def key(self) -> keys.Key:
        return keys.from_reference(self.proto.key)

    @cached_property
    def address(self) -> Address:
        return entity_address(self.key)

    @cached_property
    def head(self) -> Address:
        """Of the row that changes with every commit of its entity group."""
        return head_address(self.key.group)

    @cached_property
    def value(self) -> bytes:
        """As it is stored."""
        return entities.frame(self.message, 1)

    @cached_property
    def index(self) -> list[IndexRow]:
        """A row of its kind, one of each property, one of all kinds: 22."""
        rows = index_changes(self.key, {}, entities.index_rows(self.key, self.proto))
        return [IndexRow(each.table, each.scope, row) for each in rows for row in each.values]

    def prepared(self) -> "Thing":
        """With all computed that a native program has at hand."""
        _ = self.address, self.head, self.value, self.index
        return self


class Step(NamedTuple):
    """One operation: on `thing`, which takes the place of `old` in an update."""

    name: str
    thing: Thing
    old: Thing


@dataclass(frozen=True, slots=True)
class Round:
    before: Sequence[Thing]  #: to be stored first, unmeasured
    steps: Sequence[Step]


class Side(Protocol):
    """Someone who carries out the operations in this process. One thread."""

    def insert(self, new: Thing) -> None: ...

    def read(self, stored: Thing) -> bytes:
        """The stored entity, in the form that the side keeps."""

    def update(self, old: Thing, new: Thing) -> None: ...

    def delete(self, old: Thing) -> None: ...

    def query(self, kind: Thing) -> Sequence[bytes]:
        """The first ROWS entities of the kind that `kind` is one of, by key."""

    def close(self) -> None: ...


class Work:
    """What one subject works on: keys of its own, other values in every round."""

    def __init__(self) -> None:
        self._prefix = os.urandom(4).hex().encode()
        self._random = random.Random(7)
        self._count = self._seen = 0
        self._stored: list[Thing] = []

    def grow(self, count: int) -> Iterator[Thing]:
        """New entities, to be stored by the caller; a sample of all of them is what will be read and changed."""
        for _ in range(count):
            thing = self._fresh()
            yield thing
            self._seen += 1
            if len(self._stored) < _STORED:
                self._stored.append(thing)
            elif (at := self._random.randrange(self._seen)) < _STORED:
                self._stored[at] = thing

    def round(self, operation: str, count: int) -> Round:
        before: list[Thing] = []
        if operation in ("read", "update") and not self._stored:
            self._stored = before = [self._fresh() for _ in range(_STORED)]
        steps: list[Step] = []
        if operation == "delete":
            before = [self._fresh() for _ in range(count)]
            steps = [Step(operation, thing, thing) for thing in before]
        elif operation == "insert":
            steps = [Step(operation, thing, thing) for thing in (self._fresh() for _ in range(count))]
        elif operation == "query":
            steps = [Step(operation, queried(1)[0], queried(1)[0])] * count
        else:
            steps = [self._step(operation, number % len(self._stored)) for number in range(count)]
        return Round(before, steps)

    def _step(self, operation: str, number: int) -> Step:
        old = self._stored[number]
        if operation == "update":
            name = old.proto.key.path.element[0].name
            self._stored[number] = Thing(data.entity(b"Stored", name, self._random)).prepared()
        return Step(operation, self._stored[number], old)

    def _fresh(self) -> Thing:
        self._count += 1
        name = b"%b%08d" % (self._prefix, self._count)
        return Thing(data.entity(b"Stored", name, self._random)).prepared()


def queried(count: int = ROWS) -> list[Thing]:
    return [Thing(each).prepared() for each in data.entities(QUERIED, count)]


def carry_out(step: Step, side: Side) -> bytes | Sequence[bytes] | None:
    match step.name:
        case "insert":
            side.insert(step.thing)
        case "read":
            return side.read(step.thing)
        case "update":
            side.update(step.old, step.thing)
        case "delete":
            side.delete(step.thing)
        case _:
            return side.query(step.thing)
    return None


def check(step: Step, result: bytes | Sequence[bytes] | None) -> None:
    """Raises ValueError when what a side gave back is not what was asked for."""
    if step.name == "read" and (not isinstance(result, bytes) or step.thing.message not in result):
        raise ValueError("a read did not return the entity that was stored last")
    if step.name == "query" and (result is None or len(result) != ROWS):
        raise ValueError(f"a query returned {len(result or ())} entities, not {ROWS}")


def calls(steps: Sequence[Step]) -> Calls:
    """The same operations for a PBServer."""
    if steps[0].name == "query":
        asked = [request(b"RunQuery", data.kind_query(QUERIED, ROWS))]
        return WholeQuery(asked, ROWS, least_bytes=ROWS * data.ENTITY_BYTES)
    least = data.ENTITY_BYTES if steps[0].name == "read" else 0
    return Cycle([_request(step) for step in steps], least_bytes=least)


def _request(step: Step) -> bytes:
    reference = step.thing.proto.key
    match step.name:
        case "read":
            return request(b"Get", v3.GetRequest(key=[reference]))
        case "delete":
            return request(b"Delete", v3.DeleteRequest(key=[reference]))
        case _:
            return request(b"Put", v3.PutRequest(entity=[step.thing.message]))
