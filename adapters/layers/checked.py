"""CheckedStore: the contract, enforced on both sides of a store. Always the outermost layer.

What a caller may not ask of any store is refused with TypeError or ValueError (a bug of the caller's), what this store
does not claim with Unsupported, what is over a stated limit with TooLarge, and rows out of order or range with Corrupt.
Layers and adapters below rely on it. Exceptions that are no StoreError pass through unchanged:
they are bugs and must look like it. All this runs on every call, so a batch is turned into columns and each column
is tested by one C function; what was wrong is found out only after a test has failed.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from operator import attrgetter, gt, itemgetter, lt
from types import TracebackType

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Expectation,
    KeyRange,
    Operation,
    OrderedStore,
    PointStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    addresses,
    is_conditional,
    row_writes,
    swept,
)
from adapters.errors import Corrupt, TooLarge, Unsupported
from adapters.layers.recorded import Record

_FIRST = itemgetter(0)
_EXPECT = attrgetter("expect")
_EXPECTATIONS = {bytes, type(ANY), type(ABSENT)}
_TABLES = frozenset(map(id, Table))  # an Enum's own hash is a Python function, so tables are told apart by id
_JOIN = b"".join  # the cheapest way to find out that all are bytes
_VOLATILE = frozenset(id(table) for table in Table if table.volatile)
MAX_VERSION = (1 << 63) - 1


class _Checked:
    """Checked reads of whole addresses, of a store or of its snapshot."""

    def __init__(self, reader: Reader | PointStore, limits: Capabilities) -> None:
        self._points = reader
        self._limits = limits
        self._max_key = limits.max_key_bytes

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        most = self._max_key
        for table, scope, place, key in addresses:
            if (
                type(table) is not Table
                or type(scope) is not bytes
                or type(place) is not bytes
                or type(key) is not bytes
            ):
                raise _not_addresses(addresses)
            if most is not None and len(scope) + len(key) > most:
                raise _long_key(scope, key, most)
        values = self._points.read(addresses, deadline=deadline, settle=settle)
        if len(values) != len(addresses):
            raise Corrupt(f"{len(addresses)} addresses were read, {len(values)} values came back")
        return values


class CheckedReader(_Checked):
    """Checked reads, of an ordered store or of its snapshot."""

    def __init__(self, reader: Reader, limits: Capabilities) -> None:
        _Checked.__init__(self, reader, limits)
        self._reader = reader

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        if type(table) is not Table or len(scopes) != len(keys):
            raise TypeError(f"not a table and columns of one length: {table!r}, {len(scopes)} and {len(keys)}")
        if not scopes:
            return []
        try:
            _JOIN(scopes)
            _JOIN(keys)
        except TypeError:
            raise _not_addresses(addresses(table, scopes, keys)) from None
        most = self._max_key
        if most is not None and max(map(len, scopes)) + max(map(len, keys)) > most:
            self.read(addresses(table, scopes, keys), deadline=deadline)  # finds the one that is too long
        values = self._reader.fetch(table, scopes, keys, deadline=deadline)
        if len(values) != len(keys):
            raise Corrupt(f"{len(keys)} rows were fetched, {len(values)} values came back")
        return values

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        start, stop = keys
        if type(table) is not Table or type(scope) is not bytes or type(start) is not bytes:
            raise TypeError(f"not a table, scope and range: {table!r}, {scope!r:.100}, {keys!r:.100}")
        if stop is not None and type(stop) is not bytes:
            raise TypeError(f"the range ends in neither bytes nor None: {keys!r:.100}")
        if limit < 0:
            raise ValueError(f"a scan of at most {limit} rows")
        if reverse and not self._limits.reverse_scan:
            raise Unsupported("a scan backwards, but this store does not claim reverse_scan")
        rows = self._reader.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        if rows:
            _check_rows(rows, keys, limit, reverse)
        return rows


def _check_rows(rows: list[Row], keys: KeyRange, limit: int, reverse: bool) -> None:
    found = [*map(_FIRST, rows)]
    if not all(map(gt if reverse else lt, found, islice(found, 1, None))):
        raise Corrupt("a scan returned its rows out of order")
    low, high = (found[-1], found[0]) if reverse else (found[0], found[-1])
    if low < keys.start or (keys.stop is not None and high >= keys.stop) or len(rows) > limit:
        raise Corrupt(f"a scan of {keys!r:.100} returned {len(rows)} of {limit} rows, {low!r:.100} to {high!r:.100}")


class _Snapshot:
    """A store's snapshot with its reads checked."""

    def __init__(self, inner: AbstractContextManager[Reader], limits: Capabilities) -> None:
        self._inner = inner
        self._limits = limits

    def __enter__(self) -> Reader:
        return CheckedReader(self._inner.__enter__(), self._limits)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, traceback)


class CheckedPoints(_Checked):
    """A point store whose callers and whose answers keep to the contract."""

    def __init__(self, store: PointStore) -> None:
        _Checked.__init__(self, store, store.capabilities)
        self.inner = store  #: the store below, for metrics and tests
        limits = self._limits
        self._max_value = limits.max_value_bytes
        self._takes_any_condition = (
            limits.compare_and_set and limits.atomicity is Atomicity.BATCH and not limits.versioned_writes
        )
        self._counted = limits.max_batch is not None or limits.max_batch_bytes is not None

    @property
    def capabilities(self) -> Capabilities:
        return self._limits

    def ensure_tables(self) -> None:
        self.inner.ensure_tables()

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if rows:
            self._check_bulk(operations, rows)
        if operations:
            self._check_operations(operations, bulk=bool(rows))
        if self._counted:
            self._check_size([*operations, *row_writes(rows)])
        if operations or rows:
            self.inner.write(operations, rows=rows, deadline=deadline)

    def _check_operations(self, operations: Sequence[Operation], *, bulk: bool) -> None:
        if [*map(type, operations)].count(Write) == len(operations):
            addresses, values, expectations, versions = zip(*operations, strict=True)
        else:
            addresses, values, expectations, versions = _columns(operations)
        self._check_addresses(addresses)
        self._check_values(values)
        if expectations.count(ANY) != len(expectations):
            if not {*map(type, expectations)} <= _EXPECTATIONS:
                raise TypeError("an expectation is ANY, ABSENT or bytes")
            if not self._takes_any_condition:
                _check_conditions(operations, bulk, self._limits)
        if any(version is not None for version in versions):
            self._check_versions(versions)

    def _check_versions(self, versions: Collection[int | None]) -> None:
        if not self._limits.versioned_writes:
            raise Unsupported("a version was given, but this store does not claim versioned_writes")
        for version in versions:
            if version is not None and not (type(version) is int and 0 <= version <= MAX_VERSION):
                raise ValueError(f"a version is a whole number from 0 to 2**63 - 1, not {version!r}")

    def _check_bulk(self, operations: Sequence[Operation], rows: Sequence[Rows]) -> None:
        """Each address at most once: rows that share a scope with others of the batch are looked at one by one."""
        for table, scope, place, values, version in rows:
            if type(table) is not Table or type(scope) is not bytes or type(place) is not bytes or not values:
                raise TypeError(f"not rows of a Table, a scope and a place: {table!r}, {scope!r:.100}, {place!r:.100}")
            try:
                _JOIN(values)
            except TypeError:
                raise _not_addresses(_row_addresses(rows)) from None
            self._check_values(tuple(values.values()))
            if version is not None:
                self._check_versions((version,))
            if self._max_key is not None and len(scope) + max(map(len, values)) > self._max_key:
                self._check_addresses(_row_addresses(rows))
        taken = {(id(address[0]), address[1]) for address, *_ in operations}
        scopes = [(id(each[0]), each[1]) for each in rows]
        if len({*scopes}) != len(scopes) or not taken.isdisjoint(scopes):
            _check_distinct((*(operation[0] for operation in operations), *_row_addresses(rows)))
        if len({table in _VOLATILE for table, _ in (*taken, *scopes)}) > 1:
            raise ValueError("volatile and other tables in one batch")

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        if type(table) is not Table or type(scope) is not bytes:
            raise TypeError(f"not a table and a scope: {table!r}, {scope!r:.100}")
        return swept(self.inner, table, scope, deadline=deadline)

    def drop_tables(self) -> None:
        self.inner.drop_tables()

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()

    def _check_addresses(self, addresses: tuple[Address, ...]) -> None:
        try:
            tables, scopes, places, keys = zip(*addresses, strict=True)
            _JOIN(scopes + places + keys)
        except (TypeError, ValueError):
            raise _not_addresses(addresses) from None
        kinds = {*map(id, tables)}
        if not kinds <= _TABLES:
            raise _not_addresses(addresses)
        if len({*keys}) != len(keys):
            _check_distinct(addresses)
        if not kinds.isdisjoint(_VOLATILE) and not kinds <= _VOLATILE:
            raise ValueError("volatile and other tables in one batch")
        most = self._max_key
        if most is not None and max(map(len, scopes)) + max(map(len, keys)) > most:
            for scope, key in zip(scopes, keys, strict=True):
                if len(scope) + len(key) > most:
                    raise _long_key(scope, key, most)

    def _check_values(self, values: tuple[bytes | None, ...]) -> None:
        deletes = values.count(None)
        if [*map(type, values)].count(bytes) + deletes != len(values):
            raise TypeError("a value is bytes, or None to delete")
        if b"" in values:
            raise ValueError("a value is empty; write None to delete")
        most = self._max_value
        if most is not None and deletes < len(values):
            longest = max(map(len, filter(None, values)))
            if longest > most:
                raise TooLarge(f"a value of {longest} bytes; this store takes {most}")

    def _check_size(self, operations: Sequence[Operation]) -> None:
        rows, most_rows = len(operations), self._limits.max_batch
        if most_rows is not None and rows > most_rows:
            raise TooLarge(f"a batch of {rows} operations; this store takes {most_rows}")
        most = self._limits.max_batch_bytes
        size = sum(len(scope) + len(key) for (_, scope, _, key), *_ in operations)
        size += sum(len(each.value or b"") for each in operations if isinstance(each, Write))
        if most is not None and size > most:
            raise TooLarge(f"a batch of {size} bytes of keys and values; this store takes {most}")


class CheckedStore(CheckedReader, CheckedPoints):
    """An ordered store whose callers and whose answers keep to the contract."""

    inner: OrderedStore

    def __init__(self, store: OrderedStore, record: Record | None = None) -> None:
        CheckedReader.__init__(self, store, store.capabilities)
        CheckedPoints.__init__(self, store)
        self._record = record

    def ensure_tables(self) -> None:
        """Also raises Corrupt when the rows there were written through other layers."""
        self.inner.ensure_tables()
        if self._record is not None:
            self._record.check()

    def drop_tables(self) -> None:
        self.inner.drop_tables()
        if self._record is not None:
            self._record.check()

    def snapshot(self) -> AbstractContextManager[Reader]:
        if not self._limits.snapshot:
            raise Unsupported("a snapshot was asked for, but this store does not claim snapshot")
        return _Snapshot(self.inner.snapshot(), self._limits)


def _check_conditions(operations: Sequence[Operation], bulk: bool, claims: Capabilities) -> None:
    """Whether a call with a condition is one that the store claims to carry out; `bulk`: rows stand beside it."""
    if not claims.compare_and_set:
        raise Unsupported("an expectation was given, but this store does not claim compare_and_set")
    conditional = [operation for operation in operations if is_conditional(operation)]
    if any(isinstance(each, Write) and each.version is not None for each in conditional):
        raise ValueError("a write carries an expectation or a version, not both")
    if claims.atomicity is Atomicity.ROW and (bulk or len(operations) > 1):
        raise Unsupported("atomicity ROW: a conditional operation stands alone in its call")
    if claims.atomicity is Atomicity.SCOPE and len({each.address[:2] for each in conditional}) > 1:
        raise Unsupported("atomicity SCOPE: the conditional operations of a call lie in one table and scope")


_Columns = tuple[tuple[Address, ...], tuple[bytes | None, ...], tuple[Expectation, ...], tuple[int | None, ...]]


def _columns(operations: Sequence[Operation]) -> _Columns:
    """Addresses, values, expectations and versions of a batch that holds Checks too."""
    if not {*map(type, operations)} <= {Write, Check}:
        raise TypeError(f"not all of these are Write or Check: {operations!r:.200}")
    writes = [operation for operation in operations if isinstance(operation, Write)]
    return (
        tuple(map(_FIRST, operations)),
        tuple(write.value for write in writes),
        tuple(map(_EXPECT, operations)),
        tuple(write.version for write in writes),
    )


def _row_addresses(rows: Sequence[Rows]) -> tuple[Address, ...]:
    return tuple(write.address for write in row_writes(rows))


def _check_distinct(addresses: tuple[Address, ...]) -> None:
    names = {table.value + scope + key for table, scope, _, key in addresses}
    if len(names) != len(addresses):
        raise ValueError("an address stands twice in one batch")


def _not_addresses(addresses: Sequence[Address]) -> TypeError:
    return TypeError(f"not all of these are addresses of a Table and three bytes: {addresses!r:.200}")


def _long_key(scope: bytes, key: bytes, most: int) -> TooLarge:
    return TooLarge(f"a key of {len(scope) + len(key)} bytes; this store takes {most} (scope and key together)")
