"""Cassandra: three peers, every row on each of them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from controller.local import LocalCluster
from controller.recipe import Node
from tests.clusters.checks import assert_gone, assert_ready, kill_everything

pytestmark = pytest.mark.timeout(600)


@contextmanager
def session(node: Node) -> Iterator[Session]:
    """At QUORUM, entering at this node."""
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([node.host]),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=30,
    )
    driver = Cluster(
        [node.host],
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    )
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


def read(node: Node) -> list[str]:
    with session(node) as opened:
        return sorted(row.k for row in opened.execute("SELECT k FROM kept.rows WHERE s = 's'"))


def write(node: Node, key: str) -> None:
    with session(node) as opened:
        inserted = opened.execute("INSERT INTO kept.rows (s, k) VALUES ('s', %s) IF NOT EXISTS", [key])
        assert inserted.one().applied


def test_cassandra_outlives_a_killed_node_a_stop_and_kill_9_of_everything(tmp_path: Path) -> None:
    with LocalCluster.up("cassandra", 3, tmp_path) as cluster:
        first, second, third = cluster.nodes
        assert_ready(cluster)
        with session(first) as opened:
            replication = {"class": "NetworkTopologyStrategy", "datacenter1": 3}
            opened.execute(f"CREATE KEYSPACE kept WITH replication = {replication}")
            opened.execute("CREATE TABLE kept.rows (s text, k text, PRIMARY KEY (s, k))")
        write(first, "1")

        cluster.kill(third)
        write(second, "2")
        assert [bool(status.running) for status in cluster.status()] == [True, True, False]
        cluster.start(third)
        assert read(third) == ["1", "2"]

        kill_everything(cluster)
        with LocalCluster.up("cassandra", 3, tmp_path) as again:
            assert [read(node) for node in again.nodes] == [["1", "2"]] * 3
            write(third, "3")
            again.down()
    assert_gone(cluster)
