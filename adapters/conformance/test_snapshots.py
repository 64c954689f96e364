"""Stores with snapshots."""

from typing import Any

import pytest

from adapters.conformance.addressing import SCOPE, at
from adapters.conformance.matrix import AtOnce
from adapters.contract import KeyRange, OrderedStore, Table, Write
from adapters.errors import Unsupported

LONG = b"\xff" * 300


def test_a_snapshot_spans_all_tables(snapshot_store: OrderedStore, deadline: float) -> None:
    for table in Table:
        snapshot_store.write([Write(at(b"k", table), table.value)], deadline=deadline)
    with snapshot_store.snapshot() as view:
        found = view.read([at(b"k", table) for table in Table], deadline=deadline)
        assert found == [table.value for table in Table]
        for table in Table:
            assert view.fetch(table, [SCOPE] * 2, [b"x", b"k"], deadline=deadline) == [None, table.value]
            assert view.scan(table, SCOPE, KeyRange(), limit=9, deadline=deadline) == [(b"k", table.value)]


def test_a_snapshot_stays_while_others_write_and_drop(
    snapshot_store: OrderedStore, deadline: float, elsewhere: Any
) -> None:
    snapshot_store.write([Write(at(b"k" * 300), LONG), Write(at(b"gone"), b"before")], deadline=deadline)
    with snapshot_store.snapshot() as view:
        changes = [Write(at(b"k" * 300), b"after"), Write(at(b"gone"), None), Write(at(b"new"), b"after")]
        elsewhere(lambda: snapshot_store.write(changes, deadline=deadline))
        assert elsewhere(lambda: snapshot_store.read([at(b"k" * 300)], deadline=deadline)) == [b"after"]
        elsewhere(snapshot_store.drop_tables)
        assert view.read([at(b"gone"), at(b"k" * 300), at(b"new")], deadline=deadline) == [b"before", LONG, None]
        rows = view.scan(Table.META, b"scope\x00", KeyRange(), limit=9, deadline=deadline)
        assert rows == [(b"gone", b"before"), (b"k" * 300, LONG)]
    assert snapshot_store.read([at(b"gone")], deadline=deadline) == [None]


def test_a_thread_does_not_write_inside_its_own_snapshot(snapshot_store: OrderedStore, deadline: float) -> None:
    with snapshot_store.snapshot(), pytest.raises(Unsupported, match="own snapshot"):
        snapshot_store.write([Write(at(b"k"), b"v")], deadline=deadline)
    snapshot_store.write([Write(at(b"k"), b"v")], deadline=deadline)


def test_scans_and_reads_see_whole_batches_only(
    batch_snapshot_store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    store = batch_snapshot_store
    keys = [b"a", b"b" * 300, b"c", b"d" * 400]

    def write(number: int) -> None:
        store.write([Write(at(key), b"%d" % number) for key in keys], deadline=deadline)

    def look() -> None:
        rows = store.scan(Table.META, SCOPE, KeyRange(), limit=9, deadline=deadline)
        assert len(rows) == 4
        assert len({value for _, value in rows}) == 1
        assert len(set(store.read([at(key) for key in keys], deadline=deadline))) == 1
        with store.snapshot() as view:
            (first,) = view.read([at(keys[0])], deadline=deadline)
            assert view.scan(Table.META, SCOPE, KeyRange(), limit=9, deadline=deadline)[3][1] == first

    def work(number: int) -> None:
        for step in range(10 if number % 2 else 50):
            if number % 2:
                write(number * 100 + step)
            else:
                look()

    write(0)
    assert at_once(6, work) == [None] * 6
