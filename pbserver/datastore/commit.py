"""The one way anything becomes visible: a commit of changed entities, with their index rows and group heads.

On a store with atomicity BATCH a commit is one native batch: the head of every touched group is checked and raised,
also of the groups only read, so whoever else touches one of those groups meets a Conflict. A head holds the group's
slot: above the last one and not below the clock in milliseconds. The slot is the version of everything the commit
writes (README.md, Commit). The batch checks as well that the composite indexes are those it wrote rows for.
"""

import random
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from adapters.contract import ABSENT, Check, Operation, OrderedStore, Rows, Write
from adapters.errors import Conflict
from pbserver.datastore import catalog, entities
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.entities import Entity
from pbserver.datastore.errors import ConcurrentTransaction, DatastoreError, Timeout
from pbserver.datastore.keys import Key, partition_names, project_of
from pbserver.datastore.tables import entity_address, head_address, index_changes, kind_address

_PRESENT = b"\x01"


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


class _Batch(NamedTuple):
    operations: list[Operation]
    rows: list[Rows]
    slot: int
    new_kinds: set[bytes]


class Committer:
    """Thread-safe; one per process. `remember_kinds`: nobody else ever drops this store's tables."""

    def __init__(self, store: OrderedStore, *, remember_kinds: bool) -> None:
        self._store = store
        self._remember_kinds = remember_kinds
        self._known_kinds: set[bytes] = set()

    def commit(self, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
        """Applies the mutations and returns their version.

        Raises ConcurrentTransaction when a group in `seen` has moved (nothing was applied), IdInUse, Timeout, and
        BadRequest when an entity has too many entries in composite indexes.
        """
        by_key = {mutation.key: mutation for mutation in mutations}
        while True:
            batch = self._prepare(by_key, seen, deadline)
            try:
                self._store.write(batch.operations, rows=batch.rows, deadline=deadline)
            except Conflict:
                if time.monotonic() > deadline:
                    raise Timeout("the entity groups are contended; nothing was written") from None
                time.sleep(random.uniform(0, 0.001))  # noqa: S311 - a back-off, not a secret
            else:
                if self._remember_kinds:
                    self._known_kinds |= batch.new_kinds
                return batch.slot

    def _prepare(self, by_key: Mapping[Key, Mutation], seen: Seen, deadline: float) -> _Batch:
        groups = list(dict.fromkeys([*(key.group for key in by_key), *seen]))
        projects = list(dict.fromkeys(project_of(key.partition) for key in by_key))
        wanted = [
            *map(head_address, groups),
            *map(catalog.catalog_address, projects),
            *map(entity_address, by_key),
        ]
        found = iter(self._store.read(wanted, deadline=deadline))
        heads = dict(zip(groups, islice(found, len(groups)), strict=True))
        catalogs = dict(zip(projects, islice(found, len(projects)), strict=True))
        if any(heads[group] != head for group, head in seen.items()):
            raise ConcurrentTransaction("Concurrency exception.")
        slot = max(time.time_ns() // 1_000_000, *(slot_of(head) + 1 for head in heads.values()))
        new_head = slot.to_bytes(8, "big")
        batch = _Batch([], [], slot, set())
        batch.operations.extend(Write(head_address(group), new_head, heads[group] or ABSENT) for group in groups)
        batch.operations.extend(
            Check(catalog.catalog_address(project), row or ABSENT) for project, row in catalogs.items()
        )
        indexes = {project: catalog.parse(row) for project, row in catalogs.items()}
        for mutation, stored in zip(by_key.values(), found, strict=True):
            self._add(batch, mutation, stored, indexes[project_of(mutation.key.partition)])
        return batch

    def _add(self, batch: _Batch, mutation: Mutation, stored: bytes | None, indexes: Indexes) -> None:
        """Adds what one mutation writes."""
        key, entity, insert = mutation
        composites = indexes.of_kind(key.kind)
        if insert and stored is not None:
            raise IdInUse(key)
        if entity is not None:
            batch.operations.append(Write(entity_address(key), entities.frame(entity.data, batch.slot)))
        elif stored is not None:
            batch.operations.append(Write(entity_address(key), None))
        old = entities.stored_rows(key, stored, composites) if stored is not None else {}
        new = entities.all_rows(entity, composites) if entity is not None else {}
        batch.rows.extend(index_changes(key, old, new))
        if entity is not None and stored is None:
            self._add_kind(batch, key)

    def _add_kind(self, batch: _Batch, key: Key) -> None:
        scope = key.partition + key.kind
        if scope in self._known_kinds or scope in batch.new_kinds:
            return
        batch.new_kinds.add(scope)
        namespace = partition_names(key.partition)[2]
        batch.operations.append(Write(kind_address(project_of(key.partition), namespace, key.kind), _PRESENT))


def slot_of(head: bytes | None) -> int:
    """The slot in a head's value; 0 for a group that was never written."""
    return int.from_bytes(head[:8], "big") if head else 0
