"""One sweep of the outermost store reaches what every layer leaves."""

import time
from dataclasses import replace
from typing import Any

import pytest

from adapters.build import open_store
from adapters.conformance.plugin import bare
from adapters.contract import ANY, Address, KeyRange, Sweepable, Table, Write, swept
from adapters.errors import Unavailable
from adapters.layers.checked import CheckedStore
from adapters.layers.cutkeys import CutKeysStore
from adapters.layers.longkeys import LongKeysStore
from adapters.layers.longvalues import LongValuesStore
from adapters.layers.measured import MeasuredPoints
from adapters.layers.ordered import TreeStore
from adapters.layers.retried import RetriedPoints
from adapters.layers.versioned import VersionedStore
from adapters.memory import MemoryStore

SOON = 1e18
SCOPES = [b"s\x00", b"s" * 500 + b"\x00"]


class Deaf:
    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        """A recorder."""


class Limited:
    """A store that claims limits it does not have."""

    def __init__(self, store: Any, **claims: Any) -> None:
        self.inner = store
        self.capabilities = replace(store.capabilities, **claims)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def rows_in(below: Any) -> int:
    """Rows of the table in the innermost store."""
    while hasattr(below, "inner"):
        below = below.inner
    scopes = below.scopes if isinstance(below, MemoryStore) else below._live.scopes
    return sum(len(rows.values) for (table, _), rows in scopes.items() if table is Table.META)


def all_layers(below: Any) -> CheckedStore:
    """Each of them leaves something, and none waits before it sweeps."""
    tree = TreeStore(RetriedPoints(MeasuredPoints(below, Deaf())), 400, sweep_after_seconds=-1)
    values = Limited(VersionedStore(tree, horizon_seconds=-1), max_value_bytes=100)
    keys = Limited(LongValuesStore(values, sweep_after_seconds=-1), max_key_bytes=250)
    return CheckedStore(CutKeysStore(keys))


def test_a_sweep_of_every_scope_leaves_nothing_of_what_was_deleted() -> None:
    below: Any = bare("weak:?ordered=no")
    store = all_layers(below)
    assert isinstance(store, Sweepable)
    addresses = [
        Address(Table.META, scope, b"place", b"%03d" % number + b"k" * (number % 2 * 300))
        for scope in SCOPES
        for number in range(40)
    ]
    store.write([Write(address, b"v" * 300, ANY, 1) for address in addresses], deadline=SOON)
    full = rows_in(below)
    store.write([Write(address, None, ANY, 2) for address in addresses], deadline=SOON)
    for _ in range(6):
        for scope in SCOPES:
            store.sweep(Table.META, scope, deadline=SOON)
    assert [store.sweep(Table.META, scope, deadline=SOON) for scope in SCOPES] == [0, 0]
    assert rows_in(below) < 20 < full
    assert [store.scan(Table.META, scope, KeyRange(), limit=9, deadline=SOON) for scope in SCOPES] == [[], []]
    store.write([Write(address, b"w", ANY, 3) for address in addresses], deadline=SOON)
    assert store.read(addresses, deadline=SOON) == [b"w"] * 80


def test_pieces_below_the_nodes_of_long_keys_are_swept() -> None:
    below = MemoryStore()
    values: Any = Limited(
        LongValuesStore(Limited(below, max_value_bytes=100), sweep_after_seconds=-1), max_key_bytes=64
    )
    store = CheckedStore(LongKeysStore(values))
    address = Address(Table.META, SCOPES[1], b"place", b"k" * 300)
    store.write([Write(address, b"v" * 300)], deadline=SOON)
    before = rows_in(below)

    def crash(*_: Any, **__: Any) -> None:
        raise Unavailable("crashed")

    values.inner._clean = crash
    with pytest.raises(Unavailable):
        store.write([Write(address, b"w" * 300)], deadline=SOON)
    left = rows_in(below) - before
    assert left > 0
    assert store.sweep(Table.META, SCOPES[0], deadline=SOON) == 0
    assert store.sweep(Table.META, SCOPES[1], deadline=SOON) == left
    assert rows_in(below) == before
    assert store.read([address], deadline=SOON) == [b"w" * 300]


@pytest.mark.parametrize("url", ["memory:", "weak:", "weak:?ordered=no", "weak:?max_value_bytes=70000&max_batch=9"])
def test_any_store_may_be_swept_and_what_is_no_scope_is_refused(url: str) -> None:
    store = open_store(url)
    store.ensure_tables()
    store.write([Write(Address(Table.META, SCOPES[0], b"", b"k"), b"v")], deadline=SOON)
    assert swept(store, Table.META, SCOPES[0], deadline=time.monotonic() + 60) == 0
    assert store.read([Address(Table.META, SCOPES[0], b"", b"k")], deadline=SOON) == [b"v"]
    with pytest.raises(TypeError, match="not a table and a scope"):
        swept(store, Table.META, "s", deadline=SOON)  # type: ignore[arg-type]
    store.close()
