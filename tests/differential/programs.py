"""Seeded random programs of calls, as data: which steps they have is settled before any of them is played.

A step names what it needs of earlier answers (a transaction, a cursor) by the number of the step that gets it. So
every sub-list of a program is a program as well: steps that refer to what is not there are left out when played.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from google.appengine.api import api_base_pb2
from google.appengine.datastore import datastore_pb, entity_bytes_pb2

from tests.differential.queries import METADATA_KINDS, Queries, reversed_orders
from tests.differential.values import APP, KINDS, PROPERTIES, Root, Values, set_reference

#: What a program may contain beyond puts, gets, deletes and queries; each can be left out.
FEATURES = frozenset(
    (
        "bulk",
        "default_count",
        "distinct",
        "empty_names",
        "ids",
        "illegal",
        "indexes",
        "meanings",
        "metadata",
        "modes",
        "namespaces",
        "nan",
        "negative_zero",
        "previous",
        "reversed",
        "transactions",
        "users",
    )
)

#: Request and answer of each call.
MESSAGES: dict[str, tuple[Any, Any]] = {
    "Get": (datastore_pb.GetRequest, datastore_pb.GetResponse),
    "Put": (datastore_pb.PutRequest, datastore_pb.PutResponse),
    "Delete": (datastore_pb.DeleteRequest, datastore_pb.DeleteResponse),
    "RunQuery": (datastore_pb.Query, datastore_pb.QueryResult),
    "Next": (datastore_pb.NextRequest, datastore_pb.QueryResult),
    "BeginTransaction": (datastore_pb.BeginTransactionRequest, datastore_pb.Transaction),
    "Commit": (datastore_pb.Transaction, datastore_pb.CommitResponse),
    "Rollback": (datastore_pb.Transaction, api_base_pb2.VoidProto),
    "AllocateIds": (datastore_pb.AllocateIdsRequest, datastore_pb.AllocateIdsResponse),
    "CreateIndex": (entity_bytes_pb2.CompositeIndex, api_base_pb2.Integer64Proto),
    "GetIndices": (datastore_pb.GetIndicesRequest, datastore_pb.CompositeIndices),
}

_OPEN_TRANSACTIONS = 4
_BULK = 320  #: more than the 300 results of one answer
_CALLS_PER_FIRST_PUT = 50
_MOST_NEXTS = 4


@dataclass(frozen=True)
class CursorOf:
    """The cursor behind result `index` (modulo their number) of a query's latest batch."""

    step: int
    index: int


@dataclass(frozen=True)
class Step:
    """One call. `request` is serialized, without what the references stand for."""

    number: int
    method: str
    request: bytes
    transaction: int | None = None  #: the BeginTransaction whose transaction the call is in, ends or resets
    continues: int | None = None  #: the RunQuery that a Next goes on with
    start: CursorOf | None = None
    end: CursorOf | None = None
    reverses: bool = False  #: the cursors come from the query of the opposite direction

    def message(self) -> Any:
        """The request as a new message."""
        return MESSAGES[self.method][0].FromString(self.request)

    def needs(self) -> set[int]:
        """The numbers of the steps it refers to."""
        cursors = [cursor.step for cursor in (self.start, self.end) if cursor is not None]
        return {number for number in (self.transaction, self.continues, *cursors) if number is not None}


@dataclass(frozen=True)
class _Open:
    """A transaction that the program has begun and not ended."""

    number: int
    xg: bool
    root: Root


class _Writer:
    """Writes one program down."""

    def __init__(self, seed: int, features: Collection[str]) -> None:
        self.steps: list[Step] = []
        self._features = features
        self._values = Values(random.Random(seed), features)
        self._queries = Queries(self._values)
        self._chance = self._values.chance
        self._one = self._values.one
        self._open: list[_Open] = []
        self._queried: list[tuple[int, Any]] = []  # queries whose cursors may be used again

    def add(self, method: str, request: Any, **references: Any) -> int:
        number = len(self.steps)
        self.steps.append(Step(number, method, request.SerializePartialToString(), **references))
        return number

    def write(self, calls: int) -> None:
        actions = [(self._put, 6), (self._delete, 2), (self._get, 3), (self._query, 10)]
        actions.append((self._query_from_cursor, 4))
        if "transactions" in self._features:
            actions += [(self._begin, 2), (self._finish, 2)]
        if "metadata" in self._features:
            actions.append((self._query_metadata, 1))
        if "ids" in self._features:
            actions.append((self._allocate, 1))
        weighted = [action for action, weight in actions for _ in range(weight)]
        if "indexes" in self._features:
            self._create_indexes()
        for _ in range(max(calls // _CALLS_PER_FIRST_PUT, 1)):
            self._put_many()
        while len(self.steps) < calls:
            self._one(weighted)()
        del self.steps[calls:]

    def _transaction(self, share: float = 0.3) -> _Open | None:
        return self._one(self._open) if self._open and self._chance(share) else None

    def _root(self, transaction: _Open | None) -> Root | None:
        """The entity group a call keeps to; a cross-group transaction roams, another one seldom."""
        if transaction is None or self._chance(0.4 if transaction.xg else 0.04):
            return None
        return transaction.root

    def _put(self) -> None:
        request = datastore_pb.PutRequest()
        transaction = self._transaction()
        if "bulk" in self._features and transaction is None and self._chance(0.01):
            self._values.bulk(request, _BULK)
        else:
            strange = self._chance(0.2)
            for _ in range(self._one([1, 1, 2, 5])):
                self._values.entity(request.entity.add(), self._root(transaction), strange=strange)
        self.add("Put", request, transaction=_number(transaction))

    def _put_many(self) -> None:
        request = datastore_pb.PutRequest()
        for _ in range(20):
            self._values.entity(request.entity.add())
        self.add("Put", request)

    def _delete(self) -> None:
        request = datastore_pb.DeleteRequest()
        transaction = self._transaction()
        for _ in range(self._one([1, 2])):
            self._add_key(request, transaction)
        self.add("Delete", request, transaction=_number(transaction))

    def _get(self) -> None:
        request = datastore_pb.GetRequest()
        transaction = self._transaction()
        for _ in range(self._one([1, 3])):
            self._add_key(request, transaction, strange=self._chance(0.02))
        self.add("Get", request, transaction=_number(transaction))

    def _add_key(self, request: Any, transaction: _Open | None, *, strange: bool = False) -> None:
        complete = self._chance(0.99)
        self._values.reference(request.key.add(), self._root(transaction), complete=complete, strange=strange)

    def _begin(self) -> None:
        request = datastore_pb.BeginTransactionRequest(app=APP, allow_multiple_eg=self._chance(0.5))
        if "modes" in self._features and self._chance(0.3):
            modes = [request.READ_ONLY, request.READ_ONLY, request.READ_WRITE, request.UNKNOWN]
            request.mode = self._one(modes)
        previous = None
        if "previous" in self._features and self._open and self._chance(0.25):
            request.mode = request.READ_WRITE if self._chance(0.9) else request.READ_ONLY
            again = self._one(self._open)
            previous = again.number
            if self._chance(0.9):
                request.allow_multiple_eg = again.xg
        number = self.add("BeginTransaction", request, transaction=previous)
        root = (self._values.namespace(), self._values.path()[0])
        self._open = [*self._open, _Open(number, request.allow_multiple_eg, root)][-_OPEN_TRANSACTIONS:]

    def _finish(self) -> None:
        if self._open:
            ended = self._open.pop(self._values.random.randrange(len(self._open)))
            method = self._one(["Commit", "Commit", "Commit", "Rollback"])
            self.add(method, datastore_pb.Transaction(), transaction=ended.number)

    def _query(self) -> None:
        transaction = self._transaction(0.2)
        query = self._queries.query(self._root(transaction))
        if not query.HasField("ancestor") and self._chance(0.98):
            transaction = None
        self._run(query, transaction=_number(transaction))

    def _query_metadata(self) -> None:
        self._run(self._queries.metadata())

    def _run(self, query: Any, **references: Any) -> None:
        """A query and the rest of its results; what follows at once, for the referee's batches are one snapshot."""
        number = self.add("RunQuery", query, **references)
        if _gives_usable_cursors(query):
            self._queried = [*self._queried, (number, query)][-30:]
        cut = query.HasField("count") and query.count < 20
        for _ in range(self._one([0, 1, _MOST_NEXTS]) if cut else self._one([0, 0, 1])):
            request = datastore_pb.NextRequest(compile=query.compile)
            request.cursor.SetInParent()
            if "default_count" not in self._features or self._chance(0.5):
                request.count = self._one([1, 3, 10, 1000])
            self.add("Next", request, continues=number)

    def _query_from_cursor(self) -> None:
        """An earlier query again, from or up to one of its results, perhaps in the opposite direction."""
        if not self._queried:
            return
        turnable = [each for each in self._queried if reversed_orders(each[1]) is not None]
        number, query = self._one(turnable if turnable and self._chance(0.3) else self._queried)
        again = datastore_pb.Query()
        again.CopyFrom(query)
        again.ClearField("offset")
        turned = reversed_orders(again) if "reversed" in self._features and self._chance(0.5) else None
        ends = any(order.property == "__key__" for order in again.order)
        if turned is None and not ends and "illegal" in self._features and self._chance(0.03):
            again.order.add(property=self._one(PROPERTIES))
        cursors = {name: CursorOf(number, self._values.random.randrange(20)) for name in self._bounds()}
        self._run(turned or again, **cursors, reverses=turned is not None)

    def _bounds(self) -> list[str]:
        return self._one([["start"], ["start"], ["start"], ["end"], ["start", "end"]])

    def _allocate(self) -> None:
        request = datastore_pb.AllocateIdsRequest()
        if self._chance(0.15):
            set_reference(request.reserve.add(), self._values.namespace(), [("A", self._one([5, 900, 2**53 + 1]))])
        else:
            self._values.reference(request.model_key, complete=self._chance(0.5))
            if self._chance(0.6):
                request.size = self._one([1, 1, 2, 10, -1])
            if not request.size or self._chance(0.05):
                request.max = self._one([0, 1, 50, 1000, -1])
        self.add("AllocateIds", request)

    def _create_indexes(self) -> None:
        for _ in range(self._one([0, 3, 6])):
            index = entity_bytes_pb2.CompositeIndex(app_id=APP, id=0, state=entity_bytes_pb2.CompositeIndex.WRITE_ONLY)
            index.definition.entity_type = self._one(KINDS)
            index.definition.ancestor = self._chance(0.3)
            for name in self._values.random.sample(PROPERTIES, self._one([2, 2, 3])):
                index.definition.property.add(name=name, direction=self._one([1, 2]))
            self.add("CreateIndex", index)
        self.add("GetIndices", datastore_pb.GetIndicesRequest(app_id=APP))


def _number(transaction: _Open | None) -> int | None:
    return None if transaction is None else transaction.number


def _gives_usable_cursors(query: Any) -> bool:
    """Whether the referee can place a cursor in the query: accepted.LEFT_OUT says where it cannot."""
    filtered = {each.property[0].name for each in query.filter if each.property}
    joined = all(each.op == each.EQUAL for each in query.filter) and not query.order and not query.property_name
    return bool(query.compile and (joined or len(filtered) <= 1) and query.kind not in METADATA_KINDS)


def generate(seed: int, calls: int, features: Collection[str] = FEATURES) -> list[Step]:
    """A program of `calls` steps; the same one for the same seed and features."""
    writer = _Writer(seed, features)
    writer.write(calls)
    return writer.steps
