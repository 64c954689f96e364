"""ZooKeeper, alone and as an ensemble; and, as it is the quickest to boot, what holds for all clusters."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from controller.local import BootFailed, ClusterError, LocalCluster
from tests.clusters.checks import ROOT, assert_gone, assert_ready, kill_everything, pids

PATH = "/kept"


@contextmanager
def client(hosts: str) -> Iterator[KazooClient]:
    opened = KazooClient(hosts=hosts, timeout=5)
    opened.start(timeout=30)
    try:
        yield opened
    finally:
        opened.stop()
        opened.close()


@pytest.mark.parametrize("nodes", [1, 3])
def test_data_outlives_a_stop_and_kill_9_of_everything(tmp_path: Path, nodes: int) -> None:
    with LocalCluster.up("zookeeper", nodes, tmp_path) as cluster:
        assert_ready(cluster)
        with client(cluster.store_urls()[0]) as zookeeper:
            zookeeper.create(PATH, b"value")
        cluster.down()
        assert_gone(cluster)

        with LocalCluster.up("zookeeper", nodes, tmp_path) as again:
            kill_everything(again)
            with LocalCluster.up("zookeeper", nodes, tmp_path) as third, client(third.store_urls()[0]) as zookeeper:
                assert zookeeper.get(PATH)[0] == b"value"
    assert_gone(cluster)


def test_an_ensemble_serves_without_one_node_and_takes_it_back(tmp_path: Path) -> None:
    with LocalCluster.up("zookeeper", 3, tmp_path) as cluster, client(cluster.store_urls()[0]) as zookeeper:
        zookeeper.create(PATH, b"before")
        for node in cluster.nodes:
            cluster.kill(node)
            assert [status.running for status in cluster.status()].count(()) == 1
            zookeeper.retry(zookeeper.set, PATH, node.name.encode())
            cluster.start(node)
            with client(f"{node.host}:2181") as entered:
                entered.sync(PATH)
                assert entered.get(PATH)[0] == node.name.encode()
        assert_ready(cluster)


def test_a_stopped_node_answers_nothing_and_goes_on_when_it_is_continued(tmp_path: Path) -> None:
    with LocalCluster.up("zookeeper", 1, tmp_path) as cluster, client(cluster.store_urls()[0]) as zookeeper:
        zookeeper.create(PATH, b"value")
        before = pids(cluster)
        with cluster.stop_cont(cluster.nodes[0]):
            begun = time.monotonic()
            with pytest.raises(KazooTimeoutError):
                zookeeper.get_async(PATH).get(timeout=1)
            assert time.monotonic() - begun >= 1
            assert cluster.status()[0].trouble
        assert zookeeper.retry(zookeeper.get, PATH)[0] == b"value"
        assert pids(cluster) == before


def test_a_boot_that_fails_names_the_node_shows_its_log_and_leaves_nothing_running(tmp_path: Path) -> None:
    with LocalCluster.up("zookeeper", 3, tmp_path) as cluster:
        cluster.down()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((cluster.nodes[1].host, 2181))
            taken.listen()
            with pytest.raises(BootFailed) as failure:
                LocalCluster.up("zookeeper", 3, tmp_path)
        first, *rest = str(failure.value).splitlines()
        assert first.startswith(f"node2 ({cluster.nodes[1].host}): zookeeper: zookeeper ended")
        assert f"--- {cluster.nodes[1].log}/zookeeper.log" in rest
        assert any("Address already in use" in line for line in rest)
        assert_gone(cluster)


def test_a_directory_goes_on_with_the_cluster_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"{tmp_path} holds no cluster"):
        LocalCluster(tmp_path)
    with LocalCluster.up("zookeeper", 1, tmp_path) as cluster:
        with pytest.raises(ClusterError, match="holds zookeeper with 1 nodes, not zookeeper with 3"):
            LocalCluster.up("zookeeper", 3, tmp_path)
        before = pids(cluster)
        assert LocalCluster.up("zookeeper", 1, tmp_path).store_urls() == cluster.store_urls()
        assert pids(cluster) == before


def test_the_command_line_boots_shows_and_stops_a_cluster(tmp_path: Path) -> None:
    def pbdeploy(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploy", "local", *arguments, "--dir", str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    try:
        up = pbdeploy("up", "zookeeper", "--nodes", "1")
        cluster = LocalCluster(tmp_path)
        assert (up.returncode, up.stdout.split()) == (0, list(cluster.store_urls()))
        with client(up.stdout.strip()) as zookeeper:
            zookeeper.create(PATH, b"value")
        shown = pbdeploy("status")
        assert (shown.returncode, shown.stdout.split()[-5:]) == (
            0,
            ["node1", cluster.nodes[0].host, "zookeeper", "-", "yes"],
        )
        other = pbdeploy("up", "mysql")
        assert (other.returncode, other.stderr.splitlines()[-1]) == (
            1,
            f"pbdeploy: {tmp_path} holds zookeeper with 1 nodes, not mysql with 3",
        )
    finally:
        down = pbdeploy("down")
    assert down.returncode == 0
    assert_gone(cluster)
    assert pbdeploy("status").returncode == 1
