"""The contract's sentences, one by one, on every store."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Check,
    Consistency,
    KeyRange,
    OrderedStore,
    Table,
    Write,
)
from adapters.errors import Applied, Conflict, StoreError, TooLarge, Unavailable, Unsupported
from adapters.registry import STORES

AtOnce = Callable[[int, Callable[[int], object]], list[object]]


def at(key: bytes, table: Table = Table.META, scope: bytes = b"scope\x00") -> Address:
    return Address(table, scope, b"place", key)


def test_every_registered_store_is_in_the_matrix(matrix: list[str]) -> None:
    assert {name.partition("-")[0] for name in matrix} == set(STORES)


def test_a_failed_expectation_applies_nothing_and_says_where(store: OrderedStore, deadline: float) -> None:
    store.write([Write(at(b"a"), b"1")], deadline=deadline)
    batch = [Write(at(b"b"), b"2"), Check(at(b"c"), ABSENT), Write(at(b"a"), b"3", b"0"), Write(at(b"d"), None, b"x")]
    with pytest.raises(Conflict) as raised:
        store.write(batch, deadline=deadline)
    assert (raised.value.index, raised.value.current, raised.value.applied) == (2, b"1", Applied.NO)
    assert store.read([at(b"a"), at(b"b")], deadline=deadline) == [b"1", None]


def test_expectations_that_hold(store: OrderedStore, deadline: float) -> None:
    store.write([Write(at(b"a"), b"1", ABSENT), Check(at(b"none"), ABSENT)], deadline=deadline)
    store.write([Write(at(b"a"), b"2", b"1"), Check(at(b"b"), ABSENT), Check(at(b"c"), ANY)], deadline=deadline)
    store.write([Write(at(b"b"), b"3"), Check(at(b"a"), b"2")], deadline=deadline)
    store.write([Write(at(b"a"), None, b"2"), Write(at(b"never"), None)], deadline=deadline)
    assert store.read([at(b"a"), at(b"b")], deadline=deadline) == [None, b"3"]


def test_an_empty_batch_and_an_empty_read_do_nothing(store: OrderedStore, deadline: float) -> None:
    store.write([], deadline=deadline)
    assert store.read([], deadline=deadline) == []


def test_every_byte_in_keys_and_values(store: OrderedStore, deadline: float) -> None:
    keys = [b"", *(bytes([byte]) for byte in range(256)), *(bytes([255, byte]) for byte in range(256))]
    for table in (Table.GROUPS, Table.META, Table.SESSIONS):
        store.write([Write(at(key, table), key + b"\x00\xff") for key in keys], deadline=deadline)
        rows = store.scan(table, b"scope\x00", KeyRange(), limit=1000, deadline=deadline)
        assert rows == [(key, key + b"\x00\xff") for key in sorted(keys)]
        assert store.read([at(key, table) for key in keys], deadline=deadline) == [key + b"\x00\xff" for key in keys]


def test_one_read_may_span_all_tables(store: OrderedStore, deadline: float) -> None:
    for table in Table:
        store.write([Write(at(b"k", table), table.value)], deadline=deadline)
    found = store.read([at(b"k", table) for table in Table], deadline=deadline)
    assert found == [table.value for table in Table]
    with store.snapshot() as view:
        assert view.read([at(b"k", table) for table in Table], deadline=deadline) == found


def test_fetch_answers_in_order_with_gaps_and_repeats(store: OrderedStore, deadline: float) -> None:
    keys = [b"c", b"a" * 400, b"missing", b"b", b"c", b"z" * 500, b"a" * 400]
    for table in (Table.GROUPS, Table.SESSIONS):
        store.write([Write(at(key, table), key) for key in (b"a" * 400, b"b", b"c")], deadline=deadline)
        for wanted in (keys, [b"c", b"b", b"c"], [b"missing"], []):
            there = [None if key[:1] in b"mz" else key for key in wanted]
            scopes = [b"scope\x00"] * len(wanted)
            assert store.fetch(table, scopes, wanted, deadline=deadline) == there
            with store.snapshot() as view:
                assert view.fetch(table, scopes, wanted, deadline=deadline) == there


def test_keys_and_values_at_the_limits_and_one_byte_over(store: OrderedStore, deadline: float) -> None:
    limits = store.capabilities
    key = b"k" * ((limits.max_key_bytes or 30_000) - len(b"scope\x00"))
    value = b"v" * 1_200_000
    store.write([Write(at(key), value), Write(at(key[:-1]), b"shorter")], deadline=deadline)
    assert store.read([at(key), at(key[:-1])], deadline=deadline) == [value, b"shorter"]
    rows = store.scan(Table.META, b"scope\x00", KeyRange(), limit=9, deadline=deadline)
    assert rows == [(key[:-1], b"shorter"), (key, value)]
    if limits.max_key_bytes is not None:
        with pytest.raises(TooLarge):
            store.write([Write(at(key + b"k"), b"v")], deadline=deadline)
        with pytest.raises(TooLarge):
            store.read([at(key + b"k")], deadline=deadline)
    if limits.max_value_bytes is not None:
        with pytest.raises(TooLarge):
            store.write([Write(at(b"huge"), b"v" * (limits.max_value_bytes + 1))], deadline=deadline)


def test_long_scopes_do_not_mix(unlimited_store: OrderedStore, deadline: float) -> None:
    store, scopes = unlimited_store, [b"s" * length + b"\x00" for length in (1, 20, 170, 171, 5000, 13000)]
    for table in (Table.INDEXES, Table.SESSIONS):
        assert store.scan(table, scopes[-1], KeyRange(), limit=9, deadline=deadline) == []
        for scope in scopes:
            assert store.read([at(b"k", table, scope)], deadline=deadline) == [None]
            store.write([Write(at(b"k", table, scope), None), Check(at(b"l", table, scope), ABSENT)], deadline=deadline)
            store.write([Write(at(b"k", table, scope), scope, ABSENT)], deadline=deadline)
        for scope in scopes:
            assert store.scan(table, scope, KeyRange(), limit=9, deadline=deadline) == [(b"k", scope)]
        found = store.read([at(b"k", table, scope) for scope in scopes], deadline=deadline)
        assert found == scopes


def test_a_conflict_on_a_long_key_names_the_callers_position(unlimited_store: OrderedStore, deadline: float) -> None:
    keys = [b"%d" % number * 5000 for number in range(4)]
    unlimited_store.write([Write(at(keys[2]), b"there")], deadline=deadline)
    with pytest.raises(Conflict) as raised:
        unlimited_store.write([Write(at(key), b"new", ABSENT) for key in keys], deadline=deadline)
    assert (raised.value.index, raised.value.current) == (2, b"there")
    with pytest.raises(Conflict) as raised:
        unlimited_store.write([Write(at(b"x"), b"1"), Check(at(b"y" * 5000), b"was here")], deadline=deadline)
    assert (raised.value.index, raised.value.current) == (1, None)


def test_insert_if_absent_lets_exactly_one_of_64_threads_win(
    store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    def insert(number: int) -> object:
        return store.write([Write(at(b"one"), b"%d" % number, ABSENT)], deadline=deadline)

    results = at_once(64, insert)
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert store.read([at(b"one")], deadline=deadline) == [b"%d" % winners[0]]
    assert {result.current for result in results if isinstance(result, Conflict)} == {b"%d" % winners[0]}
    assert all(result is None or isinstance(result, Conflict) for result in results)


def test_racing_writers_of_long_keys_share_one_chain(
    unlimited_store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    store, scope = unlimited_store, b"long" * 300 + b"\x00"
    tails = [b"%03d" % number for number in range(32)]

    def insert(number: int) -> object:
        return store.write([Write(at(b"k" * 2000 + tails[number], scope=scope), tails[number])], deadline=deadline)

    assert at_once(32, insert) == [None] * 32
    rows = store.scan(Table.META, scope, KeyRange(), limit=99, deadline=deadline)
    assert rows == [(b"k" * 2000 + tail, tail) for tail in tails]


def test_compare_and_set_counts_every_increment_of_8_threads(
    store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    store.write([Write(at(b"n"), b"0")], deadline=deadline)

    def increment_ten_times(_: int) -> None:
        left = 10
        while left:
            (current,) = store.read([at(b"n")], deadline=deadline)
            assert current is not None
            try:
                store.write([Write(at(b"n"), b"%d" % (int(current) + 1), current)], deadline=deadline)
                left -= 1
            except Conflict as conflict:
                assert conflict.current != current

    assert at_once(8, increment_ten_times) == [None] * 8
    assert store.read([at(b"n")], deadline=deadline) == [b"80"]


def test_scans_and_reads_see_whole_batches_only(store: OrderedStore, deadline: float, at_once: AtOnce) -> None:
    keys = [b"a", b"b" * 300, b"c", b"d" * 400]

    def write(number: int) -> None:
        store.write([Write(at(key), b"%d" % number) for key in keys], deadline=deadline)

    def look(_: int) -> None:
        rows = store.scan(Table.META, b"scope\x00", KeyRange(), limit=9, deadline=deadline)
        assert len(rows) == 4
        assert len({value for _, value in rows}) == 1
        assert len(set(store.read([at(key) for key in keys], deadline=deadline))) == 1
        with store.snapshot() as view:
            (first,) = view.read([at(keys[0])], deadline=deadline)
            assert view.scan(Table.META, b"scope\x00", KeyRange(), limit=9, deadline=deadline)[3][1] == first

    write(0)
    work = [lambda n: [write(n * 100 + step) for step in range(10)], lambda n: [look(n) for _ in range(50)]]
    results = at_once(6, lambda number: work[number % 2](number) and None)
    assert results == [None] * 6


def test_a_snapshot_stays_while_others_write_and_drop(store: OrderedStore, deadline: float, elsewhere: Any) -> None:
    store.write([Write(at(b"k" * 300), b"before"), Write(at(b"gone"), b"before")], deadline=deadline)
    with store.snapshot() as view:
        changes = [Write(at(b"k" * 300), b"after"), Write(at(b"gone"), None), Write(at(b"new"), b"after")]
        elsewhere(lambda: store.write(changes, deadline=deadline))
        assert elsewhere(lambda: store.read([at(b"k" * 300)], deadline=deadline)) == [b"after"]
        elsewhere(store.drop_tables)
        assert view.read([at(b"gone"), at(b"k" * 300), at(b"new")], deadline=deadline) == [b"before", b"before", None]
        rows = view.scan(Table.META, b"scope\x00", KeyRange(), limit=9, deadline=deadline)
        assert rows == [(b"gone", b"before"), (b"k" * 300, b"before")]
    assert store.read([at(b"gone")], deadline=deadline) == [None]


def test_a_thread_does_not_write_inside_its_own_snapshot(store: OrderedStore, deadline: float) -> None:
    with store.snapshot(), pytest.raises(Unsupported, match="own snapshot"):
        store.write([Write(at(b"k"), b"v")], deadline=deadline)
    store.write([Write(at(b"k"), b"v")], deadline=deadline)


def test_drop_tables_empties_all_and_the_store_goes_on(store: OrderedStore, deadline: float) -> None:
    for table in Table:
        store.write([Write(at(b"k" * 300, table), b"v")], deadline=deadline)
    store.drop_tables()
    for table in Table:
        assert store.scan(table, b"scope\x00", KeyRange(), limit=9, deadline=deadline) == []
    store.ensure_tables()
    store.write([Write(at(b"k" * 300), b"v", ABSENT)], deadline=deadline)
    assert store.read([at(b"k" * 300)], deadline=deadline) == [b"v"]


def test_ensure_tables_keeps_what_is_there(store: OrderedStore, deadline: float) -> None:
    store.write([Write(at(b"k"), b"v")], deadline=deadline)
    store.ensure_tables()
    assert store.read([at(b"k")], deadline=deadline) == [b"v"]


def test_a_closed_store_says_so(store: OrderedStore) -> None:
    store.check()
    store.close()
    store.close()
    later = time.monotonic() + 60
    for use in (
        store.check,
        lambda: store.read([at(b"k")], deadline=later),
        lambda: store.scan(Table.META, b"s", KeyRange(), limit=1, deadline=later),
        lambda: store.write([Write(at(b"k"), b"v")], deadline=later),
    ):
        with pytest.raises(Unavailable, match="closed"):
            use()


def test_capabilities_are_what_this_release_needs(store: OrderedStore) -> None:
    have = store.capabilities
    assert have is store.capabilities or have == store.capabilities
    assert have.atomicity is Atomicity.BATCH
    assert have.consistency is Consistency.STRONG
    assert have.compare_and_set
    assert have.ordered
    assert have.reverse_scan
    assert have.snapshot


def test_versions_are_refused_where_they_are_not_claimed(unlimited_store: OrderedStore, deadline: float) -> None:
    if unlimited_store.capabilities.versioned_writes:
        unlimited_store.write([Write(at(b"k"), b"new", ANY, 2)], deadline=deadline)
        unlimited_store.write([Write(at(b"k"), b"old", ANY, 1)], deadline=deadline)
        assert unlimited_store.read([at(b"k")], deadline=deadline) == [b"new"]
    elif hasattr(unlimited_store, "inner"):  # the checked layer is what refuses
        with pytest.raises(ValueError, match="versioned_writes"):
            unlimited_store.write([Write(at(b"k"), b"v", ANY, 1)], deadline=deadline)


def test_errors_are_store_errors_that_say_what_was_applied() -> None:
    for kind in (Unavailable, TooLarge, Unsupported):
        assert kind("text").applied is Applied.NO
        assert issubclass(kind, StoreError)
