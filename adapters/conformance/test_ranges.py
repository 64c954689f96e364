"""Every range between every two keys of hand-picked sets, both ways: what random ranges meet too rarely."""

from itertools import product

import pytest

from adapters.contract import Address, KeyRange, OrderedStore, Table, Write

SHORT = sorted({b"", b"\x00", b"\x00\x00", b"\x01", b"a", b"a\x00", b"a\xff", b"b", b"\xff", b"\xff\xff"})
#: Around one and two chunks of the stores with key limits (41+1, 165+1, 338+1), sharing and not sharing markers.
LONG = sorted(
    {
        byte * length + tail
        for byte, length, tail in product([b"a", b"\xff"], [42, 84, 166, 332, 339, 678], [b"", b"\x00", b"\xff"])
    }
    | {b"a" * 41, b"a" * 41 + b"b" * 700, b"a" * 41 + b"\x00", b"a" * 20, b"b", b"", b"\x00" * 1000, b"\xff" * 20000}
)
LIMITS = [1, 2, 5, 1000]
AT_ONCE = 50  # rows in a call


def _write_all(store: OrderedStore, writes: list[Write], deadline: float) -> None:
    for start in range(0, len(writes), AT_ONCE):
        store.write(writes[start : start + AT_ONCE], deadline=deadline)


def _check_ranges(store: OrderedStore, deadline: float, *, table: Table, scope: bytes, keys: list[bytes]) -> None:
    rows = [(key, b"v" + key[-3:]) for key in keys]
    _write_all(store, [Write(Address(table, scope, b"", key), value) for key, value in rows], deadline)
    bounds = sorted({*keys, *(key + b"\x00" for key in keys), *(key[:-1] for key in keys)})[:: len(keys) // 16 + 1]
    both_ways = store.capabilities.reverse_scan
    for start, stop in product(bounds, [*bounds, None]):
        wanted = [row for row in rows if start <= row[0] and (stop is None or row[0] < stop)]
        for limit in LIMITS:
            found = store.scan(table, scope, KeyRange(start, stop), limit=limit, deadline=deadline)
            assert found == wanted[:limit]
            if both_ways:
                found = store.scan(table, scope, KeyRange(start, stop), limit=limit, reverse=True, deadline=deadline)
                assert found == wanted[::-1][:limit]


@pytest.mark.parametrize("table", [Table.META, Table.INDEXES, Table.SESSIONS])
@pytest.mark.parametrize("scope", [b"m\x00", b"\xfc\xff\x00"])
def test_scan_returns_exactly_the_range(store: OrderedStore, deadline: float, table: Table, scope: bytes) -> None:
    for neighbour in (b"l\x00", b"n\x00", b"\xfc\xfe\x00"):  # other scopes, which no scan may reach
        operations = [Write(Address(table, neighbour, b"", key), b"neighbour") for key in SHORT]
        store.write(operations, deadline=deadline)
    _check_ranges(store, deadline, table=table, scope=scope, keys=SHORT)


@pytest.mark.parametrize("scope", [b"m\x00", b"m" * 700 + b"\x00"])
def test_scan_returns_exactly_the_range_of_long_keys(
    unlimited_store: OrderedStore, deadline: float, scope: bytes
) -> None:
    _check_ranges(unlimited_store, deadline, table=Table.INDEXES, scope=scope, keys=LONG)


def test_scan_reads_on_past_its_first_rows(store: OrderedStore, deadline: float) -> None:
    keys = [b"%04d" % number for number in range(700)]
    for scope in (b"s\x00", b"t\x00"):
        _write_all(store, [Write(Address(Table.GROUPS, scope, b"", key), key) for key in keys], deadline)
    for start, stop, limit in product([0, 1, 350], [351, 366, 382, 699, 700], [15, 16, 17, 48, 1000]):
        wanted = [(key, key) for key in keys[start:stop]]
        span = KeyRange(b"%04d" % start, b"%04d" % stop)
        assert store.scan(Table.GROUPS, b"s\x00", span, limit=limit, deadline=deadline) == wanted[:limit]
        if store.capabilities.reverse_scan:
            found = store.scan(Table.GROUPS, b"s\x00", span, limit=limit, reverse=True, deadline=deadline)
            assert found == wanted[::-1][:limit]


def test_markers_of_deleted_long_keys_do_not_end_a_scan_early(unlimited_store: OrderedStore, deadline: float) -> None:
    gone = [Address(Table.META, b"s\x00", b"", bytes([byte]) * 1000) for byte in range(65, 91)]
    rows = [(b"a" + b"\x00" * number, b"v") for number in range(9)]
    unlimited_store.write([Write(address, b"v") for address in gone], deadline=deadline)
    unlimited_store.write([Write(address, None) for address in gone], deadline=deadline)
    for address in [Address(Table.META, b"s\x00", b"", key) for key, _ in rows]:
        unlimited_store.write([Write(address, b"v")], deadline=deadline)
    ways = [False, True] if unlimited_store.capabilities.reverse_scan else [False]
    for limit, reverse in product([1, 2, 3, 5, 8, 9, 10], ways):
        found = unlimited_store.scan(Table.META, b"s\x00", KeyRange(), limit=limit, reverse=reverse, deadline=deadline)
        assert found == (rows[::-1] if reverse else rows)[:limit]
