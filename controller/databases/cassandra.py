"""Cassandra: peers. The first node is the seed; the others join one at a time, each after the one before is done."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from controller import jvm
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

ENGINES = ("java", "cassandra")
MOST_NODES = 9
MEMBERSHIP = Membership()

PORT = 9042
_STORAGE_PORT = 7000
#: The data centre that SimpleSnitch puts every node in.
DATACENTER = "datacenter1"
_HEAP_MIB = 256
_MAIN = "org.apache.cassandra.service.CassandraDaemon"
_ANSWER_SECONDS = 10
_JAMM = "jamm-0.4.0.jar"

_EXPORTS = (
    "java.base/java.lang.ref java.base/jdk.internal.misc java.management.rmi/com.sun.jmx.remote.internal.rmi "
    "java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql jdk.attach/sun.tools.attach "
    "jdk.compiler/com.sun.tools.javac.file jdk.unsupported/sun.misc"
)
_OPENS = (
    "java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.nio "
    "java.base/java.util java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module "
    "java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.base/sun.nio.ch "
    "jdk.compiler/com.sun.tools.javac jdk.management/com.sun.management.internal"
)
#: A ring delay as for machines that stand side by side, and a short farewell. No JMX: its port cannot be bound to the
#: node's own address.
_PROPERTIES = {
    "jdk.attach.allowAttachSelf": "true",
    "io.netty.tryReflectionSetAccessible": "true",
    "io.netty.allocator.useCacheForAllThreads": "true",
    "io.netty.allocator.maxOrder": "11",
    "cassandra.ring_delay_ms": "2000",
    "cassandra.shutdown_announce_in_ms": "200",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.superuser_setup_delay_ms": "0",
    "cassandra-foreground": "yes",  # else it closes its output once it has started, and the log says nothing more
}


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    return {
        node.conf / "cassandra.yaml": render(
            "cassandra.yaml.j2",
            node=node,
            seed=cluster.hosts[0],
            port=PORT,
            storage_port=_STORAGE_PORT,
            tokens=cluster.tokens.get(node, ()),
        ),
        node.conf / "logback.xml": render("logback.xml.j2"),
        _decommission(node): render("Decommission.java"),
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    engine = cluster.engines["cassandra"]
    properties = _PROPERTIES | {
        "cassandra.config": (node.conf / "cassandra.yaml").as_uri(),
        "cassandra.storagedir": str(node.data),
        "cassandra.logdir": str(node.log),
    }
    options = (
        "-XX:MaxDirectMemorySize=128M",
        "-Xss256k",
        f"-javaagent:{engine / 'lib' / _JAMM}",
        *jvm.opened(_EXPORTS.split(), _OPENS.split()),
        *(f"-D{name}={value}" for name, value in properties.items()),
    )
    classpath = [node.conf, engine / "lib"]
    command = jvm.command(cluster.engines["java"], _HEAP_MIB, classpath, _MAIN, options=options)
    return [Service("cassandra", command, stop_seconds=20)]


def needs(node: Node, cluster: Cluster) -> Needs:
    del node, cluster
    return Needs(4 * _HEAP_MIB, {PORT: "CQL", _STORAGE_PORT: "other nodes"})


def stages(cluster: Cluster) -> Sequence[Stage]:
    return [Stage("cassandra", (node,), answers) for node in cluster.nodes]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    del primary, cluster
    return []


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / "cassandra.log"]


def store_urls(cluster: Cluster) -> Sequence[str]:
    """The keyspace is PBServer's to create: the replicas that are asked for go with the URL."""
    asked = f"?replication={cluster.replication}" if cluster.replication else ""
    return [f"cassandra:{places}{asked}" for places in cluster.entry_points(PORT)]


on_disk = nothing_on_disk
primary_of = first_node
let_begin = needs_no_leave
admission = runs_nothing


def departure(node: Node, cluster: Cluster) -> Sequence[Command]:
    java = cluster.engines["java"] / "bin" / "java"
    return [Command((str(java), "-Xmx64m", str(_decommission(node)), str(node.data)))]


def choose_primary(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def answers(node: Node, cluster: Cluster) -> None:
    """That the node has joined, and that the others know: it opens its port for clients last, but they may have
    forgotten it while it was busy with that, for some seconds in which a new keyspace would get a replica too few.
    """
    _connect(node)
    with _session(node) as session:
        session.execute("SELECT release_version FROM system.local")
    for other in cluster.nodes:
        if other != node and not _knows(other, node):
            raise NotReady(f"{node.host}:{PORT} answers, but {other.host} does not know of it yet")


def _knows(other: Node, node: Node) -> bool:
    """Whether clients of the other one hear of the node. One that is down or too busy to say is not waited for."""
    with suppress(NotReady):
        _connect(other)
        with _session(other) as session:
            return any(host.address == node.host for host in session.cluster.metadata.all_hosts())
    return True


def _connect(node: Node) -> None:
    """The driver takes longer to find a closed port. Raises NotReady."""
    try:
        socket.create_connection((node.host, PORT), _ANSWER_SECONDS).close()
    except OSError as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error


def ready(node: Node, cluster: Cluster) -> None:
    with _session(node) as session:
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS pbserver_ready WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': {cluster.copies}}}"
        )
        session.execute("CREATE TABLE IF NOT EXISTS pbserver_ready.rows (s text, k text, v text, PRIMARY KEY (s, k))")
        session.execute("INSERT INTO pbserver_ready.rows (s, k, v) VALUES ('s', %s, 'written')", [node.name])
        for condition in ("k = %s", "k >= %s LIMIT 1"):
            query = f"SELECT v FROM pbserver_ready.rows WHERE s = 's' AND {condition}"  # noqa: S608 - one of two
            found = [row.v for row in session.execute(query, [node.name])]
            if found != ["written"]:
                raise NotReady(f"{node.host}:{PORT} returns {found} for what was written")


def _decommission(node: Node) -> Path:
    return node.conf / "Decommission.java"


@contextmanager
def _session(node: Node) -> Iterator[Any]:
    """At QUORUM, through this node only. Raises NotReady."""
    from cassandra import ConsistencyLevel, DriverException
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile, NoHostAvailable
    from cassandra.cluster import Cluster as Driver
    from cassandra.policies import WhiteListRoundRobinPolicy

    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([node.host]),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=_ANSWER_SECONDS,
    )
    driver = Driver(
        [node.host],
        port=PORT,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=_ANSWER_SECONDS,
        control_connection_timeout=_ANSWER_SECONDS,
    )
    try:
        yield driver.connect()
    except (DriverException, NoHostAvailable) as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error
    finally:
        driver.shutdown()
