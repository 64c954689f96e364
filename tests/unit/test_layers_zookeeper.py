"""What the zookeeper layer puts into znodes, and when it is put over a store. tests/layers runs it on a ZooKeeper."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.build import layers_for, missing_capabilities, open_store
from adapters.contract import Address, Atomicity, Consistency, Table, Write
from adapters.errors import Corrupt, TooLarge, Unsupported
from adapters.layers import changes
from adapters.layers.changes import INLINE_BYTES, MAX_BYTES, PORTION_BYTES
from adapters.layers.zookeeper import missing_below, supplied
from adapters.weak import CAPABILITIES, WeakStore

HAVE = replace(CAPABILITIES, compare_and_set=False, versioned_writes=True, version_horizon_seconds=60.0)
KEY = Address(Table.META, b"s\x00", b"place", b"k")
WEAK = "weak:?compare_and_set=no"

short = st.binary(max_size=20)
addresses = st.builds(Address, st.sampled_from(Table), short, short, short)
contents = st.none() | st.binary(min_size=1, max_size=20) | st.just(b"v" * INLINE_BYTES) | st.just(b"v" * 20_000)


@given(st.lists(st.builds(Write, addresses, contents), max_size=8), st.integers(0, 2**63))
def test_a_change_is_read_as_it_was_written_and_cut_anywhere_it_is_refused(writes: list[Write], sequence: int) -> None:
    change = changes.change_of(sequence, writes)
    data = changes.encoded(change)
    assert changes.decoded(data) == change
    assert [row.address for row in change.pending] == [write.address for write in writes]
    long = [write for write in writes if len(write.value or b"") > INLINE_BYTES]
    intents = changes.intent_writes(7, change, writes)
    assert [(each.address.table, each.address.scope[2:], each.value) for each in intents] == [
        (write.address.table, write.address.scope, write.value) for write in long
    ]
    assert [each.address for each in intents] == change.intents(7)
    assert {changes.intent_of(each.address.key) for each in intents} <= {(7, sequence, change.uid)}
    short_of_a_row = [data[:end] for end in (0, 10, len(data) - 1) if writes or end < len(data) - 1]
    for part in short_of_a_row:
        with pytest.raises(Corrupt):
            changes.decoded(part)


def test_every_attempt_has_a_uid_of_its_own() -> None:
    assert changes.change_of(1, []).uid != changes.change_of(1, []).uid != changes.UNTOUCHED.uid


@pytest.mark.parametrize("data", [b"", b"text of somebody else", b"\x02" + bytes(24), bytes(25)])
def test_what_is_no_change_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt, match="a bucket in ZooKeeper"):
        changes.decoded(data)


@pytest.mark.parametrize("data", [b"", b"1 id", b"1 id none", b"1 id 0", b"2 id 5", b"\xff 1 1"])
def test_what_is_no_layout_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt, match="the layout in ZooKeeper"):
        changes.decoded_layout(data)
    layout = changes.new_layout(5)
    assert changes.decoded_layout(layout.encoded()) == layout


def test_a_key_that_is_no_intents_is_refused() -> None:
    with pytest.raises(Corrupt, match="belongs to zookeeper"):
        changes.intent_of(b"k")


def test_writes_are_cut_into_portions_that_a_znode_takes() -> None:
    sizes = [1, INLINE_BYTES, INLINE_BYTES, INLINE_BYTES, INLINE_BYTES, INLINE_BYTES + 1, 1 << 20, 1, INLINE_BYTES]
    writes = [Write(KEY._replace(key=b"%d" % n), b"v" * size) for n, size in enumerate(sizes)]
    portions = [*changes.portions(writes)]
    assert [write for portion in portions for write in portion] == writes
    assert [len(portion) for portion in portions] == [4, 5]
    assert max(len(changes.encoded(changes.change_of(1, portion))) for portion in portions) < PORTION_BYTES + 1000
    assert [*changes.portions([])] == []


def test_an_address_too_long_for_a_znode_is_refused() -> None:
    with pytest.raises(TooLarge, match=f"a znode takes {MAX_BYTES}"):
        changes.encoded(changes.change_of(1, [Write(KEY._replace(key=b"k" * MAX_BYTES), b"v")]))


def test_rows_are_spread_over_all_buckets_and_their_place_does_not_matter() -> None:
    layout = changes.new_layout(16)
    keys = [KEY._replace(key=b"%d" % number) for number in range(1000)]
    numbers = [layout.number_of(key) for key in keys]
    assert {*numbers} == {*range(16)}
    assert [layout.number_of(key._replace(place=b"")) for key in keys] == numbers
    assert layout.number_of(KEY) == changes.Layout("another", 16).number_of(KEY), "of all processes alike"


def test_it_supplies_compare_and_set_row_by_row() -> None:
    have = supplied(replace(HAVE, atomicity=Atomicity.BATCH, snapshot=True, max_key_bytes=1000))
    assert (have.atomicity, have.compare_and_set, have.snapshot) == (Atomicity.ROW, True, False)
    assert have.max_key_bytes == 1000 - changes.INTENT_BYTES
    assert layers_for(HAVE, zookeeper=True) == ["zookeeper", "checked"]
    assert layers_for(replace(HAVE, max_value_bytes=70_000, remote=True), zookeeper=True) == [
        "retried",
        "zookeeper",
        "longvalues",
        "checked",
    ]
    assert missing_capabilities(HAVE, zookeeper=True) == []


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({}, []),
        ({"versioned_writes": False}, ["versioned_writes"]),
        ({"consistency": Consistency.EVENTUAL}, ["consistency STRONG"]),
        ({"ordered": False, "versioned_writes": False}, ["ordered", "versioned_writes"]),
    ],
)
def test_what_it_stands_over(change: dict[str, Any], missing: list[str]) -> None:
    have = replace(HAVE, **change)
    assert missing_below(have) == missing
    advised = "the option zookeeper=HOST:PORT,HOST:PORT/CHROOT supplies it" in missing_capabilities(have)[0]
    assert advised == (not missing)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"{WEAK}&versions=yes", r"lacks compare_and_set \(the option zookeeper=HOST:PORT,HOST:PORT/CHROOT supplies"),
        (f"{WEAK}&zookeeper=h:1", "only to a store with versioned_writes"),
        (f"{WEAK}&versions=yes&stale=yes&zookeeper=h:1", "only to a store with consistency STRONG"),
        (f"{WEAK}&versions=yes&ordered=no&zookeeper=h:1", "only to a store with ordered"),
        (f"{WEAK}&versions=yes&reverse=no&zookeeper=h:1", "lacks reverse_scan"),
        ("memory:?zookeeper=h:1", "store memory has compare_and_set itself: leave out the option zookeeper"),
        (f"{WEAK}&versions=yes&zookeeper=h:1&zookeeper=h:2", "given twice"),
    ],
)
def test_it_is_refused_with_a_reason(url: str, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        open_store(url)


@pytest.mark.parametrize("where", ["", "h", "h:", "h:1,", "h:1/", "h:1/a//b", "h:1/a/", "h:1/..", "h:1 ,i:2", "/x"])
def test_a_place_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(Unsupported, match=r"zookeeper='.*' is not HOST:PORT,HOST:PORT/CHROOT"):
        open_store(f"{WEAK}&versions=yes&zookeeper={where}")


def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.build.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match=r"driver kazoo is not installed; pip install 'pbserver\[zookeeper\]'"):
        open_store(f"{WEAK}&versions=yes&zookeeper=h:1")


def test_it_does_not_stand_over_less() -> None:
    from adapters.layers.zookeeper import ZookeeperStore

    with pytest.raises(Unsupported, match="zookeeper stands only over a store with versioned_writes"):
        ZookeeperStore(WeakStore(CAPABILITIES, seed=None, fail_percent=0), None)  # type: ignore[arg-type]
