"""The hbase adapter on three nodes: the contract, the Datastore over it, and servers that go away."""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import psutil
import pytest

from adapters.build import open_store
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Durable, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported
from adapters.hbase import codec
from adapters.hbase.connection import ANSWER_SECONDS, Servers
from adapters.hbase.nodes import PURGE, parse_place
from adapters.pool import RETRY_SECONDS
from adapters.url import parse_url
from controller import booting, processes
from controller.engines import private
from controller.local import LocalCluster
from controller.processes import Leader
from controller.recipe import Node
from tests.clusters.checks import assert_conforms, fresh_cluster, load, soon, until
from tests.clusters.proofs import *  # noqa: F403
from tests.unit.test_datastore import *  # noqa: F403

SCOPE = b"scope\x00"
SPREAD = (Table.INDEXES, Table.KINDLESS)
EMPTIED_AT_ONCE = 3
FAMILY = codec.wire.TColumnFamilyDescriptor

Emptying = tuple[OrderedStore, Future[None]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with fresh_cluster("hbase", 3, tmp_path_factory.mktemp("hbase")) as running:
        yield running


@pytest.fixture(scope="module")
def url(cluster: LocalCluster) -> str:
    """The second node first: the masters' node has work enough."""
    return cluster.store_urls()[1]


@pytest.fixture
def entry_points(cluster: LocalCluster) -> list[str]:
    """A table of their own, which is empty sooner than one that is emptied."""
    table = f"proof{time.time_ns()}"
    return [f"{url}/{table}" for url in cluster.store_urls()]


@pytest.fixture(scope="module")
def emptying(url: str) -> Iterator[tuple[ThreadPoolExecutor, deque[Emptying]]]:
    """Stores of a table each. HBase takes seconds to empty one, so others are emptied while a test uses its own."""

    def prepare(store: OrderedStore) -> None:
        store.ensure_tables()
        store.drop_tables()

    stores = [open_store(f"{url}/test{number}") for number in range(EMPTIED_AT_ONCE)]
    with ThreadPoolExecutor(EMPTIED_AT_ONCE) as pool:
        yield pool, deque((store, pool.submit(prepare, store)) for store in stores)
    for store in stores:
        store.close()


@pytest.fixture
def store(emptying: tuple[ThreadPoolExecutor, deque[Emptying]]) -> Iterator[OrderedStore]:
    """The one that the tests of the Datastore run on as well."""
    pool, stores = emptying
    empty, emptied = stores.popleft()
    emptied.result(90)
    yield empty
    stores.append((empty, pool.submit(empty.drop_tables)))


@pytest.fixture
def quiet_store(store: OrderedStore, emptying: tuple[ThreadPoolExecutor, deque[Emptying]]) -> OrderedStore:
    """For tests of what goes away: nothing else is under way."""
    for _, emptied in emptying[1]:
        emptied.result(90)
    return store


def version(_: LocalCluster) -> str:
    """What the matrix says was tested (conftest.py)."""
    return "HBase " + private.locate("hbase").name.partition("-")[2]


def at(key: bytes, table: Table = Table.GROUPS, scope: bytes = SCOPE) -> Address:
    return Address(table, scope, key, key)


def leader(node: Node, service: str) -> Leader:
    (record,) = [each for each in booting.records(node) if service in each.name]
    found = Leader.read(record)
    assert found is not None
    return found


@contextmanager
def frozen_thrift(*nodes: Node) -> Iterator[None]:
    with ExitStack() as thawed:
        for node in nodes:
            thrift = leader(node, "thrift")
            thawed.callback(processes.thaw, thrift)
            processes.freeze(thrift)
        yield


@pytest.mark.timeout(600)
def test_it_keeps_the_contract(url: str) -> None:
    """Without layers, for time's sake; the tests of the Datastore go through them."""
    assert_conforms(f"{url}/contract", only="not layers")


def test_it_says_what_the_table_promises(url: str, store: OrderedStore) -> None:
    del store
    opened = open_store(f"{url}/test0")
    claims = opened.capabilities
    assert claims.durable is Durable.REPLICATED, "its regions are on several servers"
    assert claims.version_horizon_seconds == 86_400
    opened.close()


def test_scans_go_on_page_by_page_whatever_the_rows_hold(store: OrderedStore) -> None:
    """Short rows, long ones, deleted ones, in a table of short rows and in another."""
    random = Random(3)
    for table in (Table.INDEXES, Table.GROUPS):
        values = {b"%04d" % n: b"v" * random.choice([1, 1, 1, 500, 60_000]) for n in range(600)}
        version = 1 if table is Table.INDEXES else None
        store.write([Write(at(key, table), value, ANY, version) for key, value in values.items()], deadline=soon())
        for n in range(0, 600, 7):
            del values[b"%04d" % n]
        deleted = version and version + 1
        store.write([Write(at(b"%04d" % n, table), None, ANY, deleted) for n in range(0, 600, 7)], deadline=soon())
        store.write(
            [Write(at(b"", table, SCOPE + b"\x00"), b"w"), Write(at(b"\xff", table, b"a\x00"), b"w")], deadline=soon()
        )
        for _ in range(25):
            first, stop = sorted(random.sample(range(601), 2))
            limit = random.choice([1, 20, 64, 65, 200, 1000])
            keys = KeyRange(b"%04d" % first if first else b"", None if stop == 600 else b"%04d" % stop)
            wanted = [(key, value) for key, value in values.items() if first <= int(key) < stop]
            assert store.scan(table, SCOPE, keys, limit=limit, deadline=soon()) == wanted[:limit]
            found = store.scan(table, SCOPE, keys, limit=limit, reverse=True, deadline=soon())
            assert found == wanted[::-1][:limit]


def test_a_scan_backwards_keeps_to_its_bounds(store: OrderedStore) -> None:
    there = [b"", b"\x00", b"a", b"a\x00", b"a\x00\xff", b"a\xff", b"a" + b"\xff" * 9, b"b", b"b\x00", b"\xff\xff"]
    store.write([Write(at(key), b"v") for key in there], deadline=soon())
    store.write([Write(at(b"", scope=b"scope\x01"), b"v"), Write(at(b"\xff", scope=b"scope"), b"v")], deadline=soon())
    for start in [*there, b"a\x00\x00", b"c"]:
        for stop in [*there, None, b"b\x00\x00"]:
            found = store.scan(Table.GROUPS, SCOPE, KeyRange(start, stop), limit=99, reverse=True, deadline=soon())
            assert [key for key, _ in found] == sorted(
                (key for key in there if start <= key and (stop is None or key < stop)), reverse=True
            )


@pytest.mark.parametrize("table", SPREAD)
def test_an_index_row_deleted_without_a_version_may_be_written_with_one_again(
    store: OrderedStore, table: Table
) -> None:
    """Deletes of composite indexes name no version; the clock must not become one."""
    row = at(b"k", table)
    for version in (5, 6):
        store.write([Write(row, b"v", ANY, version)], deadline=soon())
        assert store.read([row], deadline=soon()) == [b"v"]
        store.write([], rows=[Rows(table, SCOPE, b"k", {b"k": None, b"never": None})], deadline=soon())
        store.write([Write(row, b"late", ANY, version)], deadline=soon())
        assert store.read([row], deadline=soon()) == [None]
        assert store.scan(table, SCOPE, KeyRange(), limit=9, deadline=soon()) == []


def test_rows_without_versions_hide_those_with_and_both_go_together(store: OrderedStore) -> None:
    for table in (*SPREAD, Table.SESSIONS, Table.META):
        row = at(b"k", table)
        store.write([Write(row, b"versioned", ANY, 5)], deadline=soon())
        store.write([Write(row, b"plain")], deadline=soon())
        assert store.read([row], deadline=soon()) == [b"plain"]
        assert store.scan(table, SCOPE, KeyRange(), limit=9, deadline=soon()) == [(b"k", b"plain")]
        store.write([Write(row, None, b"plain")], deadline=soon())
        assert store.read([row], deadline=soon()) == [None]
        store.write([Write(row, b"again", ABSENT)], deadline=soon())
        store.write([Write(row, None)], deadline=soon())
        assert store.read([row], deadline=soon()) == [None]


def test_low_versions_are_written_after_everything_was_dropped(store: OrderedStore) -> None:
    for _ in range(2):
        store.write([Write(at(b"k", Table.INDEXES), b"v", ANY, 1), Write(at(b"h"), b"v")], deadline=soon())
        store.write([Write(at(b"k", Table.INDEXES), None, ANY, 9)], deadline=soon())
        store.drop_tables()
        assert store.read([at(b"k", Table.INDEXES), at(b"h")], deadline=soon()) == [None, None]
    store.write([Write(at(b"k", Table.INDEXES), b"v", ANY, 1)], deadline=soon())
    assert store.read([at(b"k", Table.INDEXES)], deadline=soon()) == [b"v"]


def make_table(url: str, name: bytes, families: list[Any]) -> Servers:
    servers = Servers(parse_place(parse_url(url)))
    table = codec.wire.TTableDescriptor(
        tableName=codec.wire.TTableName(ns=b"default", qualifier=name), columns=families
    )
    servers.ask("createTable", table, None, deadline=soon(), seconds=30)
    return servers


def test_a_late_write_loses_to_a_delete_that_was_compacted(url: str) -> None:
    """A family that does not say how long deletes are kept stands beside ours, and gets the same: there the late write
    comes back as soon as HBase has compacted.
    """
    where = f"{url}/compacted"
    families = [FAMILY(name=b"f", configuration={PURGE: "86400000"}), FAMILY(name=b"m"), FAMILY(name=b"c")]
    servers = make_table(where, b"compacted", families)
    store: Any = bare(where)
    now = time.time_ns() // 1_000_000

    def write(key: bytes, value: bytes | None, version: int) -> None:
        store.write([Write(at(key), value, ANY, version)], deadline=soon())
        plan = codec.planned([Write(at(key), value, ANY, version)], [])
        for cell in [*(put.columnValues[0] for put in plan.puts), *(delete.columns[0] for delete in plan.deletes)]:
            cell.family = b"c"
        for method, requests in (("putMultiple", plan.puts), ("deleteMultiple", plan.deletes)):
            servers.ask(method, b"compacted", requests, deadline=soon(), wrote=True)

    def comes_back() -> bool:
        write(b"k", b"late", now - 1500)
        get = codec.wire.TGet(row=codec.row_key(at(b"k")), columns=[codec.wire.TColumn(family=b"c")])
        (found,) = servers.ask("getMultiple", b"compacted", [get], deadline=soon())
        return bool(found.columnValues)

    write(b"k", b"v", now - 2000)
    write(b"k", None, now - 1000)
    assert not comes_back()
    name = parse_place(parse_url(where)).table_name
    for number in range(4):  # files, of which HBase makes one when it opens the table again
        write(b"another", b"%d" % number, now + number)
        for method in ("disableTable", "enableTable"):
            servers.ask(method, name, deadline=soon(), seconds=30)
    until(comes_back)
    time.sleep(1)
    assert store.read([at(b"k")], deadline=soon()) == [None]
    servers.close()
    store.close()


def test_what_is_written_right_after_its_delete_is_there(store: OrderedStore) -> None:
    """HBase hides a put that comes in the millisecond of a delete."""
    row = at(b"k")
    for _ in range(150):
        store.write([Write(row, b"1", ABSENT)], deadline=soon())
        store.write([Write(row, None, b"1")], deadline=soon())
        store.write([Write(row, b"2")], deadline=soon())
        store.write([Write(row, None)], deadline=soon())
        store.write([Write(row, b"3", ABSENT)], deadline=soon())
        assert store.read([row], deadline=soon()) == [b"3"]
        store.write([Write(row, None, b"3")], deadline=soon())


def test_a_conditional_write_that_the_thrift_server_repeats_succeeds(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is applied and its answer lost, so the second meets what the first has written."""
    where = f"{url}/repeated"
    made: Any = bare(where)
    made.ensure_tables()
    servers = Servers(parse_place(parse_url(where)))
    condition = codec.row_key(at(b"k")), codec.CELLS, codec.UNVERSIONED, None
    mark = codec.new_mark()
    put = codec.unversioned(at(b"k"), b"mine", mark)
    assert servers.ask("checkAndPut", b"repeated", *condition, put, deadline=soon(), wrote=True)
    with pytest.raises(Conflict):
        made.write([Write(at(b"k"), b"mine", ABSENT)], deadline=soon())
    made.write([Write(at(b"k"), b"theirs", b"mine")], deadline=soon())
    monkeypatch.setattr(codec, "new_mark", lambda: mark)
    made.write([Write(at(b"k"), b"mine", ABSENT)], deadline=soon())
    assert made.read([at(b"k")], deadline=soon()) == [b"theirs"], "it was applied, and nothing is applied twice"
    servers.close()
    made.close()


def test_calls_and_values_of_any_size_that_is_claimed(store: OrderedStore) -> None:
    largest = b"v" * (store.capabilities.max_value_bytes or 0)
    store.write(
        [Write(at(b"largest"), largest), *(Write(at(b"%d" % n), b"v" * 1_000_000) for n in range(9))], deadline=soon()
    )
    assert store.read([at(b"largest"), at(b"8")], deadline=soon()) == [largest, b"v" * 1_000_000]
    index: dict[bytes, bytes | None] = {b"%08d" % number + b"k" * 1500: b"v" for number in range(6000)}
    store.write([], rows=[Rows(Table.INDEXES, SCOPE, b"place", index, 1)], deadline=soon())
    found = store.scan(Table.INDEXES, SCOPE, KeyRange(), limit=10_000, deadline=soon())
    assert dict(found) == index


@pytest.mark.timeout(300)
def test_acknowledged_writes_outlive_a_killed_node_and_service_goes_on(
    cluster: LocalCluster, quiet_store: OrderedStore
) -> None:
    """The node that is asked first. Its regions come to others when ZooKeeper misses it, after 10 seconds."""
    with load(quiet_store) as writing:
        cluster.kill(cluster.nodes[1])
        writing.grow()
        cluster.start(cluster.nodes[1])
        writing.grow()
    assert len(writing.unknown) <= 40, "what was under way on the killed node, and given up since"
    writing.assert_kept()


@pytest.mark.timeout(300)
def test_regions_that_move_under_load_are_found_again(cluster: LocalCluster, quiet_store: OrderedStore) -> None:
    """A region server that ends in order hands its regions over."""
    with load(quiet_store) as writing:
        server = psutil.Process(leader(cluster.nodes[2], "regionserver").pid)
        server.terminate()
        writing.grow()
        psutil.wait_procs([server], timeout=60)
        cluster.start(cluster.nodes[2])
        writing.grow()
    assert len(writing.unknown) <= 20
    writing.assert_kept()


@pytest.mark.timeout(180)
def test_a_frozen_thrift_server_is_given_up_and_asked_again_when_it_answers(
    cluster: LocalCluster, quiet_store: OrderedStore
) -> None:
    first, second, third = cluster.nodes
    quiet_store.write([Write(at(b"k"), b"v", ABSENT)], deadline=soon())
    with frozen_thrift(second):
        begun = time.monotonic()
        with pytest.raises(Unavailable, match=f"{second.host}:9091") as raised:
            quiet_store.write([Write(at(b"k"), b"w", b"v")], deadline=soon())
        assert raised.value.applied is Applied.UNKNOWN
        assert time.monotonic() - begun < ANSWER_SECONDS + 3
        for _ in range(20):
            begun = time.monotonic()
            assert quiet_store.read([at(b"k")], deadline=soon()) == [b"v"]
            assert time.monotonic() - begun < 5
    until(lambda: quiet_store.read([at(b"k")], deadline=soon(), settle=True) == [b"w"])
    time.sleep(RETRY_SECONDS)
    quiet_store.read([at(b"k")], deadline=soon())
    with frozen_thrift(first, third):
        begun = time.monotonic()
        assert quiet_store.read([at(b"k")], deadline=soon()) == [b"w"]
        assert time.monotonic() - begun < 5, "the second is asked again"


@pytest.mark.timeout(180)
def test_calls_end_in_time_while_a_node_is_frozen_and_go_on_afterwards(
    cluster: LocalCluster, quiet_store: OrderedStore
) -> None:
    """Shorter than ZooKeeper waits for it. What is written needs the frozen DataNode as well."""
    quiet_store.write([Write(at(b"k"), b"v")], deadline=soon())
    with cluster.stop_cont(cluster.nodes[2]):
        for call in (
            lambda: quiet_store.write([Write(at(b"k"), b"v")], deadline=time.monotonic() + 2),
            lambda: quiet_store.read([at(b"k")], deadline=time.monotonic() + 2),
        ):
            begun = time.monotonic()
            with suppress(Unavailable):
                call()
            assert time.monotonic() - begun < 4
    quiet_store.write([Write(at(b"k"), b"w")], deadline=soon())
    assert quiet_store.read([at(b"k")], deadline=soon()) == [b"w"]
    until(lambda: not any(status.trouble for status in cluster.status()))


def test_errors_name_the_server_and_the_cause(cluster: LocalCluster, url: str) -> None:
    host = cluster.nodes[0].host
    make_table(url, b"others", [FAMILY(name=b"f")]).close()
    make_table(url, b"brief", [FAMILY(name=b"f", configuration={PURGE: "60000"}), FAMILY(name=b"m")]).close()
    wrong: list[tuple[str, type[StoreError], str]] = [
        ("hbase:127.0.0.1:1", Unavailable, "127.0.0.1:1/pbserver: .*refused"),
        ("hbase:127.0.0.1:1,127.0.0.1:2", Unavailable, "127.0.0.1:1/.*; .*127.0.0.1:2/"),
        (f"hbase:{host}:16020", Unavailable, f"{host}:16020/pbserver: "),
        (f"hbase:{host}?transport=framed", Unavailable, f"{host}:9091/pbserver: "),
        (f"{url}/others", Unsupported, "/others: the table has no column family m"),
        (f"{url}/brief", Unsupported, f"/brief: the column family f has {PURGE} = 60000; alter it to 3600000"),
        (f"hbase:{host}/nowhere:table", Unavailable, "nowhere:table.*nowhere"),
        (f"hbase:{host}:99999", Unsupported, "not HOST or HOST:PORT"),
        (f"hbase:{host}/a/b", Unsupported, "'a/b' is no table"),
        (f"hbase:{host},{host}", Unsupported, "given twice"),
        (f"hbase:{host}?transport=http", Unsupported, "none of buffered, framed"),
        (f"hbase:{host}?user=me", Unsupported, "unknown option 'user'"),
        ("hbase:", Unsupported, "HOST"),
    ]
    for given, kind, text in wrong:
        with pytest.raises(kind, match=text) as raised:
            bare(given).ensure_tables()
        assert "\n" not in str(raised.value)
    missing: Any = bare(f"{url}/never")
    with pytest.raises(Unavailable, match="/never: the table is missing"):
        missing.read([at(b"k")], deadline=soon())
    missing.close()
