"""The copy to start a new adapter from: replace the bodies, register it, add it to the conformance matrix.

What no signature says:
- One store object per process, used by many threads at once. Keep the driver's connection pool inside, open it in
  __init__ (workers are forked before), set the driver's retries to zero: the caller knows what may be repeated.
- State in CAPABILITIES only what the conformance suite can prove. It tests both ways: what is not claimed is refused.
- A call that cannot finish by `deadline` (a time.monotonic() instant) raises Unavailable, with applied=UNKNOWN as
  soon as the write may have left this process.
- Map the driver's exceptions in one function, from tuples of classes, `raise ... from`. Leave TypeError, KeyError and
  the like alone: bugs must look like bugs.
- Values come back as bytes, rows in byte order of their keys, without the scope.
- Past 400 lines, make it a folder: store.py, connection.py, codec.py, errors.py.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from adapters.contract import (
    Address,
    Atomicity,
    Capabilities,
    Consistency,
    Durable,
    KeyRange,
    Operation,
    Reader,
    Row,
    Rows,
    Table,
    addresses,
)
from adapters.errors import Applied, StoreError, Unavailable, Unsupported
from adapters.url import StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.ROW,
    compare_and_set=True,
    versioned_writes=False,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.SYNCED,
    shared=True,
    remote=True,
    max_key_bytes=None,
    max_value_bytes=None,
    max_batch=None,
    max_batch_bytes=None,
)

#: The driver's classes after which a request may or may not have been carried out.
UNKNOWN_OUTCOME: tuple[type[Exception], ...] = (TimeoutError, ConnectionError)


class TemplateStore:
    """One sentence: which database, through which driver, with which consistency settings."""

    def __init__(self, hosts: str, *, pool_size: int) -> None:
        self._hosts = hosts
        self._pool_size = pool_size

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def ensure_tables(self) -> None:
        raise NotImplementedError("create what is missing; change and drop nothing")

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        raise NotImplementedError("one round trip for all addresses, answers in their order")

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        raise NotImplementedError("let the database cut at `limit`; never fetch a scope to sort it here")

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        raise NotImplementedError("Conflict names the first operation, by position; row_writes(rows) takes rows apart")

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("template: this database has no snapshots")

    def drop_tables(self) -> None:
        raise NotImplementedError("rows go, tables stay usable")

    def check(self) -> None:
        raise NotImplementedError("the cheapest question that a broken database cannot answer")

    def close(self) -> None:
        """May be called twice, and while other threads still ask: they get Unavailable."""


def translated(error: Exception, *, wrote: bool) -> StoreError:
    """The only place where the driver's exceptions become the contract's."""
    unknown = wrote and isinstance(error, UNKNOWN_OUTCOME)
    return Unavailable(f"template: {error}", Applied.UNKNOWN if unknown else Applied.NO)


def open_url(url: StoreUrl) -> TemplateStore:
    """`template:HOST,HOST?pool_size=9`. What registry.py calls; reads every option, then refuses what is left over."""
    pool_size = url.options.integer("pool_size", 9, 1, 1000)
    url.options.finish()
    return TemplateStore(url.place, pool_size=pool_size)
