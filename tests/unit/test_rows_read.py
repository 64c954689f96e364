"""What queries read: projection, keys-only and count are answered by index rows alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import Address, KeyRange, OrderedStore, Reader, Row, Table
from pbserver.datastore.composites import Definition
from pbserver.datastore.core import Datastore
from pbserver.datastore.execute import Progress
from pbserver.datastore.keys import encode_kind, project_of
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Op, Order, Query, normalize
from tests.unit.building import FAR, entity, key, query, reference


class CountingReader:
    """Counts the rows that come out of each table."""

    def __init__(self, inner: Reader, rows: Counter[Table]) -> None:
        self._inner = inner
        self._rows = rows

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self._rows.update(address.table for address in addresses)
        return self._inner.read(addresses, deadline=deadline, settle=settle)

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        self._rows[table] += len(keys)
        return self._inner.fetch(table, scopes, keys, deadline=deadline)

    def scan(self, table: Table, scope: bytes, keys: KeyRange, **options: Any) -> list[Row]:
        rows = self._inner.scan(table, scope, keys, **options)
        self._rows[table] += len(rows)
        return rows


class CountingStore:
    def __init__(self, inner: OrderedStore) -> None:
        self._inner = inner
        self.rows: Counter[Table] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        with self._inner.snapshot() as reader:
            yield CountingReader(reader, self.rows)


@pytest.fixture
def counted() -> tuple[Datastore, CountingStore]:
    """500 entities: p and q have one of ten values each, t two of three. One composite index: p, q descending."""
    store = CountingStore(open_store("memory:"))
    datastore = Datastore(store, testing=True)  # type: ignore[arg-type]
    datastore.prepare(deadline=FAR)
    stored = [entity(reference((b"K", n)), p=n % 10, q=n // 7 % 10, t=[n % 3, (n + 1) % 3]) for n in range(1, 501)]
    datastore.write([Mutation(each.key, each) for each in stored], None, deadline=FAR)
    project = project_of(key((b"K", 1)).partition)
    definition = Definition(encode_kind(b"K"), False, (Order(b"p", False), Order(b"q", True)))
    datastore.catalog.create(project, definition, deadline=FAR)
    builder = datastore.builder()
    (work,) = builder.unfinished(deadline=FAR)
    while builder.step(work, deadline=FAR):
        pass
    store.rows.clear()
    return datastore, store


def keys_only(asked: Query) -> Query:
    return replace(asked, keys_only=True)


def projecting(asked: Query, *names: bytes) -> Query:
    return normalize(replace(asked, orders=asked.asked_orders, projection=names))


INDEX_ONLY = [
    ("keys of a kind", keys_only(query())),
    ("keys by one property", keys_only(query(orders=[(b"p", True)]))),
    ("keys by a merge join", keys_only(query(filters=[(b"p", Op.EQUAL, 1), (b"q", Op.EQUAL, 3), (b"t", Op.EQUAL, 1)]))),
    ("keys by a composite index", keys_only(query(filters=[(b"p", Op.EQUAL, 1)], orders=[(b"q", True)]))),
    ("projection of one property", projecting(query(filters=[(b"p", Op.GREATER, 3)]), b"p")),
    ("projection of a repeated property", projecting(query(), b"t")),
    ("projection by a composite index", projecting(query(orders=[(b"p", False), (b"q", True)]), b"p", b"q")),
]


@pytest.mark.parametrize("asked", [each[1] for each in INDEX_ONLY], ids=[each[0] for each in INDEX_ONLY])
def test_no_entity_is_read(counted: tuple[Datastore, CountingStore], asked: Query) -> None:
    datastore, store = counted
    batch = datastore.query(asked, Progress(None, 0, None), 1000, None, deadline=FAR)
    assert batch.rows
    assert store.rows[Table.GROUPS] == 0
    store.rows.clear()
    assert datastore.count(asked, Progress(None, 0, None), None, deadline=FAR) == len(batch.rows)
    assert store.rows[Table.GROUPS] == 0


def test_a_whole_entity_is_read_once_per_result(counted: tuple[Datastore, CountingStore]) -> None:
    datastore, store = counted
    batch = datastore.query(query(filters=[(b"p", Op.EQUAL, 1)]), Progress(None, 0, 20), 20, None, deadline=FAR)
    assert len(batch.frames) == store.rows[Table.GROUPS] == 20


def test_a_distinct_query_skips_what_it_does_not_show(counted: tuple[Datastore, CountingStore]) -> None:
    datastore, store = counted
    asked = projecting(query(), b"p")
    grouped = normalize(replace(asked, orders=(), group_by=frozenset((b"p",))))
    batch = datastore.query(grouped, Progress(None, 0, 3), 3, None, deadline=FAR)
    assert len(batch.rows) == 3
    assert store.rows[Table.INDEXES] < 20
