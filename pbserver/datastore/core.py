"""The Datastore's calls, in terms of keys, entities and queries; handlers put them into messages."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from adapters.contract import ABSENT, Atomicity, OrderedStore, Reader, Write, leaves_behind
from adapters.errors import Applied, Conflict, Corrupt, Unavailable
from pbserver.datastore import catalog, ids, metadata, needs, projects, statistics
from pbserver.datastore.batch_groups import BatchGroups
from pbserver.datastore.building import Builder
from pbserver.datastore.catalog import Catalog
from pbserver.datastore.composites import Composite
from pbserver.datastore.errors import BadRequest, NeedIndex
from pbserver.datastore.execute import DEFAULT_LIMITS, Batch, Execution, Limits, Progress
from pbserver.datastore.groups import Beside, Groups, InTurn, Result, slot_of
from pbserver.datastore.ids import Ids
from pbserver.datastore.keys import Key, project_of
from pbserver.datastore.mutations import Kinds, Mutation
from pbserver.datastore.planner import Plan, plan
from pbserver.datastore.queries import Query, normalize
from pbserver.datastore.row_groups import RowGroups
from pbserver.datastore.sessions import Sessions
from pbserver.datastore.tables import entity_address, head_address, meta_address
from pbserver.datastore.transactions import Handle, Transactions

FORMAT = b"pbserver 3"  #: of keys, rows and stored entities; a store of another format is refused
ID_BLOCK = 1000
_MOST_SUGGESTIONS = 1000  # in a process's life


def _say_nothing(index: str) -> None:
    del index


def open_groups(store: OrderedStore, beside: Beside, *, remember: bool, early: bool) -> Groups:
    """How entity groups are read and committed, by what the store promises. `remember`: nobody else ever drops its
    tables; `early`: see Datastore.
    """
    kinds = Kinds(remember=remember)
    if store.capabilities.atomicity is Atomicity.BATCH and store.capabilities.snapshot:
        return BatchGroups(store, kinds)
    return RowGroups(store, kinds, beside, remember=remember, early=early)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexing:
    """What becomes of queries that no index serves. `strict`: NeedIndex; else they are answered by sorting, and
    `suggest` is told (once per index, as index.yaml text) which composite index would serve them.
    """

    strict: bool = False
    suggest: Callable[[str], None] = _say_nothing


class Datastore:
    """Thread-safe; one per process, over a store that other processes may share. `testing`: ids run from 1.

    `early`: commits are acknowledged at their commit point; global queries show them a moment later. All processes
    on one store agree about it. Stores with multi-row transactions make no difference between the two.
    """

    def __init__(
        self,
        store: OrderedStore,
        *,
        limits: Limits = DEFAULT_LIMITS,
        indexing: Indexing = Indexing(),
        testing: bool = False,
        early: bool = False,
        beside: Beside | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._indexing = indexing
        self._suggested: set[str] = set()
        self.testing = testing
        self.catalog = Catalog(store)
        self.ids = Ids(store, block=1 if testing else ID_BLOCK)
        self.sessions = Sessions(store)
        beside = beside or InTurn()
        self._groups = open_groups(store, beside, remember=not testing, early=early)
        self.transactions = Transactions(store, self.sessions, self._groups, beside)

    def prepare(self, *, deadline: float) -> None:
        """Makes an empty store ours. Raises adapters.errors.Corrupt for a store of another format."""
        self._store.ensure_tables()
        while not self._is_ours(deadline):
            pass

    def _is_ours(self, deadline: float) -> bool:
        """Whether the store's format is known to be written; False: it may be, and the next attempt will tell."""
        try:
            self._store.write([Write(meta_address("format"), FORMAT, ABSENT)], deadline=deadline)
        except Conflict as conflict:
            if conflict.current != FORMAT:
                raise Corrupt(
                    f"the store is of format {conflict.current!r}, this server writes {FORMAT!r}: "
                    "nothing was touched; use the version of pbserver that wrote it"
                ) from None
        except Unavailable as error:
            if error.applied is not Applied.UNKNOWN or time.monotonic() > deadline:
                raise
            return False
        return True

    def reset(self, *, deadline: float) -> None:
        """Drops all data of all apps; only for tests."""
        if not self.testing:
            raise BadRequest("only a server started for testing drops its data")
        self._store.drop_tables()
        self.ids.forget()
        self.prepare(deadline=deadline)

    def get(self, wanted: Sequence[Key], handle: Handle | None, *, deadline: float) -> list[bytes | None]:
        """The stored entities (entities.frame) of the keys, in their order; None where there is none."""

        def work(reader: Reader) -> list[bytes | None]:
            return self._get(wanted, reader, deadline)

        if handle is None:
            return self._groups.get(work)
        groups = dict.fromkeys(key.group for key in wanted)
        return self.transactions.read(handle, groups, work, deadline=deadline)

    def _get(self, wanted: Sequence[Key], reader: Reader, deadline: float) -> list[bytes | None]:
        versions = [metadata.is_entity_group(key) for key in wanted]
        addresses = [
            head_address(key.group) if version else entity_address(key)
            for key, version in zip(wanted, versions, strict=True)
        ]
        found = reader.read(addresses, deadline=deadline)
        for index, key in enumerate(wanted):
            if found[index] is None and statistics.is_statistic(key.kind):
                made = statistics.results(key.partition, key.kind, reader, deadline)
                found[index] = made.read([addresses[index]], deadline=deadline)[0]
        if not any(versions):
            return found
        return [
            metadata.entity_group(key, slot_of(stored)) if version else stored
            for key, version, stored in zip(wanted, versions, found, strict=True)
        ]

    def write(self, mutations: Sequence[Mutation], handle: Handle | None, *, deadline: float) -> int | None:
        """Puts and deletes: now, returning their version, or with the transaction's commit (None).

        Raises commit.IdInUse when an id we gave turns out to be taken by an entity the client named itself.
        """
        if handle is not None:
            self.transactions.buffer(handle, mutations, deadline=deadline)
            return None
        return self._groups.put(mutations, deadline=deadline)

    def new_id(self, partition: bytes, *, sequential: bool, deadline: float) -> int:
        policy = ids.SEQUENTIAL if sequential or self.testing else ids.SCATTERED
        return self.ids.next(partition, policy, deadline=deadline)

    def query(self, query: Query, progress: Progress, count: int, handle: Handle | None, *, deadline: float) -> Batch:
        """The next results of a normalized query; moves `progress` on."""

        def work(reader: Reader) -> tuple[Batch, Progress]:
            moved = replace(progress)
            return self._execution(query, reader, handle, deadline).batch(moved, count), moved

        batch, moved = self._read(query, handle, work, deadline)
        progress.after, progress.offset, progress.remaining = moved.after, moved.offset, moved.remaining
        return batch

    def count(self, query: Query, progress: Progress, handle: Handle | None, *, deadline: float) -> int:
        """How many results a normalized query has."""

        def work(reader: Reader) -> int:
            return self._execution(query, reader, handle, deadline).count(replace(progress))

        return self._read(query, handle, work, deadline)

    def count_kind(self, project: bytes, kind: bytes, *, deadline: float) -> int:
        """How many entities of an (encoded) kind there are, in all namespaces."""

        def work(reader: Reader) -> int:
            partitions = metadata.partitions_of_kind(reader, project, kind, deadline)
            of_kind = (Query(partition=each, kind=kind, ancestor=None, filters=(), orders=()) for each in partitions)
            return sum(
                Execution(plan(normalize(each)), reader, self._limits, deadline).count(Progress(None, 0, None))
                for each in of_kind
            )

        return self._groups.read([], work, deadline=deadline)

    def _execution(self, query: Query, reader: Reader, handle: Handle | None, deadline: float) -> Execution:
        if metadata.is_pseudo(query.kind):
            metadata.check(query, in_transaction=handle is not None)
            return Execution(plan(query), metadata.results(query, reader, deadline), self._limits, deadline)
        if statistics.is_statistic(query.kind) and not self._is_stored(query, reader, deadline):
            made = statistics.results(query.partition, query.kind or b"", reader, deadline)
            return Execution(plan(query), made, self._limits, deadline)
        indexes = catalog.read(reader, project_of(query.partition), deadline=deadline)
        composites = indexes.of_kind(query.kind)
        planned = plan(query, composites)
        if planned.sort or self._indexing.strict:
            self._check_indexes(planned, composites)
        return Execution(planned, reader, self._limits, deadline, steady=self._groups.steady)

    def _is_stored(self, query: Query, reader: Reader, deadline: float) -> bool:
        """Whether a test has stored statistics of its own."""
        return self.testing and metadata.has_entities(reader, query.partition + (query.kind or b""), deadline)

    def _check_indexes(self, planned: Plan, composites: Sequence[Composite]) -> None:
        """Says which index is missing: as an error in strict mode, else to whoever tends the indexes."""
        wanted = needs.need(planned.query)
        lacking = needs.missing(wanted, composites) if wanted is not None else None
        if lacking is None or not needs.can_exist(lacking):
            return
        text = needs.as_yaml(needs.recommended(lacking))
        if self._indexing.strict:
            raise NeedIndex(needs.message(lacking, composites))
        if text not in self._suggested and len(self._suggested) < _MOST_SUGGESTIONS:
            self._suggested.add(text)
            self._indexing.suggest(text)

    @property
    def steady(self) -> bool:
        """Whether a commit is there wholly or not at all, so that none is ever left unfinished."""
        return self._groups.steady

    def tend(self, *, deadline: float) -> None:
        """To be called every few seconds by one thread of each process: finishes commits that were left unfinished."""
        self._groups.tend(deadline=deadline)

    @property
    def is_swept(self) -> bool:
        """Whether layers of the store leave behind what has to be swept."""
        return leaves_behind(self._store)

    def sweep_layers(self, deadline_seconds: float, pause: Callable[[], bool]) -> int:
        """projects.sweep_all of the store."""
        return projects.sweep_all(self._store, deadline_seconds=deadline_seconds, pause=pause)

    def builder(self) -> Builder:
        """Works on this Datastore's composite indexes, for one thread."""
        return Builder(self._store, self.catalog, self._groups)

    def _read(self, query: Query, handle: Handle | None, work: Callable[[Reader], Result], deadline: float) -> Result:
        """What `work` reads for a query, of one state: the transaction's, or one of its own."""
        groups = [] if query.ancestor is None else [query.ancestor.group]
        if handle is None:
            return self._groups.read(groups, work, deadline=deadline)
        if not groups:
            raise BadRequest("Only ancestor queries are allowed inside transactions.")
        return self.transactions.read(handle, groups, work, deadline=deadline)
