"""Into a store: what is moved is put there as any client's entities are, and a row of table `meta` says how far it is.

An interrupted move goes on behind that place. The batch on its way then is put again, which changes nothing. Before
the first entity of a project its composite indexes are there, those that serve as serving: every put writes their
rows. The others follow behind the last entity, those that were being built to be built again: they may refuse an
entity that the source holds. Counters come last, above every id that arrived.
"""

import time
from collections.abc import Callable

from google.protobuf.message import DecodeError

from adapters.contract import ABSENT, OrderedStore, Write
from adapters.errors import Conflict
from pbserver.background import Hands
from pbserver.datastore import composites, entities, ids, keys, projects
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.composites import State
from pbserver.datastore.core import Datastore
from pbserver.datastore.entities import Entity
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.tables import meta_address
from pbserver.moving.records import START, Begins, CannotMove, Ends, Place, Source, Stored
from pbserver.verification.problem import shown_key, shown_partition
from protos.dump_pb2 import Arrival as Progress

ADDRESS = meta_address("arrival")
_SECONDS = 60.0  # for each call
_TEND_SECONDS = 5.0
_BATCH_ENTITIES = 500
_BATCH_ROWS = 10_000  # half of what a store must take at once, as one entity may have the other half
_BATCH_BYTES = 1_000_000
_MOST_SHOWN = 5

Told = Callable[[int, bytes], None]


class Arrival:
    """One move into a store. For one thread. `identity`: of the source, so that no other one is gone on with.

    `told` is called with the number of entities that have arrived, and the project, after each batch.
    """

    def __init__(self, store: OrderedStore, identity: bytes, told: Told = lambda *_: None) -> None:
        self._store = store
        self._hands = Hands()
        self._datastore = Datastore(store, beside=self._hands)
        self._identity = identity
        self.told = told
        self._stored: bytes | None = None
        self._progress = Progress(**START._asdict(), source=identity, entities=0, sequential=1, scattered=1)
        self._last = START
        self._indexes = Indexes()
        self._batch: list[Entity] = []
        self._rows = 0
        self._bytes = 0
        self._tended = time.monotonic()

    @property
    def entities(self) -> int:
        """How many have arrived, in this run and those before."""
        return self._progress.entities

    def begin(self) -> Place:
        """Claims an empty store, or finds out how far a move from the same source came: the place to go on behind.

        Raises CannotMove, having written nothing, for a store that holds anything else.
        """
        self._datastore.prepare(deadline=_deadline())
        (self._stored,) = self._store.read([ADDRESS], deadline=_deadline(), settle=True)
        if self._stored is None:
            self._check_empty()
            self._reach(START)
            return START
        self._progress = _parsed(self._stored)
        if self._progress.source != self._identity:
            raise CannotMove(
                "the target holds the unfinished copy of another source, or of other apps: nothing was touched; "
                "go on with that one, or name an empty store"
            )
        place = Place(*(getattr(self._progress, name) for name in Place._fields))
        if place > START:
            self._indexes = self._datastore.catalog.read(place.project, deadline=_deadline())
        return place

    def take(self, source: Source) -> None:
        """Puts everything behind the place where the move stands. Raises CannotMove for what the target refuses."""
        for record in source.records(self.begin()):
            match record:
                case Begins():
                    self._begin_project(record)
                case Stored():
                    self._add(record)
                case Ends():
                    self._end_project(record)

    def finish(self) -> None:
        """The target is a store like any other from now on."""
        self._write(None)

    def close(self) -> None:
        self._hands.close()

    def _check_empty(self) -> None:
        there = projects.projects(self._store)
        if there:
            shown = ", ".join(map(shown_partition, there[:_MOST_SHOWN])) + (", ..." if there[_MOST_SHOWN:] else "")
            raise CannotMove(f"the target holds data already, of {shown}: nothing was touched; name an empty store")

    def _begin_project(self, record: Begins) -> None:
        complete = [each for each in record.indexes.all if each.state is State.SERVING]
        self._adopt(record.project, complete, record.indexes.next_id)
        self._progress.sequential = self._progress.scattered = 1
        self._indexes = self._datastore.catalog.read(record.project, deadline=_deadline())
        self._reach(record.place)

    def _end_project(self, record: Ends) -> None:
        self._flush()
        again = [
            each._replace(state=State.BUILDING) if each.state is State.SERVING else each
            for each in record.indexes.all
            if each.state is not State.DELETING
        ]
        self._adopt(record.project, again, record.indexes.next_id)
        self._reserve(record.project, max(record.sequential, self._progress.sequential) - 1)
        scattered = max(record.scattered, self._progress.scattered) - 1
        if scattered:
            self._reserve(record.project, ids.scatter(min(scattered, ids.MAX_SCATTERED_COUNTER - 1)))
        self._reach(record.place)

    def _adopt(self, project: bytes, wanted: list[composites.Composite], next_id: int) -> None:
        self._datastore.catalog.adopt(project, wanted, next_id, deadline=_deadline())

    def _reserve(self, project: bytes, identifier: int) -> None:
        self._datastore.ids.reserve(project, identifier, deadline=_deadline())

    def _add(self, record: Stored) -> None:
        try:
            entity = entities.build(record.key, record.proto, record.data)
            rows = len(entities.all_rows(entity, self._indexes.of_kind(record.key.kind)))
        except BadRequest as refused:
            raise CannotMove(
                f"the target cannot take {shown_key(record.key)}: {refused}; mend it in the source and start again"
            ) from refused
        size = len(record.data)
        if self._rows + rows > _BATCH_ROWS or self._bytes + size > _BATCH_BYTES or len(self._batch) == _BATCH_ENTITIES:
            self._flush()
        self._batch.append(entity)
        self._rows += rows
        self._bytes += size
        self._last = record.place

    def _flush(self) -> None:
        """Puts what has been collected, then writes down that it is there."""
        if not self._batch:
            return
        self._datastore.write([Mutation(each.key, each) for each in self._batch], None, deadline=_deadline())
        self._progress.entities += len(self._batch)
        for each in self._batch:
            self._count_id(each.key)
        self._batch, self._rows, self._bytes = [], 0, 0
        self._reach(self._last)
        self.told(self._progress.entities, self._last.project)
        if time.monotonic() > self._tended + _TEND_SECONDS:
            self._datastore.tend(deadline=_deadline())
            self._tended = time.monotonic()

    def _count_id(self, key: Key) -> None:
        """Of a key with an id: both counters must stay above those that were given out or chosen."""
        *_, (_, identifier) = keys.decode_path(key.path)
        if not isinstance(identifier, int) or identifier <= 0:
            return
        counter = ids.unscatter(identifier)
        if counter is not None:
            self._progress.scattered = max(self._progress.scattered, counter + 1)
        elif identifier <= ids.MAX_SEQUENTIAL_ID:
            self._progress.sequential = max(self._progress.sequential, identifier + 1)

    def _reach(self, place: Place) -> None:
        self._progress.MergeFrom(Progress(**place._asdict()))
        self._write(self._progress.SerializeToString())

    def _write(self, value: bytes | None) -> None:
        expected = ABSENT if self._stored is None else self._stored
        try:
            self._store.write([Write(ADDRESS, value, expected)], deadline=_deadline())
        except Conflict as conflict:
            raise CannotMove(
                "somebody else moves into the target, or an earlier run's last write came late; when no other runs, "
                "start again to go on"
            ) from conflict
        self._stored = value


def _parsed(stored: bytes) -> Progress:
    try:
        return Progress.FromString(stored)
    except DecodeError as error:
        raise CannotMove("the target's row of how far it is cannot be read; name an empty store") from error


def is_unfinished(store: OrderedStore) -> bool:
    """Whether a move into the store was begun and not finished."""
    return store.read([ADDRESS], deadline=_deadline(), settle=True) != [None]


def _deadline() -> float:
    return time.monotonic() + _SECONDS
