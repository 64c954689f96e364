"""The mysql adapter on three nodes of MariaDB Galera: the contract, the Datastore over it, and nodes that go away."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pymysql
import pytest

from adapters.build import open_store
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, Address, Check, Durable, Expectation, OrderedStore, Table, Write
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported
from adapters.mysql.codec import GUARDS
from adapters.mysql.connection import ANSWER_SECONDS, LOCK_WAIT_SECONDS
from controller.local import LocalCluster
from controller.recipe import Node
from tests.clusters.checks import assert_conforms, fresh_cluster, load, soon, together, until
from tests.clusters.proofs import *  # noqa: F403
from tests.unit.test_datastore import *  # noqa: F403

ROUNDS = 60
SCOPE = b"scope\x00"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with fresh_cluster("mysql", 3, tmp_path_factory.mktemp("mysql")) as running:
        yield running


def version(cluster: LocalCluster) -> str:
    """What is really running, for the support matrix."""
    ((server,),) = ask_root(cluster.nodes[0], "SELECT VERSION()")
    ((_, galera),) = ask_root(cluster.nodes[0], "SHOW STATUS LIKE 'wsrep_provider_version'")
    return f"MariaDB {server.partition('-')[0]}, Galera {galera.partition('(')[0]}"


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    return cluster.store_urls()[0]


@pytest.fixture
def store(url: str) -> Iterator[OrderedStore]:
    """The one that the tests of the Datastore run on as well."""
    opened = open_store(url)
    opened.ensure_tables()
    opened.drop_tables()
    yield opened
    opened.close()


@pytest.fixture
def alone(cluster: LocalCluster, store: OrderedStore) -> Iterator[list[Any]]:
    """A bare store for each node, which asks only that one."""
    with ExitStack() as stack:
        stores = [bare(f"mysql:{node.host}/pbserver") for node in cluster.nodes]
        for each in stores:
            stack.callback(each.close)
        yield stores


def at(key: bytes, table: Table = Table.GROUPS, scope: bytes = SCOPE) -> Address:
    return Address(table, scope, b"", key)


def ask_root(node: Node, *statements: str) -> Any:
    """The rows of the last statement, asked by the server's administrator."""
    root = pymysql.connect(unix_socket=str(node.data / "mariadbd.sock"), user="root", autocommit=True)
    with root, root.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def assert_one_of_two_wins(first: Any, second: Any, a: Address, b: Address, expected: Expectation) -> None:
    """Each checks the row that the other changes."""
    results = together(
        lambda: first.write([Check(a, expected), Write(b, b"new", expected)], deadline=soon()),
        lambda: second.write([Check(b, expected), Write(a, b"new", expected)], deadline=soon()),
    )
    assert sorted(map(type, results), key=str) == sorted([type(None), Conflict], key=str)


@pytest.mark.timeout(600)
def test_it_keeps_the_contract(url: str) -> None:
    assert_conforms(url)


@pytest.mark.timeout(600)
def test_a_server_without_galera_keeps_it_too(tmp_path: Path) -> None:
    with LocalCluster.up("mysql", 1, tmp_path) as single:
        (url,) = single.store_urls()
        assert_conforms(url)
        store: Any = bare(url)
        assert store.capabilities.max_batch_bytes is None, "Galera limits it"
        assert store.capabilities.durable is Durable.SYNCED, "nobody else has what is lost"
        for table, number in product([Table.META, Table.GROUPS], range(ROUNDS)):
            assert_one_of_two_wins(store, store, at(b"a%d" % number, table), at(b"b%d" % number, table), ABSENT)
        store.close()


def test_it_says_what_the_servers_promise(store: OrderedStore) -> None:
    claims = store.capabilities
    assert claims.durable is Durable.REPLICATED
    assert claims.snapshot
    assert 8_000_000 < (claims.max_value_bytes or 0) < 1 << 23, "half of a packet"


@pytest.mark.parametrize("table", [Table.META, Table.GROUPS])
@pytest.mark.parametrize("there", [b"old", None])
def test_what_two_nodes_check_of_each_other_never_changes_on_both(
    cluster: LocalCluster, alone: list[Any], table: Table, there: bytes | None
) -> None:
    """Write skew: Galera does not certify what a transaction only reads. And no half of a transaction stays behind."""
    expected: Expectation = there or ABSENT
    for number in range(ROUNDS):
        a, b = at(b"a%d" % number, table), at(b"b%d" % number, table)
        if there is not None:
            alone[2].write([Write(a, there), Write(b, there)], deadline=soon())
        assert_one_of_two_wins(alone[0], alone[1], a, b, expected)
        assert sorted(alone[2].read([a, b], deadline=soon()), key=str) == sorted([there, b"new"], key=str)
    assert ask_root(cluster.nodes[2], "SELECT guard, id FROM pbserver.pbserver_guard_uses") == ()


def test_checks_of_one_row_on_three_nodes_leave_each_other_alone(cluster: LocalCluster, alone: list[Any]) -> None:
    def undone() -> int:
        """Transactions that nodes rolled back in favour of other nodes'."""
        query = "SHOW STATUS WHERE Variable_name IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')"
        return sum(int(value) for node in cluster.nodes for _, value in ask_root(node, query))

    def work(number: int) -> None:
        for step in range(50):
            own = at(b"%d" % step, scope=b"group %d\x00" % number)
            alone[number % 3].write(
                [Check(at(b"indexes", Table.META), ABSENT), Write(own, b"v", ABSENT)], deadline=soon()
            )

    before = undone()
    assert together(*(lambda number=number: work(number) for number in range(6))) == [None] * 6
    assert undone() == before


def test_writers_of_one_row_on_three_nodes_lose_nothing(alone: list[Any]) -> None:
    alone[0].write([Write(at(b"n"), b"0", ABSENT)], deadline=soon())

    def increment(store: Any) -> None:
        left = 20
        while left:
            (current,) = store.read([at(b"n")], deadline=soon())
            try:
                store.write([Write(at(b"n"), b"%d" % (int(current) + 1), current)], deadline=soon())
                left -= 1
            except Conflict as conflict:
                assert conflict.current != current

    assert together(*(lambda store=store: increment(store) for store in alone)) == [None] * 3
    assert [store.read([at(b"n")], deadline=soon()) for store in alone] == [[b"60"]] * 3


def test_a_read_on_any_node_sees_what_was_acknowledged_by_another(alone: list[Any]) -> None:
    for number in range(300):
        value = b"%d" % number
        alone[number % 3].write([Write(at(b"k"), value)], deadline=soon())
        assert alone[(number + 1) % 3].read([at(b"k")], deadline=soon()) == [value]
        with alone[(number + 2) % 3].snapshot() as view:
            assert view.read([at(b"k")], deadline=soon()) == [value]


@pytest.mark.timeout(300)
def test_acknowledged_writes_outlive_a_killed_node_and_service_goes_on(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    with load(store) as writing:
        for node in cluster.nodes:
            cluster.kill(node)
            writing.grow()
            cluster.start(node)
            writing.grow()
    assert len(writing.unknown) <= 4 * 3, "each writer was in the middle of at most one write on each killed node"
    writing.assert_kept()


@pytest.mark.timeout(300)
def test_a_frozen_node_is_given_up_and_then_left_alone(cluster: LocalCluster, store: OrderedStore) -> None:
    rows = [at(b"k", scope=b"%d\x00" % number) for number in range(60)]
    store.write([Write(row, b"v") for row in rows], deadline=soon())
    assert [store.read([row], deadline=soon()) for row in rows] == [[b"v"]] * 60  # now there are sessions everywhere
    with cluster.stop_cont(cluster.nodes[1]):
        begun = time.monotonic()
        for row in rows:
            assert store.read([row], deadline=soon()) == [b"v"]
            store.write([Write(row, b"w", b"v")], deadline=soon())
        assert time.monotonic() - begun < ANSWER_SECONDS + 20, (
            "one wait for an answer, then one to connect now and then"
        )
    assert [store.read([row], deadline=soon()) for row in rows] == [[b"w"]] * 60
    until(lambda: all(not status.trouble for status in cluster.status()))


def test_a_row_that_another_holds_is_waited_for_until_the_deadline_and_nothing_is_written(
    cluster: LocalCluster, alone: list[Any]
) -> None:
    alone[0].write([Write(at(b"k"), b"old")], deadline=soon())
    holder = pymysql.connect(host=cluster.nodes[0].host, user="pbserver", database="pbserver")
    with holder, holder.cursor() as cursor:
        cursor.execute("SELECT v FROM pbserver_rows FOR UPDATE")
        begun = time.monotonic()
        with pytest.raises(Unavailable) as raised:
            alone[0].write([Write(at(b"k"), b"new", b"old")], deadline=begun + 1)
        assert raised.value.applied is Applied.NO
        assert time.monotonic() - begun < 2
        cursor.execute("ROLLBACK")
    alone[0].write([Write(at(b"k"), b"next", b"old")], deadline=soon())


def test_a_row_held_longer_than_the_server_lets_one_wait_is_written_in_the_end(
    cluster: LocalCluster, alone: list[Any]
) -> None:
    alone[0].write([Write(at(b"k"), b"old")], deadline=soon())
    holder = pymysql.connect(host=cluster.nodes[0].host, user="pbserver", database="pbserver")
    with holder, holder.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("SELECT v FROM pbserver_rows FOR UPDATE")
        written = pool.submit(alone[0].write, [Write(at(b"k"), b"new", b"old")], deadline=soon())
        with pytest.raises(TimeoutError):
            written.result(LOCK_WAIT_SECONDS + 1)
        cursor.execute("ROLLBACK")
        written.result(10)
    assert alone[1].read([at(b"k")], deadline=soon()) == [b"new"]


def test_a_delete_waits_for_no_row_but_its_own_in_a_small_table_too(cluster: LocalCluster, alone: list[Any]) -> None:
    """A server that reads the whole table, because it is small, locks all that it reads."""
    alone[0].write([Write(at(b"%02d" % number), b"v") for number in range(60)], deadline=soon())
    holder = pymysql.connect(host=cluster.nodes[0].host, user="pbserver", database="pbserver")
    with holder, holder.cursor() as cursor:
        cursor.execute("SELECT v FROM pbserver_rows WHERE tbl = 103 AND k = %s FOR UPDATE", [SCOPE + b"59"])
        gone = [at(b"%02d" % number) for number in range(22)]
        alone[0].write([Write(address, None) for address in gone], deadline=time.monotonic() + LOCK_WAIT_SECONDS / 2)
    assert alone[0].read(gone, deadline=soon()) == [None] * 22


def test_a_node_that_takes_no_writes_is_named_and_others_take_its_groups(
    cluster: LocalCluster, store: OrderedStore, alone: list[Any]
) -> None:
    node = cluster.nodes[0]
    ask_root(node, "SET GLOBAL read_only = 1")
    try:
        with pytest.raises(Unavailable, match=f"{node.host}.*read-only") as raised:
            alone[0].write([Write(at(b"k"), b"v", ABSENT), Write(at(b"l"), b"v")], deadline=soon())
        assert raised.value.applied is Applied.NO
        for number in range(20):
            store.write([Write(at(b"k", scope=b"%d\x00" % number), b"v", ABSENT)], deadline=soon())
    finally:
        ask_root(node, "SET GLOBAL read_only = 0")


def test_guards_that_a_crash_kept_from_being_made_are_made_later(
    cluster: LocalCluster, url: str, store: OrderedStore
) -> None:
    ask_root(cluster.nodes[0], "DELETE FROM pbserver.pbserver_guards WHERE guard >= 100")
    opened = bare(url)
    opened.ensure_tables()
    opened.close()
    assert ask_root(cluster.nodes[0], "SELECT COUNT(*) FROM pbserver.pbserver_guards") == ((GUARDS,),)


def test_errors_name_the_node_and_the_cause_and_no_password(cluster: LocalCluster, url: str) -> None:
    host = cluster.nodes[0].host
    ask_root(
        cluster.nodes[0],
        "CREATE USER IF NOT EXISTS reader@'127.%' IDENTIFIED BY 'sec:ret&'",
        "GRANT SELECT ON pbserver.* TO reader@'127.%'",
    )
    reader = f"mysql:{host}/pbserver?user=reader&password=sec:ret%26"
    wrong: list[tuple[str, type[StoreError], str]] = [
        (f"mysql:{host}/pbserver?user=reader&password=sesame", Unavailable, f"{host}:3306.*1045.*Access denied"),
        (f"mysql:{host}/nowhere", Unavailable, f"{host}:3306/nowhere.*1044"),
        ("mysql:127.0.0.1:1/pbserver?password=sesame", Unavailable, "127.0.0.1:1/pbserver.*2003.*refused"),
        ("mysql:127.0.0.1:1,127.0.0.1:2/pbserver", Unavailable, "127.0.0.1:1/pbserver.*; mysql 127.0.0.1:2/pbserver"),
        (f"{reader}&tls=verify", Unavailable, f"{host}:3306.*2026|{host}:3306.*SSL"),
        (f"{reader}&engine=ndbcluster", Unsupported, "engine InnoDB"),
        (f"{reader}&password_file=/nowhere", Unsupported, "both password and password_file"),
        (f"mysql:{host}/pbserver?password_file=/nowhere", Unsupported, "password_file /nowhere: No such file"),
        (f"mysql:{host}:99999/pbserver", Unsupported, "not HOST or HOST:PORT"),
        (f"mysql:{host}", Unsupported, "HOST"),
        (f"mysql:{host},{host}/pbserver", Unsupported, "given twice"),
    ]
    for given, kind, text in wrong:
        with pytest.raises(kind, match=text) as raised:
            bare(given).ensure_tables()
        assert "sesame" not in str(raised.value)
        assert "sec:ret" not in str(raised.value)
    opened = bare(reader)
    opened.ensure_tables()
    with pytest.raises(Unavailable, match=r"1142.*command denied") as denied:
        opened.write([Write(at(b"k"), b"v")], deadline=soon())
    assert denied.value.applied is Applied.NO
    opened.close()
