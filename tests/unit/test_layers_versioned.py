"""VersionedStore: tombstones and their sweep, parts of a call, races at each step."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from adapters.conformance.interleaving import Scheduled, Turns, interleaved
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Check, KeyRange, Operation, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, Unavailable, Unsupported
from adapters.layers.versioned import VersionedStore
from adapters.memory import MemoryStore

SOON = 1e18
KEY = Address(Table.META, b"s", b"place", b"k")


def weak(options: str) -> OrderedStore:
    store = bare(f"weak:?{options}")
    assert isinstance(store, OrderedStore)
    return store


class Interfered(MemoryStore):
    """Lets somebody else write right before a write."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Callable[[], Any]] = []

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if self.others:
            self.others.pop(0)()
        super().write(operations, rows=rows, deadline=deadline)


def test_tombstones_are_swept_after_the_horizon_only() -> None:
    below = MemoryStore()
    store = VersionedStore(below, horizon_seconds=0.05)
    keys = [b"%04d" % number for number in range(1200)]
    addresses = [KEY._replace(key=key) for key in keys]
    store.write([Write(address, b"v", ANY, 1) for address in addresses], deadline=SOON)
    store.write([Write(address, None, ANY, 2) for address in addresses[:1100]], deadline=SOON)
    assert store.scan(Table.META, b"s", KeyRange(), limit=9, deadline=SOON) == [(key, b"v") for key in keys[1100:1109]]
    assert VersionedStore(below).sweep(Table.META, b"s", deadline=SOON) == 0
    time.sleep(0.06)
    assert store.sweep(Table.META, b"s", deadline=SOON) == 1100
    assert len(below.scan(Table.META, b"s", KeyRange(), limit=2000, deadline=SOON)) == 100


def test_a_row_written_after_its_tombstone_was_seen_is_not_swept() -> None:
    below = Interfered()
    store = VersionedStore(below, horizon_seconds=0)
    store.write([Write(KEY, None, ANY, 1)], deadline=SOON)
    time.sleep(0.01)
    below.others = [lambda: store.write([Write(KEY, b"again", ANY, 2)], deadline=SOON)]
    assert store.sweep(Table.META, b"s", deadline=SOON) == 0
    assert store.read([KEY], deadline=SOON) == [b"again"]


@pytest.mark.parametrize(
    ("mine", "other", "wins"),
    [(3, 2, b"mine"), (2, 3, b"other"), (2, None, b"mine")],
)
def test_a_lost_race_is_decided_by_version(mine: int, other: int | None, wins: bytes) -> None:
    below = Interfered()
    store = VersionedStore(below)
    store.write([Write(KEY, b"old", ANY, 1)], deadline=SOON)
    below.others = [lambda: store.write([Write(KEY, b"other", ANY, other)], deadline=SOON)]
    store.write([Write(KEY, b"mine", ANY, mine)], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [wins]


def test_conditions_hold_whatever_the_frame() -> None:
    store = VersionedStore(MemoryStore())
    store.write([Write(KEY, b"v", ANY, 5)], deadline=SOON)
    store.write([Check(KEY, b"v"), Write(KEY._replace(key=b"other"), b"o")], deadline=SOON)
    store.write([Write(KEY, b"w", b"v")], deadline=SOON)
    store.write([Write(KEY, b"late", ANY, 4)], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [b"w"], "the condition kept the version"
    store.write([Write(KEY, None, b"w")], deadline=SOON)
    store.write([Write(KEY, b"late", ANY, 4)], deadline=SOON)
    with pytest.raises(Conflict) as raised:
        store.write([Write(KEY, b"x", b"w")], deadline=SOON)
    assert raised.value.current is None, "a tombstone is no row"
    store.write([Write(KEY, b"new", ABSENT)], deadline=SOON)
    assert store.read([KEY], deadline=SOON) == [b"new"]


def test_a_call_that_fails_after_its_first_part_says_unknown() -> None:
    class SecondFails(MemoryStore):
        calls = 0

        def write(self, *args: Any, **named: Any) -> None:
            self.calls += 1
            if self.calls == 2:
                raise Unavailable("not now")
            super().write(*args, **named)

    class Rowwise(SecondFails):
        @property
        def capabilities(self) -> Any:
            return weak("").capabilities

    writes = [Write(KEY._replace(key=b"%d" % number), b"v", ANY, 1) for number in range(3)]
    with pytest.raises(Unavailable) as raised:
        VersionedStore(Rowwise()).write(writes, deadline=SOON)
    assert raised.value.applied is Applied.UNKNOWN
    store = SecondFails()
    store.calls = 1
    with pytest.raises(Unavailable) as raised:
        VersionedStore(store).write(writes, deadline=SOON)
    assert raised.value.applied is Applied.NO


def test_late_doubled_and_partial_writes_below_never_bring_back_old_values() -> None:
    for seed in range(30):
        store = VersionedStore(weak(f"shuffle={seed}&fail=20&stale=yes"))
        addresses = [KEY._replace(key=b"%d" % number) for number in range(5)]
        for version in range(1, 30):
            value = None if version % 3 == 0 else b"%d" % version
            while True:  # put until acknowledged
                try:
                    store.write([Write(address, value, ANY, version) for address in addresses], deadline=SOON)
                    break
                except Unavailable:
                    continue
            assert store.read(addresses, deadline=SOON, settle=True) == [value] * 5


def test_what_it_cannot_stand_over_and_what_it_cannot_read() -> None:
    with pytest.raises(Unsupported, match="compare_and_set"):
        VersionedStore(weak("compare_and_set=no"))
    below = MemoryStore()
    below.write([Write(KEY, b"\x09raw")], deadline=SOON)
    with pytest.raises(Corrupt, match="not written through `versioned`"):
        VersionedStore(below).read([KEY], deadline=SOON)


@pytest.mark.parametrize("options", ["", "atomicity=scope", "atomicity=batch"])
def test_any_interleaving_of_versions_leaves_the_highest(options: str) -> None:
    keys = [KEY._replace(key=b"a"), KEY._replace(key=b"b"), KEY._replace(scope=b"t")]
    for seed in range(30):
        store = weak(options)
        turns = Turns(seed, 3)
        scheduled: Any = Scheduled(store, turns)
        layer = VersionedStore(scheduled)

        def write(mine: int, layer: VersionedStore = layer, seed: int = seed) -> None:
            for version in range(mine, 20, 3):
                value = None if (version + seed) % 4 == 0 else b"%d" % version
                layer.write([Write(key, value, ANY, version) for key in keys], deadline=SOON)

        interleaved(turns, [partial(write, mine) for mine in range(3)])
        wanted = None if (19 + seed) % 4 == 0 else b"19"
        assert VersionedStore(store).read(keys, deadline=SOON) == [wanted] * 3
