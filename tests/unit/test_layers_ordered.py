"""TreeStore: its invariants after any interleaving of calls to the store below, under faults, and its pages' format."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.conformance.interleaving import Scheduled, Turns, interleaved
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, Operation, PointStore, Row, Rows, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers import pages
from adapters.layers.ordered import TreeStore
from adapters.layers.pages import ROOT, Page, decoded, encoded
from adapters.layers.walks import page_address
from tests.unit.trees import SCOPE, SOON, TREE, Counting, at, checked_tree, merged, pages_in, scanned


def until_acknowledged(work: Callable[[], None]) -> None:
    while True:
        try:
            return work()
        except Unavailable:
            continue


class World:
    """Writers with keys of their own, a counter that all change, a scanner, a sweeper; what must be there at any time.

    The sweeper waits for nothing, unless calls come late: then what is swept may come back.
    """

    def __init__(self, seed: int, options: str, calls: int) -> None:
        self.sweep_after_seconds = 3600.0 if "shuffle" in options else -1.0
        self.below = bare(f"weak:?ordered=no{options}")
        self.random = Random(seed)
        self.calls = calls
        self.staying = {b"%03d" % number: b"stays" for number in range(0, 108, 9)}
        self.there: dict[bytes, bytes] = dict(self.staying)
        until_acknowledged(lambda: self.over(self.below).write(self.puts(self.staying), deadline=SOON))
        self.counted = self.swept = 0
        turns = Turns(seed, 6)
        store = self.over(Scheduled(self.below, turns))
        other = self.over(Scheduled(self.below, turns))  # another process: it remembers other pages
        clients = [self.writer(store, 1), self.writer(other, 2), self.counter(store), self.counter(other)]
        interleaved(turns, [*clients, self.scanner(store), self.sweeper(other)])

    def over(self, below: Any) -> TreeStore:
        return TreeStore(below, page_bytes=150, sweep_after_seconds=self.sweep_after_seconds)

    def puts(self, rows: dict[bytes, bytes]) -> list[Operation]:
        return [Write(at(key), value) for key, value in rows.items()]

    def writer(self, store: TreeStore, mine: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(self.calls):
                keys = [b"%03d" % (9 * self.random.randrange(12) + 2 * step + mine) for step in range(1, 4)]
                values: dict[bytes, bytes | None] = {
                    key: None if self.random.random() < 0.2 else b"%025d" % number for key in {*keys[: number % 3 + 1]}
                }
                if number % 5 == 4:
                    start, residues = self.random.randrange(60), {2 * step + mine for step in range(1, 4)}
                    values = {b"%03d" % each: None for each in range(start, start + 50) if each % 9 in residues}
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

    def sweeper(self, store: TreeStore) -> Callable[[], None]:
        def run() -> None:
            for _ in range(self.calls // 4):
                with suppress(Unavailable):
                    self.swept += store.sweep(Table.META, SCOPE, deadline=SOON)

        return run


@pytest.mark.parametrize("options", ["", "&atomicity=scope", "&atomicity=batch"])
def test_any_interleaving_of_writers_and_scans_loses_and_repeats_nothing(options: str) -> None:
    heights, gone = set(), 0
    for seed in range(25):
        world = World(seed, options, calls=20)
        rows = dict(scanned(world.over(world.below)))
        assert int(rows.pop(b"count", b"0")) == world.counted
        assert rows == world.there
        heights.add(checked_tree(world.below))
        gone += merged(world.below) + world.swept
    assert max(heights) >= 2
    assert gone > 100


@pytest.mark.parametrize("options", ["&fail=5&shuffle=%d", "&fail=5&shuffle=%d&atomicity=batch"])
def test_calls_below_that_fail_midway_come_late_or_twice_lose_nothing(options: str) -> None:
    for seed in range(25):
        world = World(seed, options % seed, calls=20)
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
@pytest.mark.parametrize("atomicity", ["row", "scope", "batch"])
def test_a_crash_after_any_write_below_a_delete_leaves_a_right_tree(atomicity: str, after: bool) -> None:
    rows = {b"%03d" % number: b"v" * 20 for number in range(60)}
    gone = [key for key in rows if key[-1:] != b"7"]
    for fails_at in range(1, 60):
        below = bare(f"weak:?ordered=no&atomicity={atomicity}")
        TreeStore(below, 160).write([Write(at(key), value) for key, value in rows.items()], deadline=SOON)
        crashing: Any = Crashing(below, fails_at, after=after)
        with suppress(Unavailable):
            TreeStore(crashing, 160).write([Write(at(key), None) for key in gone], deadline=SOON)
        found = dict(scanned(TreeStore(below, 160)))
        assert {*rows} - {*gone} <= {*found} <= {*rows}
        assert scanned(TreeStore(below, 160), reverse=True) == [*found.items()][::-1]
        checked_tree(below)
        tidy = TreeStore(below, 160, sweep_after_seconds=-1)
        tidy.write([Write(at(key), None) for key in gone], deadline=SOON)
        for _ in range(3):
            tidy.sweep(Table.META, SCOPE, deadline=SOON)
        assert [key for key, _ in scanned(tidy)] == [key for key in rows if key not in gone]
        checked_tree(below)
        assert len(pages_in(below)) <= 8


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("atomicity", ["row", "batch"])
def test_a_crash_after_any_write_below_leaves_a_right_tree(atomicity: str, after: bool) -> None:
    old = {b"%03d" % number: b"old" for number in range(0, 200, 7)}
    new = {b"%03d" % number: b"new" for number in range(0, 200, 5)}
    for fails_at in range(1, 60):
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
        TreeStore(below, 80, sweep_after_seconds=-1).sweep(Table.META, SCOPE, deadline=SOON)
        assert dict(scanned(TreeStore(below, 80))) == old | new
        checked_tree(below)


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


@pytest.mark.parametrize("options", ["&atomicity=scope", "&atomicity=batch"])
def test_one_read_sees_the_rows_of_a_scope_in_one_state(options: str) -> None:
    keys = [b"a", b"m", b"z"]
    for seed in range(15):
        below = bare(f"weak:?ordered=no{options}")
        TreeStore(below, 150).write([Write(at(key), b"0") for key in keys], deadline=SOON)
        turns = Turns(seed, 3)
        scheduled: Any = Scheduled(below, turns)

        def change(below: Any = scheduled) -> None:
            store = TreeStore(below, 150)
            for number in range(10):
                store.write([Write(at(key), b"%d" % number) for key in keys], deadline=SOON)

        def stir(below: Any = scheduled, seed: int = seed) -> None:
            store, random = TreeStore(below, 150), Random(seed)
            for number in range(20):
                more = [b"%c%02d" % (random.choice(b"abmyz"), random.randrange(20)) for _ in range(8)]
                value = None if number % 3 == 2 else b"v" * 20
                store.write([Write(at(key), value) for key in {*more}], deadline=SOON)

        def look(below: Any = scheduled) -> None:
            store = TreeStore(below, 150)
            for _ in range(15):
                assert len({*store.read([at(key) for key in keys], deadline=SOON)}) == 1

        interleaved(turns, [change, stir, look])


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
    for turn in range(40):  # pages now list as many loose ones as they may
        gone = random.sample(sorted(rows), len(rows) // 3)
        rows = {key: value for key, value in rows.items() if key not in gone}
        store.write([Write(at(key), None) for key in gone], deadline=SOON)
        batch = {random.randbytes(1) * 124 + random.randbytes(2): b"v" * 256 for _ in range(20)}
        rows |= batch
        store.write([Write(at(key), value) for key, value in batch.items()], deadline=SOON)
        assert scanned(store, reverse=turn % 2 == 1) == sorted(rows.items(), reverse=turn % 2 == 1)


def checked_tree_of_hashed_scope(store: TreeStore) -> int:
    place = store._tree(Table.META, SCOPE)
    (stored,) = store.inner.read([page_address((place, ROOT))], deadline=SOON)
    assert stored is not None
    return decoded(stored).level


@given(st.lists(st.binary(max_size=9), min_size=1, unique=True), st.integers(0, 2), st.integers(20, 200))
def test_pages_are_decoded_as_encoded_and_cut_without_loss(keys: list[bytes], level: int, size: int) -> None:
    keys.sort()
    values = tuple(key + b"v" for key in keys)
    loose = ((b"i" * 16, 5), (b"j" * 16, 1 << 50))
    page = Page(level, 7, keys[0], keys[-1] + b"\x00", b"right", tuple(keys), values, size % 2 == 1, loose)
    ids = iter(range(1000))
    first, more = pages.split(page, size, lambda: b"%d" % next(ids))
    chain = [first, *more.values()]
    assert [decoded(encoded(each)) for each in chain] == chain
    assert [key for each in chain for key in each.keys] == keys
    assert [value for each in chain for value in each.values] == list(values)
    assert [each.loose for each in chain] == [loose, *[()] * len(more)]
    assert sum(each.size for each in chain) == page.size
    assert [each.right for each in chain] == [*more, b"right"]
    assert [each.low for each in chain] == [keys[0], *(each.high for each in chain[:-1])]
    assert all(each.low <= each.keys[0] and each.keys[-1] < (each.high or b"") for each in chain)
    assert not level or all(len(each.keys) >= 2 for each in chain) or len(keys) < 2


def test_what_is_no_page_and_what_it_cannot_stand_over() -> None:
    below = bare("weak:?ordered=no")
    for wrong in (b"x", b"\x01" + bytes(30), encoded(pages.EMPTY)[:-1] + b"\x01\xff\xff\xff\xff"):
        below.write([Write(page_address((TREE, ROOT)), wrong)], deadline=SOON)
        with pytest.raises(Corrupt):
            TreeStore(below).read([at(b"k")], deadline=SOON)
    for options in ("compare_and_set=no", "max_value_bytes=1000", "max_key_bytes=47"):
        with pytest.raises(Unsupported, match="ordered stands only over"):
            TreeStore(bare(f"weak:?ordered=no&{options}"))
    with pytest.raises(Unsupported, match="no snapshots"):
        TreeStore(below).snapshot()
