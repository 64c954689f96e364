"""Changing the pages of an ordered layer's trees: splits, merges, and what is swept. The rules stand in ordered.py."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.contract import ABSENT, Atomicity, Check, Operation, PointStore, Write
from adapters.errors import Applied, Conflict, StoreError, Unavailable
from adapters.layers.pages import ID_BYTES, LOOSE_BYTES, ROOT, Page, decoded, encoded, root_over, split
from adapters.layers.walks import PageCache, Place, Tree, Walk, page_address

#: That a page lists; in a store with short values, a quarter of one. Above that merges wait for a sweep, and a crash
#: may leave pages that are not listed.
MOST_LOOSE = 256
_SMALL = 4  #: a page is small below this part of what it should have at most
_ROOMY = 0.75  #: what two pages may fill together to become one

Part = list[tuple[int, Operation]]


@dataclass(frozen=True, slots=True)
class Change:
    """One page as it was and as it will be, the new pages it leads to, and the operations that this carries out."""

    place: Place
    stored: bytes | None
    was: Page
    page: Page | None  #: None: it is only checked
    new: Mapping[bytes, Page]
    part: Part

    def operation(self) -> Operation:
        address, expect = page_address(self.place), ABSENT if self.stored is None else self.stored
        return Check(address, expect) if self.page is None else Write(address, encoded(self.page), expect)


class Upkeep:
    """What keeps the trees of one store in shape."""

    def __init__(self, store: PointStore, cache: PageCache, page_bytes: int, sweep_after_seconds: float) -> None:
        limits = store.capabilities
        self._store = store
        self._cache = cache
        self._page_bytes = page_bytes
        self._sweep_after_seconds = sweep_after_seconds
        self._together = limits.atomicity is not Atomicity.ROW
        most = limits.max_value_bytes
        self._most_loose = MOST_LOOSE if most is None else min(MOST_LOOSE, most // 4 // LOOSE_BYTES)

    def cut(self, place: Place, walk: Walk, page: Page, part: Part) -> Change:
        """The change of the page at `place` to `page`, cut to what pages should have."""
        was, stored = walk.page(place), walk.stored(place)
        first, new = split(page, self._page_bytes, _fresh_id)
        if place[1] != ROOT:
            return Change(place, stored, was, first, new, part)
        below: dict[bytes, Page] = {}
        while new:
            moved = {_fresh_id(): replace(first, loose=()), **new}
            below |= moved
            page = root_over(page, list(moved.items()))
            first, new = split(page, self._page_bytes, _fresh_id)
        return Change(place, stored, was, page, below, part)

    def apply(self, changes: Sequence[Change], deadline: float) -> bool:
        """Whether they were applied, as one where the store can; if not, others were faster."""
        if any(change.new for change in changes) and not self._together:
            (change,) = changes
            return self._apply_announced(change, deadline)
        births = [write for change in changes for write in _births(change)]
        operations = [change.operation() for change in changes]
        try:
            self._store.write([*births, *operations], deadline=deadline)
        except Conflict:
            return False
        self._remember(changes, operations)
        return True

    def _apply_announced(self, change: Change, deadline: float) -> bool:
        """Invariant 4: the page first lists those it is going to lead to, so that a crash leaves none unknown."""
        assert change.page is not None
        ids = [(page_id, _milliseconds()) for page_id in change.new]
        room = max(self._most_loose - len(change.was.loose), 0)
        announced = change.was.listing(change.was.loose + tuple(ids[:room]))
        first = replace(change, page=announced, new={})
        last = replace(change, stored=encoded(announced), page=replace(change.page, change=announced.change + 1))
        births = _births(change)
        try:
            for write in [first.operation(), *births]:
                self._store.write([write], deadline=deadline)
        except Conflict:
            return False
        except StoreError as error:
            raise error.restated(Applied.NO) from error  # nothing leads there yet
        operation = last.operation()
        try:
            self._store.write([operation], deadline=deadline)
        except Conflict:
            self._forget(births, deadline)
            return False
        self._remember([last], [operation])
        return True

    def _remember(self, changes: Sequence[Change], operations: Sequence[Operation]) -> None:
        for change, operation in zip(changes, operations, strict=True):
            if change.page is not None and isinstance(operation, Write) and operation.value is not None:
                self._cache.put(change.place, operation.value, change.page)

    def _forget(self, births: Sequence[Write], deadline: float) -> None:
        try:
            for write in births:
                self._store.write([Write(write.address, None)], deadline=deadline)
        except StoreError:
            return  # they are listed: the sweep comes after

    def settle(self, walk: Walk, changes: Sequence[Change], deadline: float) -> None:
        """Invariants 5 and 6, after changes: tells parents, merges. What fails is left to those who come after."""
        shortcuts = dict(walk.shortcuts)
        for change in changes:
            if change.place[1] != ROOT:
                shortcuts |= {(change.place[0], page.level + 1, page.low): each for each, page in change.new.items()}
        try:
            for (tree, level, key), page_id in shortcuts.items():
                self._tell_parent(tree, level, key, page_id, deadline)
            for change in sorted(changes, key=lambda change: change.was.low, reverse=True):
                if self._has_shrunk(change):
                    self._merge(change.place[0], change.was.low, change.was.level, deadline)
        except StoreError:
            return

    def finish_merge(self, place: Place, gone: Page, deadline: float) -> None:
        """Has a leaving page taken in by its left neighbour, unless it is, and taken out of its parent."""
        tree, page_id = place
        while time.monotonic() <= deadline:
            walk = self._walk(deadline)
            left = walk.before(tree, gone.low, gone.level)
            page = walk.page(left)
            if page.leaving:
                self.finish_merge(left, page, deadline)
                continue
            if page.right != page_id:
                break
            change = self.cut(left, walk, self._united(page, page_id, gone), [])
            if self.apply([change], deadline):
                self.settle(walk, [change], deadline)
                break
        self._tell_parent_of_end(place, gone, deadline)

    def sweep(self, tree: Tree, deadline: float) -> int:
        """Merges what could not be merged at once, and removes loose pages; how many."""
        removed = 0
        for level in range(self._walk(deadline).height(tree) + 1):
            low: bytes | None = b""
            while low is not None:
                here, low = self._sweep_page(tree, low, level, deadline)
                removed += here
        return removed

    def _sweep_page(self, tree: Tree, low: bytes, level: int, deadline: float) -> tuple[int, bytes | None]:
        """How many pages were removed, and where the next page begins."""
        while True:
            if time.monotonic() > deadline:
                raise Unavailable("the deadline passed during a sweep; what is removed is removed")
            walk = self._walk(deadline)
            place = walk.at_level(tree, low, level)
            if place is None:
                return 0, None  # somebody has dropped the tree
            page = walk.page(place)
            if page.leaving:
                self.finish_merge(place, page, deadline)
            elif not (self._is_small(page) and self._merge(tree, low, level, deadline)):
                return self._remove_loose(walk, place, deadline), page.high

    def _remove_loose(self, walk: Walk, place: Place, deadline: float) -> int:
        """The page is changed first, so that nobody can make it lead to one of them any longer."""
        page = walk.page(place)
        before = _milliseconds() - self._sweep_after_seconds * 1000
        old = {page_id for page_id, since in page.loose if since < before}
        if not old:
            return 0
        changed = page.listing(page.loose)
        if not self.apply([Change(place, walk.stored(place), page, changed, {}, [])], deadline):
            return 0
        gone = {page_id for page_id in old if self._remove((place[0], page_id), deadline)}
        left = tuple(each for each in page.loose if each[0] not in gone)
        self.apply([Change(place, encoded(changed), changed, changed.listing(left), {}, [])], deadline)
        return len(gone)

    def _remove(self, place: Place, deadline: float) -> bool:
        """Whether it is gone: not if its parent has led to it until now, or cannot do without."""
        (stored,) = self._store.read([page_address(place)], deadline=deadline, settle=True)
        if stored is None:
            return True
        page = decoded(stored)
        if page.leaving and self._is_entered(place, page, deadline):
            self._tell_parent_of_end(place, page, deadline)
            return False
        self._store.write([Write(page_address(place), None)], deadline=deadline)
        return True

    def _is_entered(self, place: Place, page: Page, deadline: float) -> bool:
        walk = self._walk(deadline)
        above = walk.at_level(place[0], page.low, page.level + 1)
        return above is not None and walk.page(above).get(page.low) == place[1]

    def _has_shrunk(self, change: Change) -> bool:
        """Whether the page has become small, or empty, just now."""
        was, page = change.was, change.page
        if page is None or not page.right or len(page.keys) >= len(was.keys):
            return False
        small = self._page_bytes / _SMALL
        return _is_empty(page) or page.size < small <= was.size

    def _merge(self, tree: Tree, low: bytes, level: int, deadline: float) -> bool:
        """Makes the page that begins at `low` take in its right neighbour, if the two are small; whether it did."""
        walk = self._walk(deadline)
        place = walk.at_level(tree, low, level)
        right = None if place is None else self._mergeable(walk, place)
        if place is None or right is None:
            return False
        gone = replace(walk.page(right), change=walk.page(right).change + 1, leaving=True)
        leaves = Change(right, walk.stored(right), walk.page(right), gone, {}, [])
        if not self._together:
            if not self.apply([leaves], deadline):
                return False
        else:
            united = self.cut(place, walk, self._united(walk.page(place), right[1], gone), [])
            if not self.apply([leaves, united], deadline):
                return False
            self.settle(walk, [united], deadline)
        self.finish_merge(right, gone, deadline)
        return True

    def _is_small(self, page: Page) -> bool:
        """Whether it is time to look at the right neighbour, if there is one."""
        return bool(page.right) and page.size * _SMALL < self._page_bytes

    def _mergeable(self, walk: Walk, place: Place) -> Place | None:
        """The right neighbour of a small page, if the two can become one and no parent is left without its first."""
        tree, page = place[0], walk.page(place)
        if page.leaving or not self._is_small(page):
            return None
        right = walk.after(place)
        other = walk.page(right)
        if right[1] != page.right or other.leaving or len(page.loose) + len(other.loose) >= self._most_loose:
            return None
        if not _is_empty(page) and page.size + other.size > _ROOMY * self._page_bytes:
            return None
        above = walk.at_level(tree, other.low, page.level + 1)
        if above is None or walk.page(above).low == other.low or walk.page(above).get(other.low) != right[1]:
            return None
        return right

    def _united(self, page: Page, right_id: bytes, right: Page) -> Page:
        loose = (*page.loose, *right.loose, (right_id, _milliseconds()))
        return page.taking_in(right, loose[-self._most_loose :])

    def _tell_parent(self, tree: Tree, level: int, key: bytes, page_id: bytes, deadline: float) -> None:
        """Enters the page that begins at `key` into the page of `level` above it."""
        while time.monotonic() <= deadline:
            walk = self._walk(deadline)
            child = walk.at_level(tree, key, level - 1)
            if child != (tree, page_id) or walk.page(child).leaving:
                return  # the split it came from was not applied, or it is on its way out
            above = walk.at_level(tree, key, level)
            if above is None or walk.page(above).get(key) == page_id:
                return
            if self._change_parent(walk, above, {key: page_id}, deadline):
                return

    def _tell_parent_of_end(self, place: Place, gone: Page, deadline: float) -> None:
        """Takes the entry of a page that is gone away, unless it is its parent's first: that one stays, and leads
        those who follow it to the left.
        """
        tree, page_id = place
        while time.monotonic() <= deadline:
            walk = self._walk(deadline)
            above = walk.at_level(tree, gone.low, gone.level + 1)
            if above is None or walk.page(above).get(gone.low) != page_id or walk.page(above).low == gone.low:
                return
            if self._change_parent(walk, above, {gone.low: None}, deadline):
                return

    def _change_parent(self, walk: Walk, above: Place, entries: Mapping[bytes, bytes | None], deadline: float) -> bool:
        """Whether it was changed; if not, it is time to look again."""
        page = walk.page(above)
        if page.leaving:
            self.finish_merge(above, page, deadline)
            return False
        change = self.cut(above, walk, page.changed(entries), [])
        if not self.apply([change], deadline):
            return False
        self.settle(walk, [change], deadline)
        return True

    def _walk(self, deadline: float) -> Walk:
        return Walk(self._store, None, deadline, settle=True)


def _is_empty(page: Page) -> bool:
    """Whether nothing stands in the page that could not stand elsewhere: above the leaves, one entry is left."""
    return len(page.keys) <= (1 if page.level else 0)


def _births(change: Change) -> list[Write]:
    """If absent, so that a late copy of the write does nothing."""
    tree = change.place[0]
    return [Write(page_address((tree, page_id)), encoded(page), ABSENT) for page_id, page in change.new.items()]


def _fresh_id() -> bytes:
    return os.urandom(ID_BYTES)


def _milliseconds() -> int:
    return int(time.time() * 1000)
