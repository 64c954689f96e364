"""The pages of an ordered layer's trees: their format, searching, cutting and joining them. What is done with them
stands in ordered.py.

A page, all numbers big-endian, `text` being a length of 4 bytes and so many bytes:

    02  format
    level (1)      0: a leaf, whose entries are rows; above: keys and ids of the pages that begin there
    leaving (1)    01: it never changes again, and its left neighbour takes it in; else 00
    change (8)     one more with every change: no page ever has the bytes of an earlier state again
    low (text)     the first key the page may hold, for ever the same
    00 | 01 high (text) right (text)   the first key it may not hold, and the page that begins there; 00: no end
    loose (text)   of each page that nothing may lead to: id (16) and since when (milliseconds, 8), for the sweep
    entries: key (text) value (text), ascending, to the end of the page
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.contract import KeyRange, Row
from adapters.errors import Corrupt

FORMAT = 2
ROOT = b"\x00"
ID_BYTES = 16
LOOSE_BYTES = ID_BYTES + 8
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Page:
    """Keys from `low` (included) to `high` (excluded; None: to the end). `keys` and `values` go together."""

    level: int
    change: int
    low: bytes
    high: bytes | None
    right: bytes  #: id of the page that begins at `high`; empty where there is none
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]
    leaving: bool = False
    loose: tuple[tuple[bytes, int], ...] = ()  #: ids, and milliseconds since when

    @property
    def size(self) -> int:
        """Of the entries, as they are stored."""
        return sum(map(len, self.keys)) + sum(map(len, self.values)) + 2 * _LENGTH_BYTES * len(self.keys)

    def goes_right(self, key: bytes) -> bool:
        """Whether the key belongs to a page further right: this one was split."""
        return self.high is not None and key >= self.high

    def goes_right_below(self, bound: bytes | None) -> bool:
        """The same for the greatest key below `bound` (None: the greatest of all)."""
        return self.high is not None and (bound is None or bound > self.high)

    def child(self, key: bytes) -> tuple[bytes, bytes]:
        """The entry of the page in which the key should be: its low and its id."""
        return self._entry(bisect_right(self.keys, key) - 1)

    def child_below(self, bound: bytes | None) -> tuple[bytes, bytes]:
        """The same for the greatest key below `bound` (None: the greatest of all)."""
        return self._entry((len(self.keys) if bound is None else bisect_left(self.keys, bound)) - 1)

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        return self.keys[max(index, 0)], self.values[max(index, 0)]

    def get(self, key: bytes) -> bytes | None:
        index = bisect_left(self.keys, key)
        return self.values[index] if index < len(self.keys) and self.keys[index] == key else None

    def rows(self, keys: KeyRange) -> list[Row]:
        start = bisect_left(self.keys, keys.start)
        stop = len(self.keys) if keys.stop is None else bisect_left(self.keys, keys.stop)
        return [*zip(self.keys[start:stop], self.values[start:stop], strict=True)]

    def changed(self, values: Mapping[bytes, bytes | None]) -> "Page":
        """With other entries and the next change number; None deletes."""
        entries = dict(zip(self.keys, self.values, strict=True))
        for key, value in values.items():
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
        keys = tuple(sorted(entries))
        return replace(self, change=self.change + 1, keys=keys, values=tuple(entries[key] for key in keys))

    def listing(self, loose: tuple[tuple[bytes, int], ...]) -> "Page":
        """With other loose pages and the next change number."""
        return replace(self, change=self.change + 1, loose=loose)

    def taking_in(self, right: "Page", loose: tuple[tuple[bytes, int], ...]) -> "Page":
        """With the range and the entries of its right neighbour, and the next change number."""
        return replace(
            self,
            change=self.change + 1,
            high=right.high,
            right=right.right,
            keys=self.keys + right.keys,
            values=self.values + right.values,
            loose=loose,
        )


#: What a tree is before its first write.
EMPTY = Page(level=0, change=0, low=b"", high=None, right=b"", keys=(), values=())


def encoded(page: Page) -> bytes:
    end = b"\x00" if page.high is None else b"\x01" + _text(page.high) + _text(page.right)
    entries = [_text(part) for entry in zip(page.keys, page.values, strict=True) for part in entry]
    head = bytes([FORMAT, page.level, page.leaving]) + page.change.to_bytes(8, "big") + _text(page.low)
    loose = b"".join(page_id + since.to_bytes(8, "big") for page_id, since in page.loose)
    return b"".join([head, end, _text(loose), *entries])


def decoded(stored: bytes) -> Page:
    """Raises Corrupt for what is no page."""
    if len(stored) < 20 or stored[0] != FORMAT:
        raise Corrupt(f"no page of an ordered tree: {stored!r:.60}; it was not written through `ordered`")
    (low, *_), at = _texts(stored, 11, 1)
    high, right = None, b""
    if stored[at] == 1:
        (high, right), at = _texts(stored, at + 1, 2)
    else:
        at += 1
    (loose, *_), at = _texts(stored, at, 1)
    entries, _ = _texts(stored, at, None)
    return Page(
        level=stored[1],
        change=int.from_bytes(stored[3:11], "big"),
        low=low,
        high=high,
        right=right,
        keys=tuple(entries[::2]),
        values=tuple(entries[1::2]),
        leaving=stored[2] == 1,
        loose=tuple(_loose(loose[start : start + LOOSE_BYTES]) for start in range(0, len(loose), LOOSE_BYTES)),
    )


def _loose(stored: bytes) -> tuple[bytes, int]:
    return stored[:ID_BYTES], int.from_bytes(stored[ID_BYTES:], "big")


def _text(part: bytes) -> bytes:
    return len(part).to_bytes(_LENGTH_BYTES, "big") + part


def _texts(stored: bytes, at: int, count: int | None) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    while at < len(stored) if count is None else len(found) < count:
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(stored[at:start], "big")
        if at > len(stored):
            raise Corrupt(f"a page of an ordered tree is cut off: {stored!r:.60}")
        found.append(stored[start:at])
    return found, at


def split(page: Page, page_bytes: int, fresh_id: Callable[[], bytes]) -> tuple[Page, dict[bytes, Page]]:
    """The page cut to what should fit, and the new pages to its right; no new ones where it fits."""
    groups = list(_groups(page, page_bytes))
    if len(groups) < 2:
        return page, {}
    starts = [page.low, *(_separator(page, group.start) for group in groups[1:])]
    ids = [fresh_id() for _ in groups[1:]]
    highs, rights = [*starts[1:], page.high], [*ids, page.right]
    cut = [
        replace(
            page,
            low=low,
            high=high,
            right=right,
            keys=page.keys[group.start : group.stop],
            values=page.values[group.start : group.stop],
            loose=() if group.start else page.loose,
        )
        for group, low, high, right in zip(groups, starts, highs, rights, strict=True)
    ]
    return cut[0], dict(zip(ids, cut[1:], strict=True))


def _groups(page: Page, page_bytes: int) -> Iterator[range]:
    """Positions of entries that go together. A page too large by little is cut in halves, not at its end.

    Above the leaves at least two, however long their keys: else a level would be no smaller than the one below it.
    """
    fewest = 2 if page.level else 1
    sizes = [len(key) + len(value) + 2 * _LENGTH_BYTES for key, value in zip(page.keys, page.values, strict=True)]
    total = sum(sizes)
    if total <= page_bytes:
        yield range(len(sizes))
        return
    most = total / max(2, -(-total // page_bytes))
    start, size = 0, 0
    for index, each in enumerate(sizes):
        enough = index - start >= fewest and len(sizes) - index >= fewest
        if enough and (size + each / 2 > most or size + each > page_bytes):
            yield range(start, index)
            start, size = index, 0
        size += each
    yield range(start, len(sizes))


def _separator(page: Page, index: int) -> bytes:
    """The shortest key that tells entry `index` of a leaf from the one before; above the leaves, its key."""
    key = page.keys[index]
    if page.level:
        return key
    before = page.keys[index - 1]
    same = next((n for n, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), len(before))
    return key[: same + 1]


def root_over(page: Page, pages: Sequence[tuple[bytes, Page]]) -> Page:
    """What the root becomes when its entries have moved into `pages`."""
    return replace(
        page,
        level=page.level + 1,
        keys=tuple(each.low for _, each in pages),
        values=tuple(page_id for page_id, _ in pages),
    )
