"""TreeStore: calls below, what it remembers, how trees shrink and are swept."""

import time
from typing import Any

import pytest

from adapters.conformance.plugin import bare
from adapters.contract import KeyRange, Table, Write
from adapters.errors import Corrupt, Unavailable
from adapters.layers import walks
from adapters.layers.ordered import TreeStore
from adapters.layers.pages import ROOT, encoded
from adapters.layers.walks import page_address
from tests.unit.trees import (
    SCOPE,
    SOON,
    TREE,
    Counting,
    at,
    checked_tree,
    filled,
    leaves_in,
    merged,
    page_of,
    pages_in,
    scanned,
)


def test_calls_below_cold_and_warm() -> None:
    below, keys = filled(3000, 1000)
    leaves = leaves_in(below)
    assert checked_tree(below) == 2
    counting: Any = Counting(below)
    store = TreeStore(counting, 1000)
    assert counting.calls(lambda: store.read([at(keys[70])], deadline=SOON)) == (3, 0)
    assert counting.calls(lambda: store.read([at(keys[71])], deadline=SOON)) == (1, 0)
    assert counting.calls(lambda: store.write([Write(at(keys[71]), b"w" * 50)], deadline=SOON)) == (1, 1)
    assert counting.calls(lambda: store.write([Write(at(keys[71]), None)], deadline=SOON)) == (1, 1)
    assert counting.calls(lambda: scanned(store, keys=KeyRange(keys[64]), limit=20))[0] <= 3
    assert counting.calls(lambda: scanned(store)) == (leaves, 0)
    assert (
        counting.calls(lambda: scanned(store, reverse=True))[0] <= leaves + leaves // 20
    )  # what is above had not been read
    assert counting.calls(lambda: scanned(store, reverse=True)) == (leaves, 0)
    assert counting.calls(lambda: store.read([at(key) for key in keys], deadline=SOON)) == (1, 0)


def test_what_is_remembered_of_pages_is_bounded_and_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    below, keys = filled(3000, 1000)
    counting: Any = Counting(below)
    store = TreeStore(counting, 1000, cache_bytes=5000)
    for key in keys[::10]:
        store.read([at(key)], deadline=SOON)
    for recent in (store._cache._inner, store._cache._leaves):
        assert 0 < sum(len(stored) for _, stored, _ in recent.pages.values()) == recent._bytes <= 5000
    assert counting.calls(lambda: store.read([at(keys[-1])], deadline=SOON)) == (1, 0)
    monkeypatch.setattr(walks, "TRUSTED_SECONDS", -1.0)
    assert counting.calls(lambda: store.read([at(keys[-1])], deadline=SOON)) == (3, 0)


def test_pages_remembered_of_a_tree_that_others_have_dropped_and_made_again_lead_nowhere() -> None:
    below, keys = filled(1000)
    store = TreeStore(below, 2000)
    assert len(scanned(store)) == len(store.read([at(key) for key in keys], deadline=SOON)) == 1000
    below.drop_tables()
    assert store.read([at(key) for key in keys[::100]], deadline=SOON) == [None] * 10
    for again in (keys[:5], keys):
        TreeStore(below, 2000).write([Write(at(key), b"new") for key in again], deadline=SOON)
        assert scanned(store) == [(key, b"new") for key in again]
    store.write([Write(at(keys[500]), b"mine")], deadline=SOON)
    assert store.read([at(keys[500])], deadline=SOON) == [b"mine"]


@pytest.mark.parametrize("options", ["", "&atomicity=scope", "&atomicity=batch"])
def test_a_tree_shrinks_with_its_rows(options: str) -> None:
    below, keys = filled(3000, options=options)
    store = TreeStore(below, 2000, sweep_after_seconds=-1)
    assert leaves_in(below) > 80
    for start in range(0, 3000, 10):
        store.write([Write(at(key), None) for key in keys[start : start + 10] if key[-3:] != b"500"], deadline=SOON)
    few = leaves_in(below)
    assert few < 12
    counting: Any = Counting(below)
    assert len(scanned(TreeStore(counting, 2000))) == 3
    assert counting.reads <= few + 3
    for _ in range(3):
        store.sweep(Table.META, SCOPE, deadline=SOON)
    checked_tree(below)
    assert leaves_in(below) <= 2
    assert len(pages_in(below)) <= 6
    assert store.sweep(Table.META, SCOPE, deadline=SOON) == 0


def test_a_queue_leaves_no_trail_of_empty_pages() -> None:
    below = bare("weak:?ordered=no")
    store = TreeStore(below, 1000)
    for number in range(2000):
        store.write([Write(at(b"%05d" % number), b"v" * 50)], deadline=SOON)
        if number >= 30:
            store.write([Write(at(b"%05d" % (number - 30)), None)], deadline=SOON)
    counting: Any = Counting(below)
    assert [key for key, _ in scanned(TreeStore(counting, 1000))] == [b"%05d" % number for number in range(1970, 2000)]
    assert counting.reads < 30
    for _ in range(2):
        TreeStore(below, 1000, sweep_after_seconds=-1).sweep(Table.META, SCOPE, deadline=SOON)
    checked_tree(below)
    assert leaves_in(below) < 8


def test_young_loose_pages_stay_and_a_sweep_ends_at_its_deadline() -> None:
    below, keys = filled(500)
    store = TreeStore(below, 2000)
    store.write([Write(at(key), None) for key in keys[:300]], deadline=SOON)
    assert merged(below) > 3
    assert store.sweep(Table.META, SCOPE, deadline=SOON) == 0
    with pytest.raises(Unavailable, match="during a sweep"):
        store.sweep(Table.META, SCOPE, deadline=time.monotonic() - 1)
    assert TreeStore(below, 2000, sweep_after_seconds=-1).sweep(Table.META, SCOPE, deadline=SOON) > 3


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_goes_on_where_it_is_when_the_leaf_it_comes_to_has_been_merged_and_swept(reverse: bool) -> None:
    below, keys = filled(200, 1000)
    tidy = TreeStore(below, 1000, sweep_after_seconds=-1)

    def thin_out() -> None:
        tidy.write([Write(at(key), None) for key in keys if key[-1:] not in b"05"], deadline=SOON)
        for _ in range(3):
            tidy.sweep(Table.META, SCOPE, deadline=SOON)

    for read in range(2, 12):
        counting: Any = Counting(below)
        counting.before_read = {read: thin_out}
        found = [key for key, _ in scanned(TreeStore(counting, 1000), reverse=reverse)]
        assert found == sorted({*found}, reverse=reverse)
        assert {key for key in keys if key[-1:] in b"05"} <= {*found}
        tidy.write([Write(at(key), b"v" * 50) for key in keys], deadline=SOON)


def test_an_entry_that_leads_to_no_page_is_only_a_longer_way_and_a_lost_page_is_corruption() -> None:
    below, keys = filled(300, 1000)
    root = page_of(below, ROOT)
    wrong = root.changed({b"00123": b"x" * 16})
    below.write([Write(page_address((TREE, ROOT)), encoded(wrong))], deadline=SOON)
    store = TreeStore(below, 1000)
    assert store.read([at(key) for key in keys], deadline=SOON) == [b"v" * 50] * 300
    assert [key for key, _ in scanned(store, reverse=True)] == keys[::-1]
    below.write([Write(page_address((TREE, root.values[2])), None)], deadline=SOON)
    for work in (lambda: store.read([at(root.keys[2])], deadline=SOON), lambda: scanned(store)):
        with pytest.raises(Corrupt, match="is missing"):
            work()


def test_many_keys_are_found_with_one_read_a_level() -> None:
    below = bare("weak:?ordered=no")
    rows = [Write(at(b"%05d" % number), b"v" * 50) for number in range(3000)]
    TreeStore(below, 2000).write(rows, deadline=SOON)
    height = checked_tree(below)
    counting: Any = Counting(below)
    found = TreeStore(counting, 2000).read([each.address for each in rows], deadline=SOON)
    assert found == [b"v" * 50] * 3000
    assert counting.reads == height + 1
