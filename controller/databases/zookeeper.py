"""ZooKeeper: all nodes start at once, and a majority of them decides who leads."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller import jvm
from controller.recipe import (
    Cluster,
    Command,
    Needs,
    Node,
    NotReady,
    Service,
    Stage,
    first_node,
    needs_no_leave,
    nothing_on_disk,
)
from controller.rendering import render

ENGINES = ("java", "zookeeper")
MOST_NODES = 7

PORT = 2181
_HEAP_MIB = 64
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ANSWER_SECONDS = 3
_PROBE = "/pbserver-ready"


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    return {
        node.conf / "zoo.cfg": render("zoo.cfg.j2", node=node, nodes=cluster.nodes, port=PORT, data=node.data),
        node.conf / "logback.xml": render("logback.xml.j2"),
        node.data / "myid": f"{node.number}\n",
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    engine = cluster.engines["zookeeper"]
    command = jvm.command(
        cluster.engines["java"], _HEAP_MIB, [node.conf, engine / "lib"], _MAIN, str(node.conf / "zoo.cfg")
    )
    return [Service("zookeeper", command)]


def needs(node: Node) -> Needs:
    del node
    return Needs(256, {PORT: "clients", 2888: "other nodes", 3888: "elections"})


def stages(cluster: Cluster) -> Sequence[Stage]:
    return [Stage("zookeeper", cluster.nodes, serves)]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    del primary, cluster
    return []


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / "zookeeper.log"]


def store_urls(cluster: Cluster) -> Sequence[str]:
    """No URLs of stores: the hosts as ZooKeeper's clients want them."""
    return [",".join(f"{host}:{PORT}" for host in cluster.hosts)] * len(cluster.nodes)


on_disk = nothing_on_disk
primary_of = first_node
let_begin = needs_no_leave


def choose_primary(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def serves(node: Node, cluster: Cluster) -> None:
    """That the node is part of a majority, or the only one."""
    del cluster
    try:
        with socket.create_connection((node.host, PORT), _ANSWER_SECONDS) as connection:
            connection.sendall(b"srvr")
            answer = connection.makefile("rb").read().decode(errors="replace")
    except OSError as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error
    if "Mode: " not in answer:
        raise NotReady(f"{node.host}:{PORT} answers {answer.strip()!r}")


def ready(node: Node, cluster: Cluster) -> None:
    del cluster
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=f"{node.host}:{PORT}", timeout=_ANSWER_SECONDS)
    path = f"{_PROBE}/{node.name}"
    try:
        client.start(timeout=_ANSWER_SECONDS)
        client.ensure_path(path)
        client.set(path, b"written")
        if client.get(path)[0] != b"written" or node.name not in client.get_children(_PROBE):
            raise NotReady(f"{node.host}:{PORT} does not return what was written")
    except (KazooException, KazooTimeoutError) as error:
        raise NotReady(f"{node.host}:{PORT}: {error or type(error).__name__}") from error
    finally:
        client.stop()
        client.close()
