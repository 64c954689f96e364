"""The mongodb adapter on FerretDB: the contract, the Datastore over it, and a server that goes away.

FerretDB 1 is no MongoDB: it changes a document in two steps, and clients come between them. What MongoDB promises of a
document it keeps where one write is let through at a time, as our build of it does (controller/engines/ferretdb).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, ReplaceOne
from pymongo.collection import Collection

from adapters.build import open_store
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Durable, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported
from controller.databases import mongodb as recipe
from controller.engines import private
from controller.local import LocalCluster
from tests.clusters.checks import assert_conforms, fresh_cluster, load, soon, together, until
from tests.clusters.proofs import (  # noqa: F401 - the tests, but for those that need a second node or larger documents
    DIFFERENTIAL_CALLS,
    DIFFERENTIAL_SEED,
    test_a_large_commit_of_two_groups_is_kept_or_a_bad_request,
    test_a_server_stopped_in_the_middle_of_a_commit_brings_back_nothing_old,
    test_transactions_through_several_servers_are_strictly_serializable,
    test_what_servers_acknowledged_outlives_kill_9_of_the_whole_database,
)
from tests.differential.players import OurServer, Referee
from tests.differential.playing import play
from tests.differential.programs import FEATURES
from tests.unit.test_datastore import *  # noqa: F403

PROGRAM_CALLS = 50
ROUNDS = 30
SCOPE = b"scope\x00"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with fresh_cluster("mongodb", 1, tmp_path_factory.mktemp("mongodb")) as running:
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


@pytest.fixture
def acknowledgements() -> int:
    """Fewer than elsewhere: a call takes the longer, the more rows there are."""
    return 10


def version(cluster: LocalCluster) -> str:
    """What the matrix says was tested (conftest.py)."""
    engine = private.place("ferretdb", private.default_directory())
    return f"FerretDB {engine.name.removeprefix('ferretdb-')} on SQLite, one writer (not MongoDB itself)"


@pytest.mark.timeout(600)
def test_it_keeps_the_contract(url: str) -> None:
    """Without layers, for time's sake; the tests of the Datastore go through them."""
    assert_conforms(url, only="not layers")


@pytest.mark.timeout(900)
def test_every_answer_is_googles(url: str, store: OrderedStore, tmp_path: Path) -> None:
    """By short programs on few entities, since FerretDB looks at all of them for each query; elsewhere there are fewer
    programs, and of more entities each.
    """
    with OurServer(tmp_path, url) as ours:
        play(
            (ours, Referee()),
            DIFFERENTIAL_CALLS,
            seed=DIFFERENTIAL_SEED,
            features=FEATURES - {"bulk"},
            program_calls=PROGRAM_CALLS,
        )


def at(key: bytes, table: Table = Table.GROUPS, scope: bytes = SCOPE) -> Address:
    return Address(table, scope, key, key)


@contextmanager
def raw(host: str, port: int = recipe.PORT) -> "Iterator[Collection[dict[str, Any]]]":
    """An empty collection, by the driver alone."""
    with MongoClient[dict[str, Any]](host, port, directConnection=True, retryWrites=False) as client:
        rows = client["raw"]["rows"]
        rows.drop()
        yield rows


def test_it_says_what_the_server_promises(store: OrderedStore) -> None:
    claims = store.capabilities
    assert claims.durable is Durable.SYNCED
    assert 8_000_000 < (claims.max_value_bytes or 0) < 1 << 23, "half of a document"


def several_winners(rows: "Collection[dict[str, Any]]") -> int:
    """In how many rounds more than one of two threads that change the same value find that they have."""
    found = 0
    for number in range(ROUNDS):
        row = {"_id": str(number), "v": "old"}
        rows.insert_one(row)
        wins: list[int] = []

        def change(writer: int, row: dict[str, Any] = row, wins: list[int] = wins) -> None:
            wins.extend([writer] * rows.update_one(row, {"$set": {"v": f"new {writer}"}}).matched_count)

        assert together(*(lambda writer=writer: change(writer) for writer in range(4))) == [None] * 4
        found += len(wins) > 1
    return found


def test_of_several_clients_that_change_one_value_one_wins(cluster: LocalCluster) -> None:
    with raw(cluster.nodes[0].host) as rows:
        assert several_winners(rows) == 0


def test_a_ferretdb_is_refused_unless_the_operator_says_that_it_takes_one_write_at_a_time(
    cluster: LocalCluster,
) -> None:
    host = cluster.nodes[0].host
    with pytest.raises(Unsupported, match=f"{host}:27017/pbserver.*FerretDB 1.*one_writer=yes"):
        bare(f"mongodb:{host}")


def test_no_newer_row_ends_a_bulk_write(cluster: LocalCluster, store: OrderedStore) -> None:
    """FerretDB ends a whole command, unordered or not, at a duplicate key, which a filter on versions would lead to."""
    with raw(cluster.nodes[0].host) as rows:
        rows.insert_one({"_id": "b", "v": 9})
        older = [ReplaceOne({"_id": each, "v": {"$lt": 5}}, {"_id": each, "v": 5}, upsert=True) for each in "abc"]
        with pytest.raises(KeyError, match="nModified"):
            rows.bulk_write(older, ordered=False)
        assert rows.find_one({"_id": "c"}) is None
    keys = [b"%d" % number for number in range(10)]
    store.write([Write(at(key, Table.INDEXES), b"newer", ANY, 9) for key in keys[::2]], deadline=soon())
    older_rows: dict[bytes, bytes | None] = dict.fromkeys(keys, b"older")
    store.write([], rows=[Rows(Table.INDEXES, SCOPE, b"p", older_rows, 5)], deadline=soon())
    found = store.scan(Table.INDEXES, SCOPE, KeyRange(), limit=99, deadline=soon())
    assert found == [(key, b"older" if number % 2 else b"newer") for number, key in enumerate(keys)]


def test_rows_without_versions_hide_those_with_and_both_go_together(store: OrderedStore) -> None:
    row = at(b"k", Table.INDEXES)
    store.write([Write(row, b"versioned", ANY, 5)], deadline=soon())
    store.write([Write(row, b"plain")], deadline=soon())
    store.write([Write(row, b"late", ANY, 6)], deadline=soon())
    assert store.read([row], deadline=soon()) == [b"plain"]
    store.write([Write(row, None, b"plain")], deadline=soon())
    assert store.read([row], deadline=soon()) == [None]


def test_a_row_whose_delete_is_remembered_is_absent(store: OrderedStore) -> None:
    row = at(b"k")
    store.write([Write(row, None, ANY, 5)], deadline=soon())
    with pytest.raises(Conflict) as raised:
        store.write([Write(row, b"v", b"old")], deadline=soon())
    assert raised.value.current is None
    store.write([Write(row, None, ABSENT)], deadline=soon())
    store.write([Write(row, b"v", ABSENT)], deadline=soon())
    assert store.read([row], deadline=soon()) == [b"v"]


def test_tombstones_are_swept_when_no_late_write_can_come(store: OrderedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted, kept = [at(b"%d" % number, Table.INDEXES) for number in range(5)], at(b"kept", Table.INDEXES)
    other = at(b"0", Table.INDEXES, b"other\x00")
    store.write([Write(each, None, ANY, 5) for each in (*deleted, other)], deadline=soon())
    store.write([Write(kept, b"v", ANY, 5)], deadline=soon())
    sweeping: Any = store
    assert sweeping.sweep(Table.INDEXES, SCOPE, deadline=soon()) == 0
    now, horizon = time.time(), store.capabilities.version_horizon_seconds
    assert horizon is not None
    monkeypatch.setattr(time, "time", lambda: now + horizon + 60)
    assert sweeping.sweep(Table.INDEXES, SCOPE, deadline=soon()) == 5
    assert store.scan(Table.INDEXES, SCOPE, KeyRange(), limit=9, deadline=soon()) == [(b"kept", b"v")]
    store.write([Write(each, b"late", ANY, 4) for each in (deleted[0], other)], deadline=soon())
    assert store.read([deleted[0], other], deadline=soon()) == [b"late", None]


def test_low_versions_are_written_after_everything_was_dropped(store: OrderedStore) -> None:
    for _ in range(3):
        store.write([Write(at(b"k", Table.INDEXES), b"v", ANY, 1)], deadline=soon())
        store.write([Write(at(b"h"), b"v", ABSENT)], deadline=soon())
        store.drop_tables()
        assert store.read([at(b"k", Table.INDEXES), at(b"h")], deadline=soon()) == [None, None]


def test_the_largest_row_is_expected_and_replaced(store: OrderedStore) -> None:
    claims = store.capabilities
    assert claims.max_value_bytes is not None
    assert claims.max_key_bytes is not None
    row = at(b"\xff" * (claims.max_key_bytes - len(SCOPE)))
    first, second = (byte * claims.max_value_bytes for byte in (b"1", b"2"))
    store.write([Write(row, first, ABSENT)], deadline=soon())
    store.write([Write(row, second, first)], deadline=soon())
    assert store.scan(Table.GROUPS, SCOPE, KeyRange(), limit=2, deadline=soon()) == [(row.key, second)]


def test_a_read_of_more_rows_than_one_query_takes(store: OrderedStore) -> None:
    there: dict[bytes, bytes | None] = {b"%04d" % number: b"v" for number in range(0, 1100, 50)}
    store.write([Write(at(b"session", Table.SESSIONS), b"volatile")], deadline=soon())
    store.write([], rows=[Rows(Table.INDEXES, SCOPE, b"p", there, 1)], deadline=soon())
    wanted = [at(b"%04d" % number, Table.INDEXES) for number in range(1100)]
    found = store.read([*wanted, at(b"session", Table.SESSIONS)], deadline=soon())
    assert found == [*(there.get(each.key) for each in wanted), b"volatile"]


@pytest.mark.timeout(300)
def test_acknowledged_writes_outlive_a_killed_server_and_service_goes_on_when_it_is_back(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    with load(store) as writing:
        for _ in range(3):
            cluster.kill(cluster.nodes[0])
            cluster.start(cluster.nodes[0])
            writing.grow()
    assert len(writing.unknown) <= 4 * 3, "each writer was in the middle of at most one write at each kill"
    writing.assert_kept()


def test_calls_to_a_frozen_server_end_at_their_deadline_and_say_what_they_did(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    """A write that was sent may be there later; what is tried when the deadline has passed is not."""
    store.write([Write(at(b"k"), b"old")], deadline=soon())
    calls = {
        lambda deadline: store.write([Write(at(b"k"), b"new", b"old")], deadline=deadline): Applied.UNKNOWN,
        lambda deadline: store.write([Write(at(b"l"), b"new", ANY, 1)], deadline=deadline): Applied.UNKNOWN,
        lambda deadline: store.read([at(b"k")], deadline=deadline): Applied.NO,
        lambda deadline: store.scan(Table.GROUPS, SCOPE, KeyRange(), limit=9, deadline=deadline): Applied.NO,
    }
    with cluster.stop_cont(cluster.nodes[0]):
        for call, applied in calls.items():
            begun = time.monotonic()
            with pytest.raises(Unavailable) as raised:
                call(begun + 2)
            assert time.monotonic() - begun < 4
            assert raised.value.applied is applied
        with pytest.raises(Unavailable, match="nothing was asked") as late:
            store.write([Write(at(b"never"), b"v")], deadline=time.monotonic())
        assert late.value.applied is Applied.NO
    until(lambda: not any(status.trouble for status in cluster.status()))
    assert store.read([at(b"k"), at(b"never")], deadline=soon())[1] is None
    store.write([Write(at(b"m"), b"v", ABSENT)], deadline=soon())


def test_what_became_of_a_conditional_write_that_was_cut_off_is_found_by_reading(
    cluster: LocalCluster, store: OrderedStore
) -> None:
    value = 0
    store.write([Write(at(b"n"), b"0", ABSENT)], deadline=soon())
    for number in range(3):
        stop = threading.Timer(0.05 * (number + 1), cluster.kill, [cluster.nodes[0]])
        stop.start()
        with pytest.raises(Unavailable) as raised:
            while True:
                store.write([Write(at(b"n"), b"%d" % (value + 1), b"%d" % value)], deadline=time.monotonic() + 5)
                value += 1
        stop.join()
        cluster.start(cluster.nodes[0])
        (found,) = store.read([at(b"n")], deadline=soon(), settle=True)
        assert found in {b"%d" % value} | ({b"%d" % (value + 1)} if raised.value.applied is Applied.UNKNOWN else set())
        value = int(found or b"")


def test_errors_name_the_server_and_the_cause_and_no_password(cluster: LocalCluster, url: str) -> None:
    host = cluster.nodes[0].host
    alone = f"mongodb:{host}?one_writer=yes"
    wrong: list[tuple[str, type[StoreError], str]] = [
        ("mongodb:127.0.0.1:1?user=u&password=sesame", Unavailable, "127.0.0.1:1/pbserver: .*refused$"),
        ("mongodb:127.0.0.1:1,127.0.0.1:2", Unavailable, "(127.0.0.1:[12]: [^,]*refused,?){2}$"),
        (f"{alone}&user=u&password=sesame", Unavailable, f"{host}:27017/pbserver: the user, its password or"),
        (f"{alone}&tls=on", Unavailable, "SSL handshake"),
        (f"{alone}&tls=verify&tls_ca=/nowhere", Unsupported, "tls_ca /nowhere: No such file"),
        (f"{alone}&tls_ca=/nowhere", Unsupported, "tls_ca needs tls=verify, found tls=off"),
        (f"{alone}&replica_set=rs", Unavailable, 'replica set name "rs"'),
        (f"{alone}&password=sesame", Unsupported, "no user"),
        (f"{alone}&user=u&password=sesame&password_file=/nowhere", Unsupported, "both password and"),
        (f"{alone}&user=u&password_file=/nowhere", Unsupported, "password_file /nowhere: No such file"),
        (f"mongodb:{host}?one_writer=maybe", Unsupported, "none of no, yes"),
        (f"mongodb:{host}:99999", Unsupported, "not HOST or HOST:PORT"),
        (f"mongodb:{host}/no.database", Unsupported, "is no database"),
        (f"mongodb:{host},{host}", Unsupported, "given twice"),
        (f"{alone}&readers=9", Unsupported, "unknown option 'readers'"),
        ("mongodb:", Unsupported, "HOST"),
    ]
    for given, kind, text in wrong:
        with pytest.raises(kind, match=text) as raised:
            bare(given)
        assert raised.value.applied is Applied.NO
        assert "sesame" not in str(raised.value)
        assert "\n" not in str(raised.value)
