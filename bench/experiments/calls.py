"""How many store calls a Datastore call makes: the round trips that a database over a network will see.

Counted right above the adapter, in process: `calls` are all of them, `trips` those that follow one another (of calls
that are made side by side, the longest row counts). BATCH is memory; the others are weak: as well.

- Where rows are written one by one (ROW), a put reads the head, reads what is stored, compares and sets the head, and
  writes the rows; beside the first two it notes the group, if it is not noted. Heads it has moved itself it remembers,
  and small entities with them, and need not read. At SCOPE, head and entity are read as one and written as one.
- A get reads the entity beside its group's head. At ROW it reads the entity once more if it does not remember the head.
- A transaction's commit reads its header, claims it, and reads what it has buffered; then it goes on like a put. Over
  several groups their heads are prepared, side by side, before the primary's decides; what is told to the others
  afterwards counts only at SCOPE, where their entities come with it.
- What nobody waits for is not counted.
"""

import time
from collections.abc import Callable, Sequence

from adapters.build import open_store
from bench.run import Run
from pbserver.datastore import keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.entities import Entity, build
from pbserver.datastore.execute import Progress
from pbserver.datastore.groups import Result
from pbserver.datastore.keys import Key, encode_kind
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Query, normalize
from protos.entity_pb2 import EntityProto, Reference

NAME = "calls"
APP = b"bench"
STORES = {
    "BATCH": "memory:",
    "SCOPE": "weak:?atomicity=scope&versions=yes",
    "ROW": "weak:?atomicity=row&versions=yes",
}
MOST_TRIPS = {"ROW": {"cold_put": 4, "warm_put": 3}, "SCOPE": {"cold_put": 3, "warm_put": 2}}
_SECONDS = 60.0
_ENTITIES = 1000


class _Counter:
    """A recorder (adapters.layers.measured) that counts calls, and a way of working beside each other that knows which
    of them follow one another (pbserver.datastore.groups.Beside).
    """

    def __init__(self) -> None:
        self.calls = 0
        self.trips = 0
        self._left: list[Callable[[], object]] = []

    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        del call, outcome, rows, size_bytes, seconds
        self.calls += 1
        self.trips += 1

    def later(self, work: Callable[[], object]) -> bool:
        self._left.append(work)
        return True

    def at_once(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        began, longest = self.trips, 0
        results = []
        for work in works:
            self.trips = began
            results.append(work())
            longest = max(longest, self.trips - began)
        self.trips = began + longest
        return results

    def do_what_is_left(self) -> None:
        while self._left:
            self._left.pop(0)()


class _World:
    """A Datastore whose store calls are counted; what is left for later is done uncounted."""

    def __init__(self, url: str) -> None:
        self.counter = _Counter()
        self.store = open_store(url, recorder=self.counter)
        self.datastore = self.boot()
        self.datastore.prepare(deadline=self.deadline)

    def boot(self) -> Datastore:
        """A server that remembers nothing."""
        return Datastore(self.store, beside=self.counter)

    @property
    def deadline(self) -> float:
        return time.monotonic() + _SECONDS

    def count(self, work: Callable[[], object]) -> dict[str, int]:
        self.counter.do_what_is_left()
        calls, trips = self.counter.calls, self.counter.trips
        work()
        return {"calls": self.counter.calls - calls, "trips": self.counter.trips - trips}

    def put(self, *stored: Entity) -> object:
        return self.datastore.write([Mutation(each.key, each) for each in stored], None, deadline=self.deadline)


def run(bench: Run) -> None:
    counts = {name: count_calls(url) for name, url in STORES.items()}
    for what in counts["ROW"]:
        facts = {f"{name}_{unit}": counts[name][what][unit] for name in STORES for unit in ("calls", "trips")}
        bench.record(NAME, what.replace("_", " "), **facts)
    for name, limits in MOST_TRIPS.items():
        for what, most in limits.items():
            said = f"{what.replace('_', ' ')} on a {name} store"
            bench.at_most(NAME, said, counts[name][what]["trips"], most, unit="round trips")


def count_calls(url: str) -> dict[str, dict[str, int]]:
    """Calls of the store below, by what the Datastore is asked."""
    world = _World(url)
    world.put(*(entity(number, 1) for number in range(1, _ENTITIES + 1)))
    counts = {}
    world.datastore = world.boot()
    counts["cold_get"] = world.count(lambda: _get(world))
    counts["warm_get"] = world.count(lambda: _get(world))
    world.datastore = world.boot()
    world.put(entity(_ENTITIES + 1, 0))  # so that the kind is known
    counts["cold_put"] = world.count(lambda: world.put(entity(1, 2)))
    counts["warm_put"] = world.count(lambda: world.put(entity(1, 3)))
    counts["put_of_a_new_entity"] = world.count(lambda: world.put(entity(_ENTITIES + 2, 1)))
    counts["commit_of_one_group"] = world.count(_transaction(world, [entity(1, 4)]))
    counts["commit_of_three_groups"] = world.count(_transaction(world, [entity(number, 5) for number in (1, 2, 3)]))
    counts["put_of_ten_groups"] = world.count(lambda: world.put(*(entity(number, 6) for number in range(11, 21))))
    counts["query_of_1000"] = world.count(lambda: _query(world))
    return counts


def _get(world: _World) -> object:
    return world.datastore.get([entity(1, 2).key], None, deadline=world.deadline)


def _transaction(world: _World, changed: Sequence[Entity]) -> Callable[[], object]:
    """The commit of a transaction that has read and changed entities."""
    handle = world.datastore.transactions.begin(APP, cross_group=True, read_only=False, deadline=world.deadline)
    world.datastore.get([each.key for each in changed], handle, deadline=world.deadline)
    world.datastore.write([Mutation(each.key, each) for each in changed], handle, deadline=world.deadline)
    return lambda: world.datastore.transactions.commit(handle, deadline=world.deadline)


def _query(world: _World) -> object:
    asked = normalize(
        Query(partition=keys.partition(APP, b"", b""), kind=encode_kind(b"Row"), ancestor=None, filters=(), orders=())
    )
    return world.datastore.query(asked, Progress(None, 0, None), _ENTITIES, None, deadline=world.deadline)


def entity(number: int, value: int) -> Entity:
    reference = Reference(app=APP)
    reference.path.element.add(type=b"Row", id=number)
    proto = EntityProto(key=reference)
    proto.entity_group.element.append(reference.path.element[0])
    proto.property.add(name=b"value", multiple=False).value.int64_value = value
    key: Key = keys.from_reference(reference)
    return build(key, proto, proto.SerializeToString())
