"""The heads of entity groups in a store without multi-row transactions: how they are read, moved, and finished.

Whoever meets a head whose rows may not be written yet writes them himself (rolls it forward) before he goes on: they
carry the slot as version, so that doing it twice, or too late, is harmless.

In a store with atomicity SCOPE, or better, a group's entities are written beside the compare-and-set that makes them
count, and never in any other way: without versions, since a late copy of that write fails as a whole. What "rows" are
to be written afterwards are there the index rows alone.

The rules are those of the commit protocol (README.md, Commit); each was found necessary by simulation
(tests/simulation), so none of them is to be simplified by eye.
"""

import random
import time
from collections.abc import Collection, Mapping, Sequence

from adapters.contract import ABSENT, Atomicity, OrderedStore, Table, Write
from adapters.errors import Conflict, Unavailable
from pbserver.datastore import heads
from pbserver.datastore.errors import Timeout
from pbserver.datastore.heads import Head, Outcome, State
from pbserver.datastore.remembered import Remembered
from pbserver.datastore.tables import head_address

_MOVES = 20  #: attempts at one compare-and-set before its outcome is called unknown
_PATIENCE_SECONDS = 0.1  #: how long the head of another's unfinished commit is left alone
_PAUSE_SECONDS = 0.005  #: the longest, unless said otherwise
_LONGEST_PAUSE_SECONDS = 0.1
_FINISHING_SECONDS = 10.0  #: for what no client waits for


class HeadStore:
    """Thread-safe. `scopes`: a group's head and entities are written and read as one."""

    _outcome = staticmethod(heads.outcome)

    def __init__(self, store: OrderedStore, remembered: Remembered) -> None:
        self._store = store
        self._remembered = remembered
        self.scopes = store.capabilities.atomicity is not Atomicity.ROW

    # -- reading

    def read(self, groups: Sequence[bytes], deadline: float, *, settle: bool = False) -> list[Head]:
        found = self._store.read([*map(head_address, groups)], deadline=deadline, settle=settle)
        return [*map(heads.decode, found)]

    def stand_at(self, slots: Mapping[bytes, int], deadline: float) -> bool:
        """Whether nothing has been committed, or prepared, in groups since their slots."""
        found = self.read([*slots], deadline, settle=True) if slots else []
        return all(
            head.slot == slot and head.state is not State.PREPARED
            for head, slot in zip(found, slots.values(), strict=True)
        )

    def resolve(
        self, groups: Collection[bytes], deadline: float, *, settle: bool = False, patience: float = _PATIENCE_SECONDS
    ) -> dict[bytes, Head]:
        """The groups' heads, all of whose rows are known to be written.

        Without `settle` a head may be one that was replaced by a write of unknown outcome: enough for who goes on to
        a compare-and-set, or looks again. Where entities come with the head it is always settled: a head that nobody
        has acknowledged yet may be seen by one read, and its entities be missed by the next.
        """
        groups = [*groups]
        settle = settle or self.scopes
        found = dict(zip(groups, self.read(groups, deadline, settle=settle), strict=True)) if groups else {}
        return self.finish(found, deadline, settle=settle, patience=patience)

    def finish(
        self, found: Mapping[bytes, Head], deadline: float, *, settle: bool = False, patience: float = _PATIENCE_SECONDS
    ) -> dict[bytes, Head]:
        """Heads that were found, or those that came after them, all of whose rows are known to be written.

        `patience`, in seconds: how long another's commit that is not decided may take before it is broken off.
        """
        return {
            group: head if self.is_written(group, head) else self._finish(group, head, deadline, settle, patience)
            for group, head in found.items()
        }

    def is_written(self, group: bytes, head: Head) -> bool:
        """Whether all rows of the head's slot are known to be written."""
        if head.state is State.COMMITTED:
            return self._remembered.has(group, head.slot)
        return head.state is State.APPLIED

    def _finish(self, group: bytes, head: Head, deadline: float, settle: bool, patience: float) -> Head:
        began = time.monotonic()
        while not self.is_written(group, head):
            if head.state is State.COMMITTED:
                self.roll(group, head, deadline)
                break
            waited = time.monotonic() - began
            self._unblock(group, head, deadline, waited if waited < patience else None)
            (head,) = self.read([group], deadline, settle=settle)
        return head

    # -- finishing what another has begun

    def roll(self, group: bytes, head: Head, deadline: float) -> None:
        """Writes what a committed head says, in all groups of its commit."""
        self.apply(head.rows, deadline)
        for part in head.parts:
            while True:
                (other,) = self.read([part.group], deadline, settle=True)
                if other.state is not State.PREPARED or other.uid != head.uid:
                    break  # it knows that its commit happened
                self.conclude(part.group, other, deadline)
        self._remembered.add(group, head)

    def conclude(self, group: bytes, head: Head, deadline: float) -> None:
        """Ends a prepared head whose commit has happened."""
        self.apply(self.split(head.rows)[1], deadline)
        self.tell(group, head, deadline)

    def tell(self, group: bytes, head: Head, deadline: float) -> None:
        """Tells a prepared group that its commit has happened, its rows being written."""
        self.move(group, head, head.decided(), deadline, self.split(head.rows)[0])

    def _unblock(self, group: bytes, head: Head, deadline: float, waited: float | None) -> None:
        """One step towards the end of the commit that a prepared head belongs to. `waited`: for how many seconds so
        far; None when it has been long enough.
        """
        primary = head.primary
        assert primary is not None
        if primary.group == group:
            if waited is None:
                self.replace(group, head, head.emptied(primary.slot))
            else:
                self._wait(deadline, waited)
            return
        (decider,) = self.read([primary.group], deadline, settle=True)
        if decider.slot == primary.slot and decider.uid == head.uid and decider.state is not State.PREPARED:
            self.conclude(group, head, deadline)
        elif decider.slot == primary.base or (decider.slot == primary.slot and decider.uid == head.uid):
            if waited is not None:
                self._wait(deadline, waited)
                return
            if decider.state is State.COMMITTED:
                self.roll(primary.group, decider, deadline)
            self.replace(primary.group, decider, decider.emptied(primary.slot))
        else:
            self.replace(group, head, head.emptied(head.slot))

    def _wait(self, deadline: float, waited: float) -> None:
        """Looks again more and more rarely: on some databases a look delays the very commit that is waited for."""
        pause(
            deadline,
            "another commit of the entity group does not end",
            min(max(waited, _PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS),
        )

    # -- moving

    def replace(self, group: bytes, old: Head, new: Head) -> bool:
        """One attempt to move a head, nothing beside it; whether it surely did. Who must know more looks again."""
        expected = ABSENT if old.raw is None else old.raw
        try:
            self._store.write([Write(head_address(group), heads.encode(new), expected)], deadline=soon())
        except (Conflict, Unavailable):
            return False
        return True

    def mark_applied(self, group: bytes, head: Head) -> bool:
        """Spares others the rolling forward; called when all rows of the (stored) head are written. Whether it did."""
        applied = head.applied()
        done = self.replace(group, head, applied)
        if done:
            self._remembered.add(group, heads.as_stored(applied))
        return done

    def fence(self, group: bytes, head: Head, deadline: float) -> None:
        """Moves a (resolved) head on, so that no commit that is still on its way to it can ever happen."""
        while not self.replace(group, head, head.emptied(head.slot + 1)):
            head = self.resolve([group], deadline)[group]

    def move(self, group: bytes, old: Head, new: Head, deadline: float, beside: Sequence[Write] = ()) -> bool:
        """Moves a head, with the group's entities; whether it did.

        Neither "no" nor silence is believed: the head itself says what happened. Raises Timeout when that cannot be
        known any more.
        """
        raw = heads.encode(new)
        expected = old.raw
        for _ in range(_MOVES):
            change = Write(head_address(group), raw, ABSENT if expected is None else expected)
            try:
                self._store.write([change, *beside], deadline=deadline)
            except (Conflict, Unavailable):
                found = self._head_at_last(group, deadline)
            else:
                return True
            result = self._outcome(old, new, found)
            if result in (Outcome.WON, Outcome.LOST):
                return result is Outcome.WON
            if result is Outcome.UNKNOWN:
                break
            if found.slot == old.slot:
                expected = found.raw
        raise Timeout("whether the write was applied is not known")

    def _head_at_last(self, group: bytes, deadline: float) -> Head:
        """The head as it really is, however often it has to be asked for."""
        while True:
            try:
                return self.read([group], deadline, settle=True)[0]
            except Unavailable:
                pause(deadline, "whether the write was applied is not known")

    # -- rows

    def split(self, rows: Sequence[Write]) -> tuple[list[Write], list[Write]]:
        """Rows of one group: those that are written beside its head, and those to be applied."""
        if not self.scopes:
            return [], [*rows]
        beside = [row._replace(version=None) for row in rows if row.address.table is Table.GROUPS]
        return beside, [row for row in rows if row.address.table is not Table.GROUPS]

    def apply(self, rows: Sequence[Write], deadline: float) -> None:
        """Writes rows until the store has said that they are written."""
        while rows:
            try:
                self._store.write(rows, deadline=deadline)
            except Unavailable:
                pause(deadline, "committed, but not all of it could be written; whoever comes next does")
            else:
                return


def soon() -> float:
    """The deadline of what no client waits for."""
    return time.monotonic() + _FINISHING_SECONDS


def pause(deadline: float, otherwise: str, longest: float = _PAUSE_SECONDS) -> None:
    """Waits a moment, `longest` in seconds. Raises Timeout when the deadline has passed."""
    if time.monotonic() > deadline:
        raise Timeout(otherwise)
    time.sleep(random.uniform(0, longest))  # noqa: S311 - a back-off, not a secret
