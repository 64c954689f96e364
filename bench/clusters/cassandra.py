"""The DataStax driver on Cassandra, as a program of its own would use it: everything prepared, at QUORUM."""

import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from adapters.cassandra.codec import SCOPES_AT_ONCE, bucket
from adapters.cassandra.nodes import parse_place
from adapters.contract import after_prefix
from adapters.url import parse_url
from bench.clusters.work import QUERIED, ROWS, IndexRow, Thing
from controller.databases.cassandra import DATACENTER

_KEYSPACE = (
    "CREATE KEYSPACE IF NOT EXISTS bench_native WITH replication = "
    f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': %d}}"
)
_BARE = "CREATE TABLE IF NOT EXISTS bench_native.bare (p blob, k blob, v blob, PRIMARY KEY (p, k))"
_INDEXED = (
    "CREATE TABLE IF NOT EXISTS bench_native.groups (s blob, k blob, v blob, PRIMARY KEY (s, k))",
    "CREATE TABLE IF NOT EXISTS bench_native.rows (t blob, s blob, b tinyint, k blob, v blob,"
    " PRIMARY KEY ((t, s, b), k))",
)
_SCHEMA_SECONDS = 60.0


class _Session:
    def __init__(self, url: str, creations: Iterable[str]) -> None:
        place = parse_place(parse_url(url))
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(DATACENTER)),
            consistency_level=ConsistencyLevel.QUORUM,
            serial_consistency_level=ConsistencyLevel.SERIAL,
            row_factory=tuple_factory,
        )
        self._cluster = Cluster(
            [tuple(host) for host in place.hosts],
            port=place.hosts[0].port,
            protocol_version=5,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # else requests above 4 KB wait 40 ms
        )
        self.driver = self._cluster.connect()
        self.driver.default_fetch_size = None  # everything in one page
        self._prepared: dict[str, Any] = {}
        for text in (_KEYSPACE % min(3, len(self._cluster.metadata.all_hosts())), *creations):
            self.driver.execute(text, timeout=_SCHEMA_SECONDS)

    def run(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        return list(self.driver.execute(self.prepared(text), values))

    def batch(self, statements: Sequence[tuple[str, Sequence[object]]]) -> list[tuple[Any, ...]]:
        batch = BatchStatement(BatchType.UNLOGGED)
        for text, values in statements:
            batch.add(self.prepared(text), values)
        return list(self.driver.execute(batch))

    def prepared(self, text: str) -> Any:
        found = self._prepared.get(text)
        if found is None:
            found = self._prepared[text] = self.driver.prepare(text)
        return found

    def close(self) -> None:
        self._cluster.shutdown()


class Bare:
    """Every entity one row in a partition of its own, those that are queried together in one partition; every operation
    one statement.
    """

    def __init__(self, url: str) -> None:
        self._session = _Session(url, [_BARE])

    def insert(self, new: Thing) -> None:
        self._session.run("UPDATE bench_native.bare SET v = ? WHERE p = ? AND k = ?", new.value, *_bare(new))

    def read(self, stored: Thing) -> bytes:
        ((found,),) = self._session.run("SELECT v FROM bench_native.bare WHERE p = ? AND k = ?", *_bare(stored))
        value: bytes = found
        return value

    def update(self, old: Thing, new: Thing) -> None:
        del old
        self.insert(new)

    def delete(self, old: Thing) -> None:
        self._session.run("DELETE FROM bench_native.bare WHERE p = ? AND k = ?", *_bare(old))

    def query(self, kind: Thing) -> Sequence[bytes]:
        partition, _ = _bare(kind)
        rows = self._session.run("SELECT v FROM bench_native.bare WHERE p = ? LIMIT ?", partition, ROWS)
        return [value for (value,) in rows]

    def close(self) -> None:
        self._session.close()


_PUT = "UPDATE bench_native.groups SET v = ? WHERE s = ? AND k = ?"
_DELETE = "DELETE v FROM bench_native.groups WHERE s = ? AND k = ?"
_ROW = "WHERE t = ? AND s = ? AND b = ? AND k = ?"
_PUT_ROW = f"UPDATE bench_native.rows USING TIMESTAMP ? SET v = ? {_ROW}"
_DELETE_ROW = f"DELETE v FROM bench_native.rows USING TIMESTAMP ? {_ROW}"


class Indexed:
    """The same rows as PBServer's. A group's head and its entity are one partition, changed by one conditional batch;
    then the index rows, with timestamps, in one unlogged batch. Who inserts knows that there is nothing; who changes or
    deletes reads head and entity first. A row of an index holds the key of its entity.
    """

    _BUCKETS = range(4)

    def __init__(self, url: str) -> None:
        self._session = _Session(url, _INDEXED)

    def insert(self, new: Thing) -> None:
        self._change(new, None, (_PUT, (new.value, new.address.scope, new.address.key)))
        self._index(new, added=new.index)

    def read(self, stored: Thing) -> bytes:
        return self._seen(stored)[stored.address.key]

    def update(self, old: Thing, new: Thing) -> None:
        head = self._seen(old)[old.head.key]
        self._change(new, head, (_PUT, (new.value, new.address.scope, new.address.key)))
        self._index(new, added={*new.index} - {*old.index}, gone={*old.index} - {*new.index})

    def delete(self, old: Thing) -> None:
        head = self._seen(old)[old.head.key]
        self._change(old, head, (_DELETE, (old.address.scope, old.address.key)))
        self._index(old, gone=old.index)

    def query(self, kind: Thing) -> Sequence[bytes]:
        first = kind.index[0]
        low = first.key[: -len(kind.key.path)]
        found = self._session.run(
            "SELECT k, v FROM bench_native.rows WHERE t = ? AND s = ? AND b IN ? AND k >= ? AND k < ?"
            " PER PARTITION LIMIT ?",
            *(first.table.value, first.scope, self._BUCKETS, low, after_prefix(low), ROWS),
        )
        groups = [group for _, group in sorted(found)[:ROWS]]
        statement = self._session.prepared("SELECT s, v FROM bench_native.groups WHERE s IN ? AND k = ?")
        futures = [
            self._session.driver.execute_async(statement, (groups[start : start + SCOPES_AT_ONCE], kind.address.key))
            for start in range(0, len(groups), SCOPES_AT_ONCE)
        ]
        values = {group: value for future in futures for group, value in future.result()}
        return [values[group] for group in groups]

    def close(self) -> None:
        self._session.close()

    def _seen(self, thing: Thing) -> dict[bytes, bytes]:
        """Head and entity, in one state."""
        keys = [thing.head.key, thing.address.key]
        text = "SELECT k, v FROM bench_native.groups WHERE s = ? AND k IN ?"
        return dict(self._session.run(text, thing.address.scope, keys))

    def _change(self, thing: Thing, head: bytes | None, change: tuple[str, Sequence[object]]) -> None:
        version = time.time_ns().to_bytes(8, "big")
        condition = (_PUT + " IF v = ?", (version, thing.head.scope, thing.head.key, head))
        ((applied, *_),) = self._session.batch([condition, change])
        if not applied:
            raise ValueError("a head has moved, although nobody else is there")

    def _index(self, thing: Thing, *, added: Iterable[IndexRow] = (), gone: Iterable[IndexRow] = ()) -> None:
        version = time.time_ns() // 1000
        number = bucket(thing.key.path, len(self._BUCKETS))
        puts = [(_PUT_ROW, (version, thing.address.scope, *_row(row, number))) for row in added]
        self._session.batch([*puts, *((_DELETE_ROW, (version, *_row(row, number))) for row in gone)])


def _row(row: IndexRow, number: int) -> tuple[bytes, bytes, int, bytes]:
    return row.table.value, row.scope, number, row.key


def _bare(thing: Thing) -> tuple[bytes, bytes]:
    """Partition and key."""
    kind = thing.key.partition + thing.key.kind
    if thing.key.kind == QUERIED + b"\x00":
        return kind, thing.key.path
    return kind + thing.key.path, b""
