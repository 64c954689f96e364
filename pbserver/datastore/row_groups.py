"""Entity groups in a store without multi-row transactions: the commit is one compare-and-set of the group's head.

The head holds the row writes of its slot; head_store.py says what becomes of them. A commit over several groups
prepares their heads and is decided in the head of one of them, the primary.

The rules are those of the commit protocol (README.md, Commit); each was found necessary by simulation
(tests/simulation), so none of them is to be simplified by eye.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from adapters.contract import Address, OrderedStore, Reader, Table, Write, row_writes
from adapters.errors import Unavailable
from pbserver.datastore import catalog, heads
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.entity_reads import EntityReads
from pbserver.datastore.errors import ConcurrentTransaction, Timeout
from pbserver.datastore.groups import Beside, Result
from pbserver.datastore.head_store import HeadStore, pause, soon
from pbserver.datastore.heads import Head, Part, Primary, State
from pbserver.datastore.keys import project_of
from pbserver.datastore.mutations import Changes, Kinds, Mutation, Seen, add_mutation
from pbserver.datastore.notes import Notes
from pbserver.datastore.remembered import MOST_BYTES, Remembered, RememberedIndexes
from pbserver.datastore.tables import entity_address, head_address

_MOST_PLANNING_SECONDS = 10.0  # well below building.SETTLE_SECONDS: a commit knows of every index that is built

_ByGroup = Mapping[bytes, Sequence[Mutation]]


class _Found(NamedTuple):
    """What a commit starts from. Entities are as they are at their groups' heads; indexes were read at `since`."""

    bases: dict[bytes, Head]
    stored: dict[Address, bytes | None]
    indexes: dict[bytes, Indexes]
    since: float


class _Decision(NamedTuple):
    """A commit of one group that has happened: its head as it is stored, and the rows still to be written."""

    head: Head
    rows: list[Write]
    entities: dict[Address, bytes | None]


class RowGroups:
    """pbserver.datastore.groups.Groups. `remember`: nobody ever drops this store's tables.

    `early`: clients are answered at the commit point, and rows are written behind their backs. Gets still see them,
    since they look at the head first; where an entity is written with its head, it need not.
    """

    steady = False

    def __init__(self, store: OrderedStore, kinds: Kinds, beside: Beside, *, remember: bool, early: bool) -> None:
        self._store = store
        self._kinds = kinds
        self._beside = beside
        self._early = early
        self._remembered = Remembered(MOST_BYTES if remember else 0)
        self._indexes = RememberedIndexes(remember=remember)
        self._heads = HeadStore(store, self._remembered)
        self._reads = EntityReads(store, self._heads, self._remembered)
        self._notes = Notes(store, self._heads)

    def get(self, work: Callable[[Reader], Result]) -> Result:
        return work(self._reads)

    def view(
        self, seen: Seen, joined: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float
    ) -> tuple[Result, dict[bytes, int]]:
        slots = {group: head.slot for group, head in self._heads.resolve(joined, deadline).items()}
        result = work(self._store)
        if not self._heads.stand_at({**seen, **slots}, deadline):
            raise ConcurrentTransaction("Concurrency exception.")
        return result, slots

    def read(self, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float) -> Result:
        while True:
            try:
                return self.view({}, groups, work, deadline=deadline)[0]
            except ConcurrentTransaction:
                pause(deadline, "the entity group is changed all the time; nothing could be read of one state")

    def put(self, mutations: Iterable[Mutation], *, deadline: float) -> int:
        by_group = _by_group(mutations)
        with self._notes.held(by_group):
            if len(by_group) > 1 and (missing := self._notes.missing(by_group)):
                self._notes.write(missing, deadline)  # all of them in one call
            return max(
                self._beside.at_once(
                    [partial(self._commit_one, group, of_group, None, deadline) for group, of_group in by_group.items()]
                )
            )

    def commit(self, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
        by_group = _by_group(mutations)
        with self._notes.held(by_group):
            if len(by_group) == 1 and not seen.keys() - by_group.keys():
                ((group, of_group),) = by_group.items()
                return self._commit_one(group, of_group, seen.get(group), deadline)
            return self._commit_several(by_group, seen, deadline)

    def tend(self, *, deadline: float) -> None:
        self._notes.tend(deadline)

    # -- one group

    def _commit_one(self, group: bytes, mutations: Sequence[Mutation], seen: int | None, deadline: float) -> int:
        decided = self._decide(group, mutations, seen, deadline)
        finish = partial(self._finish_one, group, decided)
        if not (self._early and self._beside.later(lambda: finish(soon()))):
            finish(deadline)
        return decided.head.slot

    def _decide(self, group: bytes, mutations: Sequence[Mutation], seen: int | None, deadline: float) -> _Decision:
        """Gets to the commit point."""
        known = self._remembered.head(group)  # if it is old, the compare-and-set says so
        if known is not None and seen is not None and known.slot != seen:
            known = None
        while True:
            found = self._look({group: mutations}, {} if known is None else {group: known}, deadline)
            base, known = found.bases[group], None
            if seen is not None and base.slot != seen:
                raise ConcurrentTransaction("Concurrency exception.")
            slot = _next_slot(base)
            written = self._rows(mutations, slot, found, deadline)
            beside, rows = self._heads.split(written)
            if time.monotonic() - found.since > _MOST_PLANNING_SECONDS:
                continue  # the composite indexes may be others by now
            new = base.committed(slot, _new_uid(), tuple(rows))
            if self._heads.move(group, base, new, deadline, beside):
                return _Decision(heads.as_stored(new), rows, _entities(written))
            if seen is not None:
                raise ConcurrentTransaction("Concurrency exception.")
            pause(deadline, "the entity group is contended; nothing was written")

    def _finish_one(self, group: bytes, decided: _Decision, deadline: float) -> None:
        self._heads.apply(decided.rows, deadline)
        self._remembered.add(group, decided.head, decided.entities)
        self._beside.later(partial(self._tell, group, decided.head))

    def _tell(self, group: bytes, head: Head) -> None:
        """Tells others that nothing is left to be done, if that is still the news."""
        newest = self._remembered.head(group)
        if newest is None or newest.slot == head.slot:
            self._heads.mark_applied(group, head)

    # -- several groups

    def _commit_several(self, by_group: _ByGroup, seen: Seen, deadline: float) -> int:
        written = sorted(by_group)
        only_read = {group: slot for group, slot in sorted(seen.items()) if group not in by_group}
        found = self._look(by_group, self._remembered_at(seen, written), deadline)
        bases = found.bases
        if any(bases[group].slot != seen.get(group, bases[group].slot) for group in written):
            raise ConcurrentTransaction("Concurrency exception.")
        # One for all, since it is the version of everything the commit writes: the clock may tick between two groups.
        slot = max(_next_slot(bases[group]) for group in written)
        rows = {group: self._rows(by_group[group], slot, found, deadline) for group in written}
        if time.monotonic() - found.since > _MOST_PLANNING_SECONDS:
            raise ConcurrentTransaction("the commit took too long to prepare")
        uid = _new_uid()
        first, *others = written
        primary = Primary(first, slot, bases[first].slot)
        to_prepare = {
            group: bases[group].prepared(slot, uid, tuple(rows[group]), primary)
            for group in (written if only_read else others)
        }
        beside, rest = self._heads.split(rows[first])
        decision = bases[first].committed(slot, uid, tuple(rest), tuple(Part(group, slot) for group in others))
        prepared: dict[bytes, Head] = {}
        ready = self._prepare(bases, to_prepare, prepared, only_read, deadline)
        if not (ready and self._heads.move(first, prepared.get(first, bases[first]), decision, deadline, beside)):
            self._give_up(prepared)
            raise ConcurrentTransaction("Concurrency exception.")
        secondaries = {group: prepared[group] for group in others}
        finish = partial(self._finish_several, first, heads.as_stored(decision), secondaries)
        if not (self._early and not self._heads.scopes and self._beside.later(lambda: finish(soon()))):
            finish(deadline)
        return slot

    def _remembered_at(self, seen: Seen, groups: Iterable[bytes]) -> dict[bytes, Head]:
        """The heads of groups, as far as they are remembered at the slots at which they were seen."""
        known = ((group, self._remembered.head(group)) for group in groups if group in seen)
        return {group: head for group, head in known if head is not None and head.slot == seen[group]}

    def _prepare(
        self,
        bases: Mapping[bytes, Head],
        to_prepare: Mapping[bytes, Head],
        prepared: dict[bytes, Head],
        only_read: Seen,
        deadline: float,
    ) -> bool:
        """Takes the heads, side by side; whether the commit may go on. What was taken is in `prepared`."""

        def take(group: bytes, head: Head) -> bool:
            try:
                won = self._heads.move(group, bases[group], head, deadline)
            except (Timeout, Unavailable):
                self._notes.doubt([group])
                return False  # whatever becomes of it: the primary will never say yes
            if won:
                prepared[group] = heads.as_stored(head)
            return won

        taken = self._beside.at_once([partial(take, group, head) for group, head in to_prepare.items()])
        return all(taken) and self._heads.stand_at(only_read, deadline)  # in this order

    def _give_up(self, prepared: Mapping[bytes, Head]) -> None:
        """Frees the heads that were prepared; those that are missed are freed by whoever meets them."""
        for group, head in prepared.items():
            self._beside.later(partial(self._heads.replace, group, head, head.emptied(head.slot)))

    def _finish_several(self, first: bytes, decision: Head, others: Mapping[bytes, Head], deadline: float) -> None:
        """Writes all rows, then tells the secondaries, and only when all of them know, the primary."""
        rows = [*decision.rows, *(row for head in others.values() for row in self._heads.split(head.rows)[1])]
        self._heads.apply(rows, deadline)
        tell = [partial(self._heads.tell, group, head) for group, head in others.items()]
        if self._heads.scopes:  # their entities come with it
            self._beside.at_once([partial(each, deadline) for each in tell])
            tell = []

        def tell_all() -> None:
            for each in tell:
                each(soon())
            self._heads.mark_applied(first, decision)

        self._beside.later(tell_all)

    # -- what a commit starts from, and what it writes

    def _look(self, by_group: _ByGroup, known: Mapping[bytes, Head], deadline: float) -> _Found:
        """What the commit starts from; the groups are noted meanwhile, if they are not."""
        while True:
            works: list[Callable[[], _Found | None]] = [partial(self._find, by_group, known, deadline)]
            if missing := self._notes.missing(by_group):
                works.append(partial(self._notes.write, missing, deadline))
            found = self._beside.at_once(works)[0]
            assert found is not None
            if not self._notes.missing(by_group):  # asked after the heads were read
                return found
            known = {}

    def _find(self, by_group: _ByGroup, known: Mapping[bytes, Head], deadline: float) -> _Found:
        """`known`: heads that may be old. The others are read, and written to the end, before their entities are:
        a head and rows of a group that are read at once are of one state only where `scopes` says so.
        """
        projects = dict.fromkeys(project_of(each.key.partition) for of_group in by_group.values() for each in of_group)
        found = _Found(dict(known), {}, *self._indexes.of([*projects]))
        wanted = {group: [entity_address(each.key) for each in of_group] for group, of_group in by_group.items()}
        for group, head in known.items():
            values = self._remembered.stored(group, head.slot, wanted[group])
            if values is not None:
                found.stored.update(zip(wanted.pop(group), values, strict=True))
        cold = [group for group in by_group if group not in known]
        if not self._heads.scopes:
            found.bases.update(self._heads.resolve(cold, deadline))
            cold = []
        unread = [address for of_group in wanted.values() for address in of_group]
        new = [project for project in projects if project not in found.indexes]
        addresses = [*map(head_address, cold), *map(catalog.catalog_address, new), *unread]
        while addresses:
            values = self._store.read(addresses, deadline=deadline)
            read = dict(zip(cold, map(heads.decode, values), strict=False))
            if prepared := [group for group, head in read.items() if head.state is State.PREPARED]:
                self._heads.resolve(prepared, deadline)
                continue
            for group, head in read.items():
                if not self._heads.is_written(group, head):
                    self._heads.roll(group, head, deadline)
            found.bases.update(read)
            found.indexes.update(self._indexes.add(dict(zip(new, values[len(cold) :], strict=False)), found.since))
            found.stored.update(zip(unread, values[len(cold) + len(new) :], strict=True))
            break
        return found

    def _rows(self, mutations: Sequence[Mutation], slot: int, found: _Found, deadline: float) -> list[Write]:
        """The row writes of one group's mutations. Kinds that are new are listed at once."""
        changes = Changes.none()
        for mutation in mutations:
            key = mutation.key
            stored = found.stored[entity_address(key)]
            add_mutation(changes, mutation, stored, found.indexes[project_of(key.partition)], slot)
            if mutation.entity is not None and stored is None:
                self._heads.apply(self._kinds.missing(key, changes), deadline)
        self._kinds.written(changes)
        entity_rows = [each for each in changes.operations if isinstance(each, Write)]
        return [each._replace(version=slot) for each in (*entity_rows, *row_writes(changes.rows))]


def _entities(rows: Iterable[Write]) -> dict[Address, bytes | None]:
    return {row.address: row.value for row in rows if row.address.table is Table.GROUPS}


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
