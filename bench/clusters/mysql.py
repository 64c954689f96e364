"""PyMySQL on MariaDB and Galera, as a program of its own would use it."""

import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pymysql

from adapters.contract import Address, after_prefix
from adapters.mysql.nodes import parse_place
from adapters.url import parse_url
from bench.clusters.work import ROWS, IndexRow, Thing

_CREATE = "CREATE TABLE IF NOT EXISTS {} DEFAULT CHARSET=binary ROW_FORMAT=DYNAMIC"
_BARE = _CREATE.format("bench_bare (k VARBINARY(3071) NOT NULL PRIMARY KEY, v LONGBLOB NOT NULL)")
_INDEXED = _CREATE.format(
    "bench_rows (tbl TINYINT UNSIGNED NOT NULL, k VARBINARY(3071) NOT NULL, v LONGBLOB NOT NULL, PRIMARY KEY (tbl, k))"
)


def _connected(url: str, *, autocommit: bool) -> Any:
    place = parse_place(parse_url(url))
    host = place.hosts[0]
    return pymysql.connect(
        host=host.name,
        port=host.port,
        user=place.user,
        password=place.password,
        database=place.database,
        autocommit=autocommit,
    )


class Bare:
    """Every entity one row under its key, every operation one statement that commits itself."""

    def __init__(self, url: str) -> None:
        self._connection = _connected(url, autocommit=True)
        self._cursor = self._connection.cursor()
        self._cursor.execute(_BARE)

    def insert(self, new: Thing) -> None:
        self._cursor.execute("INSERT INTO bench_bare (k, v) VALUES (%s, %s)", (_place(new.address), new.value))

    def read(self, stored: Thing) -> bytes:
        self._cursor.execute("SELECT v FROM bench_bare WHERE k = %s", (_place(stored.address),))
        found: bytes = self._cursor.fetchone()[0]
        return found

    def update(self, old: Thing, new: Thing) -> None:
        self._cursor.execute("UPDATE bench_bare SET v = %s WHERE k = %s", (new.value, _place(old.address)))

    def delete(self, old: Thing) -> None:
        self._cursor.execute("DELETE FROM bench_bare WHERE k = %s", (_place(old.address),))

    def query(self, kind: Thing) -> Sequence[bytes]:
        low = kind.key.partition + kind.key.kind
        self._cursor.execute(
            "SELECT v FROM bench_bare WHERE k >= %s AND k < %s ORDER BY k LIMIT %s", (low, after_prefix(low), ROWS)
        )
        return [row[0] for row in self._cursor.fetchall()]

    def close(self) -> None:
        self._connection.close()


class Indexed:
    """The same rows as PBServer's. A write locks its group's head, reads what is there, and changes entity, head and
    index rows in one transaction; reads on Galera see what any node has committed. A row of an index holds the key of
    its entity, so a query is one join.
    """

    def __init__(self, url: str) -> None:
        self._reading = _connected(url, autocommit=True)
        self._reader = self._reading.cursor()
        self._reader.execute(_INDEXED)
        self._writing = _connected(url, autocommit=False)
        self._writer = self._writing.cursor()
        self._writer.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._reader.execute("SHOW STATUS LIKE 'wsrep_ready'")
        if self._reader.fetchall():
            self._reader.execute("SET SESSION wsrep_sync_wait = 1")

    def insert(self, new: Thing) -> None:
        self._lock(new)
        self._store(new, new.index)
        self._writing.commit()

    def read(self, stored: Thing) -> bytes:
        found = (stored.address.table.value[0], _place(stored.address))
        self._reader.execute("SELECT v FROM bench_rows WHERE tbl = %s AND k = %s", found)
        value: bytes = self._reader.fetchone()[0]
        return value

    def update(self, old: Thing, new: Thing) -> None:
        self._lock(new)
        gone, added = {*old.index} - {*new.index}, {*new.index} - {*old.index}
        self._remove(gone)
        self._store(new, added)
        self._writing.commit()

    def delete(self, old: Thing) -> None:
        self._lock(old)
        self._remove([*old.index, IndexRow(old.address.table, old.address.scope, old.address.key)])
        self._write([_head(old)])
        self._writing.commit()

    def query(self, kind: Thing) -> Sequence[bytes]:
        first = kind.index[0]
        low = first.scope + first.key[: -len(kind.key.path)]
        self._reader.execute(
            "SELECT e.v FROM bench_rows i JOIN bench_rows e ON e.tbl = %s AND e.k = i.v"
            " WHERE i.tbl = %s AND i.k >= %s AND i.k < %s ORDER BY i.k LIMIT %s",
            (kind.address.table.value[0], first.table.value[0], low, after_prefix(low), ROWS),
        )
        return [row[0] for row in self._reader.fetchall()]

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

    def _lock(self, thing: Thing) -> None:
        places = [(each.table.value[0], _place(each)) for each in (thing.head, thing.address)]
        self._writer.execute(
            "SELECT tbl, k, v FROM bench_rows WHERE (tbl, k) IN ((%s, %s), (%s, %s)) FOR UPDATE", [*chain(*places)]
        )
        self._writer.fetchall()

    def _store(self, thing: Thing, index: Iterable[IndexRow]) -> None:
        entity = _place(thing.address)
        rows = [(row.table.value[0], row.scope + row.key, entity) for row in index]
        self._write([_head(thing), (thing.address.table.value[0], entity, thing.value), *rows])

    def _write(self, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        texts = ",".join(["(%s, %s, %s)"] * len(rows))
        self._writer.execute(
            f"INSERT INTO bench_rows (tbl, k, v) VALUES {texts} ON DUPLICATE KEY UPDATE v = VALUES(v)",
            [*chain(*sorted(rows))],
        )

    def _remove(self, rows: Iterable[IndexRow]) -> None:
        places = sorted((row.table.value[0], row.scope + row.key) for row in rows)
        texts = ",".join(["(%s, %s)"] * len(places))
        self._writer.execute(f"DELETE FROM bench_rows WHERE (tbl, k) IN ({texts})", [*chain(*places)])


def _place(address: Address) -> bytes:
    return address.scope + address.key


def _head(thing: Thing) -> tuple[int, bytes, bytes]:
    """With a version that was never there."""
    return thing.head.table.value[0], _place(thing.head), time.time_ns().to_bytes(8, "big")
