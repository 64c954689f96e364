"""Entity groups in a store with atomicity BATCH and snapshots: a commit is one native batch.

The head of every touched group is checked and raised, also of the groups only read, so whoever else touches one of
those groups meets a Conflict. A head is the group's slot: above the last one and not below the clock in milliseconds.
The batch checks as well that the composite indexes are those it wrote rows for.
"""

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from adapters.contract import ABSENT, Check, OrderedStore, Reader, Write
from adapters.errors import Conflict
from pbserver.datastore import catalog
from pbserver.datastore.errors import ConcurrentTransaction, Timeout
from pbserver.datastore.groups import Result, slot_of
from pbserver.datastore.keys import Key, project_of
from pbserver.datastore.mutations import Changes, Kinds, Mutation, Seen, add_mutation
from pbserver.datastore.tables import entity_address, head_address


class BatchGroups:
    """pbserver.datastore.groups.Groups."""

    steady = True

    def __init__(self, store: OrderedStore, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds

    def view(
        self, seen: Seen, joined: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float
    ) -> tuple[Result, dict[bytes, int]]:
        with self._store.snapshot() as reader:
            slots = [*map(slot_of, reader.read([*map(head_address, (*seen, *joined))], deadline=deadline))]
            if slots[: len(seen)] != list(seen.values()):
                raise ConcurrentTransaction("Concurrency exception.")
            return work(reader), dict(zip(joined, slots[len(seen) :], strict=True))

    def get(self, work: Callable[[Reader], Result]) -> Result:
        return work(self._store)

    def read(self, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float) -> Result:
        del groups, deadline
        with self._store.snapshot() as reader:
            return work(reader)

    def put(self, mutations: Iterable[Mutation], *, deadline: float) -> int:
        return self.commit(mutations, {}, deadline=deadline)

    def commit(self, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
        by_key = {mutation.key: mutation for mutation in mutations}
        while True:
            changes, slot = self._prepare(by_key, seen, deadline)
            try:
                self._store.write(changes.operations, rows=changes.rows, deadline=deadline)
            except Conflict:
                if time.monotonic() > deadline:
                    raise Timeout("the entity groups are contended; nothing was written") from None
                time.sleep(random.uniform(0, 0.001))  # noqa: S311 - a back-off, not a secret
            else:
                self._kinds.written(changes)
                return slot

    def _prepare(self, by_key: Mapping[Key, Mutation], seen: Seen, deadline: float) -> tuple[Changes, int]:
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
        if any(slot_of(heads[group]) != slot for group, slot in seen.items()):
            raise ConcurrentTransaction("Concurrency exception.")
        slot = max(time.time_ns() // 1_000_000, *(slot_of(head) + 1 for head in heads.values()))
        new_head = slot.to_bytes(8, "big")
        changes = Changes.none()
        changes.operations.extend(Write(head_address(group), new_head, heads[group] or ABSENT) for group in groups)
        changes.operations.extend(
            Check(catalog.catalog_address(project), row or ABSENT) for project, row in catalogs.items()
        )
        indexes = {project: catalog.parse(row) for project, row in catalogs.items()}
        for mutation, stored in zip(by_key.values(), found, strict=True):
            key = mutation.key
            add_mutation(changes, mutation, stored, indexes[project_of(key.partition)], slot)
            if mutation.entity is not None and stored is None:
                changes.operations.extend(self._kinds.missing(key, changes))
        return changes, slot

    def tend(self, *, deadline: float) -> None:
        """Nothing: a commit is there wholly or not at all."""
