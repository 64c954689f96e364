"""The Datastore's calls, in terms of keys, entities and queries; handlers put them into messages."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from adapters.contract import ABSENT, OrderedStore, Reader, Write
from adapters.errors import Conflict, Corrupt
from pbserver.datastore import ids
from pbserver.datastore.commit import Mutation, commit
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.execute import DEFAULT_LIMITS, Batch, Execution, Limits, Progress
from pbserver.datastore.ids import Ids
from pbserver.datastore.keys import Key
from pbserver.datastore.planner import plan
from pbserver.datastore.queries import Query
from pbserver.datastore.sessions import Sessions
from pbserver.datastore.tables import entity_address, meta_address
from pbserver.datastore.transactions import Handle, Transactions

FORMAT = b"pbserver 1"  #: of keys, rows and stored entities; a store of another format is refused
ID_BLOCK = 1000


class Datastore:
    """Thread-safe; one per process, over a store that other processes may share. `testing`: ids run from 1."""

    def __init__(self, store: OrderedStore, *, limits: Limits = DEFAULT_LIMITS, testing: bool = False) -> None:
        self._store = store
        self._limits = limits
        self.testing = testing
        self.ids = Ids(store, block=1 if testing else ID_BLOCK)
        self.sessions = Sessions(store)
        self.transactions = Transactions(store, self.sessions)

    def prepare(self, *, deadline: float) -> None:
        """Makes an empty store ours. Raises adapters.errors.Corrupt for a store of another format."""
        self._store.ensure_tables()
        address = meta_address("format")
        try:
            self._store.write([Write(address, FORMAT, ABSENT)], deadline=deadline)
        except Conflict as conflict:
            if conflict.current != FORMAT:
                raise Corrupt(
                    f"the store is of format {conflict.current!r}, this server writes {FORMAT!r}: "
                    "nothing was touched; use the version of pbserver that wrote it"
                ) from None

    def reset(self, *, deadline: float) -> None:
        """Drops all data of all apps; only for tests."""
        if not self.testing:
            raise BadRequest("only a server started for testing drops its data")
        self._store.drop_tables()
        self.ids.forget()
        self.prepare(deadline=deadline)

    def get(self, wanted: Sequence[Key], handle: Handle | None, *, deadline: float) -> list[bytes | None]:
        """The stored entities (entities.frame) of the keys, in their order; None where there is none."""
        addresses = [entity_address(key) for key in wanted]
        if handle is None:
            return self._store.read(addresses, deadline=deadline)
        groups = dict.fromkeys(key.group for key in wanted)
        with self.transactions.view(handle, groups, deadline=deadline) as reader:
            return reader.read(addresses, deadline=deadline)

    def write(self, mutations: Sequence[Mutation], handle: Handle | None, *, deadline: float) -> int | None:
        """Puts and deletes: now, returning their version, or with the transaction's commit (None).

        Raises commit.IdInUse when an id we gave turns out to be taken by an entity the client named itself.
        """
        if handle is not None:
            self.transactions.buffer(handle, mutations, deadline=deadline)
            return None
        return commit(self._store, mutations, {}, deadline=deadline)

    def new_id(self, partition: bytes, *, sequential: bool, deadline: float) -> int:
        policy = ids.SEQUENTIAL if sequential or self.testing else ids.SCATTERED
        return self.ids.next(partition, policy, deadline=deadline)

    def query(self, query: Query, progress: Progress, count: int, handle: Handle | None, *, deadline: float) -> Batch:
        """The next results of a normalized query; moves `progress` on."""
        planned = plan(query)
        with self._view(query, handle, deadline) as reader:
            return Execution(planned, reader, self._limits, deadline).batch(progress, count)

    def count(self, query: Query, progress: Progress, handle: Handle | None, *, deadline: float) -> int:
        """How many results a normalized query has."""
        planned = plan(query)
        with self._view(query, handle, deadline) as reader:
            return Execution(planned, reader, self._limits, deadline).count(progress)

    def _view(self, query: Query, handle: Handle | None, deadline: float) -> AbstractContextManager[Reader]:
        """The snapshot a query reads: the transaction's, or one of its own."""
        if handle is None:
            return self._store.snapshot()
        if query.ancestor is None:
            raise BadRequest("Only ancestor queries are allowed inside transactions.")
        return self.transactions.view(handle, [query.ancestor.group], deadline=deadline)
