"""Carries out a plan: reads rows, drops what does not belong, fetches entities, and says where it stands.

A query goes on behind any result by that result's place in the order (Position), on any worker, with nothing kept,
and though another index serves it by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from adapters.contract import Reader, Row, Table
from pbserver.datastore import entities, keys, needs, tables
from pbserver.datastore.errors import Internal, NeedIndex
from pbserver.datastore.matching import Item, Matcher, Values
from pbserver.datastore.planner import Plan, place_of, read_row
from pbserver.datastore.queries import Position
from pbserver.datastore.ranges import Place

_PAGE = 1000
_FIRST_FETCH = 64
_GROUPS_AT_ONCE = 64


class Limits(NamedTuple):
    """Bounds of one answer; a query goes on with Next. What one call skips is Google's number."""

    results: int = 1000
    result_bytes: int = 2_000_000
    skipped: int = 1000
    sorted_results: int = 100_000


DEFAULT_LIMITS = Limits()


class Page(NamedTuple):
    """Rows in the plan's order, and their stored entities where the stream had to read them anyway."""

    rows: list[Row]
    stored: list[bytes] | None


class View(NamedTuple):
    """What a query reads from. `steady`: index rows and entities are of one state, so that each row has its entity."""

    reader: Reader
    deadline: float
    steady: bool


class Stream(Protocol):
    def take(self, after: Position | None, limit: int) -> Page:
        """Up to `limit` results behind a place, or from the start cursor; fewer: there are no more."""
        ...


@dataclass(slots=True)
class Progress:
    """Where a query stands: behind `after`; so many results still to skip and (None: no limit) to give."""

    after: Position | None
    offset: int
    remaining: int | None


@dataclass(slots=True)
class Batch:
    """One answer to `plan`. `frames` are pieces of QueryResult; `rows` the index rows they came from."""

    plan: Plan
    frames: list[bytes]
    rows: list[Row]
    skipped: int
    last_skipped: Row | None
    more: bool


class Execution:
    """One call's work on a query. Used by one thread, while `reader` is open."""

    def __init__(self, plan: Plan, reader: Reader, limits: Limits, deadline: float, *, steady: bool = True) -> None:
        self._plan = plan
        self._view = View(reader, deadline, steady)
        self._limits = limits
        self._stream = _stream(plan, self._view, limits)

    def batch(self, progress: Progress, count: int) -> Batch:
        """Skips, then gives up to `count` results; moves `progress` on."""
        batch = Batch(self._plan, [], [], 0, None, more=False)
        if progress.offset:
            self._skip(progress, batch)
        if progress.offset:  # more to skip than one call does, or nothing left
            return batch
        wanted = min(count, self._limits.results)
        if progress.remaining is not None:
            wanted = min(wanted, progress.remaining)
        one_more = progress.remaining is None or progress.remaining > wanted
        page = self._stream.take(progress.after, wanted + one_more)
        batch.more = len(page.rows) > wanted
        batch.rows = page.rows[:wanted]
        self._fill(batch, page.stored)
        self._advance(progress, batch.rows)
        if progress.remaining is not None:
            progress.remaining -= len(batch.rows)
        return batch

    def count(self, progress: Progress) -> int:
        """How many results there are; reads no entity unless the plan must check or tell repeated ones apart."""
        while progress.offset:
            if not self._skip(progress, Batch(self._plan, [], [], 0, None, more=False)):
                return 0
        total = 0
        while progress.remaining is None or total < progress.remaining:
            wanted = _PAGE if progress.remaining is None else min(_PAGE, progress.remaining - total)
            rows = self._stream.take(progress.after, wanted).rows
            total += len(rows)
            self._advance(progress, rows)
            if len(rows) < wanted:
                break
        return total

    def _skip(self, progress: Progress, batch: Batch) -> bool:
        """Skips what one call may skip; whether there was that much."""
        wanted = min(progress.offset, self._limits.skipped)
        more_to_skip = progress.offset > wanted
        rows = self._stream.take(progress.after, wanted + more_to_skip).rows
        batch.more = len(rows) > wanted
        rows = rows[:wanted]
        batch.skipped = len(rows)
        batch.last_skipped = rows[-1] if rows else None
        self._advance(progress, rows)
        progress.offset -= len(rows)
        return len(rows) == wanted

    def _advance(self, progress: Progress, rows: Sequence[Row]) -> None:
        if rows:
            progress.after = position(self._plan, rows[-1][0])

    def _fill(self, batch: Batch, stored: list[bytes] | None) -> None:
        """Sets the frames; cuts the batch behind the result that passes the byte limit."""
        query = self._plan.query
        if query.projection:
            batch.frames = [self._projected(row) for row, _ in batch.rows]
            return
        if query.keys_only:
            batch.frames = [
                keys.keys_only_frame(query.partition, tables.row_path(row, value)) for row, value in batch.rows
            ]
            return
        if stored is None and not self._view.steady:
            self._drop_missing(batch)
        elif stored is None:
            batch.frames = self._fetch(batch.rows)
        else:
            batch.frames = self._within_bytes(stored[: len(batch.rows)])
        if len(batch.frames) < len(batch.rows):
            del batch.rows[len(batch.frames) :]
            batch.more = True

    def _drop_missing(self, batch: Batch) -> None:
        """Entities that were sorted may be gone by now."""
        found = zip(batch.rows, _fetch_any(self._view, self._plan, batch.rows), strict=True)
        there = [(row, data) for row, data in found if data is not None]
        batch.rows = [row for row, _ in there]
        batch.frames = [data for _, data in there]

    def _projected(self, row: bytes) -> bytes:
        """The result that an index row holds; no entity is read."""
        query = self._plan.query
        ordered, path = read_row(self._plan, row)
        named = dict(zip(query.ordered_names, ordered, strict=True))
        projected = [(name, named[name]) for name in query.projection]
        return entities.projected_frame(query.partition, path, projected)

    def _fetch(self, rows: list[Row]) -> list[bytes]:
        """Entities of `rows`, in two steps where there are many, so that large ones are not read for nothing."""
        limit = self._limits.result_bytes
        if len(rows) <= _FIRST_FETCH:
            return self._within_bytes(fetch(self._view, self._plan, rows))
        frames = fetch(self._view, self._plan, rows[:_FIRST_FETCH])
        rest = rows[_FIRST_FETCH:]
        while rest:
            size = sum(map(len, frames))
            if size > limit:
                break
            step = max(1, min(len(rest), (limit - size) * len(frames) // (size + 1) + 1))
            frames += fetch(self._view, self._plan, rest[:step])
            rest = rest[step:]
        return self._within_bytes(frames)

    def _within_bytes(self, frames: list[bytes]) -> list[bytes]:
        limit = self._limits.result_bytes
        if sum(map(len, frames)) <= limit:
            return frames
        size = 0
        for index, each in enumerate(frames):
            size += len(each)
            if size > limit:
                return frames[: index + 1]
        return frames


def fetch(view: View, plan: Plan, rows: list[Row]) -> list[bytes]:
    """The stored entities that index rows lead to, from a steady view: Internal where there is none."""
    found = _fetch_any(view, plan, rows)
    if None in found:
        raise Internal("an index row leads to no entity; run a verification of the store")
    return found  # type: ignore[return-value]


def _fetch_any(view: View, plan: Plan, rows: list[Row]) -> list[bytes | None]:
    scopes, columns = tables.entity_columns(plan.query.partition, rows)
    return view.reader.fetch(Table.GROUPS, scopes, columns, deadline=view.deadline)


def fetch_matching(view: View, plan: Plan, matcher: Matcher, rows: list[Row]) -> list[tuple[Row, bytes, Values]]:
    """The rows that lead to entities which belong to the query's results, those entities, and their values.

    Where the view is not steady a row may be older or newer than its entity: then it does not count.
    """
    stored: Sequence[bytes | None] = fetch(view, plan, rows) if view.steady else _fetch_any(view, plan, rows)
    found = []
    for row, data in zip(rows, stored, strict=True):
        if data is not None:
            values = matcher.matching(tables.row_path(*row), entities.parse(data))
            if values is not None:
                found.append((row, data, values))
    return found


def _stream(plan: Plan, view: View, limits: Limits) -> Stream:
    stream: Stream = (SortedStream if plan.sort else ScanStream)(plan, view, limits)
    return GroupedStream(plan, stream) if plan.query.group_by else stream


class ScanStream:
    """Rows as the plan's source gives them."""

    def __init__(self, plan: Plan, view: View, limits: Limits) -> None:
        del limits
        self._plan = plan
        self._view = view
        self._matcher = Matcher(plan.query)
        self._from_index = plan.query.keys_only or bool(plan.query.projection)

    def take(self, after: Position | None, limit: int) -> Page:
        if limit <= 0:
            return Page([], None)
        start = self._plan.query.start if after is None else after
        place = None if start is None else place_of(self._plan, start)
        whole = not self._view.steady and not self._from_index
        rows: list[Row] = []
        stored: list[bytes] = []
        while len(rows) < limit:
            wanted = limit - len(rows)
            read = self._plan.source.rows(self._view.reader, place, wanted, self._view.deadline)
            if whole:
                self._keep_matching(read, rows, stored)
            elif not self._plan.distinct:
                return Page(read, None)
            else:
                rows += self._first_rows(read)
            if len(read) < wanted:
                break
            place = Place(read[-1][0])
        return Page(rows, stored if whole else None)

    def _first_rows(self, rows: list[Row]) -> list[Row]:
        """`rows` without those whose entity has an earlier row in the scan. Reads entities with several rows only."""
        several = [row for row in rows if tables.is_repeated(row[1])]
        if not several:
            return rows
        first = {
            row[0]
            for row, _, values in fetch_matching(self._view, self._plan, self._matcher, several)
            if read_row(self._plan, row[0])[0] == self._matcher.order_values(values)
        }
        return [row for row in rows if row[0] in first or not tables.is_repeated(row[1])]

    def _keep_matching(self, read: list[Row], rows: list[Row], stored: list[bytes]) -> None:
        """Keeps the rows that are what their entities say now, with the entities."""
        for row, data, values in fetch_matching(self._view, self._plan, self._matcher, read):
            if read_row(self._plan, row[0])[0] == self._matcher.order_values(values):
                rows.append(row)
                stored.append(data)


class GroupedStream:
    """The first row of each group. Groups lie together, so the rest of a group is skipped, not read."""

    def __init__(self, plan: Plan, stream: Stream) -> None:
        self._plan = plan
        self._stream = stream
        self._width = len(plan.query.group_by)

    def take(self, after: Position | None, limit: int) -> Page:
        rows: list[Row] = []
        while len(rows) < limit:
            group = after.values[: self._width] if after is not None else None
            wanted = min(limit - len(rows) + 1, _GROUPS_AT_ONCE)
            read = self._stream.take(after and Position(after.values[: self._width], b"", before=False), wanted).rows
            for row in read:
                before, group = group, read_row(self._plan, row[0])[0][: self._width]
                if group != before:
                    rows.append(row)
            if len(read) < wanted or group is None:
                break
            after = Position(group, b"", before=False)
        return Page(rows[:limit], None)


class SortedStream:
    """All matching entities, sorted in memory. A row's key is here its ordered values and its path."""

    def __init__(self, plan: Plan, view: View, limits: Limits) -> None:
        self._plan = plan
        self._view = view
        self._most = limits.sorted_results
        self._matcher = Matcher(plan.query)
        self._sorted: list[Row] | None = None

    def take(self, after: Position | None, limit: int) -> Page:
        query = self._plan.query
        if self._sorted is None:
            self._sorted = self._sort()
        start = query.start if after is None else after
        rows: list[Row] = []
        for row in self._sorted:
            if len(rows) == limit:
                break
            place = Position(*read_row(self._plan, row[0]), before=False)
            if start is not None and not self._matcher.is_behind(place, start):
                continue
            if query.end is not None and self._matcher.is_behind(place, query.end):
                break
            rows.append(row)
        return Page(rows, None)

    def _sort(self) -> list[Row]:
        seen: dict[bytes, bytes] = {}
        found: list[Item] = []
        after = None
        while True:
            rows = self._plan.source.rows(self._view.reader, after, _PAGE, self._view.deadline)
            self._collect({tables.row_path(*row): row for row in rows}, seen, found)
            if len(found) > self._most:
                wanted = needs.need(self._plan.query)
                raise NeedIndex(
                    f"the query needs a composite index: more than {self._most} entities would have to be sorted"
                    + (f". The index is:\n{needs.as_yaml(needs.recommended(wanted))}" if wanted else "")
                )
            if len(rows) < _PAGE:
                break
            after = Place(rows[-1][0])
        return [(b"".join(place) + path, seen[path]) for place, path in self._matcher.sort(found)]

    def _collect(self, rows: dict[bytes, Row], seen: dict[bytes, bytes], found: list[Item]) -> None:
        """Adds the items of entities not seen before; `seen` keeps the value of the row that led to each."""
        matcher = self._matcher
        fresh = {path: row for path, row in rows.items() if path not in seen}
        seen.update((path, value) for path, (_, value) in fresh.items())
        every = bool(self._plan.query.projection)
        for row, _, values in fetch_matching(self._view, self._plan, matcher, [*fresh.values()]):
            places = matcher.all_values(values) if every else [matcher.order_values(values)]
            found += ((place, tables.row_path(*row)) for place in places)


def position(plan: Plan, row: bytes) -> Position:
    """The place behind a row of the plan."""
    return Position(*read_row(plan, row), before=False)
