"""ZookeeperStore: conditions on single rows for a store that has versions but no compare-and-set.

A row that is written without a version belongs to one of a fixed number of buckets, and every change of it goes
through the bucket's znode:

1. The bucket's last change is known to be in the database: this process brought it there, or reads the znode and does
   so now. Writing it once more is harmless, since its rows carry its sequence number as their version.
2. The row is read from the database and compared with what the caller expects.
3. The znode is set to the new change if it still has the version it had at 1. This is the commit point. It fails if
   anyone was faster, and all begins again.
4. The change is written to the database until that acknowledges it. If this process dies, whoever comes next does it.

A set whose answer is lost is settled by reading the znode: the uid of the change is there; or the version is the old
one, and the same set is tried again; or it is the next one, and somebody else was faster. After several changes of
others it is UNKNOWN.

A bucket that nobody else changed since costs a change one read, one set and one write. Rows written with a version go
straight to the database, and so do reads, except that one with `settle` looks at the bucket first. Values too long
for a znode are written to the database beforehand, as intents.

Sequence numbers only grow, or new writes would lose to old ones. So the layout of the buckets is recorded in the
database as well, and a ZooKeeper without its data is refused. They are at least the clock in milliseconds, which
covers one that was restored from a backup.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from adapters.contract import (
    Address,
    Atomicity,
    Capabilities,
    Consistency,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Rows,
    Table,
    Write,
    is_conditional,
    row_writes,
    swept,
)
from adapters.errors import Applied, Corrupt, StoreError, Unavailable, Unsupported
from adapters.layers import changes
from adapters.layers.buckets import Bucket, bucket_name
from adapters.layers.changes import LAYOUT_ADDRESS, Layout

if TYPE_CHECKING:
    from adapters.layers.znodes import Znodes

BUCKETS = 1024
TABLES_SECONDS = 60.0
CHECK_SECONDS = 5.0
SWEPT_AFTER_SECONDS = 3600.0
SWEPT_AT_ONCE = 100

LAYOUT = "layout"  # the znode holds one of the two and the layout
_NEW, _RECORDED = b"new ", b"recorded "


def missing_below(have: Capabilities) -> list[str]:
    """What this layer needs of the store below and does not find."""
    tests = {
        "ordered": have.ordered,
        "versioned_writes": have.versioned_writes,
        "consistency STRONG": have.consistency is Consistency.STRONG,
    }
    return [capability for capability, there in tests.items() if not there]


def supplied(have: Capabilities) -> Capabilities:
    """What this layer makes of a store's capabilities."""
    most = have.max_key_bytes
    return replace(
        have,
        atomicity=Atomicity.ROW,
        compare_and_set=True,
        snapshot=False,
        remote=True,
        max_key_bytes=None if most is None else most - changes.INTENT_BYTES,
    )


def first_nodes(bucket_count: int) -> dict[str, bytes]:
    """The znodes to begin with, by name. No database belongs to them yet: the first that is used with them will."""
    layout = changes.new_layout(bucket_count)
    untouched = changes.encoded(changes.UNTOUCHED)
    buckets = {bucket_name(number): untouched for number in range(bucket_count)}
    return {LAYOUT: _NEW + layout.encoded(), "buckets": b"", **buckets}


class ZookeeperStore:
    """A store with compare-and-set. It closes the znodes with itself."""

    LEAVES_BEHIND = True

    def __init__(self, store: OrderedStore, znodes: "Znodes") -> None:
        missing = missing_below(store.capabilities)
        if missing:
            raise Unsupported(f"zookeeper stands only over a store with {', '.join(missing)}")
        self.inner = store
        self._znodes = znodes
        self._capabilities = supplied(store.capabilities)
        self._layout: Layout | None = None
        self._buckets: dict[int, Bucket] = {}
        self.fetch, self.scan = store.fetch, store.scan

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def ensure_tables(self) -> None:
        """Raises Corrupt if ZooKeeper and the database do not belong together."""
        self.inner.ensure_tables()
        self._layout = self._agreed(time.monotonic() + TABLES_SECONDS)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        if settle:
            for number in sorted({*map(self._layout_by(deadline).number_of, addresses)}):
                self._bucket(number).settle(deadline)
        return self.inner.read(addresses, deadline=deadline, settle=settle)

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("zookeeper: claims no snapshot")

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if any(map(is_conditional, operations)):
            (operation,) = operations
            number = self._layout_by(deadline).number_of(operation.address)
            self._bucket(number).write_if(operation, deadline)
            return
        writes = [each for each in operations if isinstance(each, Write)]
        straight = [each for each in writes if each.version is not None]
        straight_rows = [each for each in rows if each.version is not None]
        if straight or straight_rows:
            self.inner.write(straight, rows=straight_rows, deadline=deadline)
        through = [each for each in (*writes, *row_writes(rows)) if each.version is None]
        if through:
            self._write_through(through, deadline, begun=bool(straight or straight_rows))

    def drop_tables(self) -> None:
        """The buckets stay, since sequence numbers must not begin again. Nobody else may write meanwhile."""
        deadline = time.monotonic() + TABLES_SECONDS
        layout = self._layout_by(deadline)
        self._mark(_NEW, layout, deadline)
        names = [*map(bucket_name, range(layout.buckets))]
        for number, node in enumerate(self._znodes.read(names, deadline)):
            if node is None:
                raise Corrupt(f"zookeeper {self._znodes.where}: {bucket_name(number)} is gone")
            self._bucket(number).empty(node, deadline)
        self.inner.drop_tables()
        self._layout = self._agreed(deadline)

    def sweep(self, table: Table, scope: bytes, *, deadline: float) -> int:
        """Sweepable: intents that crashes have left behind, once they are SWEPT_AFTER_SECONDS old."""
        oldest_kept = int((time.time() - SWEPT_AFTER_SECONDS) * 1000)
        intents, keys, count = changes.intent_scope(scope), KeyRange(), 0
        while True:
            rows = self.inner.scan(table, intents, keys, limit=SWEPT_AT_ONCE, deadline=deadline)
            for key, _ in rows:
                intent = changes.intent_of(key)
                if intent.sequence < oldest_kept and self._bucket(intent.number).is_done_with(intent, deadline):
                    address = Address(table, intents, intent.uid, key)
                    self.inner.write(changes.intent_deletes([address]), deadline=deadline)
                    count += 1
            if len(rows) < SWEPT_AT_ONCE:
                return count + swept(self.inner, table, scope, deadline=deadline)
            keys = KeyRange(rows[-1][0] + b"\x00")

    def check(self) -> None:
        self.inner.check()
        self._znodes.read([LAYOUT], time.monotonic() + CHECK_SECONDS)

    def close(self) -> None:
        self._znodes.close()
        self.inner.close()

    def _write_through(self, writes: Iterable[Write], deadline: float, *, begun: bool) -> None:
        """Writes without conditions, bucket by bucket; `begun`: something of the call was applied already."""
        layout = self._layout_by(deadline)
        parts: dict[int, list[Write]] = {}
        for write in writes:
            parts.setdefault(layout.number_of(write.address), []).append(write)
        try:
            for number, part in parts.items():
                for portion in changes.portions(part):
                    self._bucket(number).write(portion, deadline)
                    begun = True
        except StoreError as error:
            if begun and error.applied is Applied.NO:
                raise error.restated(Applied.UNKNOWN) from error
            raise

    def _bucket(self, number: int) -> Bucket:
        found = self._buckets.get(number)
        return found or self._buckets.setdefault(number, Bucket(number, self.inner, self._znodes))

    def _layout_by(self, deadline: float) -> Layout:
        if self._layout is None:
            self._layout = self._agreed(deadline)
        return self._layout

    def _agreed(self, deadline: float) -> Layout:
        """The layout, recorded on both sides. Made in ZooKeeper first, in one transaction with all buckets."""
        row = self._recorded(deadline)
        (node,) = self._znodes.read([LAYOUT], deadline)
        if node is None and row is not None:
            raise Corrupt(
                f"the database was used with a ZooKeeper whose data is not at {self._znodes.where}: without it, new "
                "rows would lose to old ones; restore it, or correct the option zookeeper"
            )
        if node is None:
            self._znodes.create(first_nodes(BUCKETS), deadline)
            (node,) = self._znodes.read([LAYOUT], deadline)
            if node is None:
                raise Unavailable(f"zookeeper {self._znodes.where}: the znodes of {BUCKETS} buckets were not made")
        is_new = node.data.startswith(_NEW)
        layout = changes.decoded_layout(node.data.removeprefix(_NEW if is_new else _RECORDED))
        row = row or self._recorded(deadline)  # somebody else may have been about to
        if row is None and is_new:
            self.inner.write([Write(LAYOUT_ADDRESS, layout.encoded())], deadline=deadline)
        elif row != layout.encoded():
            raise Corrupt(
                f"the data of ZooKeeper at {self._znodes.where} is that of another database, or this one has lost its "
                f"rows (layout {layout.id} there, {row!r:.60} here): restore them, or name another CHROOT"
            )
        if is_new:
            self._mark(_RECORDED, layout, deadline)
        return layout

    def _recorded(self, deadline: float) -> bytes | None:
        return self.inner.read([LAYOUT_ADDRESS], deadline=deadline)[0]

    def _mark(self, state: bytes, layout: Layout, deadline: float) -> None:
        """Says whether the database knows the layout, or may have lost it for good reason."""
        (node,) = self._znodes.read([LAYOUT], deadline)
        if node is not None and not node.data.startswith(state):
            self._znodes.swap(LAYOUT, state + layout.encoded(), node.version, deadline)
