"""Builds and removes composite indexes in the background, a batch of rows at a time.

Whoever puts or deletes an entity keeps every index that is being built up to date from the commit that created it
(catalog.py), so a build has only to write, once, the rows of the entities that were there before. A batch is those
rows, the heads of the groups they were read from, checked, and the place where the next batch begins: one atomic
write. So a build goes on after a crash where it stood, and several servers may work on it at once.

On a store that writes row by row, a row carries its entity's version instead: whatever a later commit says of it wins.
A commit planned before the index was created may still be under way there, so the build first lets it settle, and takes
out what it has left behind (cleaning.py). A removal lets commits settle as well that still know of the index.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from adapters.contract import (
    ABSENT,
    Check,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    after_prefix,
)
from adapters.errors import Conflict
from pbserver.datastore import catalog, composites, entities, keys, metadata, tables
from pbserver.datastore.catalog import Catalog
from pbserver.datastore.cleaning import Cleaner
from pbserver.datastore.composites import Composite, State
from pbserver.datastore.errors import BadRequest, ConcurrentTransaction
from pbserver.datastore.groups import Groups
from pbserver.datastore.keys import Key
from protos.catalog_pb2 import Progress

#: Longer than a commit may take from looking at the catalog to its compare-and-set (row_groups.py).
SETTLE_SECONDS = 30
_WAIT_SECONDS = 0.05
_BATCH = 200


class Unfinished(NamedTuple):
    """An index with work left to do."""

    project: bytes
    composite: Composite


class _Batch(NamedTuple):
    """What a step writes; `progress` None: nothing is left; `refused`: why an entity cannot be in the index."""

    stored: bytes | None
    progress: Progress | None
    checks: list[Operation] = []  # noqa: RUF012 - never changed
    rows: list[Rows] = []  # noqa: RUF012
    refused: str = ""


class Builder:
    """Works for whoever calls it; used by one thread."""

    def __init__(self, store: OrderedStore, catalog_: Catalog, groups: Groups) -> None:
        self._store = store
        self._catalog = catalog_
        self._groups = groups
        self._batch = _BATCH

    def unfinished(self, *, deadline: float) -> list[Unfinished]:
        """The indexes of all projects that are being built or removed."""
        return [
            Unfinished(project, each)
            for project in catalog.projects(self._store, deadline=deadline)
            for each in self._catalog.read(project, deadline=deadline).all
            if each.state in (State.BUILDING, State.DELETING)
        ]

    def step(self, work: Unfinished, *, deadline: float) -> bool:
        """One batch; whether there is more to do. When there is not, the index has another state or is gone.

        A batch that met another writer is tried again, smaller, by the next step.
        """
        try:
            more = (self._build if work.composite.state is State.BUILDING else self._remove)(work, deadline)
        except Conflict:
            self._batch = max(1, self._batch // 2)
            return True
        self._batch = min(2 * self._batch, _BATCH)
        return more

    def progress(self, work: Unfinished, *, deadline: float) -> int:
        """How many entities have their rows already."""
        return self._progress(self._store, work, deadline)[1].entities

    def _progress(self, reader: Reader, work: Unfinished, deadline: float) -> tuple[bytes | None, Progress]:
        address = catalog.progress_address(work.project, work.composite.id)
        stored = reader.read([address], deadline=deadline)[0]
        return stored, Progress.FromString(stored) if stored else Progress(name_space=b"", path=b"", entities=0)

    def _build(self, work: Unfinished, deadline: float) -> bool:
        project, composite = work
        if not self._groups.steady and not self._is_settled_and_clean(work, deadline):
            return True
        address = catalog.progress_address(project, composite.id)
        found = self._groups.read([], lambda reader: self._batch_to_write(reader, work, deadline), deadline=deadline)
        if found is None:
            return False
        if found.progress is None:
            done = [Write(address, None)]
            self._catalog.move(project, composite, State.SERVING, deadline=deadline, operations=done)
            return False
        if found.refused:
            self._catalog.move(project, composite, State.ERROR, deadline=deadline, note=found.refused)
            return False
        progress = Write(address, found.progress.SerializeToString(), found.stored or ABSENT)
        if self._groups.steady:
            self._store.write([*found.checks, progress], rows=found.rows, deadline=deadline)
        else:
            if found.rows:
                self._store.write([], rows=found.rows, deadline=deadline)
            self._store.write([progress], deadline=deadline)
        return True

    def _batch_to_write(self, reader: Reader, work: Unfinished, deadline: float) -> "_Batch | None":
        """The next batch; None when the index is no longer as `work` says."""
        project, composite = work
        indexes = catalog.read(reader, project, deadline=deadline)
        if indexes.find(composite.id) != composite:
            return None
        stored, progress = self._progress(reader, work, deadline)
        found = self._next_entities(reader, work, progress, deadline)
        if found is None:
            return _Batch(stored, None)
        partition, page = found
        checks, rows, refused = self._rows(reader, work, partition, page, deadline)
        checks.append(Check(catalog.catalog_address(project), indexes.serialized or ABSENT))
        progress.name_space = keys.partition_names(partition)[2]
        progress.path = tables.row_path(*page[-1])
        progress.entities += len(page)
        return _Batch(stored, progress, checks, rows, refused)

    def _is_settled_and_clean(self, work: Unfinished, deadline: float) -> bool:
        """Whether nobody writes any longer who does not know of the index, and nothing is left of whoever did."""
        if not self._is_settled(work, "noticed_seconds", deadline):
            return False
        stored, progress = self._progress(self._store, work, deadline)
        if progress.is_clean:
            return True
        with suppress(ConcurrentTransaction):  # the same page again
            Cleaner(self._store, self._groups, *work).page(progress, self._batch, deadline=deadline)
            self._keep(work, stored, progress, deadline)
        return False

    def _is_settled(
        self, work: Unfinished, since: Literal["noticed_seconds", "leaving_seconds"], deadline: float
    ) -> bool:
        """Whether no commit can be under way that took the index to be in another state."""
        now = int(time.time())
        stored, progress = self._progress(self._store, work, deadline)
        if not progress.HasField(since):
            setattr(progress, since, now)
            self._keep(work, stored, progress, deadline)
        if now >= getattr(progress, since) + SETTLE_SECONDS:
            return True
        time.sleep(_WAIT_SECONDS)
        return False

    def _keep(self, work: Unfinished, stored: bytes | None, progress: Progress, deadline: float) -> None:
        address = catalog.progress_address(work.project, work.composite.id)
        self._store.write([Write(address, progress.SerializeToString(), stored or ABSENT)], deadline=deadline)

    def _next_entities(
        self, reader: Reader, work: Unfinished, progress: Progress, deadline: float
    ) -> tuple[bytes, list[Row]] | None:
        """The kind rows of the next entities, and their partition; None: there are no more."""
        kind = work.composite.definition.kind
        for partition in metadata.partitions_of_kind(reader, work.project, kind, deadline):
            namespace = keys.partition_names(partition)[2]
            if namespace < progress.name_space:
                continue
            start = tables.KIND_ROW
            if namespace == progress.name_space and progress.path:
                start += progress.path + b"\x00"
            page = reader.scan(
                Table.INDEXES,
                partition + kind,
                KeyRange(start, after_prefix(tables.KIND_ROW)),
                limit=self._batch,
                deadline=deadline,
            )
            if page:
                return partition, page
        return None

    def _rows(
        self, reader: Reader, work: Unfinished, partition: bytes, page: Sequence[Row], deadline: float
    ) -> tuple[list[Operation], list[Rows], str]:
        """What gives these entities their rows in the index, or why one of them cannot have them."""
        kind = work.composite.definition.kind
        found = [tables.key_of_row(partition, kind, row) for row in page]
        groups = list(dict.fromkeys(key.group for key in found))
        stored = reader.read([*map(tables.head_address, groups), *map(tables.entity_address, found)], deadline=deadline)
        operations: list[Operation] = [
            Check(tables.head_address(group), head or ABSENT) for group, head in zip(groups, stored, strict=False)
        ]
        rows = []
        for key, frame in zip(found, stored[len(groups) :], strict=True):
            if frame is None:
                continue
            try:
                entries = _entries(work.composite, key, frame)
            except BadRequest as refused:
                return [], [], f"{_shown(key)}: {refused}"
            if entries:
                version = None if self._groups.steady else entities.version(frame)
                rows.append(Rows(Table.INDEXES, partition + kind, key.path, entries, version))
        return operations, rows, ""

    def _remove(self, work: Unfinished, deadline: float) -> bool:
        project, composite = work
        if not self._groups.steady and not self._is_settled(work, "leaving_seconds", deadline):
            return True
        kind = composite.definition.kind
        stop = after_prefix(composite.prefix)
        for partition in metadata.partitions_of_kind(self._store, project, kind, deadline):
            page = self._store.scan(
                Table.INDEXES, partition + kind, KeyRange(composite.prefix, stop), limit=self._batch, deadline=deadline
            )
            if page:
                self._store.write([], rows=[*_removals(partition + kind, page)], deadline=deadline)
                return True
        progress = Write(catalog.progress_address(project, composite.id), None)
        self._catalog.move(project, composite, None, deadline=deadline, operations=[progress])
        return False


def _removals(scope: bytes, page: Sequence[Row]) -> Iterator[Rows]:
    by_path: dict[bytes, dict[bytes, bytes | None]] = {}
    for row, value in page:
        by_path.setdefault(tables.row_path(row, value), {})[row] = None
    return (Rows(Table.INDEXES, scope, path, rows) for path, rows in by_path.items())


def _entries(composite: Composite, key: Key, frame: bytes) -> dict[bytes, bytes | None]:
    proto = entities.parse(frame)
    built_in = len(entities.index_rows(key, proto))
    return {**composites.all_entries((composite,), key, entities.property_values(proto), built_in)}


def _shown(key: Key) -> str:
    namespace = keys.partition_names(key.partition)[2].decode()
    return (f"in namespace {namespace}: " if namespace else "") + "/".join(
        f"{kind.decode()}:{identifier if isinstance(identifier, int) else identifier.decode()}"
        for kind, identifier in keys.decode_path(key.path)
    )
