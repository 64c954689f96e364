"""Stores that take keys and scopes of any length."""

import pytest

from adapters.conformance.addressing import at
from adapters.conformance.matrix import AtOnce
from adapters.contract import ABSENT, Check, KeyRange, OrderedStore, Table, Write
from adapters.errors import Conflict


def test_long_scopes_do_not_mix(unlimited_batch_store: OrderedStore, deadline: float) -> None:
    store, scopes = unlimited_batch_store, [b"s" * length + b"\x00" for length in (1, 20, 170, 171, 5000, 13000)]
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


def test_a_conflict_on_a_long_key_names_the_callers_position(
    unlimited_batch_store: OrderedStore, deadline: float
) -> None:
    keys = [b"%d" % number * 5000 for number in range(4)]
    unlimited_batch_store.write([Write(at(keys[2]), b"there")], deadline=deadline)
    with pytest.raises(Conflict) as raised:
        unlimited_batch_store.write([Write(at(key), b"new", ABSENT) for key in keys], deadline=deadline)
    assert (raised.value.index, raised.value.current) == (2, b"there")
    with pytest.raises(Conflict) as raised:
        unlimited_batch_store.write([Write(at(b"x"), b"1"), Check(at(b"y" * 5000), b"was here")], deadline=deadline)
    assert (raised.value.index, raised.value.current) == (1, None)


def test_racing_writers_of_long_keys_share_one_chain(
    unlimited_store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    store, scope = unlimited_store, b"long" * 300 + b"\x00"
    tails = [b"%03d" % number for number in range(32)]

    def insert(number: int) -> None:
        store.write([Write(at(b"k" * 2000 + tails[number], scope=scope), tails[number])], deadline=deadline)

    assert at_once(32, insert) == [None] * 32
    rows = store.scan(Table.META, scope, KeyRange(), limit=99, deadline=deadline)
    assert rows == [(b"k" * 2000 + tail, tail) for tail in tails]
