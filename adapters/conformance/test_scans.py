"""Scans and fetches of ordered stores; every range of hand-picked keys stands in test_ranges.py."""

import time

import pytest

from adapters.conformance.addressing import SCOPE, at
from adapters.conformance.matrix import AtOnce
from adapters.contract import KeyRange, OrderedStore, Row, Table, Write
from adapters.errors import Unavailable

PAGE = 7


def test_a_scan_returns_every_byte_in_order(store: OrderedStore, deadline: float) -> None:
    keys = [b"", *(bytes([byte]) for byte in range(256)), *(bytes([255, byte]) for byte in range(256))]
    for table in (Table.GROUPS, Table.META, Table.SESSIONS):
        for start in range(0, len(keys), 50):
            batch = [Write(at(key, table), key + b"\x00\xff") for key in keys[start : start + 50]]
            store.write(batch, deadline=deadline)
        rows = [(key, key + b"\x00\xff") for key in sorted(keys)]
        assert store.scan(table, SCOPE, KeyRange(), limit=1000, deadline=deadline) == rows
        if store.capabilities.reverse_scan:
            assert store.scan(table, SCOPE, KeyRange(), limit=1000, reverse=True, deadline=deadline) == rows[::-1]


def test_fetch_answers_in_order_with_gaps_and_repeats(store: OrderedStore, deadline: float) -> None:
    long = 400 if store.capabilities.max_key_bytes is None else 40
    keys = [b"c", b"a" * long, b"missing", b"b", b"c", b"z" * (long + 1), b"a" * long]
    for table in (Table.GROUPS, Table.SESSIONS):
        store.write([Write(at(key, table), key) for key in (b"a" * long, b"b", b"c")], deadline=deadline)
        for wanted in (keys, [b"c", b"b", b"c"], [b"missing"], []):
            there = [None if key[:1] in b"mz" else key for key in wanted]
            assert store.fetch(table, [SCOPE] * len(wanted), wanted, deadline=deadline) == there


@pytest.mark.parametrize("size", [3, 900])
def test_deleted_rows_do_not_end_a_scan_early(store: OrderedStore, deadline: float, size: int) -> None:
    keys = [b"%03d" % number for number in range(60)]
    for start in range(0, 60, 20):
        store.write([Write(at(key), key * size) for key in keys[start : start + 20]], deadline=deadline)
    store.write([Write(at(key), None) for key in keys if key[-1:] not in b"05"], deadline=deadline)
    rows = [(key, key * size) for key in keys if key[-1:] in b"05"]
    for limit in (1, 2, 5, 12, 13):
        assert store.scan(Table.META, SCOPE, KeyRange(), limit=limit, deadline=deadline) == rows[:limit]


def paged(store: OrderedStore, *, reverse: bool, deadline: float) -> list[Row]:
    """The whole scope, a few rows at a time, as a query reads it."""
    found: list[Row] = []
    keys = KeyRange()
    while True:
        rows = store.scan(Table.META, SCOPE, keys, limit=PAGE, reverse=reverse, deadline=deadline)
        found += rows
        if len(rows) < PAGE:
            return found
        keys = KeyRange(stop=rows[-1][0]) if reverse else KeyRange(rows[-1][0] + b"\x00")


@pytest.mark.parametrize("size", [1, 600])
def test_scans_both_ways_while_others_write_meet_every_row_that_stays_once(
    store: OrderedStore, deadline: float, at_once: AtOnce, size: int
) -> None:
    staying = [b"%02d" % number for number in range(0, 60, 2)]
    coming = [b"%02d" % number for number in range(1, 60, 2)]
    store.write([Write(at(key), b"stays" * size) for key in staying], deadline=deadline)
    ways = [False, True] if store.capabilities.reverse_scan else [False]
    done = time.monotonic() + 0.3

    def churn(number: int) -> None:
        for turn in range(1000):
            for key in coming[number::4]:
                store.write([Write(at(key), None if turn % 2 else b"%d" % turn * size)], deadline=deadline)
            if time.monotonic() > done:
                return

    def look(number: int) -> None:
        while time.monotonic() < done:
            reverse = ways[number % len(ways)]
            rows = paged(store, reverse=reverse, deadline=deadline)
            keys = [key for key, _ in rows]
            assert keys == sorted(keys, reverse=reverse)
            assert [key for key in keys if key in staying] == (staying[::-1] if reverse else staying)
            assert all(value == b"stays" * size for key, value in rows if key in staying)

    results = at_once(6, lambda number: churn(number) if number < 3 else look(number))
    assert results == [None] * 6


@pytest.mark.timeout(30)
def test_a_closed_store_scans_no_more(store: OrderedStore) -> None:
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.scan(Table.META, b"s", KeyRange(), limit=1, deadline=time.monotonic() + 60)
