"""HBase on HDFS: masters on the first node, region servers and Thrift2 servers on all three."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import thriftpy2
from thriftpy2.rpc import client_context

from controller.engines import private
from controller.local import LocalCluster
from controller.recipe import Node
from tests.clusters.checks import assert_gone, assert_ready, kill_everything

pytestmark = pytest.mark.timeout(600)

TABLE, FAMILY = b"kept", b"f"


def definitions() -> Any:
    return thriftpy2.load(str(private.locate("hbase") / "hbase.thrift"), module_name="test_hbase_thrift")


@contextmanager
def client(node: Node) -> Iterator[Any]:
    """Patient: a call waits while regions move away from a dead server."""
    service = definitions().THBaseService
    with client_context(service, node.host, 9091, connect_timeout=5_000, socket_timeout=90_000) as opened:
        yield opened


def write(node: Node, key: bytes) -> None:
    hbase = definitions()
    value = hbase.TColumnValue(family=FAMILY, qualifier=b"v", value=b"value")
    with client(node) as opened:
        opened.put(TABLE, hbase.TPut(row=key, columnValues=[value]))


def read(node: Node) -> list[bytes]:
    with client(node) as opened:
        return [result.row for result in opened.getScannerResults(TABLE, definitions().TScan(), 10)]


def test_hbase_outlives_a_killed_node_and_kill_9_of_everything(tmp_path: Path) -> None:
    with LocalCluster.up("hbase", 3, tmp_path) as cluster:
        first, second, third = cluster.nodes
        assert_ready(cluster)
        hbase = definitions()
        with client(first) as opened:
            column = hbase.TColumnFamilyDescriptor(name=FAMILY)
            table = hbase.TTableDescriptor(tableName=hbase.TTableName(ns=b"default", qualifier=TABLE), columns=[column])
            opened.createTable(table, [b"4", b"7"])
        for key in (b"1", b"5", b"8"):
            write(second, key)

        cluster.kill(third)
        assert [bool(status.running) for status in cluster.status()] == [True, True, False]
        for key in (b"2", b"6", b"9"):
            write(first, key)
        cluster.start(third)
        everything = [b"1", b"2", b"5", b"6", b"8", b"9"]
        assert read(third) == everything

        kill_everything(cluster)
        with LocalCluster.up("hbase", 3, tmp_path) as again:
            assert [read(node) for node in again.nodes] == [everything] * 3
            again.down()
    assert_gone(cluster)
