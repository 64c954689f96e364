"""A row, a database that others get ahead in, and short ways to use a store on them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapters.conformance.plugin import bare
from adapters.contract import Address, KeyRange, Operation, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Unavailable
from adapters.layers import changes
from adapters.layers.zookeeper import ZookeeperStore

KEY = Address(Table.GROUPS, b"s\x00", b"place", b"k")
OTHER = KEY._replace(key=b"other")
LONG = b"long" * (changes.INLINE_BYTES // 4) + b"!"
#: Opens a store: open_one(store, at).
Open = Callable[..., ZookeeperStore]


def soon(seconds: float = 30) -> float:
    return time.monotonic() + seconds


def weak(options: str = "") -> OrderedStore:
    store = bare(f"weak:?versions=yes&compare_and_set=no{options}")
    assert isinstance(store, OrderedStore)
    return store


class Meanwhile:
    """A database before whose next writes or reads something else happens, which may also raise."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store
        self.before_reads: list[Callable[[], object]] = []
        self.before_writes: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        if self.before_reads:
            self.before_reads.pop(0)()
        return self._store.read(addresses, deadline=deadline, settle=settle)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if self.before_writes:
            self.before_writes.pop(0)()
        self._store.write(operations, rows=rows, deadline=deadline)


def put(store: ZookeeperStore, value: bytes | None, address: Address = KEY) -> None:
    store.write([Write(address, value)], deadline=soon())


def swap(store: ZookeeperStore, old: bytes, new: bytes | None, seconds: float = 30) -> None:
    store.write([Write(KEY, new, old)], deadline=soon(seconds))


def get(store: OrderedStore | ZookeeperStore, address: Address = KEY, *, settle: bool = False) -> bytes | None:
    return store.read([address], deadline=soon(), settle=settle)[0]


def intents(database: OrderedStore) -> int:
    return len(database.scan(KEY.table, changes.intent_scope(KEY.scope), KeyRange(), limit=99, deadline=soon()))


def crash() -> None:
    raise Unavailable("the process ends here", Applied.UNKNOWN)


def broken_off(work: Callable[[], object]) -> None:
    with pytest.raises(Unavailable) as raised:
        work()
    assert raised.value.applied is Applied.UNKNOWN
