"""ZooKeeper: all nodes start at once, and a majority of them decides who leads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from controller import jvm
from controller.causes import cause
from controller.databases import quorum
from controller.recipe import (
    Cluster,
    Command,
    Membership,
    Needs,
    Node,
    NotReady,
    Service,
    Stage,
    first_node,
    needs_no_leave,
    nothing_on_disk,
    runs_nothing,
)
from controller.rendering import render

ENGINES = ("java", "zookeeper")
MOST_NODES = 7
MEMBERSHIP = Membership()

_PROBE = "/pbserver-ready"


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    return {
        **quorum.files(node, cluster.nodes, node.data),
        node.conf / "logback.xml": render("logback.xml.j2"),
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    engine = cluster.engines["zookeeper"]
    classpath = [node.conf, engine / "lib"]
    config = str(node.conf / quorum.CONFIG)
    command = jvm.command(cluster.engines["java"], quorum.HEAP_MIB, classpath, quorum.MAIN, config)
    return [Service("zookeeper", command)]


def needs(node: Node, cluster: Cluster) -> Needs:
    del node
    return Needs(256, quorum.ports(cluster.nodes))


def stages(cluster: Cluster) -> Sequence[Stage]:
    return [Stage("zookeeper", cluster.nodes, quorum.serves)]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    del primary, cluster
    return []


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / "zookeeper.log"]


def store_urls(cluster: Cluster) -> Sequence[str]:
    """No URLs of stores: the hosts as ZooKeeper's clients want them."""
    return [",".join(f"{host}:{quorum.PORT}" for host in cluster.hosts)] * len(cluster.nodes)


on_disk = nothing_on_disk
primary_of = first_node
let_begin = needs_no_leave
admission = runs_nothing
departure = runs_nothing


def choose_primary(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def ready(node: Node, cluster: Cluster) -> None:
    del cluster
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    place = f"{node.host}:{quorum.PORT}"
    client = KazooClient(hosts=place, timeout=quorum.ANSWER_SECONDS)
    path = f"{_PROBE}/{node.name}"
    try:
        client.start(timeout=quorum.ANSWER_SECONDS)
        client.ensure_path(path)
        client.set(path, b"written")
        if client.get(path)[0] != b"written" or node.name not in client.get_children(_PROBE):
            raise NotReady(f"{place} does not return what was written")
    except (KazooException, KazooTimeoutError) as error:
        raise NotReady(f"{place}: {cause(error)}") from error
    finally:
        client.stop()
        client.close()
