"""Memory made as poor as asked, to test what the layers and the commit protocol do about it. Never for data.

    weak:?atomicity=row|scope|batch&compare_and_set=yes|no&ordered=yes|no&reverse=yes|no&versions=yes|no
         &snapshot=yes|no&max_key_bytes=N&max_value_bytes=N&max_batch=N&remote=yes|no&stale=yes|no&shuffle=SEED&fail=PERCENT

Limits of 0 are none. What is not claimed is refused (the checked layer stands around it) or visibly does not hold:

- Below atomicity BATCH the parts of a call are applied one by one, and other threads see them appear.
- `shuffle=SEED` applies the parts in random order; each row of a part without conditions may be applied a second time,
  up to LATEST_CALLS calls later.
- `fail=PERCENT` of the write calls stop midway with applied=UNKNOWN. What was left of them is lost, or applied later,
  conditional parts too where their condition still holds. A `settle` read of their row applies half of those at once.
- `stale=yes` claims EVENTUAL: a read or scan may be answered by a replica up to MAX_LAG rows behind, one with `settle`
  never. Two reads may go back in time.

Randomness is seeded (by 0 without `shuffle`), so one thread meets the same faults each time.
"""

import random
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Capabilities,
    Consistency,
    Durable,
    KeyRange,
    Operation,
    PointStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    addresses,
    is_conditional,
    row_writes,
)
from adapters.errors import Applied, Conflict, Unavailable, Unsupported
from adapters.layers.checked import CheckedPoints, CheckedStore
from adapters.memory import MemoryStore
from adapters.url import Options, StoreUrl

CAPABILITIES = Capabilities(
    atomicity=Atomicity.ROW,
    compare_and_set=True,
    versioned_writes=False,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.MEMORY,
    shared=False,
)
MAX_LAG = 8  #: rows
LATEST_CALLS = 20
HORIZON_SECONDS = 3600.0  # claimed; in truth nothing is forgotten

#: What is applied as one: operations with their positions in the call.
_Part = list[tuple[int, Operation]]


class WeakPoints:
    """Rows in two memory stores: the live one, and a replica that follows it by up to MAX_LAG rows."""

    def __init__(self, claims: Capabilities, *, seed: int | None, fail_percent: int) -> None:
        self._claims = claims
        self._stale = claims.consistency is Consistency.EVENTUAL
        self._shuffled = seed is not None
        self._fail_percent = fail_percent
        self._random = random.Random(seed or 0)  # noqa: S311 - faults, not secrets
        self._live = MemoryStore()
        self._replica = MemoryStore()
        self._behind: deque[Write] = deque()
        self._versions: dict[tuple[Table, bytes, bytes], int] = {}
        self._late: list[tuple[int, _Part]] = []
        self._calls = 0
        self._lock = threading.RLock()

    @property
    def capabilities(self) -> Capabilities:
        return self._claims

    def ensure_tables(self) -> None:
        self.check()

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        with self._lock:
            self._begin_call()
            if settle:
                self._settle({address for address in addresses})
            reader = self._live if settle else self._any_copy()
            return reader.read(addresses, deadline=deadline)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        del deadline
        parts = self._parts([*operations, *row_writes(rows)])
        with self._lock:
            self._begin_call()
            fails_at = self._random.randint(0, len(parts)) if self._happens(self._fail_percent) else None
        for number, part in enumerate(parts):
            with self._lock:
                if number == fails_at:
                    self._postpone_some(parts[number:])
                    break
                self._apply(part)
                if self._shuffled and not any(is_conditional(each) for _, each in part):
                    self._postpone_some([[each] for each in part])
        if fails_at is not None:
            raise Unavailable(f"weak: stopped after {fails_at} of {len(parts)} parts, as asked", Applied.UNKNOWN)

    def drop_tables(self) -> None:
        with self._lock:
            self._late.clear()
            self._behind.clear()
            self._versions.clear()
            self._live.drop_tables()
            self._replica.drop_tables()

    def check(self) -> None:
        self._live.check()

    def close(self) -> None:
        self._live.close()
        self._replica.close()

    def _parts(self, operations: Sequence[Operation]) -> list[_Part]:
        numbered = list(enumerate(operations))
        if self._claims.atomicity is Atomicity.BATCH:
            return [numbered]
        parts: list[_Part] = [[each] for each in numbered]
        if self._claims.atomicity is Atomicity.SCOPE:
            scopes: dict[tuple[Table, bytes], _Part] = {}
            for index, operation in numbered:
                scopes.setdefault(operation.address[:2], []).append((index, operation))
            parts = list(scopes.values())
        if self._shuffled:
            with self._lock:
                self._random.shuffle(parts)
        parts.sort(key=lambda part: not any(is_conditional(operation) for _, operation in part))
        return parts

    def _apply(self, part: _Part) -> None:
        found = self._live.read([operation.address for _, operation in part], deadline=0)
        for (index, operation), current in zip(part, found, strict=True):
            wanted = None if operation.expect is ABSENT else operation.expect
            if is_conditional(operation) and current != wanted:
                raise Conflict(f"operation {index} found another value than expected", index=index, current=current)
        writes = [each for _, each in part if isinstance(each, Write) and self._is_newest(each)]
        self._live.write([Write(each.address, each.value) for each in writes], deadline=0)
        for each in writes:
            self._remember_version(each)
        if self._stale:
            self._behind.extend(writes)

    def _is_newest(self, write: Write) -> bool:
        table, scope, _, key = write.address
        return write.version is None or write.version >= self._versions.get((table, scope, key), 0)

    def _remember_version(self, write: Write) -> None:
        table, scope, _, key = write.address
        if write.version is not None:
            self._versions[table, scope, key] = write.version

    def _happens(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _postpone_some(self, parts: list[_Part]) -> None:
        for part in parts:
            if self._happens(25):
                self._late.append((self._calls + self._random.randint(1, LATEST_CALLS), part))

    def _begin_call(self) -> None:
        """Applies what has become due; nobody is told whether it still found what it expected."""
        self._calls += 1
        due = [part for when, part in self._late if when <= self._calls]
        self._late = [(when, part) for when, part in self._late if when > self._calls]
        self._apply_quietly(due)

    def _settle(self, wanted: set[Address]) -> None:
        waiting, self._late = self._late, []
        for when, part in waiting:
            meant = any(is_conditional(each) and each.address in wanted for _, each in part)
            if meant and self._happens(50):
                self._apply_quietly([part])
            else:
                self._late.append((when, part))

    def _apply_quietly(self, parts: list[_Part]) -> None:
        for part in parts:
            try:
                self._apply(part)
            except Conflict:
                continue
            except Unsupported:  # this thread holds a snapshot: not now
                self._late.append((self._calls + 1, part))

    def _any_copy(self) -> MemoryStore:
        while self._behind and (len(self._behind) > MAX_LAG or self._happens(20)):
            address, value, *_ = self._behind.popleft()
            self._replica.write([Write(address, value)], deadline=0)
        return self._replica if self._stale and self._happens(50) else self._live


class WeakStore(WeakPoints):
    """The same with order."""

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        with self._lock:
            self._begin_call()
            return self._any_copy().scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def snapshot(self) -> AbstractContextManager[Reader]:
        return self._live.snapshot()


def open_url(url: StoreUrl) -> PointStore:
    """See the module. Each opening is a new, empty store, already checked: layers over it are held to the contract."""
    if url.place:
        raise Unsupported(f"weak: takes no place, found {url.place!r}; write 'weak:?atomicity=row'")
    options = url.options
    claims = _claims(options)
    shuffle = options.text("shuffle", "")
    if shuffle and not shuffle.isdigit():
        raise Unsupported(f"weak: option shuffle={shuffle!r} is no seed: a whole number")
    seed = int(shuffle) if shuffle else None
    fail_percent = options.integer("fail", 0, 0, 100)
    options.finish()
    if claims.ordered:
        return CheckedStore(WeakStore(claims, seed=seed, fail_percent=fail_percent))
    return CheckedPoints(WeakPoints(claims, seed=seed, fail_percent=fail_percent))


def _claims(options: Options) -> Capabilities:
    def yes(name: str, default: str) -> bool:
        return options.choice(name, ("yes", "no"), default) == "yes"

    def limit(name: str) -> int | None:
        return options.integer(name, 0, 0, 1 << 40) or None

    atomicity = options.choice("atomicity", ("row", "scope", "batch"), "row")
    ordered = yes("ordered", "yes")
    reverse = yes("reverse", "yes" if ordered else "no")
    snapshot = yes("snapshot", "no")
    if not ordered and (reverse or snapshot):
        raise Unsupported("weak: reverse=yes and snapshot=yes need ordered=yes")
    versions = yes("versions", "no")
    return replace(
        CAPABILITIES,
        atomicity=Atomicity[atomicity.upper()],
        compare_and_set=yes("compare_and_set", "yes"),
        versioned_writes=versions,
        version_horizon_seconds=HORIZON_SECONDS if versions else None,
        ordered=ordered,
        reverse_scan=reverse,
        snapshot=snapshot,
        consistency=Consistency.EVENTUAL if yes("stale", "no") else Consistency.STRONG,
        remote=yes("remote", "no"),
        max_key_bytes=limit("max_key_bytes"),
        max_value_bytes=limit("max_value_bytes"),
        max_batch=limit("max_batch"),
    )
