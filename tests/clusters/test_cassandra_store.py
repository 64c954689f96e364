"""The cassandra adapter on three nodes: the contract, the Datastore over it, and nodes that go away."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from adapters.build import open_store
from adapters.cassandra import store as store_module
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Durable, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, StoreError, TooLarge, Unavailable, Unsupported
from controller.databases import cassandra as recipe
from controller.local import LocalCluster
from controller.recipe import Node, NotReady
from tests.clusters.checks import assert_conforms, fresh_cluster, load, soon, together, until
from tests.clusters.proofs import *  # noqa: F403
from tests.unit.test_datastore import *  # noqa: F403

SCOPE = b"scope\x00"
SPREAD = (Table.INDEXES, Table.KINDLESS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with fresh_cluster("cassandra", 3, tmp_path_factory.mktemp("cassandra")) as running:
        yield running


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    return cluster.store_urls()[0]


@pytest.fixture(scope="module")
def opened(cluster: LocalCluster) -> Iterator[OrderedStore]:
    store = open_store(cluster.store_urls()[0])
    store.ensure_tables()
    yield store
    store.close()


@pytest.fixture
def store(opened: OrderedStore) -> OrderedStore:
    """The one that the tests of the Datastore run on as well."""
    opened.drop_tables()
    opened.ensure_tables()
    return opened


def version(cluster: LocalCluster) -> str:
    """What the matrix says was tested (conftest.py)."""
    with Cluster([cluster.nodes[0].host], protocol_version=5) as driver:
        return "Cassandra " + str(driver.connect().execute("SELECT release_version FROM system.local").one()[0])


def at(key: bytes, table: Table = Table.GROUPS, scope: bytes = SCOPE) -> Address:
    return Address(table, scope, key, key)


def numbers_of(store: OrderedStore, table: Table, *, limit: int = 10_000, reverse: bool = False) -> list[int]:
    rows = store.scan(table, SCOPE, KeyRange(), limit=limit, reverse=reverse, deadline=soon())
    return [int(key) for key, _ in rows]


@pytest.mark.timeout(300)
def test_it_keeps_the_contract(url: str) -> None:
    """Without layers, for time's sake; the tests of the Datastore go through them."""
    assert_conforms(url, only="not layers")


def test_it_says_what_the_nodes_promise(store: OrderedStore) -> None:
    claims = store.capabilities
    assert claims.durable is Durable.SYNCED
    assert 8_000_000 < (claims.max_value_bytes or 0) < 1 << 23, "half of half a commit log segment of 32 MiB"


@pytest.mark.parametrize("table", SPREAD)
def test_scans_merge_the_buckets_whatever_they_hold(store: OrderedStore, table: Table) -> None:
    """Rows that all lie in one bucket, rows spread evenly, and rows without versions, which are in another."""
    random = Random(3)
    for number in range(0, 1500, 100):
        one_place = Rows(table, SCOPE, b"place", {b"%04d" % n: b"v" for n in range(number, number + 50)}, 1)
        others = [Write(at(b"%04d" % n, table), b"v", ANY, 1) for n in range(number + 50, number + 100)]
        store.write(others, rows=[one_place], deadline=soon())
    store.write([Write(at(b"%04d" % n, table), b"w") for n in range(0, 1500, 7)], deadline=soon())
    everything = [(b"%04d" % n, b"v" if n % 7 else b"w") for n in range(1500)]
    for _ in range(40):
        first, stop = sorted(random.sample(range(1501), 2))
        limit = random.choice([1, 20, 50, 51, 300, 1000, 2000])
        keys = KeyRange(b"%04d" % first, None if stop == 1500 else b"%04d" % stop)
        wanted = everything[first:stop]
        assert store.scan(table, SCOPE, keys, limit=limit, deadline=soon()) == wanted[:limit]
        found = store.scan(table, SCOPE, keys, limit=limit, reverse=True, deadline=soon())
        assert found == wanted[::-1][:limit]


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


@pytest.mark.parametrize("table", [*SPREAD, Table.SESSIONS, Table.META])
def test_rows_without_versions_hide_those_with_and_both_go_together(store: OrderedStore, table: Table) -> None:
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
    for _ in range(3):
        store.write([Write(at(b"k", Table.INDEXES), b"v", ANY, 1), Write(at(b"h"), b"v", ABSENT)], deadline=soon())
        store.drop_tables()
        assert store.read([at(b"k", Table.INDEXES), at(b"h")], deadline=soon()) == [None, None]


def test_a_batch_beyond_what_nodes_take_is_refused_or_cut(store: OrderedStore) -> None:
    """Rows with conditions are one batch, so nothing of it is written; index rows may come in parts."""
    large = b"v" * 1_000_000
    rows = [Write(at(b"%d" % number), large) for number in range(17)]
    with pytest.raises(TooLarge, match="commitlog_segment_size") as raised:
        store.write([Write(at(b"head"), b"1", ABSENT), *rows], deadline=soon())
    assert raised.value.applied is Applied.NO
    assert store.read([at(b"head")], deadline=soon()) == [None]
    index = {b"%08d" % number + b"k" * 1500: b"v" for number in range(6000)}
    store.write([], rows=[Rows(Table.INDEXES, SCOPE, b"place", index, 1)], deadline=soon())
    found = store.scan(Table.INDEXES, SCOPE, KeyRange(), limit=10_000, deadline=soon())
    assert dict(found) == index


@pytest.mark.timeout(300)
def test_acknowledged_writes_outlive_a_killed_node_and_service_goes_on(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    with load(store) as writing:
        cluster.kill(cluster.nodes[0])
        writing.grow()
        cluster.start(cluster.nodes[0])
        writing.grow()
    assert len(writing.unknown) <= 20, "what was under way on the killed node"
    writing.assert_kept()


@pytest.mark.timeout(300)
def test_what_became_of_conditional_writes_cut_off_in_the_middle_is_found_out(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    """Two of three nodes are frozen while a counter is counted up. What settle reads then holds: the write that broke
    off is there for all, or it never appears once another one has taken its place.
    """
    random = Random(11)
    value = 0
    store.write([Write(at(b"n"), b"0", ABSENT)], deadline=soon())
    for _ in range(3):
        with ExitStack() as frozen, ThreadPoolExecutor(1) as pool:
            freezing = pool.submit(freeze_two, cluster, frozen, random.uniform(0, 0.1))
            with pytest.raises(Unavailable) as raised:
                while True:
                    store.write([Write(at(b"n"), b"%d" % (value + 1), b"%d" % value)], deadline=soon())
                    value += 1
            freezing.result(60)
        assert raised.value.applied is Applied.UNKNOWN
        until(lambda: not any(status.trouble for status in cluster.status()))
        (found,) = store.read([at(b"n")], deadline=soon(), settle=True)
        assert found in (b"%d" % value, b"%d" % (value + 1))
        value = int(found)
        for _ in range(5):
            assert store.read([at(b"n")], deadline=soon()) == [b"%d" % value]
            store.write([Write(at(b"n"), b"%d" % (value + 1), b"%d" % value)], deadline=soon())
            value += 1


def freeze_two(cluster: LocalCluster, frozen: ExitStack, after: float) -> None:
    time.sleep(after)
    for node in cluster.nodes[1:]:
        frozen.enter_context(cluster.stop_cont(node))


def test_a_write_in_time_or_not_at_all_while_most_nodes_are_frozen(cluster: LocalCluster, store: OrderedStore) -> None:
    with ExitStack() as frozen:
        freeze_two(cluster, frozen, 0)
        for call in (
            lambda: store.write([Write(at(b"k"), b"v", ABSENT)], deadline=time.monotonic() + 2),
            lambda: store.read([at(b"k")], deadline=time.monotonic() + 2),
        ):
            begun = time.monotonic()
            with pytest.raises(Unavailable):
                call()
            assert time.monotonic() - begun < 4
    until(lambda: not any(status.trouble for status in cluster.status()))


@pytest.mark.timeout(180)
def test_dropping_waits_for_a_node_that_was_left_alone(cluster: LocalCluster, store: OrderedStore) -> None:
    store.write([Write(at(b"k"), b"v", ABSENT)], deadline=soon())
    with ThreadPoolExecutor(1) as pool:
        with cluster.stop_cont(cluster.nodes[2]):
            until(lambda: bool(cluster.status()[2].trouble))
            time.sleep(7)  # by then the driver gives it up
            dropping = pool.submit(store.drop_tables)
            time.sleep(1)
        dropping.result(120)
    assert store.read([at(b"k")], deadline=soon()) == [None]


@pytest.mark.timeout(300)
def test_stores_that_are_opened_on_a_fresh_keyspace_at_once_all_serve(cluster: LocalCluster) -> None:
    """All find the tables missing; nodes learn of them late, and the conditional writes of all meet on one row."""
    keyspace = f"together{time.time_ns()}"
    urls = [f"{url}/{keyspace}" for url in cluster.store_urls()] * 4

    def serve(number: int) -> None:
        with closing(open_store(urls[number])) as opened:
            opened.ensure_tables()
            opened.write([Write(at(b"%d" % number), b"v", ABSENT)], deadline=soon())

    assert together(*(partial(serve, number) for number in range(len(urls)))) == [None] * len(urls)
    with closing(open_store(urls[0])) as opened:
        rows = opened.scan(Table.GROUPS, SCOPE, KeyRange(), limit=99, deadline=soon())
    assert {int(key) for key, _ in rows} == {*range(len(urls))}


def test_tables_that_not_all_nodes_come_to_know_are_an_error_that_says_so(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "OPEN_SECONDS", 1)
    url = f"{cluster.store_urls()[0]}/apart"
    with closing(bare(url)) as opened:
        with ExitStack() as frozen:
            freeze_two(cluster, frozen, 0)
            # On a busy machine a look at what there is may be what runs out of time first, or the nodes are taken for
            # down before they are asked whether they agree, and are missed by the next read.
            told = f"{url.removeprefix('cassandra:')}.*(agree|timed out|alive_replicas)"
            with pytest.raises(Unavailable, match=told) as raised:
                opened.ensure_tables()
        assert raised.value.applied is Applied.NO
        until(lambda: not any(status.trouble for status in cluster.status()))
        monkeypatch.undo()
        opened.ensure_tables()


@pytest.mark.usefixtures("store")  # whose rows are spread over four buckets
def test_errors_name_the_node_and_the_cause_and_no_password(cluster: LocalCluster, url: str) -> None:
    host = cluster.nodes[0].host
    wrong: list[tuple[str, type[StoreError], str]] = [
        ("cassandra:127.0.0.1:1?user=u&password=sesame", Unavailable, "127.0.0.1:1: .*refused"),
        ("cassandra:127.0.0.1:1,127.0.0.1:2", Unavailable, "127.0.0.1:.*; 127.0.0.1:.*"),
        (f"cassandra:{host}?datacenter=nowhere", Unsupported, "no node is in the data centre 'nowhere'"),
        (f"cassandra:{host}/other?replication=4", Unsupported, "4 replicas in .* datacenter1, which has 3 nodes"),
        (f"{url}?buckets=8", Unsupported, "spread over 4 buckets, not over 8; give buckets=4"),
        (f"cassandra:{host}?password=sesame", Unsupported, "no user"),
        (f"cassandra:{host}?user=u&password=sesame&password_file=/nowhere", Unsupported, "both password and"),
        (f"cassandra:{host}?user=u&password_file=/nowhere", Unsupported, "password_file /nowhere: No such file"),
        (f"cassandra:{host}:99999", Unsupported, "not HOST or HOST:PORT"),
        (f"cassandra:{host}/No-Keyspace", Unsupported, "is no keyspace"),
        (f"cassandra:{host},{host}", Unsupported, "given twice"),
        (f"cassandra:{host}?consistency=one", Unsupported, "none of quorum, local_quorum"),
        ("cassandra:", Unsupported, "HOST"),
    ]
    for given, kind, text in wrong:
        with pytest.raises(kind, match=text) as raised, closing(bare(given)) as opened:
            opened.ensure_tables()
        assert "sesame" not in str(raised.value)
        assert "\n" not in str(raised.value)


def admin(node: Node) -> Cluster:
    """As the user that a cluster with passwords begins with."""
    login = PlainTextAuthProvider("cassandra", "cassandra")
    return Cluster([node.host], protocol_version=5, auth_provider=login)


@pytest.mark.timeout(180)
def test_a_node_that_another_forgets_while_it_joins_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is silent for 2 s, the other forgets it and does not listen to it for 4 s, in which it may be done: then
    a keyspace that is created through the other gets a replica too few.
    """

    def silent() -> None:
        pair = LocalCluster(tmp_path)
        others, own = (recipe.log_files(node)[0] for node in pair.nodes)
        until(lambda: own.exists() and "ms for pending range setup" in own.read_text())
        with pair.stop_cont(pair.nodes[1]):
            until(lambda: f"{pair.nodes[1].host}:7000 has been silent" in others.read_text())

    monkeypatch.setattr(recipe, "ready", lambda node, cluster: None)  # it asks two copies of two nodes, and so waits
    with ThreadPoolExecutor(2) as pool:
        booted = pool.submit(LocalCluster.up, "cassandra", 2, tmp_path)
        until((tmp_path / "cluster.json").exists)
        frozen = pool.submit(silent)
        with booted.result(150) as pair:
            frozen.result(0)
            for node in pair.nodes:
                with Cluster([node.host], protocol_version=5) as driver:
                    driver.connect()
                    assert len(driver.metadata.all_hosts()) == 2


@pytest.mark.timeout(180)
def test_a_wrong_password_and_missing_permissions_are_said_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"
    written = recipe.files

    def files(node: Node, cluster: recipe.Cluster) -> dict[Path, str]:
        return {
            path: text + settings * (path.name == "cassandra.yaml") for path, text in written(node, cluster).items()
        }

    def answers(node: Node, _: object) -> None:
        try:
            with admin(node) as driver:
                driver.connect()
        except NoHostAvailable as error:
            raise NotReady(str(error)) from error

    for name, changed in {"files": files, "answers": answers, "ready": answers}.items():
        monkeypatch.setattr(recipe, name, changed)
    with LocalCluster.up("cassandra", 1, tmp_path) as single:
        host = single.nodes[0].host
        with admin(single.nodes[0]) as driver:
            session = driver.connect()
            session.execute("CREATE ROLE app WITH LOGIN = true AND PASSWORD = 'sec:ret&'")
        with pytest.raises(Unavailable, match=f"{host}:9042.*password") as raised:
            bare(f"cassandra:{host}?user=app&password=sesame")
        assert "sesame" not in str(raised.value)
        url = f"cassandra:{host}?user=app&password=sec:ret%26"
        for missing, grant in (
            ("no SELECT permission on <table system_views.settings>", "SELECT ON system_views.settings"),
            ("no CREATE permission on <all keyspaces>", "CREATE ON ALL KEYSPACES"),
        ):
            with pytest.raises(Unavailable, match=f"permissions .*{missing}") as denied, closing(bare(url)) as opened:
                opened.ensure_tables()
            assert "sec:ret" not in str(denied.value)
            assert denied.value.applied is Applied.NO
            with admin(single.nodes[0]) as driver:
                driver.connect().execute(f"GRANT {grant} TO app")
            time.sleep(2.5)  # nodes remember permissions for 2 s
        store: Any = bare(url)  # who creates tables may write them
        store.ensure_tables()
        assert store.capabilities.durable is Durable.SYNCED
        store.write([Write(at(b"k"), b"v", ABSENT)], deadline=soon())
        assert store.read([at(b"k")], deadline=soon()) == [b"v"]
        store.close()
