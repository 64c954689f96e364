# ruff: noqa: S608 - the texts are built of constants and placeholders alone; what comes from outside is a parameter
"""The SQL, and what one write call turns into. Pure: nothing here talks to a server.

All rows stand in one table with the primary key (tbl, k): k is scope + key in byte order. A transaction locks the rows
whose values it expects. Where it expects none it inserts; if the key is there, the insert sets a NULL, so it fails.

A row that is only checked is the hard part. Galera certifies what a transaction *changes*; locks do not leave their
node. Two transactions on two nodes that each read, even FOR UPDATE, what the other changes both commit: write skew,
60 times of 60. So a check must leave a mark that is certified:

- Rows of META (a project's indexes, which every commit checks and few change) have guards: a few rows, addresses
  hashed onto them. A check inserts a row with a foreign key to the guard and deletes it again: Galera certifies that
  as a shared key of the guard, so checks do not disturb each other. Whoever changes a row of META replaces its guard,
  which is an exclusive key: check and change never both commit (0 of 60; updating the guard is not enough: 60 of 60).
- Other rows are checked seldom: they are deleted and inserted again, or, where absence is checked, inserted and
  deleted.

Servers whose locks hold everywhere take the guards by plain shared and exclusive locks. Guards also stand for rows that
are absent, which READ COMMITTED cannot lock; and READ COMMITTED it is, since the locks on gaps of the stricter levels
make inserts of neighbours deadlock.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from adapters.contract import ABSENT, ANY, Check, KeyRange, Operation, Rows, Table, after_prefix
from adapters.errors import Conflict

GUARDS = 256
ROWS_AT_ONCE = 500  # in one statement; beyond 1,000 MariaDB makes a join of IN (...)
STATEMENT_BYTES = 1 << 20
KEY_BYTES = 3071  # InnoDB's 3072, less the table's byte
OVERHEAD_BYTES = 1 << 14  # of a statement beside one value: its key in hex, its words

Place = tuple[int, bytes]  # a row's primary key
Cells = tuple[int, bytes, bytes]  # and its value
Chunked = TypeVar("Chunked", Place, Cells)


class Statement(NamedTuple):
    text: str  #: with %s where a value belongs
    values: Sequence[int | bytes] = ()


COMMIT = Statement("COMMIT")
ROLLBACK = Statement("ROLLBACK")
BEGIN_SNAPSHOT = (
    Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
    Statement("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"),
)
CHECK = Statement("SELECT tbl FROM pbserver_rows LIMIT 1")
DELETE_SOME = Statement("DELETE FROM pbserver_rows ORDER BY tbl, k LIMIT 10000")
TABLES = 3
LAYOUT = Statement(
    "SELECT t.table_name, t.engine, c.column_type FROM information_schema.tables t JOIN information_schema.columns c"
    " ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.ordinal_position = 2"
    " WHERE t.table_schema = DATABASE() AND t.table_name IN"
    " ('pbserver_rows', 'pbserver_guards', 'pbserver_guard_uses')"
)
COUNT_GUARDS = Statement("SELECT COUNT(*) FROM pbserver_guards")
KEY_TYPE = f"varbinary({KEY_BYTES})"
ENGINES = {"innodb": "InnoDB", "ndbcluster": "ndbcluster"}


def creation(engine: str) -> list[Statement]:
    """The tables; `engine` is a key of ENGINES."""
    end = f"ENGINE={ENGINES[engine]} DEFAULT CHARSET=binary"
    return [
        Statement(
            "CREATE TABLE IF NOT EXISTS pbserver_rows (tbl TINYINT UNSIGNED NOT NULL,"
            f" k VARBINARY({KEY_BYTES}) NOT NULL, v LONGBLOB NOT NULL, PRIMARY KEY (tbl, k)) {end} ROW_FORMAT=DYNAMIC"
        ),
        Statement(
            "CREATE TABLE IF NOT EXISTS pbserver_guards (guard SMALLINT UNSIGNED NOT NULL PRIMARY KEY,"
            f" replaced BIGINT UNSIGNED NOT NULL) {end}"
        ),
        Statement(
            "CREATE TABLE IF NOT EXISTS pbserver_guard_uses (guard SMALLINT UNSIGNED NOT NULL,"
            " id BIGINT UNSIGNED NOT NULL, PRIMARY KEY (guard, id),"
            f" FOREIGN KEY (guard) REFERENCES pbserver_guards (guard)) {end}"
        ),
        Statement(
            f"INSERT IGNORE INTO pbserver_guards (guard, replaced) VALUES {_groups(2, GUARDS)}",
            [value for guard in range(GUARDS) for value in (guard, 0)],
        ),
    ]


@dataclass(slots=True)
class Batch:
    """A write call sorted by what has to be done to its rows."""

    expected: list[tuple[int, Place, bytes | None]] = field(default_factory=list)  #: position, row, value or absent
    locked: list[Cells] = field(default_factory=list)  #: must be there with this value
    guarded: list[Cells] = field(default_factory=list)  #: the same under a guard
    missing: list[Place] = field(default_factory=list)  #: must not be there, under a guard
    shared: set[int] = field(default_factory=set)  #: guards
    exclusive: set[int] = field(default_factory=set)
    removed: list[Place] = field(default_factory=list)  #: deleted to be inserted again
    inserted: list[Cells] = field(default_factory=list)
    written: list[Cells] = field(default_factory=list)
    deleted: list[Place] = field(default_factory=list)

    def add(self, index: int, operation: Operation, certified: bool) -> None:
        (table, scope, _, key), expect = operation.address, operation.expect
        place = table._value_[0], scope + key
        value = None if isinstance(operation, Check) else operation.value
        if expect is not ANY:
            self.expected.append((index, place, None if expect is ABSENT else expect))
        if isinstance(operation, Check) or (expect is not ANY and value == (None if expect is ABSENT else expect)):
            self._check(place, operation, certified)
            return
        if table is Table.META:
            self.exclusive.add(guard_of(place))
        if isinstance(expect, bytes):
            self.locked.append((*place, expect))
        if value is None:
            self.deleted.append(place)
        elif expect is ABSENT:
            self.inserted.append((*place, value))
        else:
            self.written.append((*place, value))

    def _check(self, place: Place, operation: Operation, certified: bool) -> None:
        """A row that must stay as it is."""
        expect = operation.expect
        if operation.address.table is Table.META and expect is not ANY:
            self.shared.add(guard_of(place))
            if isinstance(expect, bytes):
                self.guarded.append((*place, expect))
            else:
                self.missing.append(place)
        elif expect is ABSENT:
            self.inserted.append((*place, b"\x00"))
            self.deleted.append(place)
        elif isinstance(expect, bytes):
            self.locked.append((*place, expect))
            if certified:
                self.removed.append(place)
                self.inserted.append((*place, expect))

    @property
    def places(self) -> list[Place]:
        """Of the rows that the call has expectations of."""
        return [place for _, place, _ in self.expected]

    @property
    def size_bytes(self) -> int:
        """Of all keys and values; as SQL they may have twice as many."""
        places = (*self.missing, *self.removed, *self.deleted)
        rows = (*self.locked, *self.guarded, *self.inserted, *self.written)
        return sum([len(key) for _, key in places]) + sum([len(key) + len(value) for _, key, value in rows])

    def statements(self, *, certified: bool) -> list[Statement]:
        """The transaction: what has to be locked, then what has to hold (else it fails), then the changes."""
        return [*self._locks(certified), *self._conditions(), *self._changes()]

    def _locks(self, certified: bool) -> Iterator[Statement]:
        shared = self.shared - self.exclusive
        if self.exclusive:
            yield _replaced(self.exclusive) if certified else _locked(self.exclusive, "FOR UPDATE")
        if shared and certified:
            yield from _used(shared)
        elif shared:
            yield _locked(shared, "LOCK IN SHARE MODE")

    def _conditions(self) -> Iterator[Statement]:
        for rows in _chunks(sorted(self.locked)):
            yield _presence(rows, " FOR UPDATE")
        for rows in _chunks(self.guarded):
            yield _presence(rows, "")
        for places in _chunks(self.missing):
            yield _absence(places)

    def _changes(self) -> Iterator[Statement]:
        yield from map(_deletion, _chunks(self.removed))
        new = {row[:2] for row in self.inserted}
        for rows in _chunks(sorted(self.inserted + self.written)):
            yield _upsertion(rows, [row[:2] for row in rows if row[:2] in new])
        yield from map(_deletion, _chunks(sorted(self.deleted)))

    def check_all(self, found: Mapping[Place, bytes]) -> None:
        """Raises Conflict for the first expectation that does not hold."""
        for index, place, value in self.expected:
            current = found.get(place)
            if current != value:
                raise Conflict(f"operation {index} found another value than expected", index=index, current=current)


def sorted_out(operations: Iterable[Operation], rows: Iterable[Rows], *, certified: bool) -> Batch:
    """`certified`: the store finds conflicts by what is changed, as Galera does, and not by locks alone."""
    batch = Batch()
    for index, operation in enumerate(operations):
        batch.add(index, operation, certified)
    for table, scope, _, values, _ in rows:
        number = table._value_[0]
        if table is Table.META:
            batch.exclusive.update(guard_of((number, scope + key)) for key in values)
        batch.written += [(number, scope + key, value) for key, value in values.items() if value is not None]
        batch.deleted += [(number, scope + key) for key, value in values.items() if value is None]
    return batch


def guard_of(place: Place) -> int:
    return crc32(place[1]) % GUARDS


def selections(places: Sequence[Place]) -> list[Statement]:
    """What reads the rows at `places`, some hundred each."""
    return [*map(selection, _chunks(places))]


def one_view(statements: Sequence[Statement]) -> Sequence[Statement]:
    """The statements seeing one state of the rows, as a single one does."""
    return statements if len(statements) == 1 else [*BEGIN_SNAPSHOT, *statements, COMMIT]


def lookup(place: Place) -> Statement:
    return Statement("SELECT v FROM pbserver_rows WHERE tbl = %s AND k = %s", place)


def selection(places: Sequence[Place]) -> Statement:
    condition, values = _among(places)
    return Statement(f"SELECT tbl, k, v FROM pbserver_rows FORCE INDEX (PRIMARY) WHERE {condition}", values)


def found_rows(answers: Iterable[Iterable[Sequence[Any]]]) -> dict[Place, bytes]:
    """The rows that selections found."""
    return {(table, key): value for rows in answers for table, key, value in rows}


def _among(places: Iterable[Place]) -> tuple[str, list[int | bytes]]:
    """A condition that names rows. Table by table: pairs (tbl, k) IN (...) take the server longer to prepare."""
    tables: dict[int, list[bytes]] = {}
    for table, key in places:
        tables.setdefault(table, []).append(key)
    values: list[int | bytes] = []
    for table, keys in tables.items():
        values += [table, *keys]
    return " OR ".join([_of_table_text(len(keys)) for keys in tables.values()]), values


@lru_cache(maxsize=256)
def _of_table_text(count: int) -> str:
    return f"tbl = %s AND k IN {_groups(count, 1)}"


def range_selection(table: Table, scope: bytes, keys: KeyRange, limit: int, reverse: bool) -> Statement | None:
    """None when no key can lie in the range."""
    low = scope + keys.start
    high = after_prefix(scope) if keys.stop is None else scope + keys.stop
    if limit <= 0 or (high is not None and low >= high):
        return None
    below = "" if high is None else " AND k < %s"
    text = f"SELECT k, v FROM pbserver_rows FORCE INDEX (PRIMARY) WHERE tbl = %s AND k >= %s{below} ORDER BY k"
    bounds = (low,) if high is None else (low, high)
    return Statement(text + (" DESC" if reverse else "") + " LIMIT %s", (table._value_[0], *bounds, limit))


def _upsertion(rows: Sequence[Cells], new: Sequence[Place]) -> Statement:
    """Fails if one of the rows that are `new` is there: no value is NULL."""
    text = _upsert_text(len(rows))
    if not new:
        return Statement(text + "VALUES(v)", _flat(rows))
    condition, values = _among(new)
    return Statement(f"{text}IF({condition}, NULL, VALUES(v))", _flat(rows) + values)


@lru_cache(maxsize=256)
def _upsert_text(count: int) -> str:
    return f"INSERT INTO pbserver_rows (tbl, k, v) VALUES {_groups(3, count)} ON DUPLICATE KEY UPDATE v = "


def _flat(rows: Iterable[Iterable[int | bytes]]) -> list[int | bytes]:
    return [*chain.from_iterable(rows)]


def _deletion(places: Sequence[Place]) -> Statement:
    """The limit cuts nothing off. It keeps the server from reading, and locking, the whole of a small table: with it,
    only a table of no more rows than that is read so.
    """
    condition, values = _among(places)
    return Statement(f"DELETE FROM pbserver_rows WHERE {condition} LIMIT {len(places):d}", values)


def _presence(rows: Sequence[Cells], locking: str) -> Statement:
    """Fails with an error (see UNMET in errors.py) unless all of the rows are there: no number is below zero."""
    return Statement(_presence_text(len(rows), locking), _flat(rows))


@lru_cache(maxsize=256)
def _presence_text(count: int, locking: str) -> str:
    # One alone, which is what a put has, is looked up without a plan.
    rows = "tbl = %s AND k = %s AND v = %s" if count == 1 else f"(tbl, k, v) IN ({_groups(3, count)})"
    return (
        f"SELECT CAST(COUNT(*) AS UNSIGNED) - {count:d} INTO @pbserver FROM pbserver_rows FORCE INDEX (PRIMARY)"
        f" WHERE {rows}{locking}"
    )


def _absence(places: Sequence[Place]) -> Statement:
    """Fails likewise if one of the rows is there."""
    condition, values = _among(places)
    text = "SELECT CAST(0 AS UNSIGNED) - COUNT(*) INTO @pbserver FROM pbserver_rows FORCE INDEX (PRIMARY) WHERE "
    return Statement(text + condition, values)


def _locked(guards: Iterable[int], how: str) -> Statement:
    guards = sorted(guards)
    text = f"SELECT COUNT(*) INTO @pbserver FROM pbserver_guards WHERE guard IN {_groups(len(guards), 1)} {how}"
    return Statement(text, guards)


def _replaced(guards: Iterable[int]) -> Statement:
    values = [value for guard in sorted(guards) for value in (guard, random.getrandbits(63))]
    return Statement(f"REPLACE INTO pbserver_guards (guard, replaced) VALUES {_groups(2, len(values) // 2)}", values)


def _used(guards: Iterable[int]) -> Iterator[Statement]:
    for guard in sorted(guards):
        use = guard, random.getrandbits(63)
        yield Statement("INSERT INTO pbserver_guard_uses (guard, id) VALUES (%s, %s)", use)
        yield Statement("DELETE FROM pbserver_guard_uses WHERE guard = %s AND id = %s", use)


def _groups(columns: int, count: int) -> str:
    return ",".join(["(" + ",".join(["%s"] * columns) + ")"] * count)


def _chunks(rows: Sequence[Chunked]) -> Iterator[Sequence[Chunked]]:
    """Rows as they go into one statement each: a bounded number, and bytes unless one row alone has more."""
    start = size = 0
    for end, row in enumerate(rows):
        added = len(row[1]) + len(row[-1])  # of the key, and of the value if there is one
        if end - start == ROWS_AT_ONCE or (end > start and size + added > STATEMENT_BYTES):
            yield rows[start:end]
            start, size = end, 0
        size += added
    if start < len(rows):
        yield rows[start:]
