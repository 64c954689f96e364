"""The matrix: every registered store and every layer, opened on a place of its own."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from adapters.build import open_store, with_layers
from adapters.contract import (
    Address,
    Capabilities,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Rows,
    Table,
    addresses,
    row_writes,
)
from adapters.errors import TooLarge
from adapters.layers.checked import CheckedStore
from adapters.memory import MemoryStore
from adapters.registry import opener
from adapters.url import parse_url

T = TypeVar("T")

settings.register_profile(
    "conformance",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("conformance")


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


def _without_longkeys(url: str) -> OrderedStore:
    parsed = parse_url(url)
    return CheckedStore(opener(parsed.name)(parsed))


#: Test id -> how to open the store; the id begins with the registered name.
MATRIX: dict[str, Callable[[Path], OrderedStore]] = {
    "memory": lambda path: open_store("memory:"),
    "memory-raw": lambda path: MemoryStore(),
    "memory-250-byte-keys": lambda path: with_layers("memory", ShortKeys(MemoryStore(), 250)),
    "memory-64-byte-keys": lambda path: with_layers("memory", ShortKeys(MemoryStore(), 64)),
    "lmdb": lambda path: open_store(f"lmdb:{path}/db?durability=none&map_mib=1"),
    "lmdb-sync": lambda path: open_store(f"lmdb:{path}/db?durability=sync&map_mib=1"),
    "lmdb-group": lambda path: open_store(f"lmdb:{path}/db?durability=group&group_milliseconds=1&map_mib=1"),
    "lmdb-raw-none": lambda path: _without_longkeys(f"lmdb:{path}/db?durability=none&map_mib=1"),
    "lmdb-raw-sync": lambda path: _without_longkeys(f"lmdb:{path}/db?durability=sync&map_mib=1"),
}


UNLIMITED = [name for name in MATRIX if not name.startswith("lmdb-raw")]  #: those without a key limit of their own


@pytest.fixture(scope="session")
def matrix() -> list[str]:
    return list(MATRIX)


@pytest.fixture(params=list(MATRIX))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OrderedStore]:
    """Each store in turn, empty, with its tables."""
    opened = MATRIX[request.param](tmp_path)
    try:
        opened.ensure_tables()
        yield opened
    finally:
        opened.close()


@pytest.fixture(params=UNLIMITED)
def unlimited_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OrderedStore]:
    """Each store that takes keys of any length."""
    opened = MATRIX[request.param](tmp_path)
    try:
        opened.ensure_tables()
        assert opened.capabilities.max_key_bytes is None
        yield opened
    finally:
        opened.close()


@pytest.fixture
def deadline() -> float:
    return time.monotonic() + 60


class Elsewhere:
    """Another thread, one call at a time: where a snapshot is held while this thread writes."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)

    def __call__(self, work: Callable[[], T]) -> T:
        return self._pool.submit(work).result(60)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    thread = Elsewhere()
    yield thread
    thread.close()


@pytest.fixture
def at_once() -> Callable[[int, Callable[[int], object]], list[object]]:
    """Runs work(0), ... work(n - 1) in n threads that start together; results or exceptions, in that order."""

    def run(threads: int, work: Callable[[int], object]) -> list[object]:
        barrier = threading.Barrier(threads)

        def one(number: int) -> object:
            barrier.wait(30)
            return work(number)

        with ThreadPoolExecutor(max_workers=threads) as pool:
            futures: list[Future[object]] = [pool.submit(one, number) for number in range(threads)]
            return [future.exception(60) or future.result() for future in futures]

    return run
