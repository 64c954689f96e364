"""py-lmdb, as a program of its own would use it: in its own process, synced unless the URL says durability=none."""

import time
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from pathlib import Path

import lmdb

from adapters.contract import Address
from adapters.url import parse_url
from bench.clusters.work import ROWS, IndexRow, Thing

_MAP_BYTES = 1 << 40


def _opened(url: str, name: str) -> lmdb.Environment:
    """Beside PBServer's store."""
    asked = parse_url(url)
    place = Path(asked.place).with_name(f"bench_{name}.lmdb")
    return lmdb.open(str(place), map_size=_MAP_BYTES, sync=asked.options.text("durability", "sync") != "none")


class Bare:
    """Every entity one row under its key, every operation one transaction."""

    def __init__(self, url: str) -> None:
        self._environment = _opened(url, "bare")

    def insert(self, new: Thing) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(_bare(new), new.value)

    def read(self, stored: Thing) -> bytes:
        with self._environment.begin() as transaction:
            return bytes(transaction.get(_bare(stored)) or b"")

    def update(self, old: Thing, new: Thing) -> None:
        del old
        self.insert(new)

    def delete(self, old: Thing) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.delete(_bare(old))

    def query(self, kind: Thing) -> Sequence[bytes]:
        low = kind.key.partition + kind.key.kind
        with self._environment.begin() as transaction:
            return [value for _, value in _rows(transaction, low)]

    def close(self) -> None:
        self._environment.close()


class Indexed:
    """The same rows as PBServer's. A write reads its group's head and the entity, and changes entity, head and index
    rows in one transaction. A row of an index holds the key of its entity.
    """

    def __init__(self, url: str) -> None:
        self._environment = _opened(url, "indexed")

    def insert(self, new: Thing) -> None:
        self._change(new, added=new.index)

    def read(self, stored: Thing) -> bytes:
        with self._environment.begin() as transaction:
            return bytes(transaction.get(_place(stored.address)) or b"")

    def update(self, old: Thing, new: Thing) -> None:
        self._change(new, added={*new.index} - {*old.index}, gone={*old.index} - {*new.index})

    def delete(self, old: Thing) -> None:
        self._change(old, gone=old.index, stays=False)

    def query(self, kind: Thing) -> Sequence[bytes]:
        low = _row(kind.index[0])[: -len(kind.key.path)]
        with self._environment.begin() as transaction:
            return [bytes(transaction.get(entity) or b"") for _, entity in _rows(transaction, low)]

    def close(self) -> None:
        self._environment.close()

    def _change(
        self, thing: Thing, *, added: Iterable[IndexRow] = (), gone: Iterable[IndexRow] = (), stays: bool = True
    ) -> None:
        entity, head = _place(thing.address), _place(thing.head)
        with self._environment.begin(write=True) as transaction:
            transaction.get(head)
            transaction.get(entity)
            transaction.put(head, time.time_ns().to_bytes(8, "big"))
            if stays:
                transaction.put(entity, thing.value)
            else:
                transaction.delete(entity)
            for row in added:
                transaction.put(_row(row), entity)
            for row in gone:
                transaction.delete(_row(row))


def _rows(transaction: lmdb.Transaction, low: bytes) -> list[tuple[bytes, bytes]]:
    """The first ROWS rows that begin with `low`."""
    cursor = transaction.cursor()
    cursor.set_range(low)
    rows = ((bytes(key), bytes(value)) for key, value in islice(cursor, ROWS))
    return [*takewhile(lambda row: row[0].startswith(low), rows)]


def _bare(thing: Thing) -> bytes:
    return thing.key.partition + thing.key.kind + thing.key.path


def _place(address: Address) -> bytes:
    return b"".join((address.table.value, address.scope, address.key))


def _row(row: IndexRow) -> bytes:
    return b"".join((row.table.value, row.scope, row.key))
