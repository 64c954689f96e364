"""Where the store stands, and what the cluster says of itself. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.contract import Durable
from adapters.errors import Unsupported
from adapters.hosts import Host, parse_hosts
from adapters.url import StoreUrl

DEFAULT_PORT = 9042
DEFAULT_KEYSPACE = "pbserver"
MOST_REPLICAS = 3  # unless the option says otherwise
MOST_BUCKETS = 64
OVERHEAD_BYTES = 1 << 14  # of a request beside one key and the values

_KEYSPACE = re.compile(r"[0-9a-z_]{1,48}")
_NAME = re.compile(r"[0-9A-Za-z_.-]*")
_SIZE = re.compile(r"([0-9]+)(B|KiB|MiB|GiB)")
_UNITS = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store URL taken apart."""

    hosts: tuple[Host, ...]
    keyspace: str
    user: str
    password: str = field(repr=False)
    datacenter: str  #: empty: that of the host that answers first
    replication: int  #: of a keyspace that is to be created; 0: as many as there are nodes, up to MOST_REPLICAS
    buckets: int
    consistency: str  #: the driver's names
    serial: str

    @property
    def where(self) -> str:
        """For messages."""
        return f"cassandra {','.join(map(str, self.hosts))}/{self.keyspace}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the node first reached, and the cluster's directory, say."""

    datacenter: str
    nodes: int  #: of the data centre
    replicas: int  #: that the keyspace has there, or will have
    synced: bool  #: a write that was answered is on its replicas' disks
    max_mutation_bytes: int

    @property
    def durable(self) -> Durable:
        if self.synced:
            return Durable.SYNCED
        return Durable.REPLICATED if self.replicas > 1 else Durable.MEMORY

    @property
    def max_value_bytes(self) -> int:
        """A request may hold two values: what is expected and what is written."""
        return (self.max_mutation_bytes - (1 << 16) - OVERHEAD_BYTES) // 2


def facts(
    place: Place, datacenter: str, nodes: int, replication: Mapping[str, str] | None, settings: Mapping[str, str | None]
) -> Facts:
    """`replication`: of the keyspace, as CQL has it; None: there is none yet. Raises Unsupported for what cannot be."""
    if replication is None:
        replicas = place.replication or min(MOST_REPLICAS, nodes)
    else:
        replicas = int(replication.get(datacenter) or replication.get("replication_factor") or 0)
    if not 0 < replicas <= nodes:
        raise Unsupported(
            f"{place.where}: the keyspace {'keeps' if replication else 'is to keep'} {replicas} replicas in the data "
            f"centre {datacenter}, which has {nodes} nodes; add nodes, change the keyspace's replication, or give "
            "replication=N (for a new keyspace) or datacenter=NAME"
        )
    if place.replication not in (0, replicas):
        raise Unsupported(
            f"{place.where}: the keyspace keeps {replicas} replicas, not {place.replication}; give "
            f"replication={replicas}, or change the keyspace (ALTER KEYSPACE, then repair every node)"
        )
    return Facts(
        datacenter=datacenter,
        nodes=nodes,
        replicas=replicas,
        synced=settings.get("commitlog_sync") in ("batch", "group"),
        max_mutation_bytes=_max_mutation_bytes(place, settings),
    )


def _max_mutation_bytes(place: Place, settings: Mapping[str, str | None]) -> int:
    """Half of a commit log segment, unless set; and no more than a message may hold."""
    most = _bytes(settings, "max_mutation_size") or _bytes(settings, "commitlog_segment_size") // 2
    if not most:
        raise Unsupported(
            f"{place.where}: the node does not say its commitlog_segment_size; Cassandra 4.1 or newer does"
        )
    return min(most, _bytes(settings, "native_transport_max_message_size") or most)


def _bytes(settings: Mapping[str, str | None], name: str) -> int:
    """0: the node does not say it."""
    match = _SIZE.fullmatch(settings.get(name) or "")
    return int(match[1]) << _UNITS[match[2]] if match else 0


def parse_place(url: StoreUrl) -> Place:
    """Raises Unsupported for what does not fit. No message holds the password."""
    options = url.options
    hosts, _, keyspace = url.place.partition("/")
    place = Place(
        hosts=parse_hosts("cassandra", hosts, DEFAULT_PORT, "cassandra:HOST:PORT,HOST:PORT"),
        keyspace=keyspace or DEFAULT_KEYSPACE,
        user=options.text("user", ""),
        password=options.password(),
        datacenter=options.text("datacenter", ""),
        replication=options.integer("replication", 0, 0, 99),
        buckets=options.integer("buckets", 4, 1, MOST_BUCKETS),
        consistency=options.choice("consistency", ("quorum", "local_quorum"), "quorum").upper(),
        serial=options.choice("serial", ("serial", "local_serial"), "serial").upper(),
    )
    options.finish()
    if not _KEYSPACE.fullmatch(place.keyspace):
        raise Unsupported(
            f"cassandra: {place.keyspace!r} is no keyspace; write cassandra:HOST:PORT,HOST:PORT/KEYSPACE, its name of "
            "up to 48 small letters, digits and _"
        )
    if not _NAME.fullmatch(place.datacenter):
        raise Unsupported(f"cassandra: option datacenter={place.datacenter!r} is not of letters, digits, _, . and -")
    if place.password and not place.user:
        raise Unsupported("cassandra: a password is given, but no user; give user=NAME")
    return place
