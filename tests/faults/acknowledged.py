"""Clients that write down what was acknowledged while a server is harmed, and what must be found afterwards.

What was under way when a connection broke may have happened or not, but never by half.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from pbserver.datastore import keys
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import APP, Wire, entity, key, put_request

KIND = b"Load"
PROJECT = keys.partition(APP, b"", b"")
STEPS_OF_A_CYCLE = 5


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
            self._put(wire, self._older(number, 1, 2), number)
        elif step == 3:
            self._commit_pair(wire, number)
        else:
            self._delete(wire, self._older(number, 3, 3))
        self.acknowledged += 1

    def _older(self, number: int, back: int, part: int) -> bytes:
        """A name put about a `part`-th of all cycles ago, by the step `back` steps before this one."""
        cycles = self._serial // part // STEPS_OF_A_CYCLE
        return b"n%d" % (number - cycles * STEPS_OF_A_CYCLE - back)

    def _put_without_id(self, wire: Wire, number: int) -> None:
        given = wire.put(load(key(KIND, None), number)).key[0].path.element[0].id
        assert given not in self.automatic
        self.automatic[given] = number

    def _put(self, wire: Wire, name: bytes, number: int) -> None:
        allowed = self.named.setdefault(name, {None})
        allowed.add(number)
        wire.put(load(key(KIND, name), number))
        self.named[name] = {number}

    def _delete(self, wire: Wire, name: bytes) -> None:
        self.named.setdefault(name, {None}).add(None)
        wire.call("Delete", v3.DeleteRequest(key=[key(KIND, name)]))
        self.named[name] = {None}

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


@contextmanager
def running(server: Server, clients: Sequence[Client]) -> Iterator[None]:
    """The clients at work; what went wrong with one of them is raised at the end."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(clients)) as pool:
        at_work = [pool.submit(client.run, server, stop) for client in clients]
        try:
            yield
        finally:
            stop.set()
        for each in at_work:
            each.result()


def wait_for_acknowledged(clients: Sequence[Client], count: int, what: str) -> None:
    """Until all clients together have so many acknowledgements more than now, and each at least one."""
    before = [client.acknowledged for client in clients]

    def enough() -> bool:
        gained = [client.acknowledged - start for client, start in zip(clients, before, strict=True)]
        return sum(gained) >= count and all(gained)

    wait_until(enough, what)


class Aftermath:
    """What the clients know, and a connection to the server that was started again on the same place."""

    def __init__(self, clients: Sequence[Client], wire: Wire) -> None:
        self.clients = clients
        self.wire = wire
        self.named = {name: numbers for client in clients for name, numbers in client.named.items()}
        self.automatic = [pair for client in clients for pair in client.automatic.items()]
        self.issued = {number for client in clients for number in client.issued}

    def get(self, wanted: list[Reference]) -> list[EntityProto | None]:
        return [found for at in range(0, len(wanted), 500) for found in self.wire.get(*wanted[at : at + 500])]

    def stored(self) -> list[EntityProto]:
        return self.wire.query(kind=KIND, count=1000)

    def assert_acknowledged_are_got(self) -> None:
        names = list(self.named)
        found = self.get([key(KIND, name) for name in names])
        wrong = {
            name: (proto and number_of(proto), self.named[name])
            for name, proto in zip(names, found, strict=True)
            if (proto and number_of(proto)) not in self.named[name]
        }
        assert not wrong

    def assert_ids_given_are_got(self) -> None:
        found = self.get([key(KIND, given) for given, _ in self.automatic])
        assert [proto and number_of(proto) for proto in found] == [number for _, number in self.automatic]

    def assert_no_id_twice(self) -> None:
        given = [given for given, _ in self.automatic]
        assert [given for given, count in Counter(given).items() if count > 1] == []
        taken = {proto.key.path.element[0].id for proto in self.stored()}
        request = v3.AllocateIdsRequest(model_key=key(KIND, 1), size=100)
        allocated = self.wire.call("AllocateIds", request)
        assert not taken & set(range(allocated.start, allocated.end + 1))
        fresh = self.wire.put(*(entity(key(b"Fresh", None)) for _ in range(100))).key
        assert not taken & {reference.path.element[0].id for reference in fresh}

    def assert_kind_query_agrees(self) -> None:
        """It finds what gets find, all that was acknowledged, and nothing else."""
        stored = self.stored()
        assert self.get([proto.key for proto in stored]) == stored
        assert {number_of(proto) for proto in stored} <= self.issued
        present = {name for name, numbers in self.named.items() if None not in numbers}
        assert present <= {proto.key.path.element[0].name for proto in stored}
        assert {given for given, _ in self.automatic} <= {proto.key.path.element[0].id for proto in stored}

    def assert_property_query_agrees(self, name: bytes, direction: v3.Query.Order.Direction) -> None:
        stored = sorted(proto.SerializeToString() for proto in self.stored())
        order = [v3.Query.Order(property=name, direction=direction)]
        assert sorted(proto.SerializeToString() for proto in self.wire.query(kind=KIND, order=order)) == stored
        found = self.wire.query(kind=KIND, order=order, keys_only=True, count=1000)
        assert len(found) == len(stored)

    def assert_transactions_are_whole(self) -> None:
        pairs = [pair for client in self.clients for pair in client.pairs]
        found = self.get([key(KIND, name) for pair in pairs for name in pair])
        halves = [
            pair
            for pair, left, right in zip(pairs, found[::2], found[1::2], strict=True)
            if (left is None) != (right is None)
        ]
        assert halves == []
