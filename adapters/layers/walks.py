"""Finding pages in an ordered layer's trees. Why each page may be trusted stands in ordered.py."""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from adapters.contract import Address, PointStore, Table
from adapters.errors import Corrupt
from adapters.layers.pages import EMPTY, ROOT, Page, decoded

CACHE_BYTES = 4 << 20
#: How long a page above the leaves leads the way unread. Far below the time after which pages are swept.
TRUSTED_SECONDS = 60.0
_ATTEMPTS = 3

#: A tree's table, and the scope in which its pages are stored.
Tree = tuple[Table, bytes]
#: A page's address is its tree and its id.
Place = tuple[Tree, bytes]


def page_address(place: Place) -> Address:
    (table, scope), page_id = place
    return Address(table, scope, page_id, page_id)


class _Recent:
    """Pages used last, so many bytes of them as they are stored; under the lock of its owner."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.pages: OrderedDict[Place, tuple[float, bytes, Page]] = OrderedDict()

    def put(self, place: Place, stored: bytes, page: Page) -> None:
        self.drop(place)
        self.pages[place] = time.monotonic(), stored, page
        self._bytes += len(stored)
        while self._bytes > self._most_bytes:
            self.drop(next(iter(self.pages)))

    def drop(self, place: Place) -> None:
        dropped = self.pages.pop(place, None)
        if dropped is not None:
            self._bytes -= len(dropped[1])


class PageCache:
    """Pages as they were when last read or written; for all threads. `most_bytes`: of pages above the leaves, and as
    much of leaves. Decoded they take a few times what they take as stored.
    """

    def __init__(self, most_bytes: int) -> None:
        self._lock = threading.Lock()
        self._most_bytes = most_bytes
        self._inner, self._leaves = _Recent(most_bytes), _Recent(most_bytes)

    def inner(self, place: Place) -> tuple[bytes, Page] | None:
        """A page above the leaves, as it was a moment ago. Leaves are always read."""
        with self._lock:
            since, stored, page = self._inner.pages.get(place, (0.0, b"", EMPTY))
            if time.monotonic() > since + TRUSTED_SECONDS:
                return None
            self._inner.pages.move_to_end(place)
            return stored, page

    def decoded(self, place: Place, stored: bytes) -> Page:
        """The page that was just read, decoded only if it has changed."""
        with self._lock:
            _, known, page = self._leaves.pages.get(place, (0.0, b"", EMPTY))
        if known != stored:
            page = decoded(stored)
        self.put(place, stored, page)
        return page

    def put(self, place: Place, stored: bytes, page: Page) -> None:
        with self._lock:
            (self._inner if page.level else self._leaves).put(place, stored, page)

    def drop(self, places: Iterable[Place]) -> None:
        with self._lock:
            for place in places:
                self._inner.drop(place)

    def clear(self) -> None:
        with self._lock:
            self._inner, self._leaves = _Recent(self._most_bytes), _Recent(self._most_bytes)


class _Lost(Exception):
    """A page is not there though a page that was read, or remembered, leads to it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.place = place


class _Route:
    """The way to the page of a level where `key` belongs; with `before`, where the greatest key below it (None: of all)
    does.
    """

    __slots__ = ("_bound", "before", "key", "level", "linked", "low", "parent", "place", "tree")

    def __init__(self, tree: Tree, key: bytes | None, *, level: int = 0, before: bool = False) -> None:
        self.tree = tree
        self.key = key
        self.level = level
        self.before = before
        self.start()

    def start(self, bound: bytes | None = None) -> None:
        """From the root; with `bound`, to a page that begins before it, and from there to the right."""
        self.place: Place = self.tree, ROOT
        self.parent: Place | None = None
        self.low = b""  #: by the entry that led here
        self.linked = False  #: the left neighbour led here
        self._bound = bound

    def passes(self, page: Page) -> bool:
        """Whether the way goes on to the page's right neighbour."""
        if page.level > self.level and self._bound is not None:
            return page.goes_right_below(self._bound)
        if self.key is None or self.before:
            return page.goes_right_below(self.key)
        return page.goes_right(self.key)

    def right(self, page: Page) -> None:
        self.place = self.tree, page.right
        self.linked = True

    def down(self, page: Page) -> None:
        if self._bound is not None:
            low, page_id = page.child_below(self._bound)
        elif self.key is None or self.before:
            low, page_id = page.child_below(self.key)
        else:
            low, page_id = page.child(self.key)
        self.parent, self.place, self.low, self.linked = self.place, (self.tree, page_id), low, False


class Walk:
    """Pages read for one call, each once: what was read together is used together.

    `cache`: pages above the leaves may come from there; without one all are read.
    """

    def __init__(self, store: PointStore, cache: PageCache | None, deadline: float, *, settle: bool) -> None:
        self._store = store
        self._cache = cache
        self._deadline = deadline
        self._settle = settle
        self._reads = 0
        self._pages: dict[Place, tuple[int, bytes | None, Page]] = {}  #: with the number of the read it came by
        self._trusted: set[Place] = set()  #: what came from the cache
        self.shortcuts: dict[tuple[Tree, int, bytes], bytes] = {}  #: level, key, id: what a parent did not know

    def page(self, place: Place) -> Page:
        return self._pages[place][2]

    def stored(self, place: Place) -> bytes | None:
        return self._pages[place][1]

    def leaves(self, wanted: Sequence[tuple[Tree, bytes]]) -> list[Place]:
        """Where each key belongs. One read for each level, whatever the number of keys."""
        return self._arrive([_Route(tree, key) for tree, key in wanted])

    def leaves_of_one_state(self, wanted: Sequence[tuple[Tree, bytes]]) -> list[Place]:
        """The same, those of a tree read by one call."""
        places = self.leaves(wanted)
        while len({(place[0], self._pages[place][0]) for place in places}) > len({tree for tree, _ in places}):
            for place in places:
                self._pages.pop(place, None)
            self._load(places)
            places = self.leaves(wanted)
        return places

    def height(self, tree: Tree) -> int:
        """The level of the root."""
        root = tree, ROOT
        self._load([root])
        return self.page(root).level

    def at_level(self, tree: Tree, key: bytes, level: int) -> Place | None:
        """The page of a level where the key belongs; None: the tree is not that high."""
        return None if self.height(tree) < level else self._arrive([_Route(tree, key, level=level)])[0]

    def before(self, tree: Tree, bound: bytes | None, level: int = 0) -> Place:
        """The page of a level with the greatest keys below `bound`; None: of all."""
        return self._arrive([_Route(tree, bound, level=level, before=True)])[0]

    def after(self, place: Place) -> Place:
        """The page that begins where one ends that has been read, and has an end."""
        page = self.page(place)
        route = _Route(place[0], page.high, level=page.level)
        route.right(page)
        return self._arrive([route])[0]

    def _arrive(self, routes: list[_Route]) -> list[Place]:
        """Raises Corrupt for a page that another leads to, and that is not there however often one looks."""
        for _ in range(_ATTEMPTS):
            try:
                walking = routes
                while walking:
                    self._load(route.place for route in walking)
                    walking = [route for route in walking if self._goes_on(route)]
                return [route.place for route in routes]
            except _Lost as lost:
                missing = lost.place
                self._begin_again()
                for route in routes:
                    route.start()
        raise Corrupt(f"a page of the tree of {missing[0]!r:.200} is missing: {missing[1].hex()}")

    def _begin_again(self) -> None:
        """Nothing that was remembered or read is believed."""
        if self._cache is not None:
            self._cache.drop(self._trusted)
        self._cache = None
        self._trusted.clear()
        self._pages.clear()

    def _goes_on(self, route: _Route) -> bool:
        """One step, if there is one to go."""
        found = self._pages.get(route.place)
        if found is None:
            if self._trusted or route.linked:
                raise _Lost(route.place)
            self._go_back(route, route.low)
            return True
        page = found[2]
        here = page.level == route.level
        if page.leaving and not route.linked and route.place not in self._trusted:
            self._go_back(route, page.low)
        elif route.passes(page):
            assert page.high is not None
            self.shortcuts[route.tree, page.level + 1, page.high] = page.right
            self._distrust(route)
            route.right(page)
        elif here:
            return False
        else:
            route.down(page)
        return True

    def _go_back(self, route: _Route, low: bytes) -> None:
        """From a page that is gone, or may be, though an entry leads to it: to one that begins before it."""
        self._distrust(route)
        if not low:
            raise _Lost(route.place)
        route.start(low)

    def _distrust(self, route: _Route) -> None:
        """The parent did not know of a page: the next one who comes reads it anew."""
        if self._cache is not None and route.parent is not None:
            self._cache.drop([route.parent])

    def _load(self, places: Iterable[Place]) -> None:
        missing = [place for place in dict.fromkeys(places) if place not in self._pages]
        if self._cache is not None:
            missing = [place for place in missing if not self._load_trusted(self._cache, place)]
        for settle in (self._settle, True):
            if missing:
                self._reads += 1
                wanted = [page_address(place) for place in missing]
                found = self._store.read(wanted, deadline=self._deadline, settle=settle)
                for place, stored in zip(missing, found, strict=True):
                    self._found(place, stored)
            missing = [place for place in missing if place not in self._pages]

    def _load_trusted(self, cache: PageCache, place: Place) -> bool:
        known = cache.inner(place)
        if known is None:
            return False
        self._pages[place] = (0, *known)
        self._trusted.add(place)
        return True

    def _found(self, place: Place, stored: bytes | None) -> None:
        if stored is not None:
            page = decoded(stored) if self._cache is None else self._cache.decoded(place, stored)
            self._pages[place] = self._reads, stored, page
        elif place[1] == ROOT:
            self._pages[place] = self._reads, None, EMPTY
