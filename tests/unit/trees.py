"""Trees of the ordered layer looked at from below: their invariants, and how often the store below is called."""

from collections.abc import Callable, Sequence
from typing import Any

from adapters.conformance.plugin import bare
from adapters.contract import Address, KeyRange, Operation, PointStore, Row, Rows, Table, Write
from adapters.layers.ordered import TreeStore
from adapters.layers.pages import ROOT, Page, decoded
from adapters.layers.walks import page_address

SOON = 1e18
SCOPE = b"s\x00"
TREE = (Table.META, SCOPE)


def at(key: bytes) -> Address:
    return Address(Table.META, SCOPE, b"", key)


def scanned(store: TreeStore, *, reverse: bool = False, limit: int = 100_000, keys: KeyRange = KeyRange()) -> list[Row]:  # noqa: B008
    return store.scan(Table.META, SCOPE, keys, limit=limit, reverse=reverse, deadline=SOON)


def page_of(below: PointStore, page_id: bytes) -> Page:
    (stored,) = below.read([page_address((TREE, page_id))], deadline=SOON, settle=True)
    assert stored is not None, "a page is missing"
    return decoded(stored)


def checked_tree(below: PointStore, *, known: bool = True) -> int:
    """Checks the invariants of ordered.py; the tree's height. `known`: also that no page is unknown to all others."""
    root = page_of(below, ROOT)
    assert (root.low, root.high, root.right) == (b"", None, b"")
    first, height = ROOT, root.level
    there, loose, entered = set(), set(), set()
    for level in range(height, -1, -1):
        page_id, low = first, b""
        while page_id:
            page = page_of(below, page_id)
            assert (page.level, page.low) == (level, low)
            assert list(page.keys) == sorted(set(page.keys))
            assert all(low <= key and (page.high is None or key < page.high) for key in page.keys)
            assert bool(page.right) == (page.high is not None)
            for key, child in zip(page.keys, page.values, strict=True) if level else ():
                below_it = page_of(below, child)
                assert (below_it.level, below_it.low) == (level - 1, key)
                entered.add(child)
            assert not level or page.keys[0] == low
            assert low or not page.leaving
            there.add(page_id)
            loose |= {each for each, _ in page.loose}
            page_id, low = page.right, page.high or b""
        first = page_of(below, first).values[0] if level else b""
    assert entered <= there | loose
    assert not known or pages_in(below) <= there | loose
    return height


def pages_in(below: Any) -> set[bytes]:
    """The ids of all pages of the tree."""
    while hasattr(below, "inner"):
        below = below.inner
    return {*below._live.scopes[TREE].values}


def merged(below: PointStore) -> int:
    """How many pages are leaving or gone, by what the others list."""
    listed = {each for page_id in pages_in(below) for each, _ in page_of(below, page_id).loose}
    return sum(page_of(below, page_id).leaving for page_id in pages_in(below) & listed)


class Counting:
    """Counts reads and writes, and does something right before a numbered read."""

    def __init__(self, below: PointStore) -> None:
        self._below = below
        self.reads = self.writes = 0
        self.before_read: dict[int, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self.reads += 1
        self.before_read.pop(self.reads, lambda: None)()
        return self._below.read(addresses, deadline=deadline, settle=settle)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self.writes += 1
        self._below.write(operations, rows=rows, deadline=deadline)

    def calls(self, work: Callable[[], object]) -> tuple[int, int]:
        """How many reads and writes the work takes."""
        before = self.reads, self.writes
        work()
        return self.reads - before[0], self.writes - before[1]


def filled(rows: int, page_bytes: int = 2000, options: str = "") -> tuple[PointStore, list[bytes]]:
    below = bare(f"weak:?ordered=no{options}")
    keys = [b"%05d" % number for number in range(rows)]
    TreeStore(below, page_bytes).write([Write(at(key), b"v" * 50) for key in keys], deadline=SOON)
    return below, keys


def leaves_in(below: PointStore) -> int:
    return sum(not page.level and not page.leaving for page in map(lambda each: page_of(below, each), pages_in(below)))
