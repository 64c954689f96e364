"""The contract between PBServer and a database: bytes only.

An address `(table, scope, place, key)` holds a value. A scan fixes table and scope and never leaves them, so stores
may hash scopes apart. `place` names the entity a row belongs to: stores with one ordered key space ignore it,
partitioned stores may hash it so that all rows of an entity lie together. Scopes that begin with 0xfd or above are
the layers' own.

What one `write` call may hold, and what it does:

| atomicity | conditional operations of a call | applied as one | a call that fails midway |
|---|---|---|---|
| ROW | one, and nothing beside it | each row | any part of it, in any order |
| SCOPE | all in one (table, scope); others beside them | each (table, scope); the conditional one first | any scopes |
| BATCH | any | everything | nothing of it |

*Conditional* is an operation whose expectation is not ANY. Anything else a call holds is refused with Unsupported. A
Conflict always means that nothing of the call was applied, at every atomicity: a SCOPE store writes the other scopes
only after the conditional one has been won. After Unavailable with applied=UNKNOWN the rows of a ROW or SCOPE call may
be there in part, and more of them may appear later; a caller repeats the call until it is acknowledged.

One read call sees the rows of one (table, scope) in one state where atomicity is SCOPE or BATCH; otherwise, and from
one scope to the next, the rows may be read one after the other.

Versions, where `versioned_writes` is claimed:
- A write with a lower version than the row holds silently loses; a deleted row keeps the version of its delete for at
  least `version_horizon_seconds`, so a late write does not bring it back. The call succeeds either way.
- Two writes of one row never carry the same version; should they, either may win.
- A write without a version always wins. Which version the row then has is not promised: rows are written either
  always with versions or never (databases keep versions as clocks, and a clock would be the version).
- A write carries a version or an expectation, not both: databases lose rows on which the two mix.
- A versioned write may be repeated, and may arrive late or twice, without harm. An unversioned one that arrives late
  overwrites what came after it: unversioned rows need a condition, or an owner.

Source: design.md section 3. Adapters are thread-safe, one per process, with driver retries set to zero.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, runtime_checkable


class Table(Enum):
    """Every table there is, with its one-byte name in stores that keep all of them in one key space."""

    GROUPS = b"g"  #: scope = entity group: its head and its entities, side by side
    INDEXES = b"i"  #: scope = project, namespace, kind: kind rows and property rows
    KINDLESS = b"k"  #: scope = project, namespace: one row per entity
    KINDS = b"n"  #: scope = project: one row per namespace and kind that ever had an entity
    IDS = b"c"  #: scope = project: id counters
    META = b"m"  #: format version, settings recorded once
    UNFINISHED = b"u"  #: scope = server: entity groups whose last commit it may not have finished
    SESSIONS = b"s"  #: scope = minute of birth: open transactions and unfinished queries
    LONGKEYS = b"l"  #: the layers' own: which of them the rows were written through, and with which sizes

    @property
    def volatile(self) -> bool:
        """Whether a crash of the machine may lose the table: its rows live for a minute and answer no promise."""
        return self is Table.SESSIONS


class Address(NamedTuple):
    """Where a value stands. `scope + key` is unique inside a table; scopes are prefix-free."""

    table: Table
    scope: bytes
    place: bytes
    key: bytes


class KeyRange(NamedTuple):
    """Half-open range of keys inside one scope; `stop=None` means to the end of the scope."""

    start: bytes = b""
    stop: bytes | None = None


#: A row as a scan returns it: key (without scope) and value.
Row = tuple[bytes, bytes]


class _Any(Enum):
    ANY = auto()


class _Absent(Enum):
    ABSENT = auto()


ANY: Final = _Any.ANY  #: no expectation
ABSENT: Final = _Absent.ABSENT  #: the row must not exist

Expectation = _Any | _Absent | bytes


class Write(NamedTuple):
    """One row written: `value=None` deletes. Values are never empty. Each address at most once per batch.

    `version`: see the rule above; from 0 to 2**63 - 1.
    """

    address: Address
    value: bytes | None
    expect: Expectation = ANY
    version: int | None = None


class Check(NamedTuple):
    """A row that is only read, but must still be what the caller saw when the batch is applied."""

    address: Address
    expect: Expectation


Operation = Write | Check


class Rows(NamedTuple):
    """Many rows of one scope and place, written without expectations: an entity's index rows. None deletes.

    They lie together in every store, so a store may write them as one mutation, and nobody makes an object per row.
    """

    table: Table
    scope: bytes
    place: bytes
    values: Mapping[bytes, bytes | None]  #: by key
    version: int | None = None


class Atomicity(Enum):
    """How much one `write` call applies as a whole, and with that what it may hold: the table above."""

    ROW = auto()  #: each row on its own
    SCOPE = auto()  #: all rows of one table and scope
    BATCH = auto()  #: everything in the call


class Durable(Enum):
    """What survives when `write` has returned."""

    MEMORY = auto()  #: the process's life (or the machine's, for files that are not synced)
    REPLICATED = auto()  #: in the memory of several machines
    SYNCED = auto()  #: on disk


class Consistency(Enum):
    """What a read sees."""

    STRONG = auto()  #: every write acknowledged before the read began
    EVENTUAL = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store promises, stated once. `build.py` reads it once and adds layers or refuses."""

    atomicity: Atomicity
    compare_and_set: bool
    versioned_writes: bool
    ordered: bool
    reverse_scan: bool
    snapshot: bool
    consistency: Consistency
    durable: Durable
    shared: bool  #: several processes may hold it open at once
    remote: bool = False  #: a network lies between, so a call that failed may do better in a moment
    version_horizon_seconds: float | None = None  #: how long a delete still beats a late write; None: no versions
    max_key_bytes: int | None = None  #: of scope + key; None: no limit
    max_value_bytes: int | None = None
    max_batch: int | None = None  #: rows in one write call
    max_batch_bytes: int | None = None


@runtime_checkable
class Reader(Protocol):
    """Reads; what `snapshot()` gives, and a part of every ordered store.

    `deadline` is a `time.monotonic()` instant; a call that cannot finish by then raises Unavailable.
    """

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        """The values at `addresses`, in their order; None where there is no row.

        `settle` makes the read find conditional writes that were applied though their outcome was unknown, and makes
        it STRONG where the store claims only EVENTUAL. A write that it did not find may still arrive, as long as the
        row has the value it expects: only another change of the row puts an end to it.
        """
        ...

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        """read() of rows of one table, given as columns: the entities that a query's index rows lead to.

        Sparing an Address per row pays in process only; else `self.read(addresses(table, scopes, keys), ...)`.
        """
        ...

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        """Up to `limit` rows of `scope` whose keys lie in `keys`, ascending, or descending with `reverse`.

        Fewer than `limit` rows mean that the range is exhausted.
        """
        ...


@runtime_checkable
class PointStore(Protocol):
    """A store that finds rows by their whole address only. PBServer needs an OrderedStore: a layer lifts this one."""

    @property
    def capabilities(self) -> Capabilities: ...

    def ensure_tables(self) -> None:
        """Creates what is missing; idempotent; never changes or drops what is there."""
        ...

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        """Reader.read."""
        ...

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        """Applies operations and rows as one batch, as atomically as `capabilities.atomicity` says (see above).

        Volatile and other tables never share a batch. Raises Conflict when an expectation fails.
        """
        ...

    def drop_tables(self) -> None:
        """Deletes every row of every table. Only ever called because an operator or a test asked for it."""
        ...

    def check(self) -> None:
        """Raises Unavailable unless the store answers now."""
        ...

    def close(self) -> None:
        """Releases everything; idempotent."""
        ...


@runtime_checkable
class OrderedStore(Reader, PointStore, Protocol):
    """The only store PBServer sees."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """One unchanging view of all tables, for reads that belong together (volatile tables: one of their own).

        Only the thread that opened it uses it, and it writes nothing until it has left it (Unsupported otherwise).
        Raises Unsupported where `capabilities.snapshot` is False.
        """
        ...


@runtime_checkable
class Sweepable(Protocol):
    """A store that leaves behind what nobody needs any longer: layers do, for the database sees rows, not meanings."""

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Removes what is left in one scope and has been useless for long; how many rows of the database.

        Such as: tombstones older than the horizon, pieces of long values and pages that nothing leads to. Sees what
        the scope's own rows see, so whoever knows all scopes sweeps everything, now and then. May run at any time, in
        several processes at once; no caller sees a difference but in space and speed. Raises Unavailable when it
        cannot finish by the deadline: what is removed is removed, and the next call begins anew.
        """
        ...


def leaves_behind(store: object) -> bool:
    """Whether a store, or one it stands on (`inner`), says by LEAVES_BEHIND that it leaves what has to be swept."""
    return getattr(store, "LEAVES_BEHIND", False) or (hasattr(store, "inner") and leaves_behind(store.inner))


def swept(store: PointStore, table: Table, scope: bytes, *, deadline: float) -> int:
    """What `store` sweeps of a scope, where it sweeps at all."""
    return store.sweep(table, scope, deadline=deadline) if isinstance(store, Sweepable) else 0


def addresses(table: Table, scopes: Sequence[bytes], keys: Sequence[bytes]) -> list[Address]:
    """Columns as addresses; the rows fetched so are told apart by scope and key, so `place` is empty."""
    return [Address(table, scope, b"", key) for scope, key in zip(scopes, keys, strict=True)]


def row_writes(rows: Sequence[Rows]) -> list[Write]:
    """Rows as single writes, for stores that gain nothing by having them together."""
    return [
        Write(Address(table, scope, place, key), value, ANY, version)
        for table, scope, place, values, version in rows
        for key, value in values.items()
    ]


def is_conditional(operation: Operation) -> bool:
    return operation.expect is not ANY


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key that begins with `prefix`; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])
