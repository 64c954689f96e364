"""Stores to test, which tests each of them gets, and the fixtures those use."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings

from adapters.contract import Atomicity, Capabilities, OrderedStore, PointStore

T = TypeVar("T")
AtOnce = Callable[[int, Callable[[int], object]], list[object]]

settings.register_profile(
    "conformance",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("conformance")


@dataclass(frozen=True, slots=True)
class Entry:
    """How to open one store: empty, in a directory of its own, under the checked layer. A database that keeps its
    rows is emptied when opened, and closed before it is opened again.
    """

    open: Callable[[Path], PointStore]
    examples: int = 25  #: of the state machine; fewer for stores that wait for a disk or a network


def _batches(claims: Capabilities) -> bool:
    return claims.ordered and claims.compare_and_set and claims.atomicity is Atomicity.BATCH


#: What a test that names the fixture needs. All but `points` are OrderedStores.
NEEDS: dict[str, Callable[[Capabilities], bool]] = {
    "points": lambda claims: True,
    "cas_points": lambda claims: claims.compare_and_set,
    "versioned_points": lambda claims: claims.versioned_writes,
    "store": lambda claims: claims.ordered,
    "unlimited_store": lambda claims: claims.ordered and claims.max_key_bytes is None,
    "scope_store": lambda claims: claims.ordered and claims.compare_and_set and claims.atomicity is not Atomicity.ROW,
    "batch_store": _batches,
    "unlimited_batch_store": lambda claims: _batches(claims) and claims.max_key_bytes is None,
    "snapshot_store": lambda claims: claims.snapshot,
    "batch_snapshot_store": lambda claims: _batches(claims) and claims.snapshot,
}


class Matrix:
    """Test id -> store."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries

    @cached_property
    def claims(self) -> dict[str, Capabilities]:
        """What each store says of itself; each is opened once for it."""
        found = {}
        for name, entry in self.entries.items():
            with tempfile.TemporaryDirectory() as place:
                store = entry.open(Path(place))
                found[name] = store.capabilities
                store.close()
        return found

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """To be called by pytest_generate_tests."""
        for fixture, suits in NEEDS.items():
            if fixture in metafunc.fixturenames:
                names = [name for name, claims in self.claims.items() if suits(claims)]
                metafunc.parametrize(fixture, [self.entries[name] for name in names], ids=names, indirect=True)


def _opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PointStore]:
    store = cast(Entry, request.param).open(tmp_path)
    try:
        store.ensure_tables()
        yield store
    finally:
        store.close()


def _opened_ordered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OrderedStore]:
    for store in _opened(request, tmp_path):
        assert isinstance(store, OrderedStore), "it claims to be ordered"
        yield store


points = pytest.fixture(_opened, name="points")
cas_points = pytest.fixture(_opened, name="cas_points")
versioned_points = pytest.fixture(_opened, name="versioned_points")
store = pytest.fixture(_opened_ordered, name="store")
unlimited_store = pytest.fixture(_opened_ordered, name="unlimited_store")
scope_store = pytest.fixture(_opened_ordered, name="scope_store")
batch_store = pytest.fixture(_opened_ordered, name="batch_store")
unlimited_batch_store = pytest.fixture(_opened_ordered, name="unlimited_batch_store")
snapshot_store = pytest.fixture(_opened_ordered, name="snapshot_store")
batch_snapshot_store = pytest.fixture(_opened_ordered, name="batch_snapshot_store")


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
def at_once() -> AtOnce:
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
