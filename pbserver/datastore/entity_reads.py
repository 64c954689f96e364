"""Gets outside of transactions in a store without multi-row transactions: entities are read beside their groups' heads.

An entity's row alone would show what no serial order has: the rows of a commit appear one after the other, and those of
a commit that read what another one has overwritten since may appear after that one was acknowledged.

The rules are those of the commit protocol (README.md, Commit); each was found necessary by simulation
(tests/simulation), so none of them is to be simplified by eye.
"""

from collections.abc import Mapping, Sequence

from adapters.contract import Address, KeyRange, OrderedStore, Row, Table
from pbserver.datastore import heads
from pbserver.datastore.head_store import HeadStore
from pbserver.datastore.heads import Head, State
from pbserver.datastore.remembered import Remembered
from pbserver.datastore.tables import head_address

#: A get would rather wait than break off a commit: it may be of a server that died, but far more often it is slow.
_PATIENCE_SECONDS = 2.0


class EntityReads:
    """A reader (adapters.contract.Reader) for gets: each entity is of a state of its own. Thread-safe.

    A read is one round trip when nothing is under way in the groups and, where a head and rows that are read at once
    may be of different states, this process remembers the heads.
    """

    def __init__(self, store: OrderedStore, head_store: HeadStore, remembered: Remembered) -> None:
        self._store = store
        self._heads = head_store
        self._remembered = remembered

    def read(self, wanted: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        groups = [*dict.fromkeys(each.scope for each in wanted if each.table is Table.GROUPS)]
        before = {group: self._remembered.slot(group) for group in groups}  # asked before anything is read
        met, found = self._beside_heads(groups, wanted, deadline, settle=settle)
        if self._heads.scopes:
            open_ = {group: head for group, head in met.items() if not self._heads.is_written(group, head)}
            self._settle(open_, found, deadline)
        else:
            late = {group: head for group, head in met.items() if not _was_written(head, before[group])}
            self._read_after(late, found, deadline)
        return [found[each] for each in wanted]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        """As the rows are: statistics read all entities there are, and need no one state of them."""
        return self._store.fetch(table, scopes, keys, deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        return self._store.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)

    def _beside_heads(
        self, groups: Sequence[bytes], wanted: Sequence[Address], deadline: float, *, settle: bool
    ) -> tuple[dict[bytes, Head], dict[Address, bytes | None]]:
        values = self._store.read([*map(head_address, groups), *wanted], deadline=deadline, settle=settle)
        met = dict(zip(groups, map(heads.decode, values), strict=False))
        return met, dict(zip(wanted, values[len(groups) :], strict=True))

    def _settle(self, open_: Mapping[bytes, Head], found: dict[Address, bytes | None], deadline: float) -> None:
        """A commit that is seen here may not be acknowledged yet: it is settled, so that all later reads see it."""
        while open_:
            prepared = [group for group, head in open_.items() if head.state is State.PREPARED]
            self._heads.resolve(prepared, deadline, patience=_PATIENCE_SECONDS)
            met, values = self._beside_heads([*open_], _within(open_, found), deadline, settle=True)
            found.update(values)
            open_ = {group: head for group, head in met.items() if head.state is State.PREPARED}

    def _read_after(self, late: Mapping[bytes, Head], found: dict[Address, bytes | None], deadline: float) -> None:
        """Reads rows once more, when all that their heads tell of is written."""
        for group, head in self._heads.finish(late, deadline, patience=_PATIENCE_SECONDS).items():
            self._remembered.add(group, head)
        if again := _within(late, found):
            found.update(zip(again, self._store.read(again, deadline=deadline), strict=True))


def _was_written(head: Head, before: int | None) -> bool:
    """Whether all rows of a head's slot were written before it was read: there are none, or this was known then."""
    return head.raw is None or (head.slot == before and head.state is not State.PREPARED)


def _within(groups: Mapping[bytes, Head], found: Mapping[Address, bytes | None]) -> list[Address]:
    return [each for each in found if each.table is Table.GROUPS and each.scope in groups]
