"""What a store tells of itself: its projects, their kinds, and from those every scope that has rows.

Nothing below lists the scopes there are, so what these rows do not lead to is not found: projects without a row of
their own and without composite indexes, kinds that are not listed, and entity groups of which no entity is left.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from adapters.contract import KeyRange, OrderedStore, Reader, Sweepable, Table
from adapters.errors import Unavailable
from pbserver.datastore import catalog, keys, notes, tables
from pbserver.datastore.encoding import read_text
from pbserver.datastore.scanning import every_row, meta_rows
from pbserver.datastore.sessions import KEPT_SECONDS, new_handle
from pbserver.datastore.tables import META_SCOPE

_PAGE = 500
_WHOLE = KeyRange()
_SECONDS = 60.0  # for each page


def projects(reader: Reader) -> list[bytes]:
    """The projects that have, or had, entities or composite indexes, in order."""
    listed = {project for project, _ in meta_rows(reader, tables.PROJECT)}
    return sorted(listed.union(catalog.projects(reader, deadline=time.monotonic() + _SECONDS)))


def kinds(reader: Reader, project: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Partition and (encoded) kind of all kinds that ever had entities, in order."""
    app, database, _ = keys.partition_names(project)
    for row, _ in every_row(reader, Table.KINDS, project):
        namespace, end = read_text(row, 0)
        yield keys.partition(app, database, namespace), row[end:]


def every_scope(store: OrderedStore) -> Iterator[tuple[Table, bytes]]:
    """Table and scope of all rows that are found. Holds nothing while it yields; tables may change meanwhile."""
    yield Table.META, META_SCOPE
    for server in notes.servers(store, deadline=time.monotonic() + _SECONDS):
        yield Table.UNFINISHED, server
    this_minute = tables.session_minute(new_handle())
    for minute in range(this_minute - 2 * KEPT_SECONDS // 60, this_minute + 1):  # also what was just forgotten
        yield Table.SESSIONS, tables.session_scope(minute * 60_000 << 22)
    for project in projects(store):
        yield from _scopes_of(store, project)


def _scopes_of(store: OrderedStore, project: bytes) -> Iterator[tuple[Table, bytes]]:
    yield Table.KINDS, project
    yield Table.IDS, project
    yield from _scopes_in(store, project)
    done = project
    for partition, kind in kinds(store, project):
        if partition != done:
            yield from _scopes_in(store, partition)
            done = partition
        yield Table.INDEXES, partition + kind


def _scopes_in(store: OrderedStore, partition: bytes) -> Iterator[tuple[Table, bytes]]:
    yield Table.KINDLESS, partition
    last = None
    for row in every_row(store, Table.KINDLESS, partition):
        group = tables.kindless_group(partition, row)
        if group != last:
            last = group
            yield Table.GROUPS, group


def every_noted_group(store: OrderedStore) -> Iterator[bytes]:
    """The entity groups that servers have noted: commits there may be unfinished. One may come several times."""
    for server in notes.servers(store, deadline=time.monotonic() + _SECONDS):
        for group, _ in every_row(store, Table.UNFINISHED, server):
            yield group


def sweep_all(store: OrderedStore, *, deadline_seconds: float, pause: Callable[[], bool]) -> int:
    """Sweeps scope after scope of a store that can be swept; how many rows of the database are gone.

    `deadline_seconds` is for each scope: one that takes longer is gone on with the next time. `pause` is called
    after each scope, and ends it by True. Raises Unavailable when the store cannot say which scopes there are.
    """
    removed = 0
    if isinstance(store, Sweepable):
        for table, scope in every_scope(store):
            with suppress(Unavailable):
                removed += store.sweep(table, scope, deadline=time.monotonic() + deadline_seconds)
            if pause():
                break
    return removed
