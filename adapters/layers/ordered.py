"""TreeStore: an ordered store over a point store with compare-and-set, by a B+tree of pages for each table and scope.

A B-link tree (Lehman and Yao, ACM TODS 6(4), 1981), with compare-and-set of a page in the place of locks. Pages are
rows of the store below, in the same table and scope, under the page's id; the format stands in pages.py. Invariants:

1. The pages of a level divide the key space: each covers [low, high), and the page that begins at `high` is its right
   sibling. `low` never changes, `high` only shrinks, so whoever comes to a page that was split since finds its key by
   going right, reader or writer.
2. The root has a fixed id and covers everything. It grows by moving its entries into new pages and becoming their
   parent, in one compare-and-set. No other page ever changes its level.
3. A page is changed only by compare-and-set of all its bytes, which contain a counter: a late or doubled one finds
   other bytes and does nothing.
4. New pages of a split are written under fresh random ids before the page that leads to them; that page's change is
   the moment of the split and of the write that made it necessary. A crash or a lost race leaves pages that nothing
   leads to, never a page that is missing.
5. The parent learns of new pages afterwards. Until it has, they are reached by going right; a writer who had to tells
   the parent. So an entry above the leaves is a shortcut, and never the only way.
6. Pages are never taken away: a leaf that has lost all its rows stays in the chain, and is filled again when keys of
   its range come back. There are no merges. A scan reads one page after the other, empty ones too.

A scan goes from leaf to leaf: forwards over right siblings; backwards it looks for the leaf before the one it has
read, from the root, by the key at which that one begins. By 1 and 2 neither can miss or repeat a row that stays.

What one call applies as one is what the store below applies as one: pages of a scope lie in that scope. Below
atomicity SCOPE the rows of a call are written leaf by leaf.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Capabilities,
    Check,
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
)
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers.pages import EMPTY, ROOT, Page, decoded, encoded, root_over, split

PAGE_BYTES = 32 << 10
SHORTEST_VALUE_BYTES = 1024
SHORTEST_KEY_BYTES = 48
ID_BYTES = 16

#: A tree's table, and the scope in which its pages are stored.
Tree = tuple[Table, bytes]
#: A page's address is its tree and its id.
Place = tuple[Tree, bytes]
_Part = list[tuple[int, Operation]]


def lifted(below: Capabilities) -> Capabilities:
    """What a TreeStore claims over a store with such capabilities.

    A page must hold a row, the two keys it lies between, and as much as a page should anyway.
    """
    most = below.max_value_bytes
    return replace(
        below,
        versioned_writes=False,
        version_horizon_seconds=None,
        ordered=True,
        reverse_scan=True,
        snapshot=False,
        max_key_bytes=None if most is None else most // 8,
        max_value_bytes=None if most is None else most // 4,
        max_batch=None,
        max_batch_bytes=None,
    )


class _Walk:
    """Pages read for one call, each once: what was read together is used together."""

    def __init__(self, store: PointStore, deadline: float, *, settle: bool) -> None:
        self._store = store
        self._deadline = deadline
        self._settle = settle
        self._pages: dict[Place, tuple[bytes | None, Page]] = {}
        self.shortcuts: dict[tuple[Tree, int, bytes], bytes] = {}  #: level, key, id: what a parent did not know yet

    def page(self, place: Place) -> Page:
        return self._pages[place][1]

    def stored(self, place: Place) -> bytes | None:
        return self._pages[place][0]

    def leaves(self, wanted: Sequence[tuple[Tree, bytes]]) -> list[Place]:
        """Where each key belongs. One read for each level, whatever the number of keys."""
        places: list[Place] = [(tree, ROOT) for tree, _ in wanted]
        walking = list(range(len(wanted)))
        while walking:
            self.load(places[index] for index in walking)
            further = []
            for index in walking:
                tree, key = wanted[index]
                step = self._step(places[index], key, level=0)
                if step is not None:
                    places[index] = tree, step
                    further.append(index)
            walking = further
        return places

    def at_level(self, tree: Tree, key: bytes, level: int) -> Place | None:
        """The page of a level where the key belongs; None: the tree is not that high."""
        place = tree, ROOT
        self.load([place])
        if self.page(place).level < level:
            return None
        while (step := self._step(place, key, level=level)) is not None:
            place = tree, step
            self.load([place])
        return place

    def leaf_below(self, tree: Tree, bound: bytes | None) -> Page:
        """The leaf with the greatest keys below `bound`; None: of all."""
        place = tree, ROOT
        while True:
            self.load([place])
            page = self.page(place)
            if page.goes_right_below(bound):
                place = tree, page.right
            elif page.level:
                place = tree, page.child_below(bound)
            else:
                return page

    def load(self, places: Iterable[Place]) -> None:
        """Raises Corrupt for a page that another leads to and that is not there."""
        missing = [place for place in dict.fromkeys(places) if place not in self._pages]
        for settle in (self._settle, True):
            wanted = [page_address(place) for place in missing]
            found = self._store.read(wanted, deadline=self._deadline, settle=settle) if wanted else []
            for place, stored in zip(missing, found, strict=True):
                if stored is not None:
                    self._pages[place] = stored, decoded(stored)
                elif place[1] == ROOT:
                    self._pages[place] = None, EMPTY
            missing = [place for place in missing if place not in self._pages]
        if missing:
            raise Corrupt(f"a page of the tree of {missing[0][0]!r:.200} is missing: {missing[0][1].hex()}")

    def _step(self, place: Place, key: bytes, *, level: int) -> bytes | None:
        page = self.page(place)
        if page.goes_right(key):
            assert page.high is not None
            self.shortcuts[place[0], page.level + 1, page.high] = page.right
            return page.right
        return page.child(key) if page.level > level else None


@dataclass(frozen=True, slots=True)
class _Change:
    """One page as it will be, the new pages it leads to, and the operations that this carries out."""

    place: Place
    stored: bytes | None
    page: Page | None  #: None: it is only checked
    new: dict[bytes, Page]
    part: _Part

    def operation(self) -> Operation:
        address, expect = page_address(self.place), ABSENT if self.stored is None else self.stored
        return Check(address, expect) if self.page is None else Write(address, encoded(self.page), expect)


class TreeStore:
    """A store with scans. `page_bytes`: how large pages should be, at most."""

    def __init__(self, store: PointStore, page_bytes: int = PAGE_BYTES) -> None:
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
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        walk = _Walk(self.inner, deadline, settle=settle)
        wanted = [(self._tree(address), address.key) for address in addresses]
        places = walk.leaves(wanted)
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
        tree = self._tree(Address(table, scope, b"", b""))
        walk = _Walk(self.inner, deadline, settle=False)
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
            left = part
            while left:
                if left is not part and time.monotonic() > deadline:
                    error = Unavailable("the deadline passed while others were writing the same pages")
                    raise error.restated(Applied.UNKNOWN if applied else Applied.NO)
                try:
                    left, some = self._attempt(left, deadline, settle=left is not part)
                    applied = applied or some
                except Conflict:
                    raise
                except StoreError as error:
                    if applied and error.applied is Applied.NO:
                        raise error.restated(Applied.UNKNOWN) from error
                    raise

    def _parts(self, operations: Sequence[Operation]) -> list[_Part]:
        """What is applied as one, where the store below can; else what may be applied leaf by leaf."""
        numbered = list(enumerate(operations))
        if self._atomicity is not Atomicity.SCOPE:
            return [numbered]
        scopes: dict[Tree, _Part] = {}
        for index, operation in numbered:
            scopes.setdefault(operation.address[:2], []).append((index, operation))
        return sorted(scopes.values(), key=lambda part: not any(is_conditional(each) for _, each in part))

    def _attempt(self, part: _Part, deadline: float, *, settle: bool) -> tuple[_Part, bool]:
        """What is left to do because others were faster, and whether anything was applied."""
        settle = settle or not self._strong or any(is_conditional(each) for _, each in part)
        walk = _Walk(self.inner, deadline, settle=settle)
        places = walk.leaves([(self._tree(each.address), each.address.key) for _, each in part])
        by_leaf: dict[Place, _Part] = {}
        for place, (index, operation) in zip(places, part, strict=True):
            _verify(walk.page(place), index, operation)
            by_leaf.setdefault(place, []).append((index, operation))
        changes = [change for place, mine in by_leaf.items() if (change := self._change(walk, place, mine))]
        together = [changes] if self._atomicity is not Atomicity.ROW else [[change] for change in changes]
        left: _Part = []
        some = False
        for group in together:
            try:
                done = self._apply(group, deadline)
            except StoreError as error:
                if some and error.applied is Applied.NO:
                    raise error.restated(Applied.UNKNOWN) from error
                raise
            some = some or done
            left += [] if done else [each for change in group for each in change.part]
        self._tell_parents(walk, changes, deadline)
        return left, some

    def _change(self, walk: _Walk, place: Place, part: _Part) -> _Change | None:
        page = walk.page(place)
        values = {each.address.key: each.value for _, each in part if isinstance(each, Write)}
        if all(page.get(key) == value for key, value in values.items()):
            conditional = any(is_conditional(each) for _, each in part)
            return _Change(place, walk.stored(place), None, {}, part) if conditional else None
        return self._cut(place, walk.stored(place), page.changed(values), part)

    def _cut(self, place: Place, stored: bytes | None, page: Page, part: _Part) -> _Change:
        first, new = split(page, self._page_bytes, _fresh_id)
        if new and place[1] == ROOT:
            moved = {_fresh_id(): first, **new}
            return _Change(place, stored, root_over(page, list(moved.items())), moved, part)
        return _Change(place, stored, first, new, part)

    def _apply(self, changes: Sequence[_Change], deadline: float) -> bool:
        """Whether it was applied; if not, others were faster."""
        new = [(change.place[0], page_id, page) for change in changes for page_id, page in change.new.items()]
        try:
            for tree, page_id, page in new:  # if absent, so that a late copy of the write does nothing
                self.inner.write([Write(page_address((tree, page_id)), encoded(page), ABSENT)], deadline=deadline)
        except StoreError as error:
            raise error.restated(Applied.NO) from error  # nothing leads there yet
        try:
            self.inner.write([change.operation() for change in changes], deadline=deadline)
        except Conflict:
            self._forget([(tree, page_id) for tree, page_id, _ in new], deadline)
            return False
        return True

    def _forget(self, places: Sequence[Place], deadline: float) -> None:
        try:
            for place in places:
                self.inner.write([Write(page_address(place), None)], deadline=deadline)
        except StoreError:
            return  # nothing leads there; they take up space

    def _tell_parents(self, walk: _Walk, changes: Sequence[_Change], deadline: float) -> None:
        """Invariant 5. What fails is left to the next writer who has to go right."""
        shortcuts = dict(walk.shortcuts)
        for change in changes:
            if change.place[1] != ROOT:
                shortcuts |= {(change.place[0], page.level + 1, page.low): each for each, page in change.new.items()}
        try:
            for (tree, level, key), page_id in shortcuts.items():
                self._tell_parent(tree, level, key, page_id, deadline)
        except StoreError:
            return

    def _tell_parent(self, tree: Tree, level: int, key: bytes, page_id: bytes, deadline: float) -> None:
        while time.monotonic() <= deadline:
            walk = _Walk(self.inner, deadline, settle=True)
            if walk.at_level(tree, key, level - 1) != (tree, page_id):
                return  # the split it came from was not applied
            place = walk.at_level(tree, key, level)
            if place is None or walk.page(place).get(key) is not None:
                return
            change = self._cut(place, walk.stored(place), walk.page(place).changed({key: page_id}), [])
            if self._apply([change], deadline):
                self._tell_parents(walk, [change], deadline)
                return

    def _tree(self, address: Address) -> Tree:
        scope = hashlib.sha256(address.scope).digest() if self._short_scopes else address.scope
        return address.table, scope


def page_address(place: Place) -> Address:
    (table, scope), page_id = place
    return Address(table, scope, page_id, page_id)


def _fresh_id() -> bytes:
    return os.urandom(ID_BYTES)


def _verify(page: Page, index: int, operation: Operation) -> None:
    current = page.get(operation.address.key)
    if is_conditional(operation) and current != (None if operation.expect is ABSENT else operation.expect):
        raise Conflict(f"operation {index} found another value than expected", index=index, current=current)


def _forwards(walk: _Walk, tree: Tree, keys: KeyRange) -> Iterator[list[Row]]:
    """The rows of the range, leaf by leaf."""
    (place,) = walk.leaves([(tree, keys.start)])
    page = walk.page(place)
    yield page.rows(keys)
    while page.high is not None and (keys.stop is None or page.high < keys.stop):
        place = tree, page.right
        walk.load([place])
        page = walk.page(place)
        yield page.rows(keys)


def _backwards(walk: _Walk, tree: Tree, keys: KeyRange) -> Iterator[list[Row]]:
    """The same from the end. The range shrinks to what lies before the leaf just read, however it was split since."""
    while True:
        page = walk.leaf_below(tree, keys.stop)
        yield page.rows(keys)[::-1]
        if page.low <= keys.start:
            return
        keys = KeyRange(keys.start, page.low)
