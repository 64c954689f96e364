"""thriftpy2 on HBase's Thrift2 servers, as a program of its own would use it."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from thriftpy2.rpc import make_client

from adapters.contract import after_prefix
from adapters.hbase.codec import wire
from adapters.hbase.nodes import HORIZON_SECONDS, PURGE, parse_place
from adapters.url import parse_url
from bench.clusters.work import ROWS, IndexRow, Thing

_FAMILY = b"f"
_VALUE, _HEAD, _RECORD = b"v", b"h", b"r"
_TIMEOUT_MILLISECONDS = 60_000


class _Table:
    def __init__(self, url: str, name: str, configuration: dict[str, str]) -> None:
        host = parse_place(parse_url(url)).hosts[0]
        self.name = name.encode()
        self.client: Any = make_client(wire.THBaseService, host.name, host.port, timeout=_TIMEOUT_MILLISECONDS)
        called = wire.TTableName(ns=b"default", qualifier=self.name)
        if not self.client.tableExists(called):
            family = wire.TColumnFamilyDescriptor(name=_FAMILY, maxVersions=1, configuration=configuration)
            self.client.createTable(wire.TTableDescriptor(tableName=called, columns=[family]), None)

    def values(self, rows: Iterable[bytes]) -> list[dict[bytes, bytes]]:
        """By column; empty where there is no row."""
        results = self.client.getMultiple(self.name, [wire.TGet(row=row) for row in rows])
        return [{cell.qualifier: cell.value for cell in result.columnValues} for result in results]

    def scan(self, low: bytes) -> list[dict[bytes, bytes]]:
        """The first ROWS rows that begin with `low`."""
        scan = wire.TScan(startRow=low, stopRow=after_prefix(low), caching=ROWS, limit=ROWS)
        results = self.client.getScannerResults(self.name, scan, ROWS)
        return [{cell.qualifier: cell.value for cell in result.columnValues} for result in results]


class Bare:
    """Every entity one row."""

    def __init__(self, url: str) -> None:
        self._table = _Table(url, "bench_bare", {})

    def insert(self, new: Thing) -> None:
        self._table.client.putMultiple(self._table.name, [_put(_bare(new), new.value)])

    def read(self, stored: Thing) -> bytes:
        return self._table.values([_bare(stored)])[0][_VALUE]

    def update(self, old: Thing, new: Thing) -> None:
        del old
        self.insert(new)

    def delete(self, old: Thing) -> None:
        self._table.client.deleteMultiple(self._table.name, [wire.TDelete(row=_bare(old))])

    def query(self, kind: Thing) -> Sequence[bytes]:
        return [found[_VALUE] for found in self._table.scan(kind.key.partition + kind.key.kind)]

    def close(self) -> None:
        self._table.client.close()


class Indexed:
    """The same rows as PBServer's. A group's head is set by checkAndPut together with a record of the change, by which
    anybody could finish it; then entity and index rows are put and deleted with the change's version as their
    timestamp. Whoever reads looks at the head too. A row of an index holds the key of its entity.
    """

    def __init__(self, url: str) -> None:
        self._table = _Table(url, "bench_rows", {PURGE: str(HORIZON_SECONDS * 1000)})
        self._version = int(time.time() * 1000)

    def insert(self, new: Thing) -> None:
        self._change(new, None, added=new.index)

    def read(self, stored: Thing) -> bytes:
        return self._table.values([_head(stored), _entity(stored)])[1][_VALUE]

    def update(self, old: Thing, new: Thing) -> None:
        head, _ = self._table.values([_head(old), _entity(old)])
        added, gone = {*new.index} - {*old.index}, {*old.index} - {*new.index}
        self._change(new, head[_HEAD], added=added, gone=[_row(row) for row in gone])

    def delete(self, old: Thing) -> None:
        head, _ = self._table.values([_head(old), _entity(old)])
        self._change(old, head[_HEAD], gone=[_entity(old), *map(_row, old.index)])

    def query(self, kind: Thing) -> Sequence[bytes]:
        found = self._table.scan(_row(kind.index[0])[: -len(kind.key.path)])
        return [entity[_VALUE] for entity in self._table.values(row[_VALUE] for row in found)]

    def close(self) -> None:
        self._table.client.close()

    def _change(
        self, thing: Thing, head: bytes | None, *, added: Iterable[IndexRow] = (), gone: Sequence[bytes] = ()
    ) -> None:
        self._version += 1
        entity, rows = _entity(thing), [_row(row) for row in added]
        record = b"".join((thing.value, *rows, *gone))
        cells = {_HEAD: self._version.to_bytes(8, "big"), _RECORD: record}
        put = wire.TPut(
            row=_head(thing),
            columnValues=[wire.TColumnValue(family=_FAMILY, qualifier=name, value=cells[name]) for name in cells],
        )
        table, client = self._table.name, self._table.client
        if not client.checkAndPut(table, put.row, _FAMILY, _HEAD, head, put):
            raise ValueError("a head has moved, although nobody else is there")
        if rows:
            puts = [_put(entity, thing.value, self._version), *(_put(row, entity, self._version) for row in rows)]
            client.putMultiple(table, puts)
        if gone:
            client.deleteMultiple(table, [_delete(row, self._version) for row in gone])


def _put(row: bytes, value: bytes, version: int | None = None) -> Any:
    cell = wire.TColumnValue(family=_FAMILY, qualifier=_VALUE, value=value, timestamp=version)
    return wire.TPut(row=row, columnValues=[cell])


def _delete(row: bytes, version: int) -> Any:
    column = wire.TColumn(family=_FAMILY, qualifier=_VALUE, timestamp=version)
    return wire.TDelete(row=row, columns=[column], deleteType=wire.TDeleteType.DELETE_COLUMNS)


def _bare(thing: Thing) -> bytes:
    return thing.key.partition + thing.key.kind + thing.key.path


def _head(thing: Thing) -> bytes:
    return b"".join((thing.head.table.value, thing.head.scope, thing.head.key))


def _entity(thing: Thing) -> bytes:
    return b"".join((thing.address.table.value, thing.address.scope, thing.address.key))


def _row(row: IndexRow) -> bytes:
    return b"".join((row.table.value, row.scope, row.key))
