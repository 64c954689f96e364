"""The merge join: what several ranges have in common, at the cost of the matches and the skips between them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.build import open_store
from adapters.contract import KeyRange, OrderedStore, Row, Rows, Table
from pbserver.datastore.joins import MergeJoin
from pbserver.datastore.ranges import Place
from tests.unit.building import FAR

SCOPE = b"scope\x00"
EVERYTHING = KeyRange()

#: Bytes that meet each other often, 0x00 and 0xff among them; some are prefixes of others.
suffixes = st.lists(st.sampled_from(b"\x00\x01a\xff"), min_size=1, max_size=4).map(bytes)
bounds = st.tuples(st.one_of(st.just(b""), suffixes), st.one_of(st.none(), suffixes)).map(lambda pair: KeyRange(*pair))


@st.composite
def ranges(draw: st.DrawFn) -> list[set[bytes]]:
    """The suffixes of one to five ranges: some of their own, some common ones, and dense runs of either."""
    common = draw(st.sets(suffixes, max_size=12))
    dense = {b"r%03d" % number for number in range(*draw(st.sampled_from([(0, 0), (0, 300), (150, 700)])))}
    found = []
    for _ in range(draw(st.integers(1, 5))):
        own = draw(st.sets(suffixes, max_size=12))
        step = draw(st.sampled_from([1, 1, 2, 3, 50]))
        found.append(own | common | {each for each in dense if int(each[1:]) % step == 0})
    return found


@pytest.fixture(scope="module")
def store() -> Iterator[OrderedStore]:
    opened = open_store("memory:")
    opened.ensure_tables()
    yield opened
    opened.close()


class Prefixed:
    """A scope that holds ranges of rows, other rows around them."""

    def __init__(self, held: Sequence[set[bytes]]) -> None:
        self.prefixes = [b"\x02" + bytes([0x61 + number]) + b"\x00" for number in range(len(held))]
        self.held = held

    def fill(self, store: OrderedStore) -> None:
        store.drop_tables()
        store.ensure_tables()
        rows = {
            prefix + suffix: b"%d" % number
            for number, (prefix, found) in enumerate(zip(self.prefixes, self.held, strict=True))
            for suffix in found
        }
        rows |= {b"\x01": b"below", b"\x02z": b"above"}
        store.write([], rows=[Rows(Table.INDEXES, SCOPE, b"", rows)], deadline=FAR)

    def join(self, bounds: KeyRange = EVERYTHING, *, descending: bool = False) -> MergeJoin:
        return MergeJoin(Table.INDEXES, SCOPE, tuple(self.prefixes), bounds, descending)

    def expected(self, bounds: KeyRange = EVERYTHING, *, descending: bool = False) -> list[Row]:
        common = set.intersection(*self.held)
        inside = [each for each in common if each >= bounds.start and (bounds.stop is None or each < bounds.stop)]
        return [(self.prefixes[0] + each, b"0") for each in sorted(inside, reverse=descending)]


@given(held=ranges(), keys=bounds, descending=st.booleans(), limit=st.integers(1, 700))
@settings(max_examples=80, deadline=None)
def test_a_join_gives_what_all_ranges_hold(
    store: OrderedStore, held: list[set[bytes]], keys: KeyRange, descending: bool, limit: int
) -> None:
    world = Prefixed(held)
    world.fill(store)
    expected = world.expected(keys, descending=descending)
    assert world.join(keys, descending=descending).rows(store, None, limit, FAR) == expected[:limit]


@given(held=ranges(), keys=bounds, descending=st.booleans(), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_join_goes_on_behind_or_at_any_row(
    store: OrderedStore, held: list[set[bytes]], keys: KeyRange, descending: bool, data: st.DataObject
) -> None:
    world = Prefixed(held)
    world.fill(store)
    expected = world.expected(keys, descending=descending)
    join = world.join(keys, descending=descending)
    elsewhere = data.draw(suffixes, label="a suffix that need not be there")
    for row in [world.prefixes[0] + elsewhere, *(key for key, _ in data.draw(st.permutations(expected))[:3])]:
        behind = [each for each in expected if (each[0] < row if descending else each[0] > row)]
        at = [each for each in expected if each[0] == row]
        assert join.rows(store, Place(row), 1000, FAR) == behind
        assert join.rows(store, Place(row, inclusive=True), 1000, FAR) == at + behind


@given(held=ranges(), descending=st.booleans(), size=st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_pages_of_a_join_are_the_whole(
    store: OrderedStore, held: list[set[bytes]], descending: bool, size: int
) -> None:
    world = Prefixed(held)
    world.fill(store)
    join = world.join(descending=descending)
    expected = world.expected(descending=descending)[: 20 * size]
    found: list[Row] = []
    while len(found) < len(expected):
        page = join.rows(store, Place(found[-1][0]) if found else None, size, FAR)
        assert len(page) == min(size, len(world.expected()) - len(found))
        found += page
    assert found[: len(expected)] == expected


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_the_place_at_a_run_of_suffixes_leaves_out_or_takes_the_run(
    store: OrderedStore, descending: bool, behind: bool
) -> None:
    held = {b"a1", b"b1", b"b2", b"b\xff", b"c1"}
    world = Prefixed([held, held])
    world.fill(store)
    join = world.join(descending=descending)
    place = join.run(world.prefixes[0] + b"b", behind=behind)
    found = [row[len(world.prefixes[0]) :] for row, _ in join.rows(store, place, 10, FAR)]
    last = [b"a1"] if descending else [b"c1"]
    run = sorted({b"b1", b"b2", b"b\xff"}, reverse=descending)
    assert found == (last if behind else run + last)


class Counting:
    """A reader that counts."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store
        self.scans = self.rows = 0

    def scan(self, *args: Any, **named: Any) -> list[Row]:
        found = self._store.scan(*args, **named)
        self.scans += 1
        self.rows += len(found)
        return found


def cost(store: OrderedStore, held: list[set[bytes]], *, descending: bool) -> Counting:
    """What it takes to find all matches."""
    world = Prefixed(held)
    world.fill(store)
    reader = Counting(store)
    found = world.join(descending=descending).rows(reader, None, 1000, FAR)  # type: ignore[arg-type]
    assert found == world.expected(descending=descending)
    return reader


def apart(size: int, matches: int) -> list[set[bytes]]:
    """Two ranges of a size that take turns by long runs, with matches far apart."""
    own = [{b"%08d" % (number * 10 + side) for number in range(size)} for side in (1, 2)]
    run = size // matches
    sides = [{each for each in side if (int(each) // (10 * run)) % 2 == parity} for parity, side in enumerate(own)]
    common = {b"%08d" % (number * 10 * run + 5) for number in range(matches)}
    return [side | common for side in sides]


@pytest.mark.parametrize("descending", [False, True])
def test_the_cost_is_that_of_the_matches_not_of_the_ranges(store: OrderedStore, descending: bool) -> None:
    small = cost(store, apart(1_000, 20), descending=descending)
    large = cost(store, apart(10_000, 20), descending=descending)
    assert large.scans <= small.scans * 1.5 + 4
    assert large.scans <= 20 * 6
    assert large.rows <= 20 * 6 * 16


@pytest.mark.parametrize("descending", [False, True])
def test_a_lone_match_in_a_short_range_costs_few_scans_of_a_long_one(store: OrderedStore, descending: bool) -> None:
    long = {b"%08d" % number for number in range(10_000)}
    for held in ([long, {b"00005000"}], [{b"00005000"}, long]):
        assert cost(store, held, descending=descending).scans <= 6


@pytest.mark.parametrize("descending", [False, True])
def test_ranges_that_agree_are_read_in_long_pages(store: OrderedStore, descending: bool) -> None:
    dense = {b"%08d" % number for number in range(900)}
    read = cost(store, [dense, dense, dense], descending=descending)
    assert read.scans <= 3 * 12
    assert read.rows <= 3 * 900 * 1.1
