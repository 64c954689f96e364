"""The rows and cells, and what one call turns into. Pure: nothing here talks to a server.

All tables stand in one of HBase's; a row's key is table, scope, key. Its cells are in the family f:

- l: what was written without a version, conditions or not, with the server's clock as its timestamp. A delete writes
  it empty, and is nothing that HBase calls a delete: such a marker hides every put that is not younger, in the same
  millisecond or after a region has come to a server whose clock is behind (12 of 300 puts right after a delete were
  invisible). To HBase's conditions "absent" an empty cell is as good as none.
- p: what was written with a version, with the version as its timestamp. A delete is HBase's own, with the version as
  its timestamp too: it hides what has a lower one, also what comes later, until the purge horizon has passed.

Whoever reads takes l, and p only where there is no l: a write without a version wins.

The Thrift server repeats a request that it gets no answer for. A conditional write that was applied the first time then
fails on what it wrote itself. So each leaves a mark, a cell of its own in the family m, named at random: whoever finds
it after a failure has succeeded. Marks go by themselves, after an hour.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import thriftpy2

from adapters.contract import (
    ABSENT,
    Address,
    Check,
    KeyRange,
    Operation,
    Row,
    Rows,
    Table,
    Write,
    after_prefix,
    row_writes,
)

wire: Any = thriftpy2.load(str(Path(__file__).with_name("thrift2.thrift")), module_name="pbserver_thrift2_thrift")

CELLS, MARKS = b"f", b"m"
UNVERSIONED, VERSIONED = b"l", b"p"
KEY_BYTES = 32_700  # of a row's key, 32,767, less the table and what bounds of scans add
VALUE_BYTES = (10 << 20) - (1 << 16)  # hbase.client.keyvalue.maxsize as HBase comes, less the key
MOST_TIMESTAMP = (1 << 63) - 2  # one above it means the server's clock
PART_BYTES = 4 << 20  # of one request
PART_ROWS = 2_000
MOST_ROWS = 2_000  # of one page
SHORT = frozenset(
    {Table.INDEXES, Table.KINDLESS, Table.KINDS, Table.UNFINISHED}
)  #: tables of rows without much in them
CELL_BYTES = 64  # in a request, beside key and value
#: Rows of volatile tables go by themselves, deleted or not, so that no empty cells stay. An older put goes first.
VOLATILE_MILLISECONDS = 86_400_000

_READ = [wire.TColumn(family=CELLS)]
_VOLATILE = {b"_ttl": VOLATILE_MILLISECONDS.to_bytes(8, "big")}


def row_key(address: Address) -> bytes:
    table, scope, _, key = address
    value: bytes = table._value_
    return value + scope + key


# -- writing


@dataclass(slots=True)
class Plan:
    """A write call without conditions, sorted by requests. Rows of it may be written in any order."""

    puts: list[Any] = field(default_factory=list)
    deletes: list[Any] = field(default_factory=list)
    removed: list[Write] = field(default_factory=list)  #: deleted without version: see `remove`

    def add(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            return
        address, value, _, version = operation
        if version is not None:
            self._add_version(row_key(address), value, min(version, MOST_TIMESTAMP))
        elif value is not None:
            self.puts.append(unversioned(address, value))
        else:
            self.removed.append(operation)

    def _add_version(self, row: bytes, value: bytes | None, version: int) -> None:
        if value is None:
            self.deletes.append(_delete(row, version))
        else:
            cell = wire.TColumnValue(family=CELLS, qualifier=VERSIONED, value=value, timestamp=version)
            self.puts.append(wire.TPut(row=row, columnValues=[cell]))

    def remove(self, results: Iterable[Any]) -> None:
        """Adds the deletes of `removed`, whose rows are `results`.

        What has a version is deleted with just that: the row may be written with a higher one afterwards.
        """
        for write, result in zip(self.removed, results, strict=True):
            for cell in result.columnValues:
                if cell.qualifier == VERSIONED:
                    self.deletes.append(_delete(row_key(write.address), cell.timestamp))
                elif cell.value:
                    self.puts.append(unversioned(write.address, b""))


def planned(operations: Sequence[Operation], rows: Sequence[Rows]) -> Plan:
    plan = Plan()
    for operation in operations:
        plan.add(operation)
    for write in row_writes(rows):
        plan.add(write)
    return plan


def unversioned(address: Address, value: bytes, mark: bytes | None = None) -> Any:
    """A put; without a value it deletes."""
    cells = [wire.TColumnValue(family=CELLS, qualifier=UNVERSIONED, value=value)]
    if mark is not None:
        cells.append(wire.TColumnValue(family=MARKS, qualifier=mark, value=b""))
    return wire.TPut(row=row_key(address), columnValues=cells, attributes=_VOLATILE if address.table.volatile else None)


def _delete(row: bytes, version: int) -> Any:
    """Given beside the column: a timestamp of the whole delete would be ignored."""
    column = wire.TColumn(family=CELLS, qualifier=VERSIONED, timestamp=version)
    return wire.TDelete(row=row, columns=[column], deleteType=wire.TDeleteType.DELETE_COLUMNS)


def new_mark() -> bytes:
    return secrets.token_bytes(8)


def parts(requests: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Puts or deletes in portions that a server holds in memory without effort."""
    start = size = 0
    for end, request in enumerate(requests):
        added = CELL_BYTES + len(request.row)
        if isinstance(request, wire.TPut):
            added += sum(len(cell.value) for cell in request.columnValues)
        if end > start and (size + added > PART_BYTES or end - start == PART_ROWS):
            yield requests[start:end]
            start, size = end, 0
        size += added
    if start < len(requests):
        yield requests[start:]


# -- reading


def get(row: bytes, mark: bytes | None = None) -> Any:
    if mark is None:
        return wire.TGet(row=row, columns=_READ)
    return wire.TGet(row=row, columns=[*_READ, wire.TColumn(family=MARKS, qualifier=mark)])


def value_of(result: Any) -> bytes | None:
    """The row's value; None where there is no row."""
    found: bytes | None = None
    for cell in result.columnValues:
        if cell.qualifier == UNVERSIONED and cell.family == CELLS:
            return cell.value or None
        if cell.family == CELLS:
            found = cell.value
    return found


def has_mark(result: Any) -> bool:
    return any(cell.family == MARKS for cell in result.columnValues)


def wanted(operation: Operation) -> bytes | None:
    """What a condition expects to be there; None: nothing."""
    expect = operation.expect
    return None if expect is ABSENT else expect  # type: ignore[return-value]


class Span(NamedTuple):
    """Rows from `start` to before `stop`; a reverse scan comes from above."""

    prefix: bytes  #: of all rows of the scope
    start: bytes
    stop: bytes
    reverse: bool

    def request(self, rows: int) -> tuple[Any, int]:
        """A scan, and how many rows to ask of it: some may lie beside the span, which `rows_of` leaves out.

        Going backwards HBase begins with the row it is given and ends before the other: `stop` is asked for too, and
        below `start` there is no last key to end before.
        """
        asked = rows + self.reverse
        first, last = (self.stop, below(self.start)) if self.reverse else (self.start, self.stop)
        return wire.TScan(
            startRow=first, stopRow=last, columns=_READ, caching=asked, limit=asked, reversed=self.reverse or None
        ), asked

    def rows_of(self, results: Iterable[Any]) -> Iterator[Row]:
        _, start, stop, _ = self
        length = len(self.prefix)
        for result in results:
            row, cells = result.row, result.columnValues
            value = cells[0].value if len(cells) == 1 else value_of(result)
            if value and start <= row < stop:
                yield row[length:], value

    def after(self, row: bytes) -> "Span":
        """What is left when `row` was read."""
        return self._replace(stop=row) if self.reverse else self._replace(start=row + b"\x00")


def span(table: Table, scope: bytes, keys: KeyRange, *, reverse: bool) -> Span:
    prefix = table.value + scope
    stop = after_prefix(prefix) if keys.stop is None else prefix + keys.stop
    assert stop is not None, "names of tables are letters"
    return Span(prefix, prefix + keys.start, stop, reverse)


def rows_at_first(table: Table) -> int:
    """How many rows the first page of a scan asks for, whatever they hold."""
    return MOST_ROWS if table in SHORT else 64


def rows_at_once(results: Sequence[Any]) -> int:
    """How many rows the next page asks for, if they are like these."""
    size = sum(CELL_BYTES + sum(len(cell.value) for cell in result.columnValues) for result in results)
    return min(max(PART_BYTES * len(results) // size, 1), MOST_ROWS)


def below(row: bytes) -> bytes:
    """A key before `row`, with few rows between them, if any."""
    if row.endswith(b"\x00"):
        return row[:-1]
    return row[:-1] + bytes([row[-1] - 1]) + b"\xff" * 8
