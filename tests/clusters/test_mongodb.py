"""FerretDB on SQLite: one server that speaks MongoDB's protocol."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from controller.local import ClusterError, LocalCluster
from tests.clusters.checks import assert_gone, assert_ready


@contextmanager
def kept(cluster: LocalCluster) -> Iterator[Collection[dict[str, Any]]]:
    url = cluster.store_urls()[0].replace("mongodb:", "mongodb://").partition("?")[0]
    with MongoClient[dict[str, Any]](url, directConnection=True) as client:
        yield client.get_default_database()["kept"]


def test_mongodb_outlives_a_kill_and_a_stop(tmp_path: Path) -> None:
    with LocalCluster.up("mongodb", 1, tmp_path) as cluster:
        (node,) = cluster.nodes
        assert_ready(cluster)
        with kept(cluster) as rows:
            rows.insert_one({"_id": "1"})
        cluster.kill(node)
        assert_gone(cluster)
        cluster.start(node)
        with kept(cluster) as rows:
            rows.insert_one({"_id": "2"})
        cluster.down()
        assert_gone(cluster)
        with LocalCluster.up("mongodb", 1, tmp_path) as again, kept(again) as rows:
            assert [row["_id"] for row in rows.find().sort("_id")] == ["1", "2"]
    assert_gone(cluster)


def test_several_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="mongodb runs on 1 node here, not on 3"):
        LocalCluster.up("mongodb", 3, tmp_path)
