"""What every engine's tests look at."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path

import psutil

from adapters.contract import ABSENT, Address, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Unavailable
from controller import booting, processes
from controller.local import LocalCluster
from controller.processes import Leader
from tests.e2e.server import Server
from tests.faults.program import ended
from tests.faults.small_disk import disk_of_its_own
from tests.isolation.history import Outcome
from tests.isolation.test_history import assert_serializable
from tests.isolation.workload import Plan, run

ROOT = Path(__file__).parents[2]
DISK_MEBIBYTES = 4096  # more than a suite needs
_WRITERS = 4
PAUSE_SECONDS = 0.1  # between two writes of a client: nodes that boot meanwhile need the cores too
_READ_AT_ONCE = 500
_INDEX = b"load\x00"


def soon() -> float:
    """A deadline that nothing should need."""
    return time.monotonic() + 30


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def together(*calls: Callable[[], object]) -> list[BaseException | None]:
    """What calls in threads that start together raise."""
    barrier = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> None:
        barrier.wait(30)
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.exception(60) for future in [pool.submit(one, call) for call in calls]]


def assert_conforms(url: str, *, only: str = "") -> None:
    """The conformance suite, as an operator runs it. `only`: pytest's -k."""
    command = [sys.executable, "-m", "pbserver", "conformance", "--store", url, "--delete-all-rows"]
    command += ["--only", only] if only else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_verified(url: str) -> None:
    """`pbserver verify` finds nothing wrong."""
    done = ended("verify", "--store", url, seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_serializable_through(servers: Sequence[Server], calls: int, directory: Path) -> None:
    """The isolation workload, each client at one of the servers."""
    first, *others = (each.port for each in servers)
    history = run(Plan(port=first, other_ports=tuple(others), calls=calls))
    assert_serializable(history, directory / "history.jsonl")
    errors = Counter(each.error for each in history)
    assert errors.keys() == {"", "CONCURRENT_TRANSACTION"}, errors
    assert Counter(each.outcome for each in history)[Outcome.OK] > calls // 10


@dataclass(frozen=True, slots=True)
class Load:
    """Threads that write numbers: each as a row of an entity group of its own, then as an index row."""

    store: OrderedStore
    acknowledged: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)

    def grow(self) -> None:
        """Waits until a hundred more are acknowledged."""
        wanted = len(self.acknowledged) + 100
        until(lambda: len(self.acknowledged) >= wanted)

    def assert_kept(self) -> None:
        """Everything acknowledged is there."""
        for settle, start in product((False, True), range(0, len(self.acknowledged), _READ_AT_ONCE)):
            numbers = self.acknowledged[start : start + _READ_AT_ONCE]
            found = self.store.read([_row(number) for number in numbers], deadline=soon(), settle=settle)
            assert found == [b"%d" % number for number in numbers]
        indexed = self.store.scan(Table.INDEXES, _INDEX, KeyRange(), limit=1_000_000, deadline=soon())
        assert set(self.acknowledged) <= {int(key) for key, _ in indexed}

    def write(self, number: int) -> None:
        version = number + 1 if self.store.capabilities.versioned_writes else None
        row = Rows(Table.INDEXES, _INDEX, b"%d" % number, {b"%08d" % number: b"v"}, version)
        try:
            self.store.write([Write(_row(number), b"%d" % number, ABSENT)], deadline=soon())
            self.store.write([], rows=[row], deadline=soon())
        except Unavailable as error:
            assert error.applied is Applied.UNKNOWN
            self.unknown.append(number)
        else:
            self.acknowledged.append(number)


def _row(number: int) -> Address:
    return Address(Table.GROUPS, b"group %d\x00" % number, b"k", b"k")


@contextmanager
def load(store: OrderedStore) -> Iterator[Load]:
    """Writes as long as the body lasts."""
    found = Load(store)
    numbers = count()
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(PAUSE_SECONDS):
            found.write(next(numbers))

    with ThreadPoolExecutor(_WRITERS) as pool:
        writers = [pool.submit(work) for _ in range(_WRITERS)]
        try:
            found.grow()
            yield found
        finally:
            stop.set()
        for writer in writers:
            writer.result(60)


def pids(cluster: LocalCluster) -> list[int]:
    """Of all processes of the cluster, children of the databases included."""
    records = [record for node in cluster.nodes for record in booting.records(node)]
    leaders = [leader for record in records if (leader := Leader.read(record)) is not None]
    return sorted(process.pid for leader in leaders for process in processes.members(leader))


def assert_ready(cluster: LocalCluster) -> None:
    """Every node serves, and nothing of it listens outside the cluster's own addresses and loopback."""
    assert [status.trouble for status in cluster.status()] == [""] * len(cluster.nodes)
    open_at = {
        connection.laddr.ip
        for pid in pids(cluster)
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert open_at
    assert [ip for ip in open_at if not ip.removeprefix("::ffff:").startswith("127.")] == []


@contextmanager
def fresh_cluster(name: str, nodes: int, directory: Path) -> Iterator[LocalCluster]:
    """A cluster that serves within the block, and has left nothing behind after it. Where that is permitted, each node
    has a disk of its own in memory: it may be full alone, and syncs cost nothing. A kill -9 leaves what a disk would.
    """
    with ExitStack() as disks:
        for number in range(1, nodes + 1):
            disks.enter_context(disk_of_its_own(directory / f"node{number}", DISK_MEBIBYTES))
        with LocalCluster.up(name, nodes, directory) as cluster:
            assert_ready(cluster)
            yield cluster
        assert_gone(cluster)


def assert_gone(cluster: LocalCluster) -> None:
    assert pids(cluster) == []
    assert cluster.listeners() == []


def kill_everything(cluster: LocalCluster) -> None:
    """kill -9 of every process at once, behind the runner's back; returns when they are gone."""
    victims = [psutil.Process(pid) for pid in pids(cluster)]
    for victim in victims:
        victim.kill()
    psutil.wait_procs(victims, timeout=10)
