"""What each layer costs: CPU per call over plain memory, in this process and one thread.

A layer stands alone over memory that claims what calls for it, with the rows it passes through unchanged where it can:
short keys and values of 200 bytes, so this is the price of having the layer there. `ordered` is warm: it reads a leaf
of 32 KiB for a row, and writes one. `all` is what a store gets that writes row by row, unordered and with short values.
The calls below are counted too, where a layer makes several of one: over a network they are what counts.
"""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from rich.table import Table as Columns

from adapters.build import with_layers
from adapters.contract import Address, Atomicity, Capabilities, KeyRange, OrderedStore, Table, Write
from adapters.layers.checked import CheckedStore
from adapters.layers.cutkeys import CutKeysStore
from adapters.layers.longkeys import LongKeysStore
from adapters.layers.longvalues import LongValuesStore
from adapters.layers.measured import MeasuredPoints, MeasuredStore
from adapters.layers.ordered import TreeStore
from adapters.layers.retried import RetriedStore
from adapters.layers.versioned import VersionedStore
from adapters.memory import CAPABILITIES, MemoryStore
from bench.run import Run

NAME = "layers"
ROWS = 2000
SCANNED = 20
SCOPE = b"scope\x00"
VALUE_BYTES = 200
MOST_US = {"checked": 2.0, "all": 100.0}  #: that a layer adds to a read
MOST_CALLS = {"read": 1, "write": 2, "scan": 2}  #: below `ordered`, warm
_SHARE = 0.05  # of a measurement's seconds, for one kind of call
_NEVER = 1e18


class Claiming(MemoryStore):
    """Memory that claims less."""

    def __init__(self, **claims: Any) -> None:
        super().__init__()
        self._claims = replace(CAPABILITIES, **claims)

    @property
    def capabilities(self) -> Capabilities:
        return self._claims


class Points:
    """The same without order."""

    def __init__(self, **claims: Any) -> None:
        unordered = {"ordered": False, "reverse_scan": False, "snapshot": False}
        store = Claiming(**unordered, **claims)
        self.capabilities = store.capabilities
        self.read, self.write = store.read, store.write
        self.ensure_tables, self.drop_tables = store.ensure_tables, store.drop_tables
        self.check, self.close = store.check, store.close


class _Calls:
    """A recorder that counts."""

    def __init__(self) -> None:
        self.made = 0

    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        del call, outcome, rows, size_bytes, seconds
        self.made += 1


STORES: Mapping[str, Callable[[], OrderedStore]] = {
    "memory": MemoryStore,
    "measured": lambda: MeasuredStore(MemoryStore(), _Calls()),
    "retried": lambda: RetriedStore(MemoryStore()),
    "ordered": lambda: TreeStore(Points(atomicity=Atomicity.ROW)),
    "versioned": lambda: VersionedStore(Claiming(atomicity=Atomicity.ROW)),
    "longvalues": lambda: LongValuesStore(Claiming(max_value_bytes=1 << 16)),
    "longkeys": lambda: LongKeysStore(Claiming(max_key_bytes=510)),
    "cutkeys": lambda: CutKeysStore(Claiming(max_key_bytes=510)),
    "checked": lambda: CheckedStore(MemoryStore()),
    "all": lambda: with_layers("memory", Points(atomicity=Atomicity.ROW, max_value_bytes=1 << 20, remote=True)),
}


class _Subject:
    """A filled store and the calls it is asked, each with keys in an order of their own."""

    def __init__(self, store: OrderedStore) -> None:
        store.ensure_tables()
        addresses = [Address(Table.INDEXES, SCOPE, b"place", b"%08d" % number) for number in range(ROWS)]
        versioned = store.capabilities.versioned_writes
        for address in addresses:
            store.write([Write(address, b"v" * VALUE_BYTES, version=1 if versioned else None)], deadline=_NEVER)
        Random(7).shuffle(addresses)
        self.addresses = addresses
        self._writes = 1
        self._versioned = versioned
        self.store = store
        self.calls: dict[str, Callable[[Address], object]] = {"read": self.read, "write": self.write, "scan": self.scan}

    def read(self, address: Address) -> object:
        return self.store.read([address], deadline=_NEVER)

    def write(self, address: Address) -> None:
        """Another value each time: `ordered` does not write what is there."""
        self._writes += 1
        value = b"%0*d" % (VALUE_BYTES, self._writes)
        version = self._writes if self._versioned else None
        self.store.write([Write(address, value, version=version)], deadline=_NEVER)

    def scan(self, address: Address) -> object:
        return self.store.scan(Table.INDEXES, SCOPE, KeyRange(address.key), limit=SCANNED, deadline=_NEVER)

    def nanoseconds(self, call: str, seconds: float) -> float:
        """CPU per call, over so many seconds at least."""
        work, done = self.calls[call], 0
        began = time.thread_time_ns()
        while (spent := time.thread_time_ns() - began) < seconds * 1e9:
            for address in self.addresses[done % ROWS : done % ROWS + 50]:
                work(address)
            done += 50
        return spent / done


def run(bench: Run) -> None:
    subjects = {name: _Subject(opened()) for name, opened in STORES.items()}
    best = _measured(bench, subjects)
    plain = best["memory"]
    for name, found in best.items():
        bench.record(NAME, name, **{f"{call}_ns": round(took) for call, took in found.items()})
    bench.console.print(table(best))
    for name, limit in MOST_US.items():
        added = (best[name]["read"] - plain["read"]) / 1000
        bench.at_most(NAME, f"what {name} adds to a read of memory", added, limit, unit="us")
    below = {warm: calls_below_ordered(warm=warm) for warm in (False, True)}
    for warm, calls in below.items():
        bench.record(NAME, f"calls below ordered, {'warm' if warm else 'cold'}", **calls)
    for call, limit in MOST_CALLS.items():
        bench.at_most(NAME, f"calls below ordered for a {call}, warm", below[True][call], limit, unit="calls")


def calls_below_ordered(*, warm: bool) -> dict[str, int]:
    """Store calls by what is asked, the most of many; `warm`: the layer remembers what it has read."""
    counted = _Calls()
    points = MeasuredPoints(Points(atomicity=Atomicity.ROW), counted)
    subject = _Subject(TreeStore(points))
    most = dict.fromkeys(subject.calls, 0)
    for address in subject.addresses[:100]:
        for call, work in subject.calls.items():
            if not warm:
                subject.store = TreeStore(points)
            before = counted.made
            work(address)
            most[call] = max(most[call], counted.made - before)
    return most


def _measured(bench: Run, subjects: Mapping[str, _Subject]) -> dict[str, dict[str, float]]:
    """Nanoseconds by subject and call; the best of rounds in which the subjects take turns."""
    best: dict[str, dict[str, float]] = {name: {} for name in subjects}
    seconds = bench.scale.seconds * _SHARE
    gc.collect()
    with bench.step(f"{NAME}: calls over memory", bench.scale.rounds) as step:
        for number in range(bench.scale.rounds):
            for name, subject in subjects.items():
                for call in subject.calls:
                    took = subject.nanoseconds(call, seconds)
                    best[name][call] = min(took, best[name].get(call, took))
            step(number + 1)
    return best


def table(best: Mapping[str, Mapping[str, float]]) -> Columns:
    """Nanoseconds per call, and what is above plain memory."""
    columns = Columns(title=f"{NAME}: ns a call (scan: of {SCANNED} rows)", title_justify="left")
    for heading in ("layer", "read", "write", "scan", "+ read", "+ write", "+ scan"):
        columns.add_column(heading, justify="left" if heading == "layer" else "right")
    plain = best["memory"]
    for name, found in best.items():
        cells = [f"{took:,.0f}" for took in found.values()]
        cells += [f"{took - plain[call]:+,.0f}" for call, took in found.items()]
        columns.add_row(name, *cells)
    return columns
