"""ZooKeeper's servers, whoever runs them: their files and ports, and whether one serves. No recipe itself."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.recipe import Cluster, Node, NotReady
from controller.rendering import render

PORT = 2181
HEAP_MIB = 64
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONFIG = "zoo.cfg"  #: in a node's conf, as MAIN's argument
ANSWER_SECONDS = 3


def files(node: Node, voters: Sequence[Node], data: Path) -> Mapping[Path, str]:
    """`data`: where the server is to keep what it knows, and finds which of the voters it is."""
    return {
        node.conf / CONFIG: render("zoo.cfg.j2", node=node, nodes=voters, port=PORT, data=data),
        data / "myid": f"{node.number}\n",
    }


def ports(voters: Sequence[Node]) -> Mapping[int, str]:
    """Of each of them, whoever leads."""
    together = {2888: "ZooKeeper's leader", 3888: "ZooKeeper's elections"} if len(voters) > 1 else {}
    return {PORT: "ZooKeeper", **together}


def serves(node: Node, cluster: Cluster) -> None:
    """That the node is part of a majority, or the only one. Its port is open long before."""
    del cluster
    try:
        with socket.create_connection((node.host, PORT), ANSWER_SECONDS) as connection:
            connection.sendall(b"srvr")
            answer = connection.makefile("rb").read().decode(errors="replace")
    except OSError as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error
    if "Mode: " not in answer:
        raise NotReady(f"{node.host}:{PORT} answers {answer.strip()!r}")
