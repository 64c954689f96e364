"""How verification looks at a store and changes it, whatever the store promises.

A look at a project may be at one state of an entity group. Where commits are native batches every look is a snapshot.
Where they are applied row by row, the group's unfinished commit is finished first, its head is read again afterwards,
and a look at no group in particular shows what happens to be there: what it finds has to be looked at once more.

A change holds only for the state it was planned in. It takes a slot of the group, as a commit does: in the same batch,
or beforehand by a compare-and-set of the head, and then the slot is the version of the rows. So rows that a commit
writes meanwhile win, and rows that were deleted too late, or written wrongly with the version of a commit, lose.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from adapters.contract import ABSENT, Address, Check, Operation, OrderedStore, Rows, Write, row_writes
from adapters.errors import Conflict
from pbserver.datastore import catalog, heads, keys, tables
from pbserver.datastore.core import open_groups
from pbserver.datastore.errors import ConcurrentTransaction, Internal
from pbserver.datastore.groups import Groups, InTurn, Result, slot_of
from pbserver.datastore.head_store import HeadStore
from pbserver.datastore.heads import Head
from pbserver.datastore.keys import Key
from pbserver.datastore.remembered import Remembered
from pbserver.verification.checks import SLOT_BYTES, View

_SECONDS = 60.0
_GROUP_SECONDS = 10.0  # for one state of a group that is changed all the time

Plan = Callable[[View], list[Rows]]


class States(Protocol):
    """For one thread. `steady`: no commit is ever seen in part."""

    store: OrderedStore
    steady: bool

    def look(self, project: bytes, work: Callable[[View], Result], *, group: bytes | None = None) -> Result:
        """What `work` sees; of `group`, in one state. `work` may be called several times, and must not write.

        With a group, raises Timeout when it is changed all the time, Internal when its commit cannot be finished.
        """
        ...

    def change(self, key: Key, plan: Plan, *, rebuild: bool) -> None:
        """Writes the index rows that `plan` asks for in one state of the key's group, and moves its head on.

        `rebuild`: the head is not what it should be, so it is moved above everything in the group. Raises
        ConcurrentTransaction when a commit came between; and like look().
        """
        ...

    def list_(self, addresses: Sequence[Address]) -> None:
        """Writes rows that only say where something may be found."""
        ...

    def delete_stray(self, address: Address, value: bytes) -> None:
        """Deletes an index row that belongs to no entity group, and that nobody can have written."""
        ...


class _Looks:
    def __init__(self, store: OrderedStore, groups: Groups) -> None:
        self.store = store
        self.steady = groups.steady
        self._groups = groups

    def look(self, project: bytes, work: Callable[[View], Result], *, group: bytes | None = None) -> Result:
        deadline = _deadline(_SECONDS if group is None else _GROUP_SECONDS)
        return self._groups.read(
            [] if group is None else [group],
            lambda reader: work(View(reader, project, steady=self.steady, deadline=deadline)),
            deadline=deadline,
        )


class _BatchStates(_Looks):
    """Everything a change writes is one batch, which checks the head and the composite indexes."""

    def change(self, key: Key, plan: Plan, *, rebuild: bool) -> None:
        head, highest, rows, catalog_row = self.look(
            keys.project_of(key.partition),
            lambda seen: (seen.head(key.group), _highest(seen, key, rebuild), plan(seen), seen.catalog_row),
        )
        slot = _next_slot(slot_of(head) if len(head or b"") == SLOT_BYTES else 0, highest)
        operations: list[Operation] = [
            Write(tables.head_address(key.group), slot.to_bytes(SLOT_BYTES, "big"), head or ABSENT),
            Check(catalog.catalog_address(keys.project_of(key.partition)), catalog_row or ABSENT),
        ]
        try:
            self.store.write(operations, rows=rows, deadline=_deadline(_SECONDS))
        except Conflict as conflict:
            raise ConcurrentTransaction("a commit came between") from conflict

    def list_(self, addresses: Sequence[Address]) -> None:
        self.store.write([Write(each, tables.PRESENT) for each in addresses], deadline=_deadline(_SECONDS))

    def delete_stray(self, address: Address, value: bytes) -> None:
        try:
            self.store.write([Write(address, None, value)], deadline=_deadline(_SECONDS))
        except Conflict as conflict:
            raise ConcurrentTransaction("it was written meanwhile") from conflict


class _RowStates(_Looks):
    """A change takes a slot first; its rows are written when nothing was wrong with that."""

    def __init__(self, store: OrderedStore, groups: Groups) -> None:
        super().__init__(store, groups)
        self._heads = HeadStore(store, Remembered(0))

    def change(self, key: Key, plan: Plan, *, rebuild: bool) -> None:
        project, deadline = keys.project_of(key.partition), _deadline(_SECONDS)
        highest = self.look(project, lambda seen: _highest(seen, key, rebuild))
        slot = self._take(key.group, highest, deadline, rebuild=rebuild)
        rows, _ = self._groups.view(
            {key.group: slot},
            [],
            lambda reader: plan(View(reader, project, steady=False, deadline=deadline)),
            deadline=deadline,
        )
        self._heads.apply(row_writes([each._replace(version=slot) for each in rows]), deadline)

    def _take(self, group: bytes, highest: int, deadline: float, *, rebuild: bool) -> int:
        """Moves a head on to a slot that nobody else has, all rows of the slots before being written.

        A head that is rebuilt has forgotten which commits happened: none that is asked about may be called lost.
        """
        head = self._resolved(group, deadline)
        slot = _next_slot(head.slot, highest)
        new = replace(head.emptied(slot), uid=os.urandom(16))
        if rebuild or not head.slot:
            new = replace(new, dropped=slot)
        if not self._heads.move(group, head, new, deadline):
            raise ConcurrentTransaction("a commit came between")
        return slot

    def _resolved(self, group: bytes, deadline: float) -> Head:
        """Of an unreadable head nothing is left but its bytes."""
        (raw,) = self.store.read([tables.head_address(group)], deadline=deadline, settle=True)
        try:
            heads.decode(raw)
        except Internal:
            return Head(raw=raw)
        return self._heads.resolve([group], deadline)[group]

    def list_(self, addresses: Sequence[Address]) -> None:
        self._heads.apply([Write(each, tables.PRESENT) for each in addresses], _deadline(_SECONDS))

    def delete_stray(self, address: Address, value: bytes) -> None:
        del value
        self._heads.apply([Write(address, None, version=_next_slot(0, 0))], _deadline(_SECONDS))


def states_of(store: OrderedStore) -> States:
    groups = open_groups(store, InTurn(), remember=False, early=False)
    return _BatchStates(store, groups) if groups.steady else _RowStates(store, groups)


def _highest(seen: View, key: Key, rebuild: bool) -> int:
    """What a head that is not there, or not right, must be above."""
    head = seen.head(key.group)
    return seen.highest_version(key.group) if rebuild or head is None or not seen.is_head(head) else 0


def _next_slot(last: int, highest: int) -> int:
    return max(last + 1, highest + 1, time.time_ns() // 1_000_000)


def _deadline(seconds: float) -> float:
    return time.monotonic() + seconds
