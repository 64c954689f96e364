"""The CQL, and what one call turns into. Pure: nothing here talks to a cluster.

All rows stand in one table. Its partitions are (t, s, b): table, scope, bucket; k is the key. A row has two cells, for
what Paxos writes must never be written otherwise: a plain write with a clock of its own makes such rows invisible.

- l: values written without a version, conditions or not. Only conditional batches change it (and the Paxos ballot is
  its timestamp); where there is no condition, a static cell that nobody ever sets makes one that always holds.
- p: values written with a version, plainly, with the version as the timestamp. A delete's tombstone keeps it.

Whoever reads takes l, and p only where there is no l: a write without a version wins. Rows are written by UPDATE
alone, which leaves no mark of the row itself: one whose cells are gone is gone.

Index rows are spread: what has a version stands in the bucket of its place, so that an entity's rows lie together.
Conditions of one call must meet in one partition, so whatever has no version stands in bucket 0, as in other tables.
"""
# ruff: noqa: S608 - the texts are built of constants alone; what comes from outside is a parameter

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from adapters.contract import ABSENT, ANY, Address, Check, KeyRange, Operation, Row, Rows, Table
from adapters.errors import Conflict, Corrupt, TooLarge

#: Tables of index rows: many in a scope, of many places, and written with versions.
SPREAD = frozenset({Table.INDEXES, Table.KINDLESS})
KEY_BYTES = 65_500  # of the protocol's 65,535, less the partition's other parts
SCOPES_AT_ONCE = 32  # partitions in one query
STATEMENTS_AT_ONCE = 20_000  # in one batch; the protocol counts to 65,535
PART_BYTES = 4 << 20  # of rows that need not be written together: what nodes are slow to write, they give up
STATEMENT_BYTES = 96  # in a request, beside its values
EXACT_LIMIT = 50  # up to so many rows a scan asks every bucket for all of them
GC_GRACE_SECONDS = 864_000  # how long tombstones stay
#: A replica has all of a batch or nothing, so a read sees a scope in one state. To repair what a read has met would
#: tear that apart: one row of the batch would come to a replica that lacks the others.
READ_REPAIR = "NONE"

Scope = tuple[Table, bytes]
Partition = tuple[Table, bytes, int]


class Statement(NamedTuple):
    text: str
    values: Sequence[Any] = ()


_TO = " WHERE t = ? AND s = ? AND b = ? AND k = ?"
_PUT = "UPDATE pbserver_rows SET l = ?" + _TO
_DELETE = "DELETE l, p FROM pbserver_rows" + _TO
_PUT_IF = _PUT + " IF l = ?"
_DELETE_IF = _DELETE + " IF l = ?"
_ALWAYS = " IF never = null"
_PUT_AT = "UPDATE pbserver_rows USING TIMESTAMP ? SET p = ?" + _TO
_DELETE_AT = "DELETE p FROM pbserver_rows USING TIMESTAMP ?" + _TO

BUCKETS = "SELECT value FROM pbserver_settings WHERE name = 'buckets'"
RECORD_BUCKETS = "INSERT INTO pbserver_settings (name, value) VALUES ('buckets', ?) IF NOT EXISTS"


def keyspace_creation(keyspace: str, datacenter: str, replicas: int) -> str:
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', '{datacenter}': {replicas}}}"
    )


def table_creations(keyspace: str) -> list[str]:
    return [
        f"CREATE TABLE IF NOT EXISTS {keyspace}.pbserver_rows (t blob, s blob, b tinyint, k blob, l blob, p blob,"
        " never boolean static, PRIMARY KEY ((t, s, b), k))"
        f" WITH gc_grace_seconds = {GC_GRACE_SECONDS} AND read_repair = '{READ_REPAIR}'",
        f"CREATE TABLE IF NOT EXISTS {keyspace}.pbserver_settings (name text PRIMARY KEY, value int)",
    ]


def last_write(number: int, size: int) -> Statement:
    """A row of no table, in one of many partitions."""
    return Statement(_PUT_AT, (1, bytes(size), b"", b"%d" % number, 0, b""))


def truncation(keyspace: str) -> str:
    return f"TRUNCATE {keyspace}.pbserver_rows"


@dataclass(slots=True)
class Plan:
    """A write call sorted by what must go together. Batches by Paxos are those of the first two."""

    leading: tuple[Scope, list[Statement]] | None = None  #: all conditions, and what is written beside them
    certain: dict[Scope, list[Statement]] = field(default_factory=dict)  #: without condition and version
    versioned: dict[Partition, list[Statement]] = field(default_factory=dict)
    removed: list[Address] = field(default_factory=list)  #: index rows deleted without version: see remove()
    expected: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)  #: position, key, value or absent

    def add(self, operation: Operation, index: int, buckets: int) -> None:
        address, expect = operation.address, operation.expect
        if expect is not ANY:
            self._add_condition(operation, index, None if expect is ABSENT else expect)
        elif isinstance(operation, Check):
            return
        elif operation.version is not None:
            self._add_version(address, bucket(address.place, buckets), operation.value, operation.version)
        else:
            self._add_unversioned(address, operation.value)

    def add_rows(self, rows: Rows, buckets: int) -> None:
        table, scope, place, values, version = rows
        number = bucket(place, buckets)
        for key, value in values.items():
            if version is None:
                self._add_unversioned(Address(table, scope, place, key), value)
            else:
                self._add_version(Address(table, scope, place, key), number, value, version)

    def _add_condition(self, operation: Operation, index: int, wanted: bytes | None) -> None:
        table, scope, _, key = operation.address
        value = wanted if isinstance(operation, Check) else operation.value
        condition = (table._value_, scope, 0, key, wanted)
        statement = Statement(_DELETE_IF, condition) if value is None else Statement(_PUT_IF, (value, *condition))
        self._by_paxos((table, scope)).append(statement)
        self.expected.append((index, key, wanted))
        if table in SPREAD and value is None:
            self.removed.append(operation.address)

    def _add_unversioned(self, address: Address, value: bytes | None) -> None:
        table, scope, _, key = address
        row = table._value_, scope, 0, key
        if value is not None:
            self._by_paxos((table, scope)).append(Statement(_PUT, (value, *row)))
            return
        if table in SPREAD:
            self.removed.append(address)
        if table not in SPREAD or self._leads((table, scope)):
            self._by_paxos((table, scope)).append(Statement(_DELETE, row))

    def _add_version(self, address: Address, number: int, value: bytes | None, version: int) -> None:
        table, scope, _, key = address
        number = number if table in SPREAD else 0
        row = table._value_, scope, number, key
        statement = (
            Statement(_DELETE_AT, (version, *row)) if value is None else Statement(_PUT_AT, (version, value, *row))
        )
        self.versioned.setdefault((table, scope, number), []).append(statement)

    def _by_paxos(self, scope: Scope) -> list[Statement]:
        if self.leading is not None and self._leads(scope):
            return self.leading[1]
        return self.certain.setdefault(scope, [])

    def _leads(self, scope: Scope) -> bool:
        return self.leading is not None and self.leading[0] == scope

    def remove(self, lookup: "Lookup", ages: Iterable[tuple[bytes, int, bytes, int | None, int | None]]) -> None:
        """Adds the deletes of rows found at `ages`: scope, bucket, key, timestamps of l and p.

        A delete beats what has the same timestamp, and nothing that is written with a higher one afterwards. So a row
        that is deleted without a version may still be written with one.
        """
        table = lookup.table
        for scope, number, key, unversioned, version in ages:
            if unversioned is not None:
                self._by_paxos((table, scope)).append(Statement(_DELETE, (table._value_, scope, 0, key)))
            elif version is not None:
                row = table._value_, scope, number, key
                self.versioned.setdefault((table, scope, number), []).append(Statement(_DELETE_AT, (version, *row)))

    def check_found(self, found: Mapping[bytes, bytes | None]) -> Conflict | Corrupt:
        """What to raise when the conditions did not hold together: `found` by key, as the batch met it."""
        for index, key, wanted in self.expected:
            current = found.get(key)
            if current != wanted:
                return Conflict(f"operation {index} found another value than expected", index=index, current=current)
        return cannot_be("cassandra")


def planned(operations: Sequence[Operation], rows: Iterable[Rows], buckets: int) -> Plan:
    plan = Plan()
    for operation in operations:
        if operation.expect is not ANY:
            plan.leading = operation.address[:2], []
            break
    for index, operation in enumerate(operations):
        plan.add(operation, index, buckets)
    for each in rows:
        plan.add_rows(each, buckets)
    return plan


def cannot_be(where: str) -> Corrupt:
    return Corrupt(f"{where}: a batch was refused though all of its conditions hold; is the cell `never` set?")


def without_condition(statements: Sequence[Statement]) -> list[Statement]:
    """The same as a conditional batch whose condition always holds."""
    first, *others = statements
    return [Statement(first.text + _ALWAYS, first.values), *others]


def check_size(statements: Sequence[Statement], most: int) -> None:
    """Raises TooLarge for a batch that the nodes would refuse; it is applied as one, so it cannot be cut."""
    size = sum(map(_size, statements))
    if size > most or len(statements) > STATEMENTS_AT_ONCE:
        raise TooLarge(
            f"cassandra: {len(statements)} rows of one scope with {size} bytes in one batch; the nodes take {most}"
            f" bytes (half of commitlog_segment_size, unless max_mutation_size is set, and no more than"
            f" native_transport_max_message_size), and {STATEMENTS_AT_ONCE} rows"
        )


def parts(statements: Sequence[Statement], most: int) -> Iterator[Sequence[Statement]]:
    """Versioned rows of one partition as batches that the nodes take: parts of it may arrive in any order."""
    start = size = 0
    for end, statement in enumerate(statements):
        added = _size(statement)
        if end > start and (size + added > most or end - start == STATEMENTS_AT_ONCE):
            yield statements[start:end]
            start, size = end, 0
        size += added
    yield statements[start:]


def _size(statement: Statement) -> int:
    return STATEMENT_BYTES + sum(len(value) for value in statement.values if isinstance(value, bytes))


def bucket(place: bytes, buckets: int) -> int:
    return crc32(place) % buckets


# -- reading


class Lookup(NamedTuple):
    """Rows of scopes that are all asked for the same keys."""

    table: Table
    scopes: Sequence[bytes]
    keys: Sequence[bytes]

    def values(self, buckets: Sequence[int]) -> Statement:
        """Rows of (scope, key, l, p); see `add_found`."""
        return self._statement("s, k, l, p", buckets)

    def ages(self, buckets: Sequence[int]) -> Statement:
        """Rows of (scope, bucket, key, timestamp of l, timestamp of p)."""
        return self._statement("s, b, k, WRITETIME(l), WRITETIME(p)", buckets)

    def _statement(self, columns: str, buckets: Sequence[int]) -> Statement:
        table, scopes, keys = self
        start = f"SELECT {columns} FROM pbserver_rows WHERE t = ? AND "
        if table in SPREAD:
            return Statement(start + "s IN ? AND b IN ? AND k IN ?", (table._value_, scopes, buckets, keys))
        if len(scopes) > 1:
            return Statement(start + "s IN ? AND b = ? AND k IN ?", (table._value_, scopes, 0, keys))
        if len(keys) > 1:
            return Statement(start + "s = ? AND b = ? AND k IN ?", (table._value_, scopes[0], 0, keys))
        return Statement(start + "s = ? AND b = ? AND k = ?", (table._value_, scopes[0], 0, keys[0]))


def lookups(addresses: Iterable[Address], scopes_at_once: int = SCOPES_AT_ONCE) -> list[Lookup]:
    """Each (table, scope) is in one query, so that its rows are seen in one state."""
    keys: dict[Scope, dict[bytes, None]] = {}
    for table, scope, _, key in addresses:
        keys.setdefault((table, scope), {})[key] = None
    scopes: dict[tuple[Table, tuple[bytes, ...]], list[bytes]] = {}
    for (table, scope), wanted in keys.items():
        scopes.setdefault((table, (*wanted,)), []).append(scope)
    return [
        Lookup(table, alike[start : start + scopes_at_once], wanted)
        for (table, wanted), alike in scopes.items()
        for start in range(0, len(alike), scopes_at_once)
    ]


def add_found(
    found: dict[tuple[Table, bytes, bytes], bytes],
    table: Table,
    rows: Iterable[tuple[bytes, bytes, bytes | None, bytes]],
) -> None:
    """A row may come from two buckets: l wins."""
    for scope, key, unversioned, versioned in rows:
        if unversioned is not None:
            found[table, scope, key] = unversioned
        else:
            found.setdefault((table, scope, key), versioned)


def range_of_scope(table: Table, scope: bytes, keys: KeyRange, limit: int, reverse: bool) -> Statement:
    """Rows of (k, l, p), in order."""
    text = "SELECT k, l, p FROM pbserver_rows WHERE t = ? AND s = ? AND b = ?" + _within(keys, reverse) + " LIMIT ?"
    return Statement(text, (table._value_, scope, 0, *_bounds(keys), limit))


def range_of_buckets(table: Table, scope: bytes, keys: KeyRange, each: int, reverse: bool, buckets: int) -> Statement:
    """Rows of (b, k, l, p): up to `each` of every bucket, those of a bucket in order.

    Without PER PARTITION LIMIT the whole range would be read, whatever the limit.
    """
    text = "SELECT b, k, l, p FROM pbserver_rows WHERE t = ? AND s = ? AND b IN ?" + _within(keys, reverse)
    values = (table._value_, scope, range(buckets), *_bounds(keys), each)
    return Statement(text + " PER PARTITION LIMIT ?", values)


def _within(keys: KeyRange, reverse: bool) -> str:
    below = "" if keys.stop is None else " AND k < ?"
    return f" AND k >= ?{below}" + (" ORDER BY k DESC" if reverse else "")


def _bounds(keys: KeyRange) -> tuple[bytes, ...]:
    return (keys.start,) if keys.stop is None else (keys.start, keys.stop)


def share(limit: int, buckets: int) -> int:
    """How many rows to ask of each bucket: all, or what it probably has to give and some more."""
    return limit if limit <= EXACT_LIMIT else min(limit, limit // buckets * 5 // 4 + 20)


def merged(
    rows: Iterable[tuple[int, bytes, bytes | None, bytes]], each: int, reverse: bool
) -> tuple[list[Row], bytes | None]:
    """The rows in order, as far as they are complete, and the key to which they are; None: to the end of the range.

    A bucket that gave `each` rows may have more behind the last of them.
    """
    found: dict[bytes, bytes] = {}
    last: dict[int, bytes] = {}
    counts: dict[int, int] = {}
    for number, key, unversioned, versioned in rows:
        last[number] = key
        counts[number] = counts.get(number, 0) + 1
        if unversioned is not None:
            found[key] = unversioned
        else:
            found.setdefault(key, versioned)
    ends = [last[number] for number, count in counts.items() if count == each]
    if not ends:
        return sorted(found.items(), reverse=reverse), None
    end = max(ends) if reverse else min(ends)
    complete = [row for row in found.items() if (row[0] >= end if reverse else row[0] <= end)]
    return sorted(complete, reverse=reverse), end
