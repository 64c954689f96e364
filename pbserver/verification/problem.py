"""What may be wrong with a store, and how an operator reads it."""

from enum import Enum
from typing import NamedTuple

from adapters.contract import Address, Table
from pbserver.datastore import keys, tables
from pbserver.datastore.encoding import read_text
from pbserver.datastore.keys import Key


class Fault(Enum):
    """The kinds of problems; the value is what an operator is told."""

    UNREADABLE_ENTITY = "unreadable entity"
    MISPLACED_ENTITY = "entity in the place of another"
    MISSING_HEAD = "entity group without head"
    LOW_HEAD = "head of an entity group below an entity's version"
    UNREADABLE_HEAD = "unreadable head of an entity group"
    MISSING_ROW = "missing index row"
    WRONG_ROW = "wrong index row"
    PHANTOM_ROW = "index row without its entity"
    UNLISTED_KIND = "kind missing in table kinds"
    UNLISTED_PROJECT = "project missing in table meta"
    UNREADABLE_CATALOG = "unreadable row of composite indexes"
    LOW_COUNTER = "id counter not above an id in use"

    @property
    def is_note(self) -> bool:
        """Whether it may be right as it is: clients may choose ids themselves."""
        return self is Fault.LOW_COUNTER

    @property
    def is_mendable(self) -> bool:
        """Whether what the entities say is enough to put it right."""
        return self not in _LOST and not self.is_note

    @property
    def is_listing(self) -> bool:
        """Whether a row is missing that only says where something may be found."""
        return self in (Fault.UNLISTED_KIND, Fault.UNLISTED_PROJECT)

    @property
    def is_of_head(self) -> bool:
        """Whether a group's head is not what its last commit made it."""
        return self in (Fault.MISSING_HEAD, Fault.LOW_HEAD, Fault.UNREADABLE_HEAD)


_LOST = {Fault.UNREADABLE_ENTITY, Fault.MISPLACED_ENTITY, Fault.UNREADABLE_CATALOG}

_ADVICE = {
    Fault.UNREADABLE_ENTITY: "put it back from a backup",
    Fault.MISPLACED_ENTITY: "put it back from a backup",
    Fault.MISSING_HEAD: "--repair writes it",
    Fault.LOW_HEAD: "--repair raises it",
    Fault.UNREADABLE_HEAD: "nothing else of the group was checked; --repair writes a new one",
    Fault.MISSING_ROW: "--repair writes it",
    Fault.WRONG_ROW: "--repair writes the right one",
    Fault.PHANTOM_ROW: "--repair deletes it",
    Fault.UNLISTED_KIND: "--repair adds it",
    Fault.UNLISTED_PROJECT: "--repair adds it",
    Fault.UNREADABLE_CATALOG: "put it back from a backup; rows of composite indexes were not checked",
    Fault.LOW_COUNTER: "right if a client chose that id itself; else AllocateIdRange up to it",
}


class Problem(NamedTuple):
    """One thing wrong. `address` is the row that is wrong, missing or too many; `value` what a row too many holds;
    `key` the entity it is about, None where none can be told.
    """

    fault: Fault
    address: Address
    key: Key | None
    detail: str = ""
    value: bytes | None = None

    def __str__(self) -> str:
        whose = shown_key(self.key) if self.key is not None else repr(self.address.scope + self.address.key)
        if self.fault is Fault.UNLISTED_PROJECT:
            whose = ""
        parts = [whose, shown_row(self.address), self.detail]
        return f"{self.fault.value}: {', '.join(filter(None, parts))}; {_ADVICE[self.fault]}"


def shown_key(key: Key) -> str:
    """Project, namespace and path as an operator reads them: `s~app K:1/L:'name'`."""
    path = "/".join(
        f"{kind.decode(errors='replace')}:{each if isinstance(each, int) else repr(each.decode(errors='replace'))}"
        for kind, each in keys.decode_path(key.path)
    )
    return f"{shown_partition(key.partition)} {path}"


def shown_partition(partition: bytes) -> str:
    """`s~app`, and where they are not the default ones, `/database` and ` namespace 'name'`."""
    app, database, namespace = (each.decode(errors="replace") for each in keys.partition_names(partition))
    return app + (f"/{database}" if database else "") + (f" namespace {namespace!r}" if namespace else "")


def shown_row(address: Address) -> str:
    """Which of an entity's rows stands at an address; empty for those that have only one such."""
    if address.table is Table.KINDLESS:
        return "kindless row"
    if address.table is not Table.INDEXES:
        return ""
    kind, rest = address.key[:1], address.key[1:]
    if kind == tables.KIND_ROW:
        return "kind row"
    try:
        if kind == tables.PROPERTY_ROW:
            return f"row of property {read_text(rest, 0)[0].decode(errors='replace')!r}"
    except ValueError:
        return "row of no known form"
    return f"row of composite index {int.from_bytes(rest[:4], 'big')}" if kind == tables.COMPOSITE_ROW else "stray row"
