"""kill -9 of every worker in the middle of the load, several times, and at last of the whole server.

Eight clients put, overwrite and commit transactions without a pause, and write down what was acknowledged. What was
under way when a connection broke may have happened or not, but never by half.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import APP, Wire, entity, key, put_request

CLIENTS = 8
ROUNDS = 4
ACKNOWLEDGED_PER_ROUND = 400

KIND = b"Load"
STEPS_OF_A_CYCLE = 4


class Client:
    """One client's load, and what it must find afterwards. Every step writes a number of its own."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.acknowledged = 0
        self.issued: set[int] = set()
        self.named: dict[bytes, set[int | None]] = {}  # by key name: the numbers it may hold; None: absent
        self.automatic: dict[int, int] = {}  # the id the server gave, and the number put under it
        self.pairs: list[tuple[bytes, bytes]] = []  # names written by one transaction, first and only once
        self._serial = 0

    def run(self, server: Server, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with Wire(server.port) as wire:
                    while not stop.is_set():
                        self.step(wire)
            except httpx.TransportError:
                stop.wait(0.01)  # until there is a server again

    def step(self, wire: Wire) -> None:
        self._serial += 1
        number = self.name * 1_000_000 + self._serial
        self.issued.add(number)
        step = self._serial % STEPS_OF_A_CYCLE
        if step == 0:
            self._put_without_id(wire, number)
        elif step == 1:
            self._put(wire, b"n%d" % number, number)
        elif step == 2:
            self._put(wire, b"n%d" % (number - self._serial // 2 // STEPS_OF_A_CYCLE * STEPS_OF_A_CYCLE - 1), number)
        else:
            self._commit_pair(wire, number)
        self.acknowledged += 1

    def _put_without_id(self, wire: Wire, number: int) -> None:
        given = wire.put(load(key(KIND, None), number)).key[0].path.element[0].id
        assert given not in self.automatic
        self.automatic[given] = number

    def _put(self, wire: Wire, name: bytes, number: int) -> None:
        allowed = self.named.setdefault(name, {None})
        allowed.add(number)
        wire.put(load(key(KIND, name), number))
        self.named[name] = {number}

    def _commit_pair(self, wire: Wire, number: int) -> None:
        names = (b"left%d" % number, b"right%d" % number)
        transaction = wire.begin(xg=True)
        self.pairs.append(names)
        for name in names:
            self.named[name] = {None, number}
            wire.call("Put", put_request(load(key(KIND, name), number), transaction=transaction))
        wire.call("Commit", transaction)
        for name in names:
            self.named[name] = {number}


def load(reference: Reference, number: int) -> EntityProto:
    return entity(reference, number=number, text=b"%d " % number * 20, parity=number % 2)


def number_of(found: EntityProto) -> int:
    return found.property[0].value.int64_value


class Aftermath:
    """What the clients know, and a connection to the server that was started again on the same place."""

    def __init__(self, clients: list[Client], wire: Wire) -> None:
        self.clients = clients
        self.wire = wire
        self.named = {name: numbers for client in clients for name, numbers in client.named.items()}
        self.automatic = [pair for client in clients for pair in client.automatic.items()]
        self.issued = {number for client in clients for number in client.issued}

    def get(self, keys: list[Reference]) -> list[EntityProto | None]:
        return [found for at in range(0, len(keys), 500) for found in self.wire.get(*keys[at : at + 500])]

    def stored(self) -> list[EntityProto]:
        return self.wire.query(kind=KIND, count=1000)


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    directory: Path = tmp_path_factory.mktemp("kill-workers")
    with Server(directory, f"lmdb:{directory / 'store'}?durability=sync", workers=2) as server:
        clients = [Client(number + 1) for number in range(CLIENTS)]
        run_and_kill(server, clients)
        server.start()
        with Wire(server.port) as wire:
            yield Aftermath(clients, wire)


def run_and_kill(server: Server, clients: list[Client]) -> None:
    """ROUNDS kills of all workers under load, then one of everything."""
    stop = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(client.run, server, stop) for client in clients]
        try:
            for each in range(ROUNDS):
                wait_for_acknowledged(clients, ACKNOWLEDGED_PER_ROUND, f"acknowledged puts of round {each + 1}")
                server.kill_workers()
            wait_for_acknowledged(clients, ACKNOWLEDGED_PER_ROUND, "acknowledged puts before the end")
            server.kill()
        finally:
            stop.set()
        for each_running in running:
            each_running.result()


def wait_for_acknowledged(clients: list[Client], count: int, what: str) -> None:
    """Until all clients together have so many acknowledgements more than now, and each at least one."""
    before = [client.acknowledged for client in clients]

    def enough() -> bool:
        gained = [client.acknowledged - start for client, start in zip(clients, before, strict=True)]
        return sum(gained) >= count and all(gained)

    wait_until(enough, what)


def test_every_acknowledged_put_is_got(aftermath: Aftermath) -> None:
    names = list(aftermath.named)
    found = aftermath.get([key(KIND, name) for name in names])
    wrong = {
        name: (proto and number_of(proto), aftermath.named[name])
        for name, proto in zip(names, found, strict=True)
        if (proto and number_of(proto)) not in aftermath.named[name]
    }
    assert not wrong
    assert len(names) >= ACKNOWLEDGED_PER_ROUND


def test_every_acknowledged_put_without_an_id_is_got(aftermath: Aftermath) -> None:
    found = aftermath.get([key(KIND, given) for given, _ in aftermath.automatic])
    assert [proto and number_of(proto) for proto in found] == [number for _, number in aftermath.automatic]
    assert len(found) >= ACKNOWLEDGED_PER_ROUND // STEPS_OF_A_CYCLE


def test_no_id_was_given_out_twice(aftermath: Aftermath) -> None:
    given = [given for given, _ in aftermath.automatic]
    assert [given for given, count in Counter(given).items() if count > 1] == []
    taken = {proto.key.path.element[0].id for proto in aftermath.stored()}
    request = v3.AllocateIdsRequest(model_key=key(KIND, 1), size=100)
    allocated = aftermath.wire.call("AllocateIds", request)
    assert not taken & set(range(allocated.start, allocated.end + 1))
    fresh = aftermath.wire.put(*(entity(key(b"Fresh", None)) for _ in range(100))).key
    assert not taken & {reference.path.element[0].id for reference in fresh}


def test_the_kind_query_finds_what_gets_find_and_nothing_else(aftermath: Aftermath) -> None:
    stored = aftermath.stored()
    assert aftermath.get([proto.key for proto in stored]) == stored
    assert {number_of(proto) for proto in stored} <= aftermath.issued
    present = {name for name, numbers in aftermath.named.items() if None not in numbers}
    names = {proto.key.path.element[0].name for proto in stored}
    assert present <= names
    assert {given for given, _ in aftermath.automatic} <= {proto.key.path.element[0].id for proto in stored}


@pytest.mark.parametrize("name", [b"number", b"text", b"parity"])
@pytest.mark.parametrize("direction", [v3.Query.Order.ASCENDING, v3.Query.Order.DESCENDING])
def test_a_property_query_finds_the_same_entities(
    aftermath: Aftermath, name: bytes, direction: v3.Query.Order.Direction
) -> None:
    stored = sorted(proto.SerializeToString() for proto in aftermath.stored())
    order = [v3.Query.Order(property=name, direction=direction)]
    assert sorted(proto.SerializeToString() for proto in aftermath.wire.query(kind=KIND, order=order)) == stored
    keys = aftermath.wire.query(kind=KIND, order=order, keys_only=True, count=1000)
    assert len(keys) == len(stored)


def test_no_number_that_was_overwritten_or_never_stored_is_found(aftermath: Aftermath) -> None:
    holders: dict[int, list[Reference]] = {number: [] for number in aftermath.issued}
    for proto in aftermath.stored():
        holders[number_of(proto)].append(proto.key)
    for number, wanted in holders.items():
        condition = v3.Query.Filter(op=v3.Query.Filter.EQUAL)
        condition.property.add(name=b"number", multiple=False).value.int64_value = number
        query = v3.Query(app=APP, kind=KIND, filter=[condition], keys_only=True, count=10)
        found = [EntityProto.FromString(each).key for each in aftermath.wire.call("RunQuery", query).result]
        assert found == wanted


def test_the_kindless_query_finds_the_same_keys(aftermath: Aftermath) -> None:
    wanted = [proto.key for proto in aftermath.stored()]
    kindless = aftermath.wire.query(keys_only=True, count=1000)
    assert [proto.key for proto in kindless if proto.key.path.element[0].type == KIND] == wanted


def test_each_transaction_is_there_wholly_or_not_at_all(aftermath: Aftermath) -> None:
    pairs = [pair for client in aftermath.clients for pair in client.pairs]
    found = aftermath.get([key(KIND, name) for pair in pairs for name in pair])
    halves = [
        pair
        for pair, left, right in zip(pairs, found[::2], found[1::2], strict=True)
        if (left is None) != (right is None)
    ]
    assert halves == []
    assert sum(proto is not None for proto in found) >= 2 * ACKNOWLEDGED_PER_ROUND // STEPS_OF_A_CYCLE


def test_the_server_goes_on_as_if_nothing_had_happened(aftermath: Aftermath) -> None:
    client = Client(100)
    for _ in range(STEPS_OF_A_CYCLE * 5):
        client.step(aftermath.wire)
    found = aftermath.get([key(KIND, name) for name in client.named])
    assert [{proto and number_of(proto)} for proto in found] == list(client.named.values())
