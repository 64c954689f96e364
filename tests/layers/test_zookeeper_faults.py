"""ZookeeperStore while its ZooKeeper is killed, stopped and started again."""

import threading
import time
from collections.abc import Iterator

import pytest

from adapters.errors import Applied, Unavailable
from adapters.layers import zookeeper as layer
from adapters.layers.znodes import Znodes
from adapters.layers.zookeeper import ZookeeperStore
from controller.local import LocalCluster
from tests.layers.rows import KEY, Meanwhile, get, put, swap, weak


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.up("zookeeper", 1, tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def database() -> Meanwhile:
    return Meanwhile(weak())


@pytest.fixture
def store(cluster: LocalCluster, database: Meanwhile, request: pytest.FixtureRequest) -> Iterator[ZookeeperStore]:
    where = f"{cluster.store_urls()[0]}/{request.node.name}"
    opened = ZookeeperStore(database, Znodes(where))  # type: ignore[arg-type]
    opened.ensure_tables()
    put(opened, b"one")
    yield opened
    opened.close()


def test_killed_before_the_set_a_change_waits_for_its_return(cluster: LocalCluster, store: ZookeeperStore) -> None:
    cluster.kill(cluster.nodes[0])
    back = threading.Timer(0.5, cluster.start, cluster.nodes)
    back.start()
    swap(store, b"one", b"two")
    back.join(30)
    assert get(store, settle=True) == b"two"


def test_killed_before_the_set_and_gone_for_long_a_change_is_not_applied(
    cluster: LocalCluster, store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "CHECK_SECONDS", 0.2)
    cluster.kill(cluster.nodes[0])
    with pytest.raises(Unavailable):
        swap(store, b"one", b"two", 1.0)
    with pytest.raises(Unavailable):
        store.check()
    assert get(store) == b"one", "plain reads need no ZooKeeper"
    cluster.start(cluster.nodes[0])
    assert get(store, settle=True) in (b"one", b"two")
    store.check()


def test_killed_after_the_set_a_change_is_there(
    cluster: LocalCluster, store: ZookeeperStore, database: Meanwhile
) -> None:
    database.before_writes = [lambda: cluster.kill(cluster.nodes[0])]
    swap(store, b"one", b"two")
    cluster.start(cluster.nodes[0])
    assert get(store, settle=True) == b"two"
    swap(store, b"two", b"three")
    assert get(store, KEY) == b"three"


def test_a_stopped_zookeeper_answers_nothing_and_deadlines_are_kept(
    cluster: LocalCluster, store: ZookeeperStore
) -> None:
    begun = time.monotonic()
    with cluster.stop_cont(cluster.nodes[0]), pytest.raises(Unavailable) as raised:
        swap(store, b"one", b"two", 0.5)
    assert time.monotonic() - begun < 5
    assert raised.value.applied is Applied.UNKNOWN
    found = get(store, settle=True)
    assert found in (b"one", b"two")
    swap(store, found, b"three")
    assert get(store, settle=True) == b"three"
