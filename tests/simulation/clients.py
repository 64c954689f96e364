"""What the simulated clients do, and the history they write down (tests/isolation/history.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapters.errors import StoreError
from pbserver.datastore import entities, keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import ConcurrentTransaction, DatastoreError
from pbserver.datastore.execute import Progress
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Query, normalize
from pbserver.datastore.transactions import Handle
from protos.entity_pb2 import EntityProto, Property, Reference
from tests.isolation.history import History, How, Outcome, Read, Transaction, Write
from tests.simulation.scheduler import World

APP = b"simulated"
_CALL_SECONDS = 20.0

#: Objects by name: a list that is appended to, in a root or below one, and a register below each root.
GROUPS = 3
LISTS = [f"{group}{child}" for group in range(GROUPS) for child in ("", "/list")]
REGISTERS = [f"{group}/register" for group in range(GROUPS)]


def key_of(name: str) -> Key:
    root, _, child = name.partition("/")
    reference = Reference(app=APP)
    reference.path.element.add(type=b"Object", name=root.encode())
    if child:
        reference.path.element.add(type=b"Object", name=child.encode())
    return keys.from_reference(reference)


def object_entity(name: str, seen: Sequence[int]) -> entities.Entity:
    """An object whose state is the list of its writes. The last one is indexed, so that index rows come and go."""
    key = key_of(name)
    proto = EntityProto(key=keys.to_reference(key.partition, key.path))
    proto.entity_group.element.append(proto.key.path.element[0])
    proto.property.add(name=b"last", multiple=False).value.int64_value = seen[-1]
    text = ",".join(map(str, seen)).encode()
    proto.raw_property.add(name=b"seen", multiple=False, meaning=Property.TEXT).value.string_value = text
    return entities.build(key, proto, proto.SerializeToString())


def seen_in(stored: bytes | None) -> tuple[int, ...]:
    if stored is None:
        return ()
    text = entities.parse(stored).raw_property[0].value.string_value
    return tuple(map(int, text.split(b",")))


def _read_of(name: str, stored: bytes | None) -> Read:
    return Read(name, seen_in(stored), version=entities.version(stored) if stored is not None else None)


@dataclass(slots=True)
class Attempt:
    """One transaction or plain call under way. `sent`: from here on it may be applied, whatever is heard of it."""

    client: int
    name: str
    start: int
    reads: list[Read] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    sent: bool = False
    outcome: Outcome | None = None
    error: str = ""

    def line(self, end: int) -> Transaction:
        outcome = self.outcome or (Outcome.UNKNOWN if self.sent else Outcome.FAIL)
        return Transaction(
            client=self.client,
            name=self.name,
            start=self.start,
            end=end,
            outcome=outcome,
            error=self.error,
            reads=tuple(self.reads),
            writes=tuple(self.writes),
        )


class Client:
    """Does one thing after the other at a server of its choice; each runs as a task of that server."""

    def __init__(
        self, world: World, number: int, servers: "Sequence[Callable[[], Datastore]]", history: History
    ) -> None:
        self._world = world
        self._number = number
        self._servers = servers
        self._history = history
        self._written = 0

    def run(self, operations: int) -> None:
        for _ in range(operations):
            self._one(*self._world.random.choice(_WORK))
            self._world.sleep(self._world.random.uniform(0, 0.05))

    def watch(self, gets: int) -> None:
        """Looks at one object after the other: what one shows of a commit, the next must not hide."""
        for _ in range(gets):
            self._one("get", _get)
            self._world.sleep(self._world.random.uniform(0, 0.01))

    def _one(self, name: str, work: "Callable[[_Step], None]") -> None:
        server = self._world.random.choice(self._servers)()
        attempt = Attempt(self._number, name, self._world.now_ns)
        task = self._world.start(
            f"client {self._number}: {name}", lambda: self._attempt(server, attempt, work), owner=server
        )
        self._world.join(task)
        self._history.append(attempt.line(self._world.now_ns))

    def _attempt(self, server: Datastore, attempt: Attempt, work: "Callable[[_Step], None]") -> None:
        try:
            work(_Step(self, server, attempt))
            attempt.outcome = Outcome.OK
        except ConcurrentTransaction as error:
            attempt.outcome, attempt.error = Outcome.FAIL, str(error)
        except (DatastoreError, StoreError) as error:
            attempt.error = str(error)

    def next_id(self) -> int:
        self._written += 1
        return self._number * 1_000_000 + self._written


class _Step:
    """What a piece of work needs of its surroundings."""

    def __init__(self, client: Client, server: Datastore, attempt: Attempt) -> None:
        self._client = client
        self._attempt = attempt
        self.server = server
        self.random = client._world.random
        self.deadline = client._world.now_ns / 1e9 + _CALL_SECONDS

    def begin(self, *, read_only: bool = False) -> Handle:
        return self.server.transactions.begin(APP, cross_group=True, read_only=read_only, deadline=self.deadline)

    def get(self, names: Sequence[str], handle: Handle | None) -> dict[str, tuple[int, ...]]:
        found = self.server.get([*map(key_of, names)], handle, deadline=self.deadline)
        reads = [_read_of(name, stored) for name, stored in zip(names, found, strict=True)]
        self._attempt.reads += reads
        return {read.object: read.seen for read in reads}

    def query(self, group: int, handle: Handle | None) -> None:
        """Everything below a root, by an ancestor query."""
        root = key_of(str(group))
        asked = normalize(
            Query(partition=root.partition, kind=keys.encode_kind(b"Object"), ancestor=root, filters=(), orders=())
        )
        batch = self.server.query(asked, Progress(None, 0, None), 100, handle, deadline=self.deadline)
        found = {}
        for frame in batch.frames:
            path = entities.parse(frame).key.path
            found["/".join(element.name.decode() for element in path.element)] = frame
        for name in (*LISTS, *REGISTERS):
            if name.partition("/")[0] == str(group):
                self._attempt.reads.append(_read_of(name, found.get(name)))

    def append(self, name: str, seen: tuple[int, ...], handle: Handle) -> None:
        number = self._client.next_id()
        self.server.write(
            [Mutation(key_of(name), object_entity(name, (*seen, number)))], handle, deadline=self.deadline
        )
        self._attempt.writes.append(Write(name, number))

    def put(self, name: str) -> None:
        number = self._client.next_id()
        self._attempt.writes = [Write(name, number, How.PUT)]
        self._attempt.sent = True
        version = self.server.write(
            [Mutation(key_of(name), object_entity(name, (number,)))], None, deadline=self.deadline
        )
        self._attempt.writes = [Write(name, number, How.PUT, version=version)]

    def delete(self, name: str) -> None:
        number = self._client.next_id()
        self._attempt.writes = [Write(name, number, How.DELETE)]
        self._attempt.sent = True
        version = self.server.write([Mutation(key_of(name), None)], None, deadline=self.deadline)
        self._attempt.writes = [Write(name, number, How.DELETE, version=version)]

    def commit(self, handle: Handle) -> None:
        self._attempt.sent = True
        self.server.transactions.commit(handle, deadline=self.deadline)


def _append(step: _Step) -> None:
    """Reads some lists and appends to some of them: one group or several, also groups only read."""
    handle = step.begin()
    chosen = step.random.sample(LISTS, step.random.choice([1, 1, 2, 3, 4]))
    seen: dict[str, tuple[int, ...]] = {}
    for name in chosen:
        seen |= step.get([name], handle)
    for name in step.random.sample(chosen, step.random.randint(1, len(chosen))):
        step.append(name, seen[name], handle)
    step.commit(handle)


def _skew(step: _Step) -> None:
    """Reads two lists and appends to one of them: two of these must not both succeed crosswise."""
    handle = step.begin()
    seen = step.get(["0", "1"], handle)
    name = step.random.choice(["0", "1"])
    step.append(name, seen[name], handle)
    step.commit(handle)


def _look(step: _Step) -> None:
    """A read-only transaction over several groups."""
    handle = step.begin(read_only=True)
    for name in step.random.sample([*LISTS, *REGISTERS], 3):
        step.get([name], handle)
    step.commit(handle)


def _query_and_append(step: _Step) -> None:
    handle = step.begin()
    group = step.random.randrange(GROUPS)
    step.query(group, handle)
    name = step.random.choice(LISTS)
    seen = step.get([name], handle)
    step.append(name, seen[name], handle)
    step.commit(handle)


def _get(step: _Step) -> None:
    step.get([step.random.choice([*LISTS, *REGISTERS])], None)


def _query(step: _Step) -> None:
    step.query(step.random.randrange(GROUPS), None)


def _put(step: _Step) -> None:
    step.put(step.random.choice(REGISTERS))


def _delete(step: _Step) -> None:
    step.delete(step.random.choice(REGISTERS))


_WORK: list[tuple[str, Callable[[_Step], None]]] = [
    ("append", _append),
    ("append", _append),
    ("append", _append),
    ("skew", _skew),
    ("skew", _skew),
    ("query and append", _query_and_append),
    ("look", _look),
    ("get", _get),
    ("query", _query),
    ("put", _put),
    ("put", _put),
    ("delete", _delete),
]
