"""TreeStore: an ordered store over a point store with compare-and-set, by a B+tree of pages for each table and scope.

A B-link tree (Lehman and Yao, ACM TODS 6(4), 1981) with compare-and-set of a page in the place of locks; pages that
have become small are merged in two steps, as in the Bw-tree (Levandoski, Lomet, Sengupta, ICDE 2013). Pages are rows of
the store below, in the same table and scope, under the page's id; the format stands in pages.py. Invariants:

1. The pages of a level divide the key space: each covers [low, high), and the page that begins at `high` is its right
   neighbour. `low` never changes. An entry above the leaves leads to a page that began, or once began, at its key.
2. The root has a fixed id and covers everything. It grows by moving its entries into new pages and becoming their
   parent, in one compare-and-set. No other page ever changes its level, and the root never shrinks.
3. A page is changed only by compare-and-set of all its bytes, which contain a counter: a late or doubled one finds
   other bytes and does nothing.
4. New pages of a split are written under fresh random ids before the page that leads to them; that page's change is
   the moment of the split and of the write that made it necessary. At atomicity ROW the page first lists them as
   *loose*, so a crash or a lost race leaves pages that nothing leads to, but that are known.
5. The parent learns of new pages, and of pages that are gone, afterwards. So an entry above the leaves is a shortcut,
   and never the only way: who comes to a page that ends before his key goes right, and a writer tells the parent.
6. A merge is begun by marking the right neighbour of a small page as *leaving*: it never changes again. The page to
   its left then takes in its range and entries, in one compare-and-set, which is the moment of the merge; it lists the
   page as loose. A writer who meets a page that is leaving first finishes the merge. (Above atomicity ROW both pages
   change in one call.) A parent keeps its first entry: its page's left neighbour has another parent.
7. A leaving page that was reached from its left neighbour holds what is valid: it still was part of the level during
   this call. One that a parent led to may have been taken in long ago: go to a page that begins before it, by the
   entries, and from there to the right. A page that is not there any longer is the same case.
8. The sweep removes pages that have been loose for long, after a change of the page that lists them, so that nobody
   can make it lead to them any longer, and only if no parent leads to them. It also merges what was left.

Pages above the leaves are remembered for a while (walks.py): by 5 and 7 an old one leads right, if on a longer way.
Leaves are always read. Warm, a row costs one read below, a write one read and one compare-and-set, a scan one read for
each leaf it returns rows from.

A scan goes from leaf to leaf: forwards over right neighbours; backwards it looks for the leaf before the one it has
read, from the root, by the key at which that one begins. It takes from each only what lies beyond what it has, so
neither can miss or repeat a row that stays, however leaves are split and merged meanwhile.

What one call applies as one, or reads in one state, is what the store below does so: pages of a scope lie in that
scope. Below atomicity SCOPE the rows of a call are written leaf by leaf.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Capabilities,
    Consistency,
    KeyRange,
    Operation,
    PointStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    addresses,
    is_conditional,
    row_writes,
    swept,
)
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported
from adapters.layers.pages import Page
from adapters.layers.upkeep import Change, Part, Upkeep
from adapters.layers.walks import CACHE_BYTES, PageCache, Place, Tree, Walk

PAGE_BYTES = 32 << 10
SHORTEST_VALUE_BYTES = 1024
SHORTEST_KEY_BYTES = 48


def lifted(below: Capabilities) -> Capabilities:
    """What a TreeStore claims over a store with such capabilities.

    A page must hold a row, the two keys it lies between, and as much as a page should anyway. Where the store's reads
    are not STRONG, every page is read with `settle`.
    """
    most = below.max_value_bytes
    return replace(
        below,
        versioned_writes=False,
        version_horizon_seconds=None,
        ordered=True,
        reverse_scan=True,
        snapshot=False,
        consistency=Consistency.STRONG,
        max_key_bytes=None if most is None else most // 8,
        max_value_bytes=None if most is None else most // 4,
        max_batch=None,
        max_batch_bytes=None,
    )


class TreeStore:
    """A store with scans. `page_bytes`: how large pages should be, at most. `cache_bytes`: see PageCache.

    `sweep_after_seconds`: how long a page must have been loose; far above any deadline and TRUSTED_SECONDS.
    """

    LEAVES_BEHIND = True

    def __init__(
        self,
        store: PointStore,
        page_bytes: int = PAGE_BYTES,
        *,
        cache_bytes: int = CACHE_BYTES,
        sweep_after_seconds: float = 3600.0,
    ) -> None:
        limits = store.capabilities
        if not limits.compare_and_set:
            raise Unsupported("ordered stands only over a store with compare_and_set")
        if (limits.max_value_bytes or SHORTEST_VALUE_BYTES) < SHORTEST_VALUE_BYTES:
            raise Unsupported(
                f"ordered stands only over a store with max_value_bytes of {SHORTEST_VALUE_BYTES} or more"
            )
        if (limits.max_key_bytes or SHORTEST_KEY_BYTES) < SHORTEST_KEY_BYTES:
            raise Unsupported(f"ordered stands only over a store with max_key_bytes of {SHORTEST_KEY_BYTES} or more")
        self.inner = store
        self._page_bytes = min(page_bytes, (limits.max_value_bytes or 4 * page_bytes) // 4)
        self._short_scopes = limits.max_key_bytes is not None
        self._atomicity = limits.atomicity
        self._strong = limits.consistency is Consistency.STRONG
        self._capabilities = lifted(limits)
        self._cache = PageCache(cache_bytes)
        self._upkeep = Upkeep(store, self._cache, self._page_bytes, sweep_after_seconds)
        self.layout = f"ordered page_bytes={self._page_bytes} hashed_scopes={'yes' if self._short_scopes else 'no'}"
        self.ensure_tables, self.check, self.close = store.ensure_tables, store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        walk = self._walk(deadline, settle=settle)
        wanted = [(self._tree(table, scope), key) for table, scope, _, key in addresses]
        places = walk.leaves(wanted) if self._atomicity is Atomicity.ROW else walk.leaves_of_one_state(wanted)
        return [walk.page(place).get(key) for place, (_, key) in zip(places, wanted, strict=True)]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        if limit <= 0 or (keys.stop is not None and keys.start >= keys.stop):
            return []
        tree = self._tree(table, scope)
        walk = self._walk(deadline, settle=False)
        rows: list[Row] = []
        for found in _backwards(walk, tree, keys) if reverse else _forwards(walk, tree, keys):
            rows += found
            if len(rows) >= limit:
                break
        return rows[:limit]

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("ordered: a tree of pages has no snapshots")

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        applied = False
        for part in self._parts([*operations, *row_writes(rows)]):
            left, again = part, False
            while left:
                if again and time.monotonic() > deadline:
                    error = Unavailable("the deadline passed while others were writing the same pages")
                    raise error.restated(Applied.UNKNOWN if applied else Applied.NO)
                try:
                    left, some = self._attempt(left, deadline, settle=again)
                    applied, again = applied or some, True
                except Conflict:
                    raise
                except StoreError as error:
                    if applied and error.applied is Applied.NO:
                        raise error.restated(Applied.UNKNOWN) from error
                    raise

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Also merges small pages, and removes pages that nothing leads to."""
        tree = self._tree(table, scope)
        return self._upkeep.sweep(tree, deadline) + swept(self.inner, *tree, deadline=deadline)

    def drop_tables(self) -> None:
        self.inner.drop_tables()
        self._cache.clear()

    def _parts(self, operations: Sequence[Operation]) -> list[Part]:
        """What is applied as one, where the store below can; else what may be applied leaf by leaf."""
        numbered = list(enumerate(operations))
        if self._atomicity is not Atomicity.SCOPE:
            return [numbered]
        scopes: dict[Tree, Part] = {}
        for index, operation in numbered:
            scopes.setdefault(operation.address[:2], []).append((index, operation))
        return sorted(scopes.values(), key=lambda part: not any(is_conditional(each) for _, each in part))

    def _attempt(self, part: Part, deadline: float, *, settle: bool) -> tuple[Part, bool]:
        """What is left to do because others were faster, and whether anything was applied."""
        settle = settle or any(is_conditional(each) for _, each in part)
        walk = self._walk(deadline, settle=settle)
        places = walk.leaves([(self._tree(*each.address[:2]), each.address.key) for _, each in part])
        leaving = [place for place in dict.fromkeys(places) if walk.page(place).leaving]
        for place in leaving:
            self._upkeep.finish_merge(place, walk.page(place), deadline)
        if leaving:
            return part, False
        by_leaf: dict[Place, Part] = {}
        for place, (index, operation) in zip(places, part, strict=True):
            _verify(walk.page(place), index, operation)
            by_leaf.setdefault(place, []).append((index, operation))
        changes = [change for place, mine in by_leaf.items() if (change := self._change(walk, place, mine))]
        left, some = self._apply(changes, deadline)
        self._upkeep.settle(walk, changes, deadline)
        return left, some

    def _apply(self, changes: list[Change], deadline: float) -> tuple[Part, bool]:
        together = [changes] if self._atomicity is not Atomicity.ROW else [[change] for change in changes]
        left: Part = []
        some = False
        for group in together:
            try:
                done = self._upkeep.apply(group, deadline)
            except StoreError as error:
                if some and error.applied is Applied.NO:
                    raise error.restated(Applied.UNKNOWN) from error
                raise
            some = some or done
            left += [] if done else [each for change in group for each in change.part]
        return left, some

    def _change(self, walk: Walk, place: Place, part: Part) -> Change | None:
        page = walk.page(place)
        values = {each.address.key: each.value for _, each in part if isinstance(each, Write)}
        if all(page.get(key) == value for key, value in values.items()):
            conditional = any(is_conditional(each) for _, each in part)
            return Change(place, walk.stored(place), page, None, {}, part) if conditional else None
        return self._upkeep.cut(place, walk, page.changed(values), part)

    def _walk(self, deadline: float, *, settle: bool) -> Walk:
        return Walk(self.inner, self._cache, deadline, settle=settle or not self._strong)

    def _tree(self, table: Table, scope: bytes) -> Tree:
        return table, hashlib.sha256(scope).digest() if self._short_scopes else scope


def _verify(page: Page, index: int, operation: Operation) -> None:
    current = page.get(operation.address.key)
    if is_conditional(operation) and current != (None if operation.expect is ABSENT else operation.expect):
        raise Conflict(f"operation {index} found another value than expected", index=index, current=current)


def _forwards(walk: Walk, tree: Tree, keys: KeyRange) -> Iterator[list[Row]]:
    """The rows of the range, leaf by leaf."""
    (place,) = walk.leaves([(tree, keys.start)])
    while True:
        page = walk.page(place)
        yield page.rows(keys)
        if page.high is None or (keys.stop is not None and page.high >= keys.stop):
            return
        keys = KeyRange(page.high, keys.stop)
        place = walk.after(place)


def _backwards(walk: Walk, tree: Tree, keys: KeyRange) -> Iterator[list[Row]]:
    """The same from the end. The range shrinks to what lies before the leaf just read, however it was split since."""
    while True:
        page = walk.page(walk.before(tree, keys.stop))
        yield page.rows(keys)[::-1]
        if page.low <= keys.start:
            return
        keys = KeyRange(keys.start, page.low)
