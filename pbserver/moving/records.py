"""What is moved: a sequence of records, the same whether it comes out of a store or out of a file."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

from pbserver.datastore.catalog import Indexes
from pbserver.datastore.keys import Key, project_of
from protos.entity_pb2 import EntityProto


class CannotMove(Exception):
    """A source, target or file that will not do; the message is one line for the operator."""


class Stage(IntEnum):
    """The order of a project's records."""

    BEGINS = 0
    ENTITIES = 1
    ENDS = 2


class Place(NamedTuple):
    """Where a record stands in the sequence: places ascend."""

    project: bytes
    stage: int
    partition: bytes = b""
    path: bytes = b""


START = Place(b"", Stage.BEGINS)  #: before every record


class Begins(NamedTuple):
    """A project, and its composite indexes before its first entity was read."""

    project: bytes
    indexes: Indexes

    @property
    def place(self) -> Place:
        return Place(self.project, Stage.BEGINS)


class Stored(NamedTuple):
    """An entity; `data` is `proto` byte for byte as it is stored."""

    key: Key
    proto: EntityProto
    data: bytes

    @property
    def place(self) -> Place:
        return Place(project_of(self.key.partition), Stage.ENTITIES, self.key.partition, self.key.path)


class Ends(NamedTuple):
    """A project's composite indexes and the next free values of its counters, after its last entity was read."""

    project: bytes
    indexes: Indexes
    sequential: int
    scattered: int

    @property
    def place(self) -> Place:
        return Place(self.project, Stage.ENDS)


Record = Begins | Stored | Ends


class Source(Protocol):
    def records(self, after: Place = START) -> Iterator[Record]:
        """The records behind a place, each project's from Begins to Ends."""
        ...
