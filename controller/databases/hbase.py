"""HBase on HDFS: the first node has the masters (ZooKeeper, NameNode, HMaster), every node stores and serves."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from controller import jvm
from controller.recipe import (
    Check,
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

ENGINES = ("java", "hbase")
MOST_NODES = 9

#: Of the Thrift2 servers, one on every node.
PORT = 9091
_ZOOKEEPER_PORT = 2181
_NAMENODE_PORT = 8020
_NAMENODE_HTTP_PORT = 9870
_DATANODE_PORT = 9866
_MASTER_PORT = 16000
_REGION_SERVER_PORT = 16020
_DATANODE_HTTP_PORT = 9864
_DATANODE_IPC_PORT = 9867
_ANSWER_SECONDS = 10
_NAMENODE_FACTS = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"

#: Service -> heap in MiB and what to run, in the order of the boot; the first three on the primary only.
_ROLES = {
    "zookeeper": (64, "org.apache.zookeeper.server.quorum.QuorumPeerMain", ("zoo.cfg",)),
    "namenode": (160, "org.apache.hadoop.hdfs.server.namenode.NameNode", ()),
    "datanode": (128, "org.apache.hadoop.hdfs.server.datanode.DataNode", ()),
    "master": (192, "org.apache.hadoop.hbase.master.HMaster", ("start",)),
    "regionserver": (256, "org.apache.hadoop.hbase.regionserver.HRegionServer", ("start",)),
    "thrift": (128, "org.apache.hadoop.hbase.thrift2.ThriftServer", ("start", "-p", str(PORT), "--infoport", "-1")),
}
_MASTERS = ("zookeeper", "namenode", "master")
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


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    """The jars of HDFS come without the folders of its web pages and do not start unless they find them."""
    sites = {
        "core-site.xml": _core(node, cluster),
        "hdfs-site.xml": _hdfs(node, cluster),
        "hbase-site.xml": _hbase(node, cluster),
    }
    pages = [node.conf / "webapps" / name / "WEB-INF" / "web.xml" for name in ("hdfs", "datanode")]
    return {
        **{node.conf / name: render("site.xml.j2", properties=properties) for name, properties in sites.items()},
        **{page: "<web-app/>\n" for page in pages},
        node.conf / "log4j.properties": render("log4j.properties.j2"),
        node.conf / "zoo.cfg": render(
            "zoo.cfg.j2", node=node, nodes=[node], port=_ZOOKEEPER_PORT, data=node.data / "zookeeper"
        ),
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    return [
        Service(name, _command(name, node, cluster), stop_seconds=_STOP_SECONDS)
        for name in _ROLES
        if name not in _MASTERS or node == cluster.nodes[0]
    ]


def needs(node: Node) -> Needs:
    """Of the JVMs' memory, a part beside the heap grows with the load."""
    names = [name for name in _ROLES if name not in _MASTERS or node.number == 1]
    ports = {
        PORT: "Thrift",
        _REGION_SERVER_PORT: "the region server",
        _datanode_port(node): "the DataNode",
        _DATANODE_HTTP_PORT: "the DataNode's page",
        _DATANODE_IPC_PORT: "the DataNode's commands",
    }
    if node.number == 1:
        ports |= {
            _ZOOKEEPER_PORT: "ZooKeeper",
            _NAMENODE_PORT: "the NameNode",
            _NAMENODE_HTTP_PORT: "the NameNode's page",
            _MASTER_PORT: "HMaster",
        }
    return Needs(2 * sum(_ROLES[name][0] for name in names), ports)


def stages(cluster: Cluster) -> Sequence[Stage]:
    masters = (cluster.nodes[0],)
    return [
        Stage("zookeeper", masters, _opens(_ZOOKEEPER_PORT)),
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
        "dfs.replication": min(3, len(cluster.nodes)),
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
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.safemode.min.datanodes": 1,
        "dfs.heartbeat.interval": 1,
        "dfs.namenode.heartbeat.recheck-interval": 5000,
        "dfs.blocksize": 16 << 20,
        "dfs.datanode.du.reserved": 0,
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
    }


def _hbase(node: Node, cluster: Cluster) -> dict[str, object]:
    """Names are addresses, so that nobody asks the resolver. Web pages are off (-1)."""
    master = cluster.nodes[0].host
    return {
        "hbase.rootdir": f"hdfs://{master}:{_NAMENODE_PORT}/hbase",
        "hbase.cluster.distributed": "true",
        "hbase.tmp.dir": node.data / "tmp",
        "hbase.wal.provider": "asyncfs",
        "hbase.zookeeper.quorum": master,
        "hbase.zookeeper.property.clientPort": _ZOOKEEPER_PORT,
        "zookeeper.session.timeout": 10_000,
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
    }


def _command(name: str, node: Node, cluster: Cluster) -> tuple[str, ...]:
    heap, main, arguments = _ROLES[name]
    in_conf = [str(node.conf / argument) if argument.endswith(".cfg") else argument for argument in arguments]
    classpath = [node.conf, cluster.engines["hbase"] / "lib"]
    return jvm.command(cluster.engines["java"], heap, classpath, main, *in_conf, options=_OPTIONS)


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
