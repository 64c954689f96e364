"""The one way anything becomes visible: a commit of changed entities, with their index rows and group heads.

On a store with atomicity BATCH a commit is one native batch: the head of every touched group is checked and raised,
also of the groups only read, so whoever else touches one of those groups meets a Conflict. A head holds the group's
slot: above the last one and not below the clock in milliseconds. The slot is the version of everything the commit
writes (README.md, Commit).
"""

import random
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from adapters.contract import ABSENT, Operation, OrderedStore, Rows, Write
from adapters.errors import Conflict
from pbserver.datastore import entities
from pbserver.datastore.entities import Entity
from pbserver.datastore.errors import ConcurrentTransaction, DatastoreError, Timeout
from pbserver.datastore.keys import Key
from pbserver.datastore.tables import entity_address, head_address, index_changes


class Mutation(NamedTuple):
    """An entity to be stored, or with `entity=None` deleted. `insert`: the id is ours and must not be in use."""

    key: Key
    entity: Entity | None
    insert: bool = False


class IdInUse(DatastoreError):
    """The id given to a new entity belongs to another entity already."""

    def __init__(self, key: Key) -> None:
        super().__init__("the id allocated for a new entity was already in use, please try again")
        self.key = key


#: What a transaction saw of the groups it read: the value of each head, None where there was none.
Seen = Mapping[bytes, bytes | None]


def commit(store: OrderedStore, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
    """Applies the mutations and returns their version.

    Raises ConcurrentTransaction when a group in `seen` has moved (nothing was applied), IdInUse, Timeout.
    """
    by_key = {mutation.key: mutation for mutation in mutations}
    while True:
        operations, rows, slot = _prepare(store, by_key, seen, deadline)
        try:
            store.write(operations, rows=rows, deadline=deadline)
        except Conflict:
            if time.monotonic() > deadline:
                raise Timeout("the entity groups are contended; nothing was written") from None
            time.sleep(random.uniform(0, 0.001))  # noqa: S311 - a back-off, not a secret
        else:
            return slot


def _prepare(
    store: OrderedStore, by_key: Mapping[Key, Mutation], seen: Seen, deadline: float
) -> tuple[list[Operation], list[Rows], int]:
    groups = list(dict.fromkeys([*(key.group for key in by_key), *seen]))
    found = store.read([*map(head_address, groups), *map(entity_address, by_key)], deadline=deadline)
    heads = dict(zip(groups, found, strict=False))
    if any(heads[group] != head for group, head in seen.items()):
        raise ConcurrentTransaction("Concurrency exception.")
    slot = max(time.time_ns() // 1_000_000, *(slot_of(head) + 1 for head in heads.values()))
    new_head = slot.to_bytes(8, "big")
    operations: list[Operation] = [Write(head_address(group), new_head, heads[group] or ABSENT) for group in groups]
    rows: list[Rows] = []
    for mutation, stored in zip(by_key.values(), found[len(groups) :], strict=True):
        operations += _entity_write(mutation, stored, slot)
        rows += _index_changes(mutation, stored)
    return operations, rows, slot


def slot_of(head: bytes | None) -> int:
    """The slot in a head's value; 0 for a group that was never written."""
    return int.from_bytes(head[:8], "big") if head else 0


def _entity_write(mutation: Mutation, stored: bytes | None, slot: int) -> list[Operation]:
    key, entity, insert = mutation
    if insert and stored is not None:
        raise IdInUse(key)
    if entity is None:
        return [Write(entity_address(key), None)] if stored is not None else []
    return [Write(entity_address(key), entities.frame(entity.data, slot))]


def _index_changes(mutation: Mutation, stored: bytes | None) -> list[Rows]:
    key, entity, _ = mutation
    old = entities.stored_rows(key, stored) if stored is not None else {}
    return index_changes(key, old, entity.rows if entity is not None else {})
