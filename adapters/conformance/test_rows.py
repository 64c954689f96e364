"""Rows written together: the same as single writes."""

import pytest

from adapters.contract import ABSENT, Address, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Conflict

SCOPE = b"scope\x00"


def rows_of(values: dict[bytes, bytes | None], scope: bytes = SCOPE, table: Table = Table.INDEXES) -> Rows:
    return Rows(table, scope, b"place", values)


def stored(store: OrderedStore, deadline: float, scope: bytes = SCOPE) -> dict[bytes, bytes]:
    return dict(store.scan(Table.INDEXES, scope, KeyRange(), limit=1000, deadline=deadline))


def test_rows_are_put_and_deleted(store: OrderedStore, deadline: float) -> None:
    store.write([], rows=[rows_of({b"a": b"1", b"b": b"2", b"": b"3", b"\xff": b"4"})], deadline=deadline)
    store.write([], rows=[rows_of({b"a": None, b"b": b"5", b"never": None})], deadline=deadline)
    assert stored(store, deadline) == {b"": b"3", b"b": b"5", b"\xff": b"4"}


def test_rows_share_the_fate_of_the_operations_beside_them(batch_store: OrderedStore, deadline: float) -> None:
    head = Address(Table.GROUPS, b"group\x00", b"", b"head")
    rows = [rows_of({b"a": b"1"}), rows_of({b"k": b"2"}, b"other\x00")]
    batch_store.write([Write(head, b"1", ABSENT)], rows=rows, deadline=deadline)
    with pytest.raises(Conflict) as raised:
        batch_store.write([Write(head, b"2", b"0")], rows=[rows_of({b"a": None, b"b": b"3"})], deadline=deadline)
    assert (raised.value.index, raised.value.current) == (0, b"1")
    assert stored(batch_store, deadline) == {b"a": b"1"}
    assert stored(batch_store, deadline, b"other\x00") == {b"k": b"2"}


def test_rows_of_any_length(unlimited_batch_store: OrderedStore, deadline: float) -> None:
    long, longer, scope = b"k" * 600, b"k" * 3000, b"s" * 700 + b"\x00"
    head = Address(Table.GROUPS, b"group\x00", b"", b"head")
    unlimited_batch_store.write(
        [Write(head, b"1", ABSENT)],
        rows=[rows_of({long: b"1", b"short": b"2", longer: b"3"}, scope)],
        deadline=deadline,
    )
    assert stored(unlimited_batch_store, deadline, scope) == {long: b"1", longer: b"3", b"short": b"2"}
    with pytest.raises(Conflict) as raised:
        unlimited_batch_store.write([Write(head, b"2", b"0")], rows=[rows_of({long: None}, scope)], deadline=deadline)
    assert raised.value.index == 0
    unlimited_batch_store.write([], rows=[rows_of({long: None, longer: None}, scope)], deadline=deadline)
    assert stored(unlimited_batch_store, deadline, scope) == {b"short": b"2"}
