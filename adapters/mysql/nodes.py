"""Where the store stands, and what a node says of itself when a session begins. No I/O."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.contract import Durable
from adapters.errors import Unavailable, Unsupported
from adapters.hosts import Host, parse_hosts
from adapters.mysql.codec import ENGINES, OVERHEAD_BYTES, Statement
from adapters.url import StoreUrl

DEFAULT_PORT = 3306
SHORTEST_PACKET_BYTES = 4 << 20  # an entity in hexadecimal, and more: below, another layer would be needed
LONGEST_PACKET_BYTES = (1 << 24) - 1  # of the protocol's, beyond which a statement would take several

_DATABASE = re.compile(r"[0-9A-Za-z_$-]{1,64}")

QUESTIONS = (
    Statement(
        "SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'max_allowed_packet',"
        " 'read_only', 'sync_binlog', 'wsrep_on', 'wsrep_max_ws_size')"
    ),
    Statement(
        "SHOW STATUS WHERE Variable_name IN"
        " ('wsrep_cluster_size', 'wsrep_cluster_state_uuid', 'wsrep_local_state_comment', 'wsrep_ready')"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store URL taken apart."""

    hosts: tuple[Host, ...]
    database: str
    user: str
    password: bytes = field(repr=False)
    engine: str
    tls: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a node answered to QUESTIONS."""

    galera: bool
    cluster: str  #: Galera's name for the data: the same on all nodes of a cluster
    cluster_size: int
    ready: bool
    state: str
    read_only: bool
    synced: bool  #: a commit that was answered is on this node's disk
    max_packet_bytes: int
    max_transaction_bytes: int | None

    def durable(self, engine: str) -> Durable:
        if engine == "ndbcluster":
            return Durable.REPLICATED  # in the memory of two data nodes; their disks follow within seconds
        if self.synced:
            return Durable.SYNCED
        return Durable.REPLICATED if self.galera and self.cluster_size > 1 else Durable.MEMORY


def value_bytes(packet_bytes: int) -> int:
    """How long a value may be: the driver writes it as hexadecimal digits, and a statement is one packet."""
    return (packet_bytes - OVERHEAD_BYTES) // 2


def facts(answers: Mapping[str, str]) -> Facts:
    """From names of variables and their values; an absent one means that the server does not know it."""
    galera = answers.get("wsrep_on") == "ON" and "wsrep_cluster_state_uuid" in answers
    flushed = answers.get("innodb_flush_log_at_trx_commit") == "1"
    logged = answers.get("log_bin", "OFF") == "OFF" or answers.get("sync_binlog") == "1"
    return Facts(
        galera=galera,
        cluster=answers["wsrep_cluster_state_uuid"] if galera else "",
        cluster_size=int(answers.get("wsrep_cluster_size", "1")),
        ready=not galera or answers.get("wsrep_ready") == "ON",
        state=answers.get("wsrep_local_state_comment", ""),
        read_only=answers.get("read_only", "OFF") not in ("OFF", "0"),
        # Recovery rolls back what is not in the binary log, so that log must be on disk too.
        synced=flushed and (galera or logged),
        max_packet_bytes=min(int(answers["max_allowed_packet"]), LONGEST_PACKET_BYTES),
        # A changed row stands there twice: as it was and as it is.
        max_transaction_bytes=int(answers["wsrep_max_ws_size"]) // 2 if galera else None,
    )


def check_fit(found: Facts, known: Facts | None, place: Place, host: Host) -> None:
    """Raises Unavailable for a node that cannot serve now, Unsupported for one that never will; `known` is the
    store's first node.
    """
    if not found.ready:
        raise Unavailable(f"mysql {host}: the node is not ready: its Galera state is {found.state or 'unknown'}")
    if len(place.hosts) > 1 and not found.galera and place.engine != "ndbcluster":
        raise Unsupported(
            f"mysql: {len(place.hosts)} hosts are given, but {host} is not a Galera node: each would hold rows of its "
            "own; give one host, or a cluster (Galera, or engine=ndbcluster)"
        )
    if found.max_packet_bytes < SHORTEST_PACKET_BYTES:
        raise Unsupported(
            f"mysql {host}: max_allowed_packet is {found.max_packet_bytes}; set it to {SHORTEST_PACKET_BYTES} or more"
        )
    if known is None:
        return
    if (found.galera, found.cluster) != (known.galera, known.cluster):
        raise Unsupported(
            f"mysql {host}: it belongs to the Galera cluster {found.cluster or 'none'}, the others to "
            f"{known.cluster or 'none'}"
        )
    if found.max_packet_bytes < known.max_packet_bytes:
        raise Unsupported(
            f"mysql {host}: max_allowed_packet is {found.max_packet_bytes}, but was {known.max_packet_bytes} on the "
            "node first reached; set the same on all nodes"
        )


def parse_place(url: StoreUrl) -> Place:
    """Raises Unsupported for what does not fit. No message holds the password."""
    options = url.options
    place = Place(
        hosts=parse_hosts("mysql", url.place.rpartition("/")[0], DEFAULT_PORT, "mysql:HOST:PORT,HOST:PORT/DATABASE"),
        database=url.place.rpartition("/")[2],
        user=options.text("user", "pbserver"),
        password=options.password().encode(),
        engine=options.choice("engine", tuple(ENGINES), "innodb"),
        tls=_tls(options.choice("tls", ("off", "on", "verify"), "off"), options.text("tls_ca", "")),
    )
    options.finish()
    if not _DATABASE.fullmatch(place.database):
        raise Unsupported(
            f"mysql: {url.place!r} names no database; write mysql:HOST:PORT,HOST:PORT/DATABASE, its name of letters, "
            "digits, _, $ and -"
        )
    return place


def _tls(mode: str, ca: str) -> ssl.SSLContext | None:
    if mode != "verify" and ca:
        raise Unsupported(f"mysql: tls_ca needs tls=verify, found tls={mode}")
    if mode == "off":
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise Unsupported(f"mysql: tls_ca {ca} cannot be read: {error.strerror or error}") from error
    if mode == "on":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
