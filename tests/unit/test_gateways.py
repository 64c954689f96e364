"""The PBServers of a cluster, as data: which nodes have one, and what each of them opens."""

import sys
import tomllib
from pathlib import Path

import pytest

from controller import databases
from controller.agent.parts import Parts
from controller.gateways import Gateways, refusal
from controller.recipe import Cluster, Node, NotReady
from tests.unit.test_layout import made

NODES = tuple(Node(number, f"127.7.7.{number}", Path(f"/c/node{number}")) for number in (1, 2, 3))
CASSANDRA = Gateways(databases.recipe("cassandra"))


def seen(nodes: int) -> Cluster:
    return Cluster(NODES[:nodes], {"java": Path("/e"), "cassandra": Path("/e")}, NODES[0])


@pytest.mark.parametrize("nodes", [1, 3])
def test_every_entry_point_has_one_that_enters_there(nodes: int) -> None:
    cluster = seen(nodes)
    (stage,) = CASSANDRA.stages(cluster)
    assert stage.nodes == cluster.nodes
    for node in stage.nodes:
        (service,) = CASSANDRA.services(node, cluster)
        options = dict(zip(service.command[4::2], service.command[5::2], strict=True))
        assert service.command[:4] == (sys.executable, "-m", "pbserver", "serve")
        assert options["--listen"] == f"{node.host}:10001"
        assert options["--admin"] == f"{node.host}:10002"
        assert options["--store"].startswith(f"cassandra:{node.host}:9042")


def test_a_node_that_is_no_entry_point_has_none() -> None:
    mongodb = Gateways(databases.recipe("mongodb"))
    cluster = seen(3)
    (stage,) = mongodb.stages(cluster)
    assert stage.nodes == NODES[:1]
    assert [len(mongodb.services(node, cluster)) for node in NODES] == [1, 0, 0]
    mongodb.ready(NODES[1], cluster)


def test_one_that_does_not_answer_is_not_ready() -> None:
    with pytest.raises(NotReady, match=r"127\.7\.7\.1:10002: .*refused"):
        CASSANDRA.ready(NODES[0], seen(1))


@pytest.mark.parametrize(
    ("database", "url", "reason"),
    [
        ("memory", "memory:", ""),
        ("memory", "memory:?color=red", "memory: unknown option 'color'; known options: none"),
        ("mysql", "mysql:127.7.7.1/pbserver?user=pbserver", ""),  # it is down, which is no reason of this kind
        ("zookeeper", "127.7.7.1:2181", "there is no adapter for zookeeper yet"),
    ],
)
def test_a_database_that_pbserver_cannot_use_gets_none(database: str, url: str, reason: str) -> None:
    assert refusal(database, url) == reason


def test_a_layouts_replication_reaches_every_gateways_store() -> None:
    parts = Parts(made("cassandra", "peer", "peer", "gateway", replication=2))
    (settings,) = parts.gateways.files(parts.nodes[3], parts.cluster()).values()
    assert tomllib.loads(settings)["store"].endswith(":9042?replication=2")
