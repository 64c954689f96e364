"""LMDB under several processes: shared counters, kill -9, growth, group commit, forks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import adapters
from adapters.build import open_store
from adapters.contract import Address, KeyRange, OrderedStore, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable, Unsupported
from adapters.lmdb.store import LmdbStore
from adapters.registry import opener
from adapters.url import parse_url

ROOT = Path(adapters.__file__).parent.parent
WRITER = Path(__file__).with_name("lmdb_writer.py")
#: A process that stands in the middle of a commit for as long as it lives.
HOLDER = """
import sys, time
from adapters.registry import opener
from adapters.url import parse_url
connection = opener("lmdb")(parse_url(sys.argv[1])).durable_connection
connection.writers.acquire(time.monotonic() + 30)
with connection.env.begin(write=True):
    print("holds", flush=True)
    sys.stdin.read()
"""
MEBIBYTE = 1 << 20
Process = subprocess.Popen[str]
Start = Callable[..., Process]
AtOnce = Callable[[int, Callable[[int], object]], list[object]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a writer that waits for `go`; whatever still runs at the end of the test is killed by its own pid."""
    processes: list[Process] = []

    def run(url: str, *arguments: str, program: Sequence[str] = (str(WRITER),), says: str = "ready") -> Process:
        process = subprocess.Popen(
            [sys.executable, *program, url, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{says}\n"
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def go(process: Process, writes: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"\n{writes}\n")
    process.stdin.flush()


def finished(process: Process) -> int:
    """Waits for the end; how many writes were acknowledged."""
    assert process.stdout is not None
    acknowledged = len(process.stdout.readlines())
    assert process.wait(30) == 0
    return acknowledged


def soon() -> float:
    return time.monotonic() + 30


def lmdb_store(url: str) -> LmdbStore:
    store = opener("lmdb")(parse_url(url))
    assert isinstance(store, LmdbStore)
    return store


def rows_of(store: OrderedStore, name: str) -> int:
    """Checks that every row of a writer is whole and has its twin; how many there are."""
    scope = name.encode() + b"\x00"
    with store.snapshot() as view:
        rows = view.scan(Table.GROUPS, scope, KeyRange(), limit=100_000, deadline=soon())
        twins = view.scan(Table.INDEXES, scope, KeyRange(), limit=100_000, deadline=soon())
    assert [key for key, _ in rows] == [key for key, _ in twins] == [b"%08d" % number for number in range(len(rows))]
    assert all(value[:8] == key for key, value in rows)
    return len(rows)


@pytest.mark.parametrize("durability", ["sync", "none"])
def test_three_processes_count_exactly(tmp_path: Path, start: Start, durability: str) -> None:
    url = f"lmdb:{tmp_path}/db?durability={durability}"
    writers = [start(url, f"w{number}", "count") for number in range(3)]
    for writer in writers:
        go(writer, 100)
    assert [finished(writer) for writer in writers] == [100, 100, 100]
    store = open_store(url)
    assert store.read([Address(Table.META, b"shared\x00", b"", b"counter")], deadline=soon()) == [b"300"]
    store.close()


@pytest.mark.parametrize("durability", ["sync", "none"])
def test_after_kill_9_of_a_writer_the_others_go_on_and_nothing_acknowledged_is_lost(
    tmp_path: Path, start: Start, durability: str
) -> None:
    url = f"lmdb:{tmp_path}/db?durability={durability}&map_mib=1"
    store = open_store(url)
    for round_ in range(4):
        names = [f"victim{round_}", f"survivor{round_}"]
        victim, survivor = (start(url, name, "rows") for name in names)
        go(victim, 10_000_000)
        go(survivor, 300)
        assert victim.stdout is not None
        for _ in range(20 + 7 * round_):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        acknowledged = 20 + 7 * round_ + sum(line.endswith("\n") for line in victim.stdout)
        assert finished(survivor) == 300
        assert rows_of(store, names[1]) == 300
        assert acknowledged <= rows_of(store, names[0]) <= acknowledged + 1
        store.write([Write(Address(Table.META, b"s\x00", b"", b"k"), b"goes on")], deadline=soon())
    store.close()


@pytest.mark.parametrize("durability", ["sync", "none"])
def test_the_map_grows_under_two_processes_and_a_reader(tmp_path: Path, start: Start, durability: str) -> None:
    url = f"lmdb:{tmp_path}/db?durability={durability}&map_mib=1"
    store = open_store(url)
    writers = [start(url, name, "grow") for name in ("one", "two")]
    for writer in writers:
        go(writer, 60)
    while any(writer.poll() is None for writer in writers):
        rows_of(store, "one")  # meets maps that others have grown
    assert [finished(writer) for writer in writers] == [60, 60]
    assert [rows_of(store, "one"), rows_of(store, "two")] == [60, 60]
    assert (tmp_path / "db" / "data.mdb").stat().st_size > 11 * MEBIBYTE
    store.close()


def test_the_map_grows_while_threads_read_and_hold_snapshots(tmp_path: Path, at_once: AtOnce) -> None:
    store = lmdb_store(f"lmdb:{tmp_path}/db?durability=none&map_mib=1")
    full = threading.Event()
    place = Address(Table.META, b"s\x00", b"", b"fixed")
    store.write([Write(place, b"x" * 5000)], deadline=soon())

    def write(_: int) -> None:
        try:
            for number in range(150):
                row = Address(Table.GROUPS, b"s\x00", b"", b"%d" % number)
                store.write([Write(row, b"v" * 200_000)], deadline=soon())
        finally:
            full.set()

    def look(_: int) -> None:
        while not full.wait(0.001):
            assert store.read([place], deadline=soon()) == [b"x" * 5000]
            with store.snapshot() as view:
                assert view.read([place], deadline=soon()) == [b"x" * 5000]
                assert view.scan(Table.META, b"s\x00", KeyRange(), limit=5, deadline=soon()) == [
                    (b"fixed", b"x" * 5000)
                ]

    assert at_once(4, lambda number: look(number) if number else write(number)) == [None] * 4
    assert len(store.scan(Table.GROUPS, b"s\x00", KeyRange(), limit=1000, deadline=soon())) == 150
    store.close()


def test_a_snapshot_held_open_fails_the_growing_write_and_not_the_store(
    tmp_path: Path, elsewhere: Callable[[Callable[[], object]], object]
) -> None:
    store = lmdb_store(f"lmdb:{tmp_path}/db?durability=none&map_mib=1")
    big = [Write(Address(Table.META, b"s\x00", b"", b"big"), b"v" * 3_000_000)]
    with store.snapshot() as view:
        with pytest.raises(Unavailable, match="snapshot") as raised:
            elsewhere(lambda: store.write(big, deadline=time.monotonic() + 0.05))
        assert raised.value.applied is Applied.NO
        assert view.read([big[0].address], deadline=soon()) == [None]
    store.write(big, deadline=soon())
    store.close()


@pytest.mark.parametrize("durability", ["sync", "group"])
def test_waiting_writes_share_a_commit(tmp_path: Path, at_once: AtOnce, durability: str) -> None:
    store = lmdb_store(f"lmdb:{tmp_path}/db?durability={durability}&group_milliseconds=200&max_group=16")
    began = threading.Barrier(17)

    def write(number: int) -> None:
        began.wait(30)
        store.write([Write(Address(Table.META, b"s\x00", b"", b"%02d" % number), b"v")], deadline=soon())

    def hold_up(_: int) -> None:
        """A transaction from outside, during which the others queue."""
        with store.durable_connection.env.begin(write=True):
            began.wait(30)
            until = soon()
            while store.durable_commits.waiting < 15:
                assert time.monotonic() < until

    assert at_once(17, lambda number: hold_up(number) if number == 16 else write(number)) == [None] * 17
    assert len(store.scan(Table.META, b"s\x00", KeyRange(), limit=99, deadline=soon())) == 16
    assert store.batches == 16
    assert store.commits == 1
    store.close()


def test_a_conflict_in_a_group_is_its_own_batchs_alone(tmp_path: Path, at_once: AtOnce) -> None:
    store = lmdb_store(f"lmdb:{tmp_path}/db?durability=group&group_milliseconds=1000&max_group=8")
    place = Address(Table.META, b"s\x00", b"", b"one")

    def write(number: int) -> None:
        own = Address(Table.META, b"s\x00", b"", b"own%d" % number)
        store.write([Write(own, b"v"), Write(place, b"%d" % number, b"0")], deadline=soon())

    store.write([Write(place, b"0")], deadline=soon())
    results = at_once(8, write)
    winners = [number for number, result in enumerate(results) if result is None]
    assert all(result is None or isinstance(result, Conflict) for result in results)
    rows = store.scan(Table.META, b"s\x00", KeyRange(b"own"), limit=99, deadline=soon())
    assert [key for key, _ in rows] == [b"own%d" % number for number in winners]
    store.close()


def test_a_queued_write_keeps_its_deadline(tmp_path: Path, at_once: AtOnce) -> None:
    store = lmdb_store(f"lmdb:{tmp_path}/db?durability=sync")
    late = threading.Event()

    def write(number: int) -> None:
        place = Address(Table.META, b"s\x00", b"", b"%d" % number)
        if number:
            until = soon()
            while not store.durable_commits.leading:
                assert time.monotonic() < until
            try:
                store.write([Write(place, b"late")], deadline=time.monotonic() + 0.05)
            finally:
                late.set()
        else:
            store.write([Write(place, b"led")], deadline=soon())

    with store.durable_connection.env.begin(write=True):  # no leader gets on
        pool_results: list[object] = []
        runner = threading.Thread(target=lambda: pool_results.extend(at_once(2, write)))
        runner.start()
        assert late.wait(30)
    runner.join(30)
    assert pool_results[0] is None
    assert isinstance(pool_results[1], Unavailable)
    assert pool_results[1].applied is Applied.NO
    assert len(store.scan(Table.META, b"s\x00", KeyRange(), limit=9, deadline=soon())) == 1
    store.close()


@pytest.mark.parametrize("durability", ["sync", "none"])
def test_a_write_keeps_its_deadline_while_a_stopped_process_is_inside_a_commit(
    tmp_path: Path, start: Start, durability: str
) -> None:
    url = f"lmdb:{tmp_path}/db?durability={durability}"
    store = open_store(url)
    place = Address(Table.META, b"s\x00", b"", b"k")
    holder = start(url, says="holds", program=["-c", HOLDER])
    holder.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="another process was writing") as raised:
        store.write([Write(place, b"late")], deadline=began + 0.2)
    assert 0.2 <= time.monotonic() - began < 10
    assert raised.value.applied is Applied.NO
    assert store.read([place], deadline=soon()) == [None]
    holder.kill()
    store.write([Write(place, b"goes on")], deadline=soon())
    store.close()


def test_processes_that_sync_and_others_that_do_not_never_share_a_path(tmp_path: Path, start: Start) -> None:
    other = start(f"lmdb:{tmp_path}/db?durability=none", "other", "rows")
    with pytest.raises(Unavailable, match="open with durability=none, this one wants sync or group") as raised:
        open_store(f"lmdb:{tmp_path}/db")
    assert "\n" not in str(raised.value)
    go(other, 1)
    assert finished(other) == 1
    store = open_store(f"lmdb:{tmp_path}/db")
    start(f"lmdb:{tmp_path}/db?durability=group", "group", "rows").kill()
    with pytest.raises(Unavailable, match="open with durability=sync or group, this one wants none"):
        open_store(f"lmdb:{tmp_path}/db?durability=none")
    store.close()


def test_a_forked_child_is_told_to_open_its_own_store(tmp_path: Path) -> None:
    store = open_store(f"lmdb:{tmp_path}/db")
    pid = os.fork()
    if pid == 0:
        try:
            store.read([Address(Table.META, b"s\x00", b"", b"k")], deadline=soon())
        except Unsupported as error:
            store.close()
            os._exit(0 if "must open its own" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.write([Write(Address(Table.META, b"s\x00", b"", b"k"), b"v")], deadline=soon())
    store.close()


def test_rows_stay_and_volatile_rows_go_when_damaged_or_of_an_older_boot(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/db?durability=none"
    places = [Address(table, b"s\x00", b"", b"k") for table in (Table.META, Table.SESSIONS)]
    store = open_store(url)
    for place in places:
        store.write([Write(place, b"v")], deadline=soon())
    store.close()
    store = open_store(url)
    assert store.read(places, deadline=soon()) == [b"v", b"v"]
    store.close()
    (tmp_path / "db" / "volatile" / "boot_id").write_text("an earlier one")
    store = open_store(url)
    assert store.read(places, deadline=soon()) == [b"v", None]
    store.close()
    (tmp_path / "db" / "volatile" / "data.mdb").write_bytes(b"half a page" * 1000)
    store = open_store(url)
    assert store.read(places, deadline=soon()) == [b"v", None]
    store.close()


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("lmdb:", Unsupported, "no path"),
        ("lmdb:{path}/db?colour=red", Unsupported, "unknown option 'colour'; known options: durability"),
        ("lmdb:{path}/db?durability=maybe", Unsupported, "none of sync, group, none"),
        ("lmdb:{path}/db?map_mib=lots", Unsupported, "not a whole number from 1 to"),
        ("lmdb:{path}/db?map_mib=0", Unsupported, "not a whole number from 1 to"),
        ("lmdb:{path}/db?map_mib=1&map_mib=2", Unsupported, "given twice"),
        ("lmdb:{path}/file", Unavailable, "is a file"),
        ("lmdb:{path}/file/below", Unavailable, "below a file"),
        ("lmdb:/proc/nowhere/db", Unavailable, "cannot be opened"),
        ("lmdb:{path}/damaged", Corrupt, "damaged"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(tmp_path: Path, url: str, kind: type[StoreError], text: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(kind, match=text) as raised:
        open_store(url.format(path=tmp_path))
    assert "\n" not in str(raised.value)


def test_one_process_opens_a_path_once(tmp_path: Path) -> None:
    store = open_store(f"lmdb:{tmp_path}/db")
    with pytest.raises(Unavailable, match="already open"):
        open_store(f"lmdb:{tmp_path}/db")
    store.check()
    store.close()
    open_store(f"lmdb:{tmp_path}/db").close()
