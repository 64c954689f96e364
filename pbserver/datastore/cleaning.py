"""Takes out of an index under construction the rows that do not belong there.

On a store that writes row by row a commit may be under way that was planned before the index was created. It removes
no rows of the index: what others, who know the index, have written of its entity then stays behind. So a build, when
it has let such commits settle, looks at the rows that are there before it writes its own.
"""

from collections.abc import Iterator

from adapters.contract import KeyRange, OrderedStore, Reader, Row, Rows, Table, after_prefix
from pbserver.datastore import composites, entities, keys, metadata, tables
from pbserver.datastore.composites import Composite
from pbserver.datastore.groups import Groups
from pbserver.datastore.keys import Key
from protos.catalog_pb2 import Progress


class Cleaner:
    """For one index, and one thread."""

    def __init__(self, store: OrderedStore, groups: Groups, project: bytes, composite: Composite) -> None:
        self._store = store
        self._groups = groups
        self._project = project
        self._composite = composite

    def page(self, progress: Progress, limit: int, *, deadline: float) -> None:
        """Looks at the next rows and moves `progress` on. Raises ConcurrentTransaction when a group was changed
        meanwhile: to be tried again.
        """
        found = self._next_rows(progress, limit, deadline)
        if found is None:
            progress.is_clean = True
            return
        partition, page = found
        kind = self._composite.definition.kind
        by_group: dict[bytes, list[tuple[Key, bytes]]] = {}
        for row in page:
            key = tables.key_of_row(partition, kind, row)
            by_group.setdefault(key.group, []).append((key, row[0]))
        for group, rows in by_group.items():
            self._clean_group(group, rows, deadline)
        progress.clean_name_space = keys.partition_names(partition)[2]
        progress.clean_row = page[-1][0]

    def _clean_group(self, group: bytes, rows: list[tuple[Key, bytes]], deadline: float) -> None:
        """The rows of entities that do not have them are deleted at the group's slot: a later commit's row wins."""

        def work(reader: Reader) -> dict[Key, list[bytes]]:
            return {key: [*strays] for key, strays in self._strays(reader, rows, deadline)}

        strays, slots = self._groups.view({}, [group], work, deadline=deadline)
        scope = self._composite.definition.kind
        self._store.write(
            [],
            rows=[
                Rows(Table.INDEXES, key.partition + scope, key.path, dict.fromkeys(of_entity), slots[group])
                for key, of_entity in strays.items()
                if of_entity
            ],
            deadline=deadline,
        )

    def _strays(
        self, reader: Reader, rows: list[tuple[Key, bytes]], deadline: float
    ) -> Iterator[tuple[Key, list[bytes]]]:
        found = [*dict.fromkeys(key for key, _ in rows)]
        stored = reader.read([*map(tables.entity_address, found)], deadline=deadline)
        for key, frame in zip(found, stored, strict=True):
            due: dict[bytes, bytes] = {}
            if frame is not None:
                values = entities.property_values(entities.parse(frame))
                due = {**composites.entries(self._composite, key, values)}
            yield key, [row for its, row in rows if its == key and row not in due]

    def _next_rows(self, progress: Progress, limit: int, deadline: float) -> tuple[bytes, list[Row]] | None:
        kind, prefix = self._composite.definition.kind, self._composite.prefix
        for partition in metadata.partitions_of_kind(self._store, self._project, kind, deadline):
            namespace = keys.partition_names(partition)[2]
            if namespace < progress.clean_name_space:
                continue
            here = namespace == progress.clean_name_space and progress.clean_row
            start = progress.clean_row + b"\x00" if here else prefix
            page = self._store.scan(
                Table.INDEXES, partition + kind, KeyRange(start, after_prefix(prefix)), limit=limit, deadline=deadline
            )
            if page:
                return partition, page
        return None
