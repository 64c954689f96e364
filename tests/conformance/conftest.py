"""The matrix: every registered store and every layer. The suite itself is adapters/conformance."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

pytest.register_assert_rewrite("adapters.conformance")

from adapters.build import open_store, with_layers  # noqa: E402 - rewriting comes before all imports
from adapters.conformance.matrix import (  # noqa: E402
    Entry,
    Matrix,
    at_once,
    batch_snapshot_store,
    batch_store,
    cas_points,
    deadline,
    elsewhere,
    points,
    scope_store,
    snapshot_store,
    store,
    unlimited_batch_store,
    unlimited_store,
    versioned_points,
)
from adapters.conformance.plugin import bare  # noqa: E402
from adapters.contract import (  # noqa: E402
    Address,
    Capabilities,
    KeyRange,
    Operation,
    OrderedStore,
    PointStore,
    Reader,
    Row,
    Rows,
    Table,
    addresses,
    is_conditional,
    row_writes,
)
from adapters.errors import Applied, TooLarge, Unavailable  # noqa: E402
from adapters.layers.checked import CheckedStore  # noqa: E402
from adapters.layers.cutkeys import CutKeysStore  # noqa: E402
from adapters.layers.longvalues import LongValuesStore  # noqa: E402
from adapters.layers.measured import MeasuredPoints, MeasuredStore  # noqa: E402
from adapters.layers.ordered import TreeStore  # noqa: E402
from adapters.layers.retried import RetriedPoints, RetriedStore  # noqa: E402
from adapters.layers.split import SplitStore  # noqa: E402
from adapters.layers.versioned import VersionedStore  # noqa: E402
from adapters.memory import MemoryStore  # noqa: E402
from tests import zookeeper  # noqa: E402

__all__ = [
    "at_once",
    "batch_snapshot_store",
    "batch_store",
    "cas_points",
    "deadline",
    "elsewhere",
    "points",
    "scope_store",
    "snapshot_store",
    "store",
    "unlimited_batch_store",
    "unlimited_store",
    "versioned_points",
]


class ShortKeys:
    """A store that refuses addresses over a limit, and bounds of scans as well."""

    def __init__(self, inner: OrderedStore, most: int) -> None:
        self._inner = inner
        self._most = most
        self.check, self.close = inner.check, inner.close
        self.ensure_tables, self.drop_tables = inner.ensure_tables, inner.drop_tables

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._inner.capabilities, max_key_bytes=self._most)

    def read(self, places: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        for address in places:
            self._check(address.scope, address.key)
        return self._inner.read(places, deadline=deadline, settle=settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        self._check(scope, keys.start)
        self._check(scope, keys.stop or b"")
        return self._inner.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        for operation in [*operations, *row_writes(rows)]:
            self._check(operation.address.scope, operation.address.key)
        self._inner.write(operations, rows=rows, deadline=deadline)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._inner.snapshot()

    def _check(self, scope: bytes, key: bytes) -> None:
        if len(scope) + len(key) > self._most:
            raise TooLarge(f"{len(scope) + len(key)} bytes")


class Flaky(MemoryStore):
    """Fails every other call: reads and conditional writes before they do anything, other writes sometimes after."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(1)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self._fail()
        return super().read(addresses, deadline=deadline, settle=settle)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        self._fail()
        return super().scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self._fail()
        super().write(operations, rows=rows, deadline=deadline)
        if not any(map(is_conditional, operations)) and self._random.random() < 0.2:
            raise Unavailable("the answer was lost", Applied.UNKNOWN)

    def _fail(self) -> None:
        self.check()
        if self._random.random() < 0.3:
            raise Unavailable("not now")


class Forgetful:
    """A Recorder."""

    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        assert min(rows, size_bytes, seconds) >= 0
        assert call
        assert outcome != "bug"


def _pause(_: float) -> None:
    """No time passes between attempts."""


def _weak(options: str) -> OrderedStore:
    opened = bare(f"weak:?{options}")
    assert isinstance(opened, OrderedStore)
    return opened


def _with_layers(options: str) -> PointStore:
    return open_store(f"weak:?{options}")


#: Test id -> how to open the store; the id begins with the registered name, or that of the store below a layer.
MATRIX = Matrix(
    {
        "memory": Entry(lambda path: open_store("memory:")),
        "memory-250-byte-keys": Entry(lambda path: with_layers("memory", ShortKeys(MemoryStore(), 250))),
        "memory-64-byte-keys": Entry(lambda path: with_layers("memory", ShortKeys(MemoryStore(), 64))),
        "memory-measured": Entry(lambda path: CheckedStore(MeasuredStore(MemoryStore(), Forgetful()))),
        "memory-retried": Entry(lambda path: CheckedStore(RetriedStore(Flaky(), _pause))),
        "lmdb": Entry(lambda path: open_store(f"lmdb:{path}/db?durability=none&map_mib=1"), 40),
        "lmdb-sync": Entry(lambda path: open_store(f"lmdb:{path}/db?durability=sync&map_mib=1"), 12),
        "lmdb-group": Entry(
            lambda path: open_store(f"lmdb:{path}/db?durability=group&group_milliseconds=1&map_mib=1"), 5
        ),
        "lmdb-raw-none": Entry(lambda path: bare(f"lmdb:{path}/db?durability=none&map_mib=1"), 40),
        "lmdb-raw-sync": Entry(lambda path: bare(f"lmdb:{path}/db?durability=sync&map_mib=1"), 8),
        "weak-row": Entry(lambda path: bare("weak:")),
        "weak-row-versions": Entry(lambda path: bare("weak:?versions=yes&max_batch=60&max_value_bytes=90000")),
        "weak-row-without-cas": Entry(lambda path: bare("weak:?versions=yes&compare_and_set=no&reverse=no")),
        "weak-scope": Entry(lambda path: bare("weak:?atomicity=scope")),
        "weak-scope-snapshot": Entry(lambda path: bare("weak:?atomicity=scope&versions=yes&snapshot=yes")),
        "weak-points": Entry(lambda path: bare("weak:?ordered=no&max_key_bytes=500")),
        "weak-points-layers": Entry(lambda path: MeasuredPoints(RetriedPoints(bare("weak:?ordered=no")), Forgetful())),
        "weak-row-versioned": Entry(lambda path: CheckedStore(VersionedStore(_weak("")))),
        "weak-scope-versioned": Entry(lambda path: CheckedStore(VersionedStore(_weak("atomicity=scope")))),
        "weak-batch-versioned": Entry(
            lambda path: CheckedStore(VersionedStore(_weak("atomicity=batch&snapshot=yes&max_value_bytes=70000")))
        ),
        "weak-row-longvalues": Entry(
            lambda path: CheckedStore(LongValuesStore(_weak("versions=yes&max_value_bytes=100&max_batch=60")))
        ),
        "weak-scope-longvalues": Entry(
            lambda path: CheckedStore(LongValuesStore(_weak("atomicity=scope&max_value_bytes=1000")))
        ),
        "weak-batch-longvalues": Entry(
            lambda path: CheckedStore(LongValuesStore(_weak("atomicity=batch&snapshot=yes&max_value_bytes=100")))
        ),
        "weak-row-split": Entry(lambda path: CheckedStore(SplitStore(_weak("versions=yes&max_batch=7"))), 10),
        "weak-row-short-batches": Entry(lambda path: _with_layers("max_batch=7&max_value_bytes=70000"), 8),
        "weak-row-cutkeys": Entry(lambda path: CheckedStore(CutKeysStore(_weak("max_key_bytes=250&versions=yes")))),
        "weak-scope-cutkeys": Entry(
            lambda path: CheckedStore(CutKeysStore(_weak("atomicity=scope&max_key_bytes=128&snapshot=yes")))
        ),
        "weak-row-short-values-cutkeys": Entry(
            lambda path: CheckedStore(CutKeysStore(_weak("max_key_bytes=250&max_value_bytes=75000"))), 8
        ),
        "weak-row-zookeeper": Entry(lambda path: zookeeper.over(_weak("versions=yes&compare_and_set=no")), 15),
        "weak-row-late-and-failing-zookeeper": Entry(
            lambda path: zookeeper.over(
                RetriedStore(_weak("versions=yes&compare_and_set=no&shuffle=1&fail=10"), _pause)
            ),
            15,
        ),
        "weak-row-zookeeper-all-layers": Entry(
            lambda path: _with_layers(
                "versions=yes&compare_and_set=no&shuffle=2&max_value_bytes=100000&max_key_bytes=250"
                f"&zookeeper={zookeeper.place()}"
            ),
            5,
        ),
        "weak-row-small-pages-ordered": Entry(lambda path: CheckedStore(TreeStore(bare("weak:?ordered=no"), 100))),
        "weak-scope-ordered": Entry(
            lambda path: CheckedStore(
                TreeStore(bare("weak:?ordered=no&atomicity=scope&max_value_bytes=64000&max_key_bytes=48"))
            )
        ),
        "weak-batch-ordered": Entry(
            lambda path: CheckedStore(TreeStore(bare("weak:?ordered=no&atomicity=batch"), 1000))
        ),
        "weak-points-all-layers": Entry(
            lambda path: _with_layers("ordered=no&max_value_bytes=1000000&remote=yes&max_key_bytes=250")
        ),
        "weak-row-all-layers": Entry(lambda path: _with_layers("max_value_bytes=65536&remote=yes&max_key_bytes=250")),
        "weak-scope-250-byte-keys": Entry(lambda path: _with_layers("atomicity=scope&max_key_bytes=250"), 10),
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    MATRIX.parametrize(metafunc)


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return MATRIX
