"""TreeStore: its invariants after any interleaving of calls to the store below, under faults, and its pages' format."""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.conformance.interleaving import Scheduled, Turns, interleaved
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, Address, KeyRange, Operation, PointStore, Row, Rows, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers import pages
from adapters.layers.ordered import TreeStore, page_address
from adapters.layers.pages import ROOT, Page, decoded, encoded

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


def checked_tree(below: PointStore) -> int:
    """Checks the invariants of ordered.py; the tree's height."""
    root = page_of(below, ROOT)
    assert (root.low, root.high, root.right) == (b"", None, b"")
    first, height = ROOT, root.level
    for level in range(height, -1, -1):
        lows, page_id, low = [], first, b""
        while page_id:
            page = page_of(below, page_id)
            assert (page.level, page.low) == (level, low)
            assert list(page.keys) == sorted(set(page.keys))
            assert all(low <= key and (page.high is None or key < page.high) for key in page.keys)
            assert bool(page.right) == (page.high is not None)
            for key, child in zip(page.keys, page.values, strict=True) if level else ():
                below_it = page_of(below, child)
                assert (below_it.level, below_it.low) == (level - 1, key)
            assert not level or page.keys[0] == low
            lows.append(low)
            page_id, low = page.right, page.high or b""
        first = page_of(below, first).values[0] if level else b""
    return height


def until_acknowledged(work: Callable[[], None]) -> None:
    while True:
        try:
            return work()
        except Unavailable:
            continue


class World:
    """Writers with keys of their own, a counter that all change, a scanner; what must be there at any moment."""

    def __init__(self, seed: int, options: str, calls: int) -> None:
        self.below = bare(f"weak:?ordered=no{options}")
        self.random = Random(seed)
        self.calls = calls
        self.staying = {b"%03d" % number: b"stays" for number in range(0, 100, 9)}
        self.there: dict[bytes, bytes] = dict(self.staying)
        until_acknowledged(lambda: self.over(self.below).write(self.puts(self.staying), deadline=SOON))
        self.counted = 0
        turns = Turns(seed, 5)
        store = self.over(Scheduled(self.below, turns))
        clients = [self.writer(store, 1), self.writer(store, 2), self.counter(store), self.counter(store)]
        interleaved(turns, [*clients, self.scanner(store)])

    def over(self, below: Any) -> TreeStore:
        return TreeStore(below, page_bytes=80)

    def puts(self, rows: dict[bytes, bytes]) -> list[Operation]:
        return [Write(at(key), value) for key, value in rows.items()]

    def writer(self, store: TreeStore, mine: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(self.calls):
                keys = [b"%03d" % (9 * self.random.randrange(12) + 2 * step + mine) for step in range(1, 4)]
                values = {
                    key: None if self.random.random() < 0.3 else b"%d" % number for key in {*keys[: number % 3 + 1]}
                }
                for key in values:
                    self.there.pop(key, None)  # unknown until the call has ended
                batch = [Write(at(key), value) for key, value in values.items()]
                until_acknowledged(lambda batch=batch: store.write(batch, deadline=SOON))  # type: ignore[misc]
                self.there |= {key: value for key, value in values.items() if value is not None}

        return run

    def counter(self, store: TreeStore) -> Callable[[], None]:
        def run() -> None:
            for _ in range(self.calls):
                (current,) = store.read([at(b"count")], deadline=SOON, settle=True)
                wanted = b"%d" % (int(current or b"0") + 1)
                try:
                    store.write([Write(at(b"count"), wanted, current or ABSENT)], deadline=SOON)
                    self.counted += 1
                except StoreError as error:
                    assert isinstance(error, Conflict) or error.applied

        return run

    def scanner(self, store: TreeStore) -> Callable[[], None]:
        def run() -> None:
            for number in range(self.calls):
                before = dict(self.there)
                rows = scanned(store, reverse=number % 2 == 1)
                keys = [key for key, _ in rows]
                assert keys == sorted({*keys}, reverse=number % 2 == 1)
                assert {*before} & {*self.there} & {*self.staying} <= {*keys}
                assert all(dict(rows)[key] == b"stays" for key in self.staying)

        return run


@pytest.mark.parametrize("options", ["", "&atomicity=scope", "&atomicity=batch"])
def test_any_interleaving_of_writers_and_scans_loses_and_repeats_nothing(options: str) -> None:
    heights = set()
    for seed in range(25):
        world = World(seed, options, calls=12)
        rows = dict(scanned(world.over(world.below)))
        assert int(rows.pop(b"count", b"0")) == world.counted
        assert rows == world.there
        heights.add(checked_tree(world.below))
    assert max(heights) >= 2


@pytest.mark.parametrize("options", ["&fail=5&shuffle=%d", "&fail=5&shuffle=%d&atomicity=batch"])
def test_calls_below_that_fail_midway_come_late_or_twice_lose_nothing(options: str) -> None:
    for seed in range(25):
        world = World(seed, options % seed, calls=12)
        for _ in range(30):  # whatever is late comes now
            rows = dict(read_again(lambda world=world: scanned(world.over(world.below))))  # type: ignore[misc]
        assert int(rows.pop(b"count", b"0")) >= world.counted
        assert rows == world.there
        checked_tree(world.below)


def read_again(work: Callable[[], list[Row]]) -> list[Row]:
    while True:
        try:
            return work()
        except Unavailable:
            continue


def test_stale_reads_below_lead_writers_nowhere() -> None:
    for seed in range(10):
        below = bare(f"weak:?ordered=no&stale=yes&shuffle={seed}")
        store = TreeStore(below, page_bytes=80)
        model: dict[bytes, bytes] = {}
        random = Random(seed)
        for number in range(150):
            key, value = b"%02d" % random.randrange(40), random.choice([b"1", b"2", None])
            store.write([Write(at(key), value)], deadline=SOON)
            model = {each: there for each, there in (model | {key: value}).items() if there is not None}
            assert store.read([at(key)], deadline=SOON, settle=True) == [value]
            keys = [row[0] for row in scanned(store, reverse=number % 2 == 1)]
            assert keys == sorted({*keys}, reverse=number % 2 == 1)
        checked_tree(below)
        wanted = [at(b"%02d" % number) for number in range(40)]
        assert store.read(wanted, deadline=SOON, settle=True) == [model.get(each.key) for each in wanted]


class Crashing:
    """Fails for good with a numbered write, before or after it was applied."""

    def __init__(self, below: PointStore, fails_at: int, *, after: bool) -> None:
        self._below = below
        self._left = fails_at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            raise Unavailable("crashed")
        self._below.write(operations, rows=rows, deadline=deadline)
        if self._left == 0:
            raise Unavailable("crashed", Applied.UNKNOWN)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("atomicity", ["row", "batch"])
def test_a_crash_after_any_write_below_leaves_a_right_tree(atomicity: str, after: bool) -> None:
    old = {b"%03d" % number: b"old" for number in range(0, 200, 7)}
    new = {b"%03d" % number: b"new" for number in range(0, 200, 5)}
    for fails_at in range(1, 40):
        below = bare(f"weak:?ordered=no&atomicity={atomicity}")
        TreeStore(below, 80).write([Write(at(key), value) for key, value in old.items()], deadline=SOON)
        crashing: Any = Crashing(below, fails_at, after=after)
        allowed = [old | new]
        try:
            TreeStore(crashing, 80).write([Write(at(key), value) for key, value in new.items()], deadline=SOON)
        except Unavailable as error:
            allowed = [old, old | new] if error.applied is Applied.UNKNOWN else [old]
        rows = dict(scanned(TreeStore(below, 80)))
        if atomicity == "batch" or len(allowed) == 1:
            assert rows in allowed
        assert {*old} <= {*rows} <= {*old, *new}
        assert scanned(TreeStore(below, 80), reverse=True) == [*rows.items()][::-1]
        checked_tree(below)
        TreeStore(below, 80).write([Write(at(key), value) for key, value in new.items()], deadline=SOON)
        assert dict(scanned(TreeStore(below, 80))) == old | new


def test_a_late_copy_of_a_write_below_finds_another_page_though_its_rows_are_the_same_again() -> None:
    below = bare("weak:?ordered=no")
    sent: list[Operation] = []

    class Copied(Counting):
        def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
            sent.extend(operations)
            below.write(operations, rows=rows, deadline=deadline)

    copied: Any = Copied(below)
    store = TreeStore(copied, 80)
    for number in range(20):
        store.write([Write(at(b"%02d" % number), b"stays")], deadline=SOON)
    for number in range(20):
        store.write([Write(at(b"%02dk" % number), b"v")], deadline=SOON)
        store.write([Write(at(b"%02dk" % number), None)], deadline=SOON)
    for operation in list(sent):
        with pytest.raises(Conflict):
            below.write([operation], deadline=SOON)
    assert [key for key, _ in scanned(store)] == [b"%02d" % number for number in range(20)]


def test_a_call_over_two_scopes_that_fails_in_the_second_says_unknown() -> None:
    crashing: Any = Crashing(bare("weak:?ordered=no&atomicity=scope"), 2, after=False)
    with pytest.raises(Unavailable) as raised:
        TreeStore(crashing).write([Write(at(b"k"), b"v"), Write(at(b"k")._replace(scope=b"t"), b"v")], deadline=SOON)
    assert raised.value.applied is Applied.UNKNOWN


@pytest.mark.parametrize("atomicity", ["row", "batch"])
def test_a_writer_whom_others_always_beat_gives_up_at_its_deadline(atomicity: str) -> None:
    below = bare(f"weak:?ordered=no&atomicity={atomicity}")

    class Beaten(Counting):
        def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
            self.reads += 1
            TreeStore(below).write([Write(at(b"k"), b"theirs %d" % self.reads)], deadline=SOON)
            below.write(operations, rows=rows, deadline=deadline)

    beaten: Any = Beaten(below)
    with pytest.raises(Unavailable, match="others were writing") as raised:
        TreeStore(beaten).write([Write(at(b"k"), b"mine")], deadline=time.monotonic() + 0.05)
    assert raised.value.applied is Applied.NO
    assert scanned(TreeStore(below))[0][1].startswith(b"theirs")


def reads_for(below: PointStore, key: bytes) -> int:
    counting: Any = Counting(below)
    TreeStore(counting, 80).read([at(key)], deadline=SOON)
    return int(counting.reads)


def test_a_writer_who_had_to_go_right_tells_the_parent() -> None:
    tried = 0
    for fails_at in range(1, 6):
        below = bare("weak:?ordered=no")
        for number in range(30):
            TreeStore(below, 80).write([Write(at(b"%03d" % (10 * number)), b"v")], deadline=SOON)
        crashing: Any = Crashing(below, fails_at, after=True)
        try:
            rows = [Write(at(b"%03d" % number), b"v" * 9) for number in range(1, 8)]
            TreeStore(crashing, 80).write(rows, deadline=SOON)
        except Unavailable as error:
            if error.applied is Applied.NO:
                continue
            tried += 1  # it has split the page, and told nobody
            before = reads_for(below, b"007")
            TreeStore(below, 80).write([Write(at(b"007"), b"w")], deadline=SOON)
            assert reads_for(below, b"007") < before
            checked_tree(below)
    assert tried == 1


class Counting:
    def __init__(self, below: PointStore) -> None:
        self._below = below
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self.reads += 1
        return self._below.read(addresses, deadline=deadline, settle=settle)


def test_many_keys_are_found_with_one_read_a_level() -> None:
    below = bare("weak:?ordered=no")
    rows = [Write(at(b"%05d" % number), b"v" * 50) for number in range(3000)]
    TreeStore(below, 2000).write(rows, deadline=SOON)
    height = checked_tree(below)
    counting: Any = Counting(below)
    found = TreeStore(counting, 2000).read([each.address for each in rows], deadline=SOON)
    assert found == [b"v" * 50] * 3000
    assert counting.reads == height + 1


@pytest.mark.parametrize("atomicity", ["row", "batch"])
def test_long_keys_and_large_rows_stay_below_the_limit_of_the_store(atomicity: str) -> None:
    below = bare(f"weak:?ordered=no&atomicity={atomicity}&max_value_bytes=1024&max_key_bytes=48")
    store = TreeStore(below)
    claims = store.capabilities
    assert (claims.max_key_bytes, claims.max_value_bytes) == (128, 256)
    random, rows = Random(5), {}
    for _ in range(20):
        batch = {random.randbytes(1) * 124 + random.randbytes(2): b"v" * 256 for _ in range(20)}
        store.write([Write(at(key), value) for key, value in batch.items()], deadline=SOON)
        rows |= batch
    assert scanned(store) == sorted(rows.items())
    assert checked_tree_of_hashed_scope(store) >= 2


def checked_tree_of_hashed_scope(store: TreeStore) -> int:
    place = store._tree(at(b""))
    (stored,) = store.inner.read([page_address((place, ROOT))], deadline=SOON)
    assert stored is not None
    return decoded(stored).level


@given(st.lists(st.binary(max_size=9), min_size=1, unique=True), st.integers(0, 2), st.integers(20, 200))
def test_pages_are_decoded_as_encoded_and_cut_without_loss(keys: list[bytes], level: int, size: int) -> None:
    keys.sort()
    values = tuple(key + b"v" for key in keys)
    page = Page(level, 7, keys[0], keys[-1] + b"\x00", b"right", tuple(keys), values)
    ids = iter(range(1000))
    first, more = pages.split(page, size, lambda: b"%d" % next(ids))
    chain = [first, *more.values()]
    assert [decoded(encoded(each)) for each in chain] == chain
    assert [key for each in chain for key in each.keys] == keys
    assert [value for each in chain for value in each.values] == list(values)
    assert [each.right for each in chain] == [*more, b"right"]
    assert [each.low for each in chain] == [keys[0], *(each.high for each in chain[:-1])]
    assert all(each.low <= each.keys[0] and each.keys[-1] < (each.high or b"") for each in chain)
    assert not level or all(len(each.keys) >= 2 for each in chain) or len(keys) < 2


def test_what_is_no_page_and_what_it_cannot_stand_over() -> None:
    below = bare("weak:?ordered=no")
    for wrong in (b"x", b"\x02" + bytes(30), encoded(pages.EMPTY)[:-1] + b"\x01\xff\xff\xff\xff"):
        below.write([Write(page_address((TREE, ROOT)), wrong)], deadline=SOON)
        with pytest.raises(Corrupt):
            TreeStore(below).read([at(b"k")], deadline=SOON)
    for options in ("compare_and_set=no", "max_value_bytes=1000", "max_key_bytes=47"):
        with pytest.raises(Unsupported, match="ordered stands only over"):
            TreeStore(bare(f"weak:?ordered=no&{options}"))
    with pytest.raises(Unsupported, match="no snapshots"):
        TreeStore(below).snapshot()
