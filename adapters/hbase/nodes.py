"""Where the store stands, and what the table must be like. No I/O."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from adapters.contract import Durable, Table
from adapters.errors import Unsupported
from adapters.hbase.codec import CELLS, MARKS, wire
from adapters.hosts import Host, parse_hosts
from adapters.url import StoreUrl

DEFAULT_PORT = 9091
DEFAULT_TABLE = "pbserver"
HORIZON_SECONDS = 86_400  # of a table that is created
SHORTEST_HORIZON_SECONDS = 3_600
MARKS_SECONDS = 3_600  # how long a conditional write is remembered: longer than any attempt of a Thrift server
#: How long a delete's marker outlives compactions; without it the next one may drop it, and older puts come back.
PURGE = "hbase.hstore.time.to.purge.deletes"

_TABLE = re.compile(r"(?:(?P<namespace>[0-9A-Za-z_]+):)?(?P<name>[0-9A-Za-z_][0-9A-Za-z_.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store URL taken apart."""

    hosts: tuple[Host, ...]
    table: bytes
    framed: bool

    @property
    def table_name(self) -> Any:
        namespace, _, name = self.table.rpartition(b":")
        return wire.TTableName(ns=namespace or b"default", qualifier=name)

    def at(self, host: Host) -> str:
        """For messages."""
        return f"hbase {host}/{self.table.decode()}"

    @property
    def where(self) -> str:
        return f"hbase {','.join(map(str, self.hosts))}/{self.table.decode()}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the table promises."""

    horizon_seconds: float
    durable: Durable


def facts(descriptor: Any, servers: Collection[object], where: str) -> Facts:
    """`servers`: that have regions of the table. Raises Unsupported for a table that does not fit.

    HBase does not say over Thrift how often HDFS replicates its log: several region servers are taken for several
    datanodes. The log is in their memory, unless the table asks for more.
    """
    families = {family.name: family for family in descriptor.columns or ()}
    missing = [name.decode() for name in (CELLS, MARKS) if name not in families]
    if missing:
        raise Unsupported(f"{where}: the table has no column family {', '.join(missing)}; it is not pbserver's")
    purge = (families[CELLS].configuration or {}).get(PURGE, "0")
    horizon = int(purge) / 1000 if purge.isdigit() else 0.0
    if horizon < SHORTEST_HORIZON_SECONDS:
        raise Unsupported(
            f"{where}: the column family {CELLS.decode()} has {PURGE} = {purge}; alter it to "
            f"{SHORTEST_HORIZON_SECONDS * 1000} (milliseconds) or more, so that no late write outlives a delete"
        )
    if descriptor.durability == wire.TDurability.FSYNC_WAL:
        durable = Durable.SYNCED
    else:
        durable = Durable.REPLICATED if len(servers) > 1 else Durable.MEMORY
    return Facts(horizon, durable)


def table_creation(place: Place) -> tuple[Any, list[bytes]]:
    """The table, and where it is divided from the beginning, so that several servers share the work."""
    cells = wire.TColumnFamilyDescriptor(name=CELLS, maxVersions=1, configuration={PURGE: str(HORIZON_SECONDS * 1000)})
    marks = wire.TColumnFamilyDescriptor(name=MARKS, maxVersions=1, timeToLive=MARKS_SECONDS)
    descriptor = wire.TTableDescriptor(tableName=place.table_name, columns=[cells, marks])
    return descriptor, [Table.GROUPS.value, Table.INDEXES.value, Table.KINDLESS.value]


def parse_place(url: StoreUrl) -> Place:
    """Raises Unsupported for what does not fit."""
    options = url.options
    hosts, _, table = url.place.partition("/")
    example = "hbase:HOST:PORT,HOST:PORT/TABLE"
    place = Place(
        hosts=parse_hosts("hbase", hosts, DEFAULT_PORT, example),
        table=(table or DEFAULT_TABLE).encode(),
        framed=options.choice("transport", ("buffered", "framed"), "buffered") == "framed",
    )
    options.finish()
    if not _TABLE.fullmatch(table or DEFAULT_TABLE):
        raise Unsupported(f"hbase: {table!r} is no table; write {example}, its name of letters, digits, _, . and -")
    return place
