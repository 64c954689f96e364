"""Row sources: where a plan's index rows come from, in the plan's order. Stateless: a place is a row's key.

`rows(reader, after, limit)` gives up to `limit` rows behind the place `after`; fewer mean that there are no more.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from adapters.contract import KeyRange, Reader, Row, Table, after_prefix
from pbserver.datastore import values
from pbserver.datastore.tables import row_path

_BEHIND_ALL_PATHS = b"\xff"  # a path begins with its kind, which is UTF-8


class Place(NamedTuple):
    """A place in an index: before (`inclusive`) or behind the row with this key."""

    row: bytes
    inclusive: bool = False

    @property
    def key(self) -> bytes:
        """The smallest key that is not before the place."""
        return self.row if self.inclusive else self.row + b"\x00"

    @property
    def stop(self) -> bytes:
        """Where a range ends that comes to the place from below: behind the row if it is `inclusive`."""
        return self.row + b"\x00" if self.inclusive else self.row


class RowSource(Protocol):
    @property
    def descending(self) -> bool:
        """Whether rows come in descending order of their keys, or at least of their values."""
        ...

    def rows(self, reader: Reader, after: Place | None, limit: int, deadline: float) -> list[Row]: ...

    def run(self, prefix: bytes, *, behind: bool) -> Place:
        """The place before or behind all rows whose keys begin with `prefix`."""
        ...


def run_place(prefix: bytes, *, behind: bool, descending: bool) -> Place:
    """RowSource.run() of rows in plain order of their keys."""
    return Place((after_prefix(prefix) or b"") if behind != descending else prefix, inclusive=not descending)


@dataclass(frozen=True, slots=True)
class Ascending:
    """A key range of one scope, ascending."""

    table: Table
    scope: bytes
    keys: KeyRange
    descending: ClassVar[bool] = False

    def rows(self, reader: Reader, after: Place | None, limit: int, deadline: float) -> list[Row]:
        start, stop = self.keys
        if after is not None:
            start = max(start, after.key)
        if stop is not None and start >= stop:
            return []
        return reader.scan(self.table, self.scope, KeyRange(start, stop), limit=limit, deadline=deadline)

    def run(self, prefix: bytes, *, behind: bool) -> Place:
        return run_place(prefix, behind=behind, descending=False)


@dataclass(frozen=True, slots=True)
class Descending:
    """A key range of one scope, descending."""

    table: Table
    scope: bytes
    keys: KeyRange
    descending: ClassVar[bool] = True

    def rows(self, reader: Reader, after: Place | None, limit: int, deadline: float) -> list[Row]:
        start, stop = self.keys
        if after is not None:
            stop = after.stop if stop is None else min(stop, after.stop)
        if stop is not None and start >= stop:
            return []
        return reader.scan(self.table, self.scope, KeyRange(start, stop), limit=limit, reverse=True, deadline=deadline)

    def run(self, prefix: bytes, *, behind: bool) -> Place:
        return run_place(prefix, behind=behind, descending=True)


@dataclass(frozen=True, slots=True)
class ValueDescending:
    """Rows of one property index with values descending, and ascending keys under equal values.

    The index is ascending, so a reverse scan gives the keys under one value the wrong way round: short runs of equal
    values are turned round in memory, a run longer than what was read is scanned forward instead.
    """

    table: Table
    scope: bytes
    keys: KeyRange
    end: Place | None = None  #: the last row (inclusive) or the first that is left out
    descending: ClassVar[bool] = True

    def run(self, prefix: bytes, *, behind: bool) -> Place:
        """`prefix` ends with the whole value. No path begins with 0xff."""
        return Place(prefix + _BEHIND_ALL_PATHS) if behind else Place(prefix, inclusive=True)

    def rows(self, reader: Reader, after: Place | None, limit: int, deadline: float) -> list[Row]:
        found: list[Row] = []
        upper = self.keys.stop
        if after is not None:
            run = self._run_of(after.row)
            behind = after_prefix(run) or b""
            if behind > self.keys.start:  # else the place lies behind all results
                found += self._forward(reader, KeyRange(max(run, after.key), behind), limit, deadline)
            upper = run
        while len(found) < limit and (upper is None or upper > self.keys.start):
            upper = self._take(reader, found, upper, limit, deadline)
        return self._up_to_end(found)[:limit]

    def _take(self, reader: Reader, found: list[Row], upper: bytes | None, limit: int, deadline: float) -> bytes:
        """Appends the runs below `upper`; returns the new upper bound."""
        wanted = limit - len(found) + 1
        page = reader.scan(
            self.table, self.scope, KeyRange(self.keys.start, upper), limit=wanted, reverse=True, deadline=deadline
        )
        if len(page) < wanted:
            upper = self.keys.start
            cut = len(page)
        else:
            upper = self._start_of(page[-1])
            cut = next((i for i, (key, _) in enumerate(page) if key >= upper and key.startswith(upper)), len(page))
        run: list[Row] = []
        run_start = b""
        for row in page[:cut]:
            start = self._start_of(row)
            if start != run_start:
                found += reversed(run)
                run, run_start = [], start
            run.append(row)
        found += reversed(run)
        if cut < len(page):
            found += self._forward(
                reader, KeyRange(max(upper, self.keys.start), after_prefix(upper)), limit - len(found), deadline
            )
        return upper

    def _forward(self, reader: Reader, keys: KeyRange, limit: int, deadline: float) -> list[Row]:
        if limit <= 0 or (keys.stop is not None and keys.start >= keys.stop):
            return []
        return reader.scan(self.table, self.scope, keys, limit=limit, deadline=deadline)

    def _up_to_end(self, rows: list[Row]) -> list[Row]:
        """`rows` without what lies behind `end`. Runs are whole, so only the end's own run needs a look."""
        if self.end is None:
            return rows
        run = self._run_of(self.end.row)
        last = self.end.row
        return [
            (key, value)
            for key, value in rows
            if not key.startswith(run) or key < last or (key == last and self.end.inclusive)
        ]

    def _start_of(self, row: Row) -> bytes:
        key, value = row
        return key[: len(key) - len(row_path(key, value))]

    def _run_of(self, row: bytes) -> bytes:
        """How the rows with the same value begin, of a row whose index value is not at hand."""
        return row[: value_end(row)]


def value_end(row: bytes) -> int:
    """Where the value of a property row ends and its path begins."""
    return values.size(row, row.index(b"\x00", 1) + 1)
