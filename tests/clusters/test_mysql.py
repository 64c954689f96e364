"""MariaDB with Galera: three nodes that all take writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import Cursor

from controller.local import LocalCluster
from controller.recipe import Node
from tests.clusters.checks import assert_gone, assert_ready, kill_everything

pytestmark = pytest.mark.timeout(600)


@contextmanager
def cursor(node: Node) -> Iterator[Cursor]:
    connection = pymysql.connect(host=node.host, user="pbserver", database="pbserver", autocommit=True)
    with connection, connection.cursor() as opened:
        opened.execute("SET SESSION wsrep_sync_wait = 1")
        yield opened


def write(node: Node, value: str) -> None:
    with cursor(node) as opened:
        opened.execute("CREATE TABLE IF NOT EXISTS kept (v VARBINARY(20) PRIMARY KEY)")
        opened.execute("INSERT INTO kept VALUES (%s)", [value])


def read(node: Node) -> list[bytes]:
    with cursor(node) as opened:
        opened.execute("SELECT v FROM kept ORDER BY v")
        return [row[0] for row in opened.fetchall()]


def test_galera_outlives_a_killed_node_a_stop_and_kill_9_of_everything(tmp_path: Path) -> None:
    with LocalCluster.up("mysql", 3, tmp_path) as cluster:
        first, second, third = cluster.nodes
        assert_ready(cluster)
        write(first, "1")

        cluster.kill(first)
        write(second, "2")
        assert [bool(status.running) for status in cluster.status()] == [False, True, True]
        cluster.start(first)
        assert read(first) == [b"1", b"2"]

        cluster.down()
        assert_gone(cluster)
        with LocalCluster.up("mysql", 3, tmp_path) as again:
            assert [read(node) for node in again.nodes] == [[b"1", b"2"]] * 3

            again.kill(first)
            again.kill(second)
            assert again.status()[2].trouble
            with LocalCluster.up("mysql", 3, tmp_path) as whole:
                assert [read(node) for node in whole.nodes] == [[b"1", b"2"]] * 3
                whole.kill(first)
                write(third, "3")
                kill_everything(whole)
            with LocalCluster.up("mysql", 3, tmp_path) as recovered:
                assert [read(node) for node in recovered.nodes] == [[b"1", b"2", b"3"]] * 3
                assert_ready(recovered)
    assert_gone(cluster)
