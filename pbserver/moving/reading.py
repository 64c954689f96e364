"""Out of a store, in use or not: pages of queries over all kinds, each of a short time."""

import time
from collections.abc import Iterator, Sequence

from adapters.contract import OrderedStore
from pbserver.datastore import entities, ids, keys, projects, tables
from pbserver.datastore.core import Datastore, open_groups
from pbserver.datastore.errors import Internal, Timeout
from pbserver.datastore.execute import Batch, Progress
from pbserver.datastore.groups import InTurn
from pbserver.datastore.queries import Position, Query, normalize
from pbserver.moving.records import START, Begins, Ends, Place, Record, Stage, Stored
from pbserver.verification.problem import shown_key

_SECONDS = 60.0  # for each page
_GROUP_SECONDS = 10.0  # for a commit that was left unfinished
_FEWEST, _MOST = 10, 200  # entities of a page
_PAGE_BYTES = 2_000_000


class StoreSource:
    """pbserver.moving.records.Source: these projects of a store. For one thread.

    Raises Internal for a store that is damaged, so that nothing is left behind unnoticed.
    """

    def __init__(self, store: OrderedStore, wanted: Sequence[bytes]) -> None:
        self._store = store
        self._datastore = Datastore(store)
        self._projects = sorted(wanted)

    def records(self, after: Place = START) -> Iterator[Record]:
        finish_commits(self._store)
        for project in self._projects:
            if Place(project, Stage.ENDS) <= after:
                continue
            last = after if after.project == project else START
            begins = Begins(project, self._datastore.catalog.read(project, deadline=_deadline()))
            if begins.place > after:
                yield begins
            for partition in self._partitions(project):
                if partition >= last.partition:
                    yield from self._entities(partition, last.path if partition == last.partition else b"")
            yield self._ends(project)

    def _partitions(self, project: bytes) -> Iterator[bytes]:
        last = None
        for partition, _ in projects.kinds(self._store, project):
            if partition != last:
                yield partition
                last = partition

    def _entities(self, partition: bytes, path: bytes) -> Iterator[Stored]:
        query = normalize(Query(partition=partition, kind=None, ancestor=None, filters=(), orders=()))
        progress = Progress(Position((), path, before=False) if path else None, 0, None)
        count = _FEWEST
        more = True
        while more:
            batch = self._datastore.query(query, progress, count, None, deadline=_deadline())
            yield from _stored(partition, batch)
            more = batch.more
            size = sum(map(len, batch.frames)) // max(1, len(batch.frames))
            count = max(_FEWEST, min(_MOST, 2 * count, _PAGE_BYTES // max(1, size)))

    def _ends(self, project: bytes) -> Ends:
        indexes = self._datastore.catalog.read(project, deadline=_deadline())
        policies = (ids.SEQUENTIAL, ids.SCATTERED)
        found = self._store.read([tables.counter_address(project, each) for each in policies], deadline=_deadline())
        return Ends(project, indexes, *(int.from_bytes(each, "big") if each is not None else 1 for each in found))


def _stored(partition: bytes, batch: Batch) -> Iterator[Stored]:
    for (path, _), frame in zip(batch.rows, batch.frames, strict=True):
        proto = entities.parse(frame)
        key = keys.from_reference(proto.key)
        if (key.partition, key.path) != (partition, path):
            raise Internal(f"{shown_key(key)} stands in the place of another entity; run a verification of the store")
        yield Stored(key, proto, entities.unframe(frame))


def holds(store: OrderedStore, project: bytes) -> bool:
    """Whether a project that may not be listed has kinds or has given out ids."""
    counters = [tables.counter_address(project, each) for each in (ids.SEQUENTIAL, ids.SCATTERED)]
    return any(projects.kinds(store, project)) or any(store.read(counters, deadline=_deadline()))


def finish_commits(store: OrderedStore) -> None:
    """Where commits are applied row by row: writes what servers have left of theirs, as any server would that meets it.

    Without that, a commit whose server died could be missed, acknowledged as it is.
    """
    groups = open_groups(store, InTurn(), remember=False, early=False)
    if groups.steady:
        return
    for group in projects.every_noted_group(store):
        try:
            groups.read([group], lambda _: None, deadline=time.monotonic() + _GROUP_SECONDS)
        except Timeout:
            continue  # it is being changed all the time, so somebody finishes it


def _deadline() -> float:
    return time.monotonic() + _SECONDS
