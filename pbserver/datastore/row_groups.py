"""Entity groups in a store that writes one row at a time: the commit is one compare-and-set of the group's head.

The head holds the writes of its slot, so whoever meets a head whose rows may not be written yet writes them himself
(rolls it forward) before he goes on: they carry the slot as version, so that doing it twice, or too late, is harmless.
A commit over several groups prepares their heads and is decided in the head of one of them, the primary.

The rules are those of the commit protocol (README.md, Commit); each was found necessary by simulation
(tests/simulation), so none of them is to be simplified by eye.
"""

import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from threading import Lock

from adapters.contract import ABSENT, OrderedStore, Reader, Write, row_writes
from adapters.errors import Conflict, Unavailable
from pbserver.datastore import catalog, heads
from pbserver.datastore.errors import ConcurrentTransaction, Timeout
from pbserver.datastore.groups import Later, Result
from pbserver.datastore.heads import Head, Outcome, Part, Primary, State
from pbserver.datastore.keys import project_of
from pbserver.datastore.mutations import Changes, Kinds, Mutation, Seen, add_mutation
from pbserver.datastore.tables import entity_address, head_address

_MOVES = 20  #: attempts at one compare-and-set before its outcome is called unknown
_PATIENCE_SECONDS = 0.1  #: how long the head of another's unfinished commit is left alone
_REMEMBERED = 10_000
_REMEMBERED_BYTES = 4096  # of a head; a larger one is remembered by its slot alone
_MOST_PLANNING_SECONDS = 10.0  # well below building.SETTLE_SECONDS: a commit knows of every index that is built


class _NotPrepared(Exception):
    """A commit over several groups cannot go on; it has certainly not happened."""


class RowGroups:
    """pbserver.datastore.groups.Groups. `remember`: nobody ever drops this store's tables."""

    steady = False
    _outcome = staticmethod(heads.outcome)

    def __init__(self, store: OrderedStore, kinds: Kinds, later: Later, *, remember: bool) -> None:
        self._store = store
        self._kinds = kinds
        self._later = later
        self._rolled = _Memory(_REMEMBERED if remember else 0)

    def view(
        self, seen: Seen, joined: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float
    ) -> tuple[Result, dict[bytes, int]]:
        slots = {group: self._resolve(group, deadline).slot for group in joined}
        result = work(self._store)
        for group, slot in {**seen, **slots}.items():
            if not self._stands_at(group, slot, deadline):
                raise ConcurrentTransaction("Concurrency exception.")
        return result, slots

    def read(self, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float) -> Result:
        while True:
            try:
                return self.view({}, groups, work, deadline=deadline)[0]
            except ConcurrentTransaction:
                _pause(deadline, "the entity group is changed all the time; nothing could be read of one state")

    def put(self, mutations: Iterable[Mutation], *, deadline: float) -> int:
        by_group = _by_group(mutations)
        return max(self._commit_one(group, of_group, None, deadline) for group, of_group in by_group.items())

    def commit(self, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
        by_group = _by_group(mutations)
        if len(by_group) == 1 and not seen.keys() - by_group.keys():
            ((group, of_group),) = by_group.items()
            return self._commit_one(group, of_group, seen.get(group), deadline)
        return self._commit_several(by_group, seen, deadline)

    def sweep(self, group: bytes, *, deadline: float) -> None:
        """Finishes what a dead server left of a group's last commit."""
        head = self._resolve(group, deadline)
        if head.state is State.COMMITTED:
            self._replace(group, head, head.applied())

    # -- one group

    def _commit_one(self, group: bytes, mutations: Sequence[Mutation], seen: int | None, deadline: float) -> int:
        remembered = self._rolled.head(group) if seen is None else None  # if it is old, the compare-and-set says so
        while True:
            base, remembered = remembered or self._resolve(group, deadline), None
            if seen is not None and base.slot != seen:
                raise ConcurrentTransaction("Concurrency exception.")
            slot = _next_slot(base)
            planned = time.monotonic()
            rows = self._rows(mutations, slot, deadline)
            new = base.committed(slot, _new_uid(), rows)
            if time.monotonic() - planned > _MOST_PLANNING_SECONDS:
                continue  # the composite indexes may be others by now
            if self._move(group, base, new, deadline):
                break
            if seen is not None:
                raise ConcurrentTransaction("Concurrency exception.")
            _pause(deadline, "the entity group is contended; nothing was written")
        self._apply(rows, deadline)
        self._rolled.add(group, heads.decode(heads.encode(new)))
        self._later(lambda: self._mark_applied(group, new))
        return slot

    def _mark_applied(self, group: bytes, head: Head) -> None:
        """Spares others the rolling forward; called when all rows of the head are written."""
        applied = head.applied()
        if self._replace(group, heads.decode(heads.encode(head)), applied):
            self._rolled.add(group, heads.decode(heads.encode(applied)))

    # -- several groups

    def _commit_several(self, by_group: Mapping[bytes, Sequence[Mutation]], seen: Seen, deadline: float) -> int:
        written = sorted(by_group)
        only_read = sorted(seen.keys() - by_group.keys())
        bases = {group: self._resolve(group, deadline) for group in (*written, *only_read)}
        if any(bases[group].slot != slot for group, slot in seen.items()):
            raise ConcurrentTransaction("Concurrency exception.")
        slots = {group: _next_slot(bases[group]) for group in written}
        planned = time.monotonic()
        rows = {group: self._rows(by_group[group], slots[group], deadline) for group in written}
        if time.monotonic() - planned > _MOST_PLANNING_SECONDS:
            raise ConcurrentTransaction("the commit took too long to prepare")
        uid = _new_uid()
        first = written[0]
        primary = Primary(first, slots[first], bases[first].slot)
        to_prepare = {
            group: bases[group].prepared(slots[group], uid, rows[group], primary)
            for group in (written if only_read else written[1:])
        }
        try:
            self._prepare(bases, to_prepare, only_read, deadline)
        except _NotPrepared:
            self._give_up(to_prepare)
            raise ConcurrentTransaction("Concurrency exception.") from None
        decision = bases[first].committed(
            slots[first], uid, rows[first], tuple(Part(group, slots[group]) for group in written[1:])
        )
        if not self._move(first, to_prepare.get(first, bases[first]), decision, deadline):
            self._give_up(to_prepare)
            raise ConcurrentTransaction("Concurrency exception.")
        self._apply([row for of_group in rows.values() for row in of_group], deadline)
        self._later(lambda: self._finish(first, decision, {group: to_prepare[group] for group in written[1:]}))
        return max(slots.values())

    def _prepare(
        self, bases: Mapping[bytes, Head], to_prepare: dict[bytes, Head], only_read: Sequence[bytes], deadline: float
    ) -> None:
        """Takes the heads in the order of their groups, so that two commits do not wait for each other crosswise."""
        for group, head in to_prepare.items():
            try:
                won = self._move(group, bases[group], head, deadline)
            except (Timeout, Unavailable):
                won = False  # whatever becomes of it: the primary will never say yes
            if not won:
                raise _NotPrepared
            to_prepare[group] = heads.decode(heads.encode(head))
        for group in only_read:
            if not self._stands_at(group, bases[group].slot, deadline):
                raise _NotPrepared

    def _give_up(self, prepared: Mapping[bytes, Head]) -> None:
        """Frees the heads that were prepared; those that are missed are freed by whoever meets them."""
        for group, head in prepared.items():
            if head.raw is not None:
                self._later(partial(self._replace, group, head, head.emptied(head.slot)))

    def _finish(self, first: bytes, decision: Head, secondaries: Mapping[bytes, Head]) -> None:
        """All rows are written: tells the secondaries, and only when all of them know, the primary."""
        for group, head in secondaries.items():
            self._move(group, head, head.decided(), _soon())
        self._mark_applied(first, decision)

    # -- heads

    def _head(self, group: bytes, deadline: float, *, settle: bool = False) -> Head:
        return heads.decode(self._store.read([head_address(group)], deadline=deadline, settle=settle)[0])

    def _stands_at(self, group: bytes, slot: int, deadline: float) -> bool:
        """Whether nothing has been committed, or prepared, in a group since its slot."""
        head = self._head(group, deadline, settle=True)
        return head.slot == slot and head.state is not State.PREPARED

    def _resolve(self, group: bytes, deadline: float) -> Head:
        """The group's head, all of whose rows are known to be written."""
        began = time.monotonic()
        while True:
            head = self._head(group, deadline)
            if head.state is State.APPLIED or (head.state is State.COMMITTED and self._rolled.has(group, head.slot)):
                return head
            if head.state is State.COMMITTED:
                self._roll(head, deadline)
                self._rolled.add(group, head)
                return head
            self._unblock(group, head, deadline, patient=time.monotonic() - began < _PATIENCE_SECONDS)

    def _roll(self, head: Head, deadline: float) -> None:
        """Writes what a committed head says, in all groups of its commit."""
        self._apply(head.rows, deadline)
        for part in head.parts:
            while self._is_waiting(other := self._head(part.group, deadline, settle=True), head):
                self._apply(other.rows, deadline)
                self._move(part.group, other, other.decided(), deadline)

    def _is_waiting(self, other: Head, decided: Head) -> bool:
        """Whether a group does not know yet that its commit happened."""
        return other.state is State.PREPARED and other.uid == decided.uid

    def _unblock(self, group: bytes, head: Head, deadline: float, *, patient: bool) -> None:
        """One step towards the end of the commit that a prepared head belongs to."""
        primary = head.primary
        assert primary is not None
        if primary.group == group:
            if patient:
                _pause(deadline, "another commit of the entity group does not end")
            else:
                self._replace(group, head, head.emptied(primary.slot))
            return
        decider = self._head(primary.group, deadline, settle=True)
        if decider.slot == primary.slot and decider.uid == head.uid and decider.state is not State.PREPARED:
            self._apply(head.rows, deadline)
            self._move(group, head, head.decided(), deadline)
        elif decider.slot == primary.base or (decider.slot == primary.slot and decider.uid == head.uid):
            if patient:
                _pause(deadline, "another commit of the entity group does not end")
                return
            if decider.state is State.COMMITTED:
                self._roll(decider, deadline)
            self._replace(primary.group, decider, decider.emptied(primary.slot))
        else:
            self._replace(group, head, head.emptied(head.slot))

    def _replace(self, group: bytes, old: Head, new: Head) -> bool:
        """One attempt to move a head; whether it surely did. Whoever needs to know more looks again."""
        try:
            self._store.write(
                [Write(head_address(group), heads.encode(new), ABSENT if old.raw is None else old.raw)],
                deadline=_soon(),
            )
        except (Conflict, Unavailable):
            return False
        return True

    def _move(self, group: bytes, old: Head, new: Head, deadline: float) -> bool:
        """Moves a head; whether it did. Neither "no" nor silence is believed: the head itself says what happened."""
        raw = heads.encode(new)
        expected = old.raw
        for _ in range(_MOVES):
            try:
                self._store.write(
                    [Write(head_address(group), raw, ABSENT if expected is None else expected)], deadline=deadline
                )
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
                return self._head(group, deadline, settle=True)
            except Unavailable:
                _pause(deadline, "whether the write was applied is not known")

    # -- rows

    def _apply(self, rows: Sequence[Write], deadline: float) -> None:
        """Writes rows until the store has said that they are written."""
        while rows:
            try:
                self._store.write(rows, deadline=deadline)
            except Unavailable:
                _pause(deadline, "committed, but not all of it could be written; whoever comes next does")
            else:
                return

    def _rows(self, mutations: Sequence[Mutation], slot: int, deadline: float) -> tuple[Write, ...]:
        """The row writes of one group's mutations. What is stored is read now, so the head must be resolved."""
        projects = list(dict.fromkeys(project_of(each.key.partition) for each in mutations))
        wanted = [*map(catalog.catalog_address, projects), *(entity_address(each.key) for each in mutations)]
        found = iter(self._store.read(wanted, deadline=deadline))
        indexes = {
            project: catalog.parse(row) for project, row in zip(projects, islice(found, len(projects)), strict=True)
        }
        changes = Changes.none()
        for mutation, stored in zip(mutations, found, strict=True):
            add_mutation(changes, mutation, stored, indexes[project_of(mutation.key.partition)], slot)
            if (
                mutation.entity is not None
                and stored is None
                and (listing := self._kinds.missing(mutation.key, changes))
            ):
                self._apply([listing], deadline)
        self._kinds.written(changes)
        entity_rows = [each for each in changes.operations if isinstance(each, Write)]
        return tuple(each._replace(version=slot) for each in (*entity_rows, *row_writes(changes.rows)))


class _Memory:
    """The newest heads this process knows to be written to the end. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heads: OrderedDict[bytes, Head] = OrderedDict()
        self._lock = Lock()

    def add(self, group: bytes, head: Head) -> None:
        with self._lock:
            known = self._heads.get(group)
            if known is None or (head.slot, head.state is State.APPLIED) >= (known.slot, known.state is State.APPLIED):
                self._heads[group] = head if len(head.raw or b"") <= _REMEMBERED_BYTES else Head(slot=head.slot)
            self._heads.move_to_end(group)
            if len(self._heads) > self._most:
                self._heads.popitem(last=False)

    def has(self, group: bytes, slot: int) -> bool:
        """Whether the commit that took a slot is written to the end."""
        with self._lock:
            head = self._heads.get(group)
            return head is not None and head.slot == slot

    def head(self, group: bytes) -> Head | None:
        """The head from which a commit may go on without looking; None when it is not known."""
        with self._lock:
            head = self._heads.get(group)
            return head if head is not None and head.raw is not None else None


def _by_group(mutations: Iterable[Mutation]) -> dict[bytes, list[Mutation]]:
    """The last mutation of each key, by entity group."""
    by_group: dict[bytes, list[Mutation]] = {}
    for mutation in {each.key: each for each in mutations}.values():
        by_group.setdefault(mutation.key.group, []).append(mutation)
    return by_group


def _next_slot(base: Head) -> int:
    return max(base.slot + 1, time.time_ns() // 1_000_000)


def _new_uid() -> bytes:
    return os.urandom(16)


def _soon() -> float:
    return time.monotonic() + 10.0


def _pause(deadline: float, otherwise: str) -> None:
    """Waits a moment. Raises Timeout when the deadline has passed."""
    if time.monotonic() > deadline:
        raise Timeout(otherwise)
    time.sleep(random.uniform(0, 0.005))  # noqa: S311 - a back-off, not a secret
