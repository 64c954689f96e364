"""HBase on HDFS: the first node has the masters (NameNode, HMaster), every node stores and serves.

ZooKeeper runs where the cluster says (`keepers`), else beside the masters.
"""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from controller import jvm
from controller.databases import quorum
from controller.recipe import (
    Check,
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
)
from controller.rendering import render

ENGINES = ("java", "hbase")
MOST_NODES = 9
#: A node that joins is given regions by HBase's balancer, which looks every 5 minutes.
MEMBERSHIP = Membership()

#: Of the Thrift2 servers, one on every node.
PORT = 9091
_NAMENODE_PORT = 8020
_NAMENODE_HTTP_PORT = 9870
_DATANODE_PORT = 9866
_MASTER_PORT = 16000
_REGION_SERVER_PORT = 16020
_DATANODE_HTTP_PORT = 9864
_DATANODE_IPC_PORT = 9867
_ANSWER_SECONDS = 10
_NAMENODE_FACTS = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"

#: A Thrift server tries for so long, by default for 20 minutes. PBServer gives up after 10 s (ANSWER_SECONDS of the
#: adapter): what it has given up should not be written long afterwards, nor keep a thread from others.
_OPERATION_MS = 9000
#: Service -> heap in MiB and what to run, in the order of the boot.
_ROLES = {
    "zookeeper": (quorum.HEAP_MIB, quorum.MAIN, (quorum.CONFIG,)),
    "namenode": (160, "org.apache.hadoop.hdfs.server.namenode.NameNode", ()),
    "datanode": (128, "org.apache.hadoop.hdfs.server.datanode.DataNode", ()),
    "master": (192, "org.apache.hadoop.hbase.master.HMaster", ("start",)),
    "regionserver": (256, "org.apache.hadoop.hbase.regionserver.HRegionServer", ("start",)),
    "thrift": (
        128,
        "org.apache.hadoop.hbase.thrift2.ThriftServer",
        ("-D", f"hbase.client.operation.timeout={_OPERATION_MS}", "start", "-p", str(PORT), "--infoport", "-1"),
    ),
}
_TOOL_MIB = 96
#: How often HDFS looks whether a node that leaves has blocks that are nowhere else; twice at least, by default in 30 s.
_LEAVING_SECONDS = 3
#: HMaster waits for region servers before it obeys SIGTERM, and needs nothing that it would write then.
_STOP_SECONDS = 6

_EXPORTS = "java.base/jdk.internal.misc java.security.jgss/sun.security.krb5"
_OPENS = (
    "java.base/java.io java.base/java.lang java.base/java.lang.reflect java.base/java.net java.base/java.nio "
    "java.base/java.util java.base/java.util.concurrent java.base/jdk.internal.ref java.base/sun.nio.ch"
)
_OPTIONS = (
    *jvm.opened(_EXPORTS.split(), _OPENS.split()),
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
)


#: A node that is frozen or cut off holds its connections, so whoever waits for it must give up. With the defaults, a
#: minute each, it cost 72 to 135 s of service. Where HDFS has as many nodes as copies it writes to a silent DataNode
#: until that is dead: after 11 s (two recheck-intervals and ten heartbeats), which is before ZooKeeper's session ends
#: (15 s) and the log of its region server is split.
_HDFS_WITHOUT_A_NODE = {
    "dfs.namenode.stale.datanode.interval": 5000,
    "dfs.namenode.avoid.read.stale.datanode": "true",
    "dfs.namenode.avoid.write.stale.datanode": "true",
    "dfs.client.socket-timeout": 5000,
    "dfs.datanode.socket.write.timeout": 5000,
    "ipc.client.connect.timeout": 3000,
    "ipc.client.connect.max.retries.on.timeouts": 1,
    # A copy that was to go to such a node is asked for again after once or twice as long, by default 300 s: until then
    # the node it was to come from cannot leave.
    "dfs.namenode.reconstruction.pending.timeout-sec": 20,
}
#: The lease of a log is asked for again after twice what HDFS waits for a DataNode.
_HBASE_WITHOUT_A_NODE = {
    "hbase.lease.recovery.first.pause": 1000,
    "hbase.lease.recovery.dfs.timeout": 11_000,
    "hbase.rpc.timeout": 5000,
    "hbase.client.scanner.timeout.period": 10_000,
    "hbase.ipc.client.socket.timeout.connect": 3000,
}


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    """The jars of HDFS come without the folders of its web pages and do not start unless they find them."""
    sites = {
        "core-site.xml": _core(node, cluster),
        "hdfs-site.xml": _hdfs(node, cluster),
        "hbase-site.xml": _hbase(node, cluster),
    }
    voters = _voters(cluster)
    pages = [node.conf / "webapps" / name / "WEB-INF" / "web.xml" for name in ("hdfs", "datanode")]
    return {
        **{node.conf / name: render("site.xml.j2", properties=properties) for name, properties in sites.items()},
        **{page: "<web-app/>\n" for page in pages},
        node.conf / "log4j.properties": render("log4j.properties.j2"),
        _departure(node): render("Departure.java"),
        _excluded(node): "".join(f"{each.host}\n" for each in cluster.nodes if each in cluster.leaving),
        **(quorum.files(node, voters, node.data / "zookeeper") if node in voters else {}),
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    return [
        Service(name, _command(name, node, cluster), stop_seconds=_STOP_SECONDS) for name in _services(node, cluster)
    ]


def needs(node: Node, cluster: Cluster) -> Needs:
    """Of the JVMs' memory, a part beside the heap grows with the load."""
    ports: dict[str, Mapping[int, str]] = {
        "zookeeper": quorum.ports(_voters(cluster)),
        "namenode": {_NAMENODE_PORT: "the NameNode", _NAMENODE_HTTP_PORT: "the NameNode's page"},
        "datanode": {
            _datanode_port(node): "the DataNode",
            _DATANODE_HTTP_PORT: "the DataNode's page",
            _DATANODE_IPC_PORT: "the DataNode's commands",
        },
        "master": {_MASTER_PORT: "HMaster"},
        "regionserver": {_REGION_SERVER_PORT: "the region server"},
        "thrift": {PORT: "Thrift"},
    }
    names = _services(node, cluster)
    taken = {port: what for name in names for port, what in ports[name].items()}
    return Needs(2 * sum(_ROLES[name][0] for name in names), taken)


def stages(cluster: Cluster) -> Sequence[Stage]:
    masters = (cluster.nodes[0],)
    return [
        Stage("zookeeper", _voters(cluster), quorum.serves),
        Stage("namenode", masters, _opens(_NAMENODE_PORT)),
        Stage("datanode", cluster.nodes, stores_blocks),
        Stage("master", masters, _opens(_MASTER_PORT)),
        Stage("regionserver", cluster.nodes, _opens(_REGION_SERVER_PORT)),
        Stage("thrift", cluster.nodes, _opens(PORT)),
    ]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    """`-force`: a format that was broken off is repeated."""
    command = _command("namenode", primary, cluster)
    return [Command((*command, "-format", "-nonInteractive", "-force"))]


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / f"{name}.log" for name in reversed(_ROLES)]


def store_urls(cluster: Cluster) -> Sequence[str]:
    return [f"hbase:{places}" for places in cluster.entry_points(PORT)]


on_disk = nothing_on_disk
primary_of = first_node
let_begin = needs_no_leave


def admission(node: Node, cluster: Cluster) -> Sequence[Command]:
    """Whoever has left may store blocks again. A node's departure sees to the NameNode itself, when it is time."""
    if cluster.leaving:
        return []
    return [Command(_java(node, cluster, _TOOL_MIB, "org.apache.hadoop.hdfs.tools.DFSAdmin", "-refreshNodes"))]


def departure(node: Node, cluster: Cluster) -> Sequence[Command]:
    return [Command(_java(node, cluster, _TOOL_MIB, str(_departure(node)), node.host))]


def choose_primary(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def stores_blocks(node: Node, cluster: Cluster) -> None:
    """That HDFS counts the node's DataNode as alive, and takes writes."""
    facts = _namenode_facts(cluster.nodes[0])
    alive = json.loads(facts["LiveNodes"])
    if facts["Safemode"] or f"{node.host}:{_datanode_port(node)}" not in alive:
        raise NotReady(f"NameNode: {facts['Safemode'] or 'no safe mode'}, DataNodes {', '.join(alive) or 'none'}")


def ready(node: Node, cluster: Cluster) -> None:
    with _client(node, cluster) as (thrift, client):
        table, family = b"pbserver_ready", b"f"
        name = thrift.TTableName(ns=b"default", qualifier=table)
        if not client.tableExists(name):
            column = thrift.TColumnFamilyDescriptor(name=family)
            client.createTable(thrift.TTableDescriptor(tableName=name, columns=[column]), None)
        row = node.name.encode()
        value = thrift.TColumnValue(family=family, qualifier=b"v", value=b"written")
        client.put(table, thrift.TPut(row=row, columnValues=[value]))
        results = [
            client.get(table, thrift.TGet(row=row)),
            *client.getScannerResults(table, thrift.TScan(startRow=row, stopRow=row + b"\0"), 1),
        ]
        found = [value.value for result in results for value in result.columnValues]
        if found != [b"written", b"written"]:
            raise NotReady(f"{node.host}:{PORT} returns {found} for what was written")


def _voters(cluster: Cluster) -> tuple[Node, ...]:
    """ZooKeeper's servers."""
    return cluster.keepers or cluster.nodes[:1]


def _services(node: Node, cluster: Cluster) -> list[str]:
    """Of one node, in the order of the boot."""
    return [stage.service for stage in stages(cluster) if node in stage.nodes]


def _core(node: Node, cluster: Cluster) -> dict[str, object]:
    return {
        "fs.defaultFS": f"hdfs://{cluster.nodes[0].host}:{_NAMENODE_PORT}",
        "hadoop.tmp.dir": node.data / "tmp",
        "hadoop.security.authentication": "simple",
    }


def _hdfs(node: Node, cluster: Cluster) -> dict[str, object]:
    """DataNodes are known by their names, which are the nodes' addresses, and by a port each: on one machine all
    their connections come from the same address.
    """
    master = cluster.nodes[0].host
    return {
        "dfs.replication": cluster.copies,
        "dfs.namenode.name.dir": (node.data / "namenode").as_uri(),
        "dfs.datanode.data.dir": (node.data / "datanode").as_uri(),
        "dfs.namenode.rpc-address": f"{master}:{_NAMENODE_PORT}",
        "dfs.namenode.http-address": f"{master}:{_NAMENODE_HTTP_PORT}",
        "dfs.datanode.hostname": node.host,
        "dfs.datanode.address": f"{node.host}:{_datanode_port(node)}",
        "dfs.datanode.http.address": f"{node.host}:{_DATANODE_HTTP_PORT}",
        "dfs.datanode.ipc.address": f"{node.host}:{_DATANODE_IPC_PORT}",
        "dfs.datanode.use.datanode.hostname": "true",
        "dfs.client.use.datanode.hostname": "true",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.permissions.enabled": "false",
        "dfs.hosts.exclude": _excluded(node),
        "dfs.namenode.decommission.interval": _LEAVING_SECONDS,
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.safemode.min.datanodes": 1,
        "dfs.heartbeat.interval": 1,
        "dfs.namenode.heartbeat.recheck-interval": 500,
        "dfs.blocksize": 16 << 20,
        "dfs.datanode.du.reserved": 0,
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        **_HDFS_WITHOUT_A_NODE,
    }


def _hbase(node: Node, cluster: Cluster) -> dict[str, object]:
    """Names are addresses, so that nobody asks the resolver. Web pages are off (-1)."""
    master = cluster.nodes[0].host
    return {
        "hbase.rootdir": f"hdfs://{master}:{_NAMENODE_PORT}/hbase",
        "hbase.cluster.distributed": "true",
        "hbase.tmp.dir": node.data / "tmp",
        "hbase.wal.provider": "asyncfs",
        "hbase.zookeeper.quorum": ",".join(voter.host for voter in _voters(cluster)),
        "hbase.zookeeper.property.clientPort": quorum.PORT,
        "zookeeper.session.timeout": 15_000,
        "hbase.master.hostname": node.host,
        "hbase.master.ipc.address": node.host,
        "hbase.master.info.port": -1,
        "hbase.master.wait.on.regionservers.mintostart": 1,
        "hbase.master.wait.on.regionservers.interval": 500,
        "hbase.master.wait.on.regionservers.timeout": 1500,
        "hbase.master.loadbalancer.class": "org.apache.hadoop.hbase.master.balancer.SimpleLoadBalancer",
        "hbase.regionserver.hostname": node.host,
        "hbase.regionserver.ipc.address": node.host,
        "hbase.regionserver.info.port": -1,
        "hbase.regionserver.handler.count": 10,
        "hbase.regionserver.thrift.ipaddress": node.host,
        "hbase.thrift.ipaddress": node.host,
        "hbase.thrift.info.port": -1,
        **_HBASE_WITHOUT_A_NODE,
    }


def _command(name: str, node: Node, cluster: Cluster) -> tuple[str, ...]:
    heap, main, arguments = _ROLES[name]
    in_conf = [str(node.conf / argument) if argument.endswith(".cfg") else argument for argument in arguments]
    return _java(node, cluster, heap, main, *in_conf)


def _java(node: Node, cluster: Cluster, heap_mib: int, main: str, *arguments: str) -> tuple[str, ...]:
    """What runs with HBase's jars and the node's configuration."""
    classpath = [node.conf, cluster.engines["hbase"] / "lib"]
    return jvm.command(cluster.engines["java"], heap_mib, classpath, main, *arguments, options=_OPTIONS)


def _departure(node: Node) -> Path:
    return node.conf / "Departure.java"


def _excluded(node: Node) -> Path:
    """Names the nodes that are to store no blocks; the NameNode reads its own."""
    return node.conf / "excluded"


def _datanode_port(node: Node) -> int:
    return _DATANODE_PORT + 100 * (node.number - 1)


def _opens(port: int) -> Check:
    def check(node: Node, cluster: Cluster) -> None:
        del cluster
        try:
            socket.create_connection((node.host, port), _ANSWER_SECONDS).close()
        except OSError as error:
            raise NotReady(f"{node.host}:{port}: {error}") from error

    return check


def _namenode_facts(master: Node) -> dict[str, Any]:
    connection = HTTPConnection(master.host, _NAMENODE_HTTP_PORT, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", _NAMENODE_FACTS)
        beans = json.loads(connection.getresponse().read())["beans"]
    except (OSError, HTTPException, ValueError) as error:
        raise NotReady(f"{master.host}:{_NAMENODE_HTTP_PORT}: {error}") from error
    finally:
        connection.close()
    if not beans:
        raise NotReady(f"{master.host}:{_NAMENODE_HTTP_PORT}: the NameNode has not said anything yet")
    facts: dict[str, Any] = beans[0]
    return facts


@contextmanager
def _client(node: Node, cluster: Cluster) -> Iterator[tuple[Any, Any]]:
    """The types of HBase's own Thrift2 definitions, and a client of this node. Raises NotReady."""
    import thriftpy2
    from thriftpy2.rpc import client_context
    from thriftpy2.thrift import TException

    thrift = thriftpy2.load(str(cluster.engines["hbase"] / "hbase.thrift"), module_name="pbserver_hbase_thrift")
    milliseconds = _ANSWER_SECONDS * 1000
    try:
        with client_context(
            thrift.THBaseService, node.host, PORT, connect_timeout=milliseconds, socket_timeout=milliseconds
        ) as client:
            yield thrift, client
    except (TException, OSError) as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error
