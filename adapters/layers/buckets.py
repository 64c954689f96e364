"""One bucket of the zookeeper layer: how its rows are changed. The steps and why they hold stand in zookeeper.py."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from adapters.contract import ABSENT, Address, Check, Operation, OrderedStore, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError, Unavailable
from adapters.layers.changes import (
    Change,
    Intent,
    change_of,
    decoded,
    encoded,
    intent_deletes,
    intent_writes,
)

if TYPE_CHECKING:
    from adapters.layers.znodes import Node, Znodes


class _Settled(NamedTuple):
    """What the znode held when its change was known to be in the database."""

    znode_version: int
    sequence: int
    uid: bytes
    intents: list[Address]  #: of no use once the bucket has moved on


class Bucket:
    """One bucket, as one process sees it. A lock is held throughout each change, so that threads do not race each
    other through the network.
    """

    def __init__(self, number: int, store: OrderedStore, znodes: "Znodes") -> None:
        self._number = number
        self._name = bucket_name(number)
        self._store = store
        self._znodes = znodes
        self._half_horizon = (store.capabilities.version_horizon_seconds or 0) / 2
        self._lock = threading.Lock()
        self._settled: _Settled | None = None

    def settle(self, deadline: float) -> None:
        """Brings the last change into the database, whoever made it."""
        with self._held(deadline):
            self._settle(deadline)

    def write(self, writes: Sequence[Write], deadline: float) -> None:
        """Writes of this bucket without conditions, in one change."""
        with self._held(deadline):
            while not self._change(self._settled or self._settle(deadline), writes, deadline):
                continue  # until the deadline, which the znodes keep

    def write_if(self, operation: Operation, deadline: float) -> None:
        """A write or a check with a condition. Raises Conflict only after a look at the znode."""
        wanted = None if operation.expect is ABSENT else operation.expect
        with self._held(deadline):
            remembered = self._settled if isinstance(operation, Write) else None
            while True:
                base = remembered or self._settle(deadline)
                (current,) = self._store.read([operation.address], deadline=deadline)
                if current != wanted and not remembered:
                    raise Conflict("operation 0 found another value than expected", index=0, current=current)
                if current == wanted and (isinstance(operation, Check) or self._change(base, [operation], deadline)):
                    return
                remembered = None

    def empty(self, node: "Node", deadline: float) -> None:
        """Puts a change without writes in the place of the last one, which is not brought into the database.

        `node`: the bucket, read a moment ago.
        """
        with self._held(deadline):
            while (last := decoded(node.data)).pending:
                if self._change(_Settled(node.version, last.sequence, last.uid, []), [], deadline):
                    return
                node = self._node(deadline)

    def is_done_with(self, intent: Intent, deadline: float) -> bool:
        """Whether nothing leads to the intent, nor ever will: while a late set might, the bucket is moved on first."""
        with self._held(deadline):
            last = self._settle(deadline)
            while last.sequence < intent.sequence:
                self._change(last, [], deadline)
                last = self._settle(deadline)
            return last.uid != intent.uid

    @contextmanager
    def _held(self, deadline: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)):
            raise Unavailable("the deadline passed while others were writing rows of the same bucket")
        try:
            yield
        finally:
            self._lock.release()

    def _settle(self, deadline: float) -> _Settled:
        missing_at: int | None = None
        while True:
            begun = time.monotonic()
            node = self._node(deadline)
            if self._settled is not None and self._settled.znode_version == node.version:
                return self._settled
            last = decoded(node.data)
            try:
                writes = self._writes(last, deadline)
                if writes is not None:
                    self._apply(last, writes, begun, deadline)
                    return self._remember(last, node.version)
            except StoreError as error:
                raise error.restated(Applied.NO) from error  # nothing of the caller's
            if missing_at == node.version:
                raise Corrupt(f"a long value that the last change of {self._name} leads to is missing in the database")
            missing_at = node.version

    def _writes(self, last: Change, deadline: float) -> list[Write] | None:
        """The writes of a change found in the znode; None if one has lost its intent, as the bucket has moved on."""
        intents = last.intents(self._number)
        values = iter(self._store.read(intents, deadline=deadline) if intents else ())
        writes = [Write(row.address, next(values) if row.apart else row.value) for row in last.pending]
        lost = any(row.apart and write.value is None for row, write in zip(last.pending, writes, strict=True))
        return None if lost else writes

    def _change(self, base: _Settled, writes: Sequence[Write], deadline: float) -> bool:
        """Makes one change and brings it into the database; False if somebody was faster."""
        begun = time.monotonic()
        mine = change_of(max(base.sequence + 1, int(time.time() * 1000)), writes)
        data = encoded(mine)
        self._settled = None  # until all is done
        try:
            for intent in intent_writes(self._number, mine, writes):
                self._store.write([intent], deadline=deadline)
        except StoreError as error:
            raise error.restated(Applied.NO) from error  # nothing leads there yet
        version = self._set(mine, data, base.znode_version, deadline)
        if version is None:
            self._forget(mine.intents(self._number), deadline)
            return False
        try:
            self._apply(mine, writes, begun, deadline)
        except StoreError as error:
            raise error.restated(Applied.UNKNOWN) from error
        self._remember(mine, version)
        self._forget(base.intents, deadline)
        return True

    def _set(self, mine: Change, data: bytes, base: int, deadline: float) -> int | None:
        """The commit point: the znode's new version, or None if somebody was faster."""
        in_doubt = False
        while True:
            try:
                version = self._znodes.swap(self._name, data, base, deadline)
            except Unavailable as error:
                if error.applied is Applied.NO and not in_doubt:
                    raise
                in_doubt = True
            else:
                if version is not None or not in_doubt:
                    return version
            try:
                node = self._node(deadline)
            except StoreError as error:
                raise error.restated(Applied.UNKNOWN) from error
            if decoded(node.data).uid == mine.uid:
                return node.version
            if node.version == base + 1:
                return None
            if node.version != base:
                raise Unavailable("no answer to a change, and too many others were made since", Applied.UNKNOWN)

    def _apply(self, change: Change, writes: Sequence[Write], begun: float, deadline: float) -> None:
        """Whoever was paused since `begun`, when the change was the last one, must not come back after the horizon."""
        if time.monotonic() >= min(deadline, begun + self._half_horizon):
            raise Unavailable("the deadline passed before a change was in the database")
        if writes:
            versioned = [Write(write.address, write.value, version=change.version) for write in writes]
            self._store.write(versioned, deadline=min(deadline, begun + self._half_horizon))

    def _remember(self, change: Change, znode_version: int) -> _Settled:
        self._settled = _Settled(znode_version, change.sequence, change.uid, change.intents(self._number))
        return self._settled

    def _forget(self, intents: Sequence[Address], deadline: float) -> None:
        if intents:
            with suppress(StoreError):  # then they are left to the sweep
                self._store.write(intent_deletes(intents), deadline=deadline)

    def _node(self, deadline: float) -> "Node":
        (node,) = self._znodes.read([self._name], deadline)
        if node is None:
            raise Corrupt(f"zookeeper {self._znodes.where}: {self._name} is gone; restore ZooKeeper's data")
        return node


def bucket_name(number: int) -> str:
    return f"buckets/{number}"
