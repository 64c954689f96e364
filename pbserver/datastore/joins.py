"""Zigzag merge join: the rows that several index ranges have in common.

Every range has a prefix of its own and goes on with the same suffix: the values of the query's order and the path.
The ranges take turns: each is asked for its first suffix that is not before the one the others have reached. So the
cost is that of the matches and of the skips between them, not that of the ranges.

Source: Google I/O 2009, "Building scalable, complex apps on App Engine" (B. Slatkin), where it was first shown.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from adapters.contract import KeyRange, Reader, Row, Table, after_prefix
from pbserver.datastore.ranges import Place, run_place

_FIRST_PAGE = 8
_LARGEST_PAGE = 256


@dataclass(frozen=True, slots=True)
class MergeJoin:
    """Rows are those of the first prefix. `suffixes` bounds what follows the prefixes, in every range."""

    table: Table
    scope: bytes
    prefixes: tuple[bytes, ...]
    suffixes: KeyRange
    descending: bool = False

    def run(self, prefix: bytes, *, behind: bool) -> Place:
        return run_place(prefix, behind=behind, descending=self.descending)

    def rows(self, reader: Reader, after: Place | None, limit: int, deadline: float) -> list[Row]:
        bounds = self._bounds_behind(after)
        feeds = [_Feed(self, prefix, bounds, reader, deadline) for prefix in self.prefixes]
        first = feeds[0]
        found: list[Row] = []
        suffix = first.next()
        while suffix is not None and len(found) < limit:
            common = _common(feeds, suffix)
            if common is None:
                break
            found.append((self.prefixes[0] + common, first.value()))
            suffix = first.next()
        return found

    def _bounds_behind(self, after: Place | None) -> KeyRange:
        """The suffixes that come behind a place in the first range."""
        start, stop = self.suffixes
        if after is None:
            return self.suffixes
        place = Place(after.row[len(self.prefixes[0]) :], after.inclusive)
        if not self.descending:
            return KeyRange(max(start, place.key), stop)
        return KeyRange(start, place.stop if stop is None else min(stop, place.stop))


def _common(feeds: "list[_Feed]", suffix: bytes) -> bytes | None:
    """The first suffix from `suffix`, where the first range stands, that all ranges have; None: there is none."""
    agreed = 1
    turn = 0
    while agreed < len(feeds):
        turn = (turn + 1) % len(feeds)
        reached = feeds[turn].seek(suffix)
        if reached is None:
            return None
        agreed = agreed + 1 if reached == suffix else 1
        suffix = reached
    return suffix


class _Feed:
    """One range, read in pages: short ones while it is skipped through, longer ones while it is read on."""

    def __init__(self, join: MergeJoin, prefix: bytes, bounds: KeyRange, reader: Reader, deadline: float) -> None:
        self._join = join
        self._prefix = prefix
        self._bounds = bounds
        self._reader = reader
        self._deadline = deadline
        self._page: list[bytes] = []  #: suffixes, always ascending
        self._values: list[bytes] = []
        self._at = 0
        self._size = _FIRST_PAGE
        self._given = 0

    def next(self) -> bytes | None:
        """The suffix behind the last one given; at the beginning the first one; None at the end."""
        if not self._page:
            return self._load(self._bounds)
        start, stop = self._bounds
        if self._join.descending:
            if self._at:
                return self._give(self._at - 1)
            return self._load(KeyRange(start, self._page[0]))
        if self._at + 1 < len(self._page):
            return self._give(self._at + 1)
        return self._load(KeyRange(self._page[-1] + b"\x00", stop))

    def seek(self, suffix: bytes) -> bytes | None:
        """The first suffix that is not before `suffix`, which never goes back; None at the end."""
        start, stop = self._bounds
        page = self._page
        if self._join.descending:
            if page and page[0] <= suffix:
                return self._give(bisect_right(page, suffix) - 1)
            behind = suffix + b"\x00"
            return self._load(KeyRange(start, behind if stop is None else min(stop, behind)))
        if page and page[-1] >= suffix:
            return self._give(bisect_left(page, suffix))
        return self._load(KeyRange(max(start, suffix), stop))

    def value(self) -> bytes:
        """Of the row whose suffix was given last."""
        return self._values[self._at]

    def _give(self, at: int) -> bytes:
        self._at = at
        self._given += 1
        return self._page[at]

    def _load(self, suffixes: KeyRange) -> bytes | None:
        start, stop = suffixes
        if stop is not None and start >= stop:
            return None
        read_on = 2 * self._given > len(self._page)
        self._size = min(2 * self._size, _LARGEST_PAGE) if read_on else max(self._size // 2, _FIRST_PAGE)
        prefix = self._prefix
        keys = KeyRange(prefix + start, after_prefix(prefix) if stop is None else prefix + stop)
        join = self._join
        rows = self._reader.scan(
            join.table, join.scope, keys, limit=self._size, reverse=join.descending, deadline=self._deadline
        )
        if not rows:
            return None
        if join.descending:
            rows.reverse()
        skipped = len(prefix)
        self._page = [key[skipped:] for key, _ in rows]
        self._values = [value for _, value in rows]
        self._given = 0
        return self._give(len(rows) - 1 if join.descending else 0)
