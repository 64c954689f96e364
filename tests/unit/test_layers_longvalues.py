"""LongValuesStore: nothing is left behind, and nothing that is pointed to is ever missing, whatever fails."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from adapters.conformance.interleaving import Scheduled, Turns, interleaved
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Check, KeyRange, Operation, OrderedStore, Row, Rows, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers import pieces
from adapters.layers.longvalues import LongValuesStore

SOON = 1e18
KEY = Address(Table.META, b"s", b"place", b"k")
LONG = [bytes([byte]) * 500 for byte in range(1, 9)]


class Watched:
    """A store that runs something right before, or fails right after, a numbered write or read."""

    def __init__(self, options: str) -> None:
        store = bare("weak:?" + "&".join(filter(None, ["max_value_bytes=100", options])))
        assert isinstance(store, OrderedStore)
        self.store = store
        self.writes = self.reads = 0
        self.before_read: dict[int, Callable[[], Any]] = {}
        self.before_write: dict[int, Callable[[], Any]] = {}
        self.fail_after: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self.reads += 1
        self.before_read.pop(self.reads, lambda: None)()
        return self.store.read(addresses, deadline=deadline, settle=settle)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self.writes += 1
        self.before_write.pop(self.writes, lambda: None)()
        self.store.write(operations, rows=rows, deadline=deadline)
        if self.writes == self.fail_after:
            raise Unavailable("crashed", Applied.UNKNOWN)


def over(options: str = "", sweep_after_seconds: float = 3600.0) -> tuple[Any, Any]:
    below: Any = Watched(options)
    return LongValuesStore(below, sweep_after_seconds), below


def pieces_of(below: Any, table: Table = Table.META, scope: bytes = KEY.scope) -> list[Row]:
    rows: list[Row] = below.store.scan(table, pieces.pieces_scope(scope), KeyRange(), limit=10_000, deadline=SOON)
    return rows


@pytest.mark.parametrize("options", ["", "versions=yes", "atomicity=scope", "atomicity=batch", "max_batch=2"])
def test_nothing_is_left_of_values_that_were_replaced_deleted_or_refused(options: str) -> None:
    store, below = over(options)
    store.write([Write(KEY, LONG[0])], deadline=SOON)
    one = len(pieces_of(below))
    assert one > 5
    store.write([Write(KEY, LONG[1])], deadline=SOON)
    store.write([Write(KEY, LONG[2], LONG[1])], deadline=SOON)
    for wrong in (ABSENT, LONG[1], b"short"):
        with pytest.raises(Conflict) as raised:
            store.write([Write(KEY, LONG[3], wrong)], deadline=SOON)
        assert raised.value.current == LONG[2]
    assert len(pieces_of(below)) == one
    store.write([Check(KEY, LONG[2])], deadline=SOON)
    store.write([Write(KEY, b"short", LONG[2])], deadline=SOON)
    assert pieces_of(below) == []
    store.write([Write(KEY, LONG[4])], deadline=SOON)
    store.write([Write(KEY, None)], deadline=SOON)
    assert pieces_of(below) == []


def test_a_version_that_loses_keeps_the_winners_pieces_and_leaves_none() -> None:
    store, below = over("versions=yes")
    store.write([Write(KEY, LONG[0], ANY, 5)], deadline=SOON)
    one = len(pieces_of(below))
    store.write([Write(KEY, LONG[1], ANY, 4)], deadline=SOON)
    store.write([Write(KEY, None, ANY, 3)], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [LONG[0]]
    assert len(pieces_of(below)) == one
    store.write([Write(KEY, None, ANY, 6)], deadline=SOON)
    assert pieces_of(below) == []
    store.write([Write(KEY, LONG[1], ANY, 5)], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [None]
    assert pieces_of(below) == []


def test_volatile_values_keep_to_their_table() -> None:
    store, below = over("atomicity=batch")
    store.write([Write(KEY._replace(table=Table.SESSIONS), LONG[0])], deadline=SOON)
    assert pieces_of(below) == []
    assert pieces_of(below, Table.SESSIONS)


@pytest.mark.parametrize("old", [None, b"short", LONG[0]])
@pytest.mark.parametrize("new", [None, b"new", LONG[1]])
def test_a_crash_after_any_write_below_leaves_the_old_or_the_new_value(old: bytes | None, new: bytes | None) -> None:
    for fail_after in range(1, 9):
        store, below = over(sweep_after_seconds=-1)
        if old is not None:
            store.write([Write(KEY, old)], deadline=SOON)
        below.writes, below.fail_after = 0, fail_after
        try:
            store.write([Write(KEY, new)], deadline=SOON)
            allowed = [new]
        except StoreError as error:
            allowed = [old] if error.applied is Applied.NO else [old, new]
        (found,) = store.read([KEY], deadline=SOON)
        assert found in allowed
        store.sweep(Table.META, KEY.scope, deadline=SOON)
        assert store.read([KEY], deadline=SOON) == [found]
        assert bool(pieces_of(below)) == (found in LONG)


def test_the_sweep_leaves_young_pieces_and_those_in_use() -> None:
    store, below = over()
    for number, value in enumerate(LONG):
        store.write([Write(KEY._replace(key=b"%d" % number), value)], deadline=SOON)
    used = len(pieces_of(below))
    below.writes, below.fail_after = 0, 1
    with pytest.raises(Unavailable):
        store.write([Write(KEY, LONG[0])], deadline=SOON)
    assert len(pieces_of(below)) > used
    left = len(pieces_of(below)) - used
    assert store.sweep(Table.META, KEY.scope, deadline=SOON) == 0
    hasty = LongValuesStore(below, sweep_after_seconds=-1)
    assert hasty.sweep(Table.META, b"another scope", deadline=SOON) == 0
    assert hasty.sweep(Table.META, KEY.scope, deadline=SOON) == left
    assert len(pieces_of(below)) == used
    assert store.read([KEY._replace(key=b"%d" % number) for number in range(8)], deadline=SOON) == LONG


def test_a_read_of_several_rows_of_a_scope_sees_them_in_one_state() -> None:
    store, below = over("atomicity=scope")
    first, second = KEY, KEY._replace(key=b"l")
    store.write([Write(first, LONG[0]), Write(second, LONG[0])], deadline=SOON)
    below.reads = 0
    both = [Write(first, LONG[1]), Write(second, b"short")]
    below.before_read = {2: lambda: store.write(both, deadline=SOON)}
    assert store.read([first, second], deadline=SOON) == [LONG[1], b"short"]
    store.write([Write(first, b"short"), Write(second, LONG[0])], deadline=SOON)
    below.reads = 0
    below.before_read = {2: lambda: store.write(both, deadline=SOON)}
    assert store.read([first, second], deadline=SOON) == [LONG[1], b"short"]


def test_pieces_whose_beginning_was_never_written_are_swept() -> None:
    store, below = over(sweep_after_seconds=-1)
    store.write([Write(KEY._replace(key=b"k" * 150), LONG[0])], deadline=SOON)
    whole = pieces_of(below)
    scope = pieces.pieces_scope(KEY.scope)
    for gone in ([0], [1], [0, 1], [*range(len(whole))][1:]):
        orphan, addresses = pieces.fresh_id(KEY.scope), []
        for number, (_, content) in enumerate(whole):
            if number not in gone:
                addresses.append(pieces.piece_address(Table.META, orphan, number))
                below.store.write([Write(addresses[-1], content)], deadline=SOON)
        assert store.sweep(Table.META, KEY.scope, deadline=SOON) >= len(addresses)
        assert below.store.scan(Table.META, scope, KeyRange(), limit=100, deadline=SOON) == whole


def read_row(store: OrderedStore) -> bytes | None:
    return store.read([KEY], deadline=SOON)[0]


def scan_row(store: OrderedStore) -> bytes | None:
    return dict(store.scan(Table.META, b"s", KeyRange(), limit=2, deadline=SOON)).get(b"k")


def scan_row_backwards(store: OrderedStore) -> bytes | None:
    return dict(store.scan(Table.META, b"s", KeyRange(), limit=2, reverse=True, deadline=SOON)).get(b"k")


@pytest.mark.parametrize("new", [None, b"short", LONG[1]])
@pytest.mark.parametrize(("read", "read_of_pieces"), [(read_row, 2), (scan_row, 1), (scan_row_backwards, 1)])
def test_a_value_replaced_between_the_two_reads_of_it_is_read_again(
    read: Callable[[OrderedStore], bytes | None], read_of_pieces: int, new: bytes | None
) -> None:
    store, below = over()
    store.write([Write(KEY._replace(key=key), LONG[5]) for key in (b"j", b"k", b"l")], deadline=SOON)
    below.reads = 0
    below.before_read = {read_of_pieces: lambda: store.write([Write(KEY, new)], deadline=SOON)}
    assert read(store) == new
    assert below.before_read == {}
    assert len(store.scan(Table.META, b"s", KeyRange(), limit=2, deadline=SOON)) == 2


def test_an_equal_value_that_was_written_meanwhile_still_meets_the_condition() -> None:
    store, below = over()
    store.write([Write(KEY, LONG[0])], deadline=SOON)
    below.writes = 0
    below.before_write = {1: lambda: store.write([Write(KEY, LONG[0])], deadline=SOON)}
    store.write([Write(KEY, b"done", LONG[0])], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [b"done"]


def test_pieces_that_are_gone_while_their_row_stays_are_corruption() -> None:
    store, below = over()
    store.write([Write(KEY, LONG[0])], deadline=SOON)
    (row,) = below.store.read([KEY], deadline=SOON)
    below.store.write([Write(address, None) for address in pieces.pointer_in(row).pieces(Table.META)], deadline=SOON)
    with pytest.raises(Corrupt, match="missing"):
        store.read([KEY], deadline=SOON)


def test_late_doubled_and_partial_writes_below_do_no_harm_to_versioned_values() -> None:
    for seed in range(20):
        store, _ = over(f"versions=yes&shuffle={seed}&fail=10&stale=yes")
        for version in range(1, 20):
            value = None if version % 5 == 0 else LONG[version % 8] + b"%d" % version
            while True:
                try:
                    store.write([Write(KEY, value, ANY, version)], deadline=SOON)
                    break
                except Unavailable:
                    continue
            assert store.read([KEY], deadline=SOON, settle=True) == [value]


def test_what_it_cannot_stand_over() -> None:
    for options in ("max_value_bytes=31", "max_value_bytes=0"):
        store: Any = bare(f"weak:?{options}")
        with pytest.raises(Unsupported, match="longvalues stands only over"):
            LongValuesStore(store)


@pytest.mark.parametrize("options", ["", "&versions=yes", "&atomicity=scope", "&atomicity=batch&snapshot=yes"])
def test_any_interleaving_of_writers_and_readers_gives_whole_values_and_counts_right(options: str) -> None:
    for seed in range(15):
        store = bare(f"weak:?max_value_bytes=100{options}")
        turns = Turns(seed, 4)
        scheduled: Any = Scheduled(store, turns)
        layer = LongValuesStore(scheduled)
        layer_below: Any = store
        LongValuesStore(layer_below).write([Write(KEY, b"0" * 300)], deadline=SOON)
        counted = [0]

        def count(layer: LongValuesStore = layer, counted: list[int] = counted) -> None:
            for _ in range(8):
                (current,) = layer.read([KEY], deadline=SOON)
                assert current is not None
                with suppress(Conflict):
                    layer.write([Write(KEY, b"%0300d" % (int(current) + 1), current)], deadline=SOON)
                    counted[0] += 1

        def put(layer: LongValuesStore = layer) -> None:
            for number in range(8):
                value = None if number % 4 == 3 else LONG[number % 8]
                layer.write([Write(KEY._replace(key=b"other"), value)], deadline=SOON)

        def look(layer: LongValuesStore = layer) -> None:
            for number in range(8):
                rows = dict(layer.scan(Table.META, b"s", KeyRange(), limit=1 + number % 2, deadline=SOON))
                assert len(rows[b"k"]) == 300
                assert rows.get(b"other") in [None, *LONG]

        interleaved(turns, [count, count, put, look])
        (value,) = LongValuesStore(layer_below).read([KEY], deadline=SOON)
        assert int(value or b"") == counted[0]
        assert len({row[0][:16] for row in pieces_of(Watching(store))}) == 1, "nothing but the counter's value is left"


class Watching:
    def __init__(self, store: Any) -> None:
        self.store = store
