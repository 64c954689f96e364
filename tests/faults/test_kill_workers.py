"""kill -9 of every worker in the middle of the load, several times, and at last of the whole server.

Eight clients put, overwrite, delete and commit transactions without a pause (acknowledged.py).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from tests.e2e.server import Server
from tests.e2e.wire import APP, Wire, key
from tests.faults.acknowledged import (
    KIND,
    STEPS_OF_A_CYCLE,
    Aftermath,
    Client,
    number_of,
    running,
    wait_for_acknowledged,
)

CLIENTS = 8
ROUNDS = 4
ACKNOWLEDGED_PER_ROUND = 400


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
    with running(server, clients):
        for each in range(ROUNDS):
            wait_for_acknowledged(clients, ACKNOWLEDGED_PER_ROUND, f"acknowledged puts of round {each + 1}")
            server.kill_workers()
        wait_for_acknowledged(clients, ACKNOWLEDGED_PER_ROUND, "acknowledged puts before the end")
        server.kill()


def test_every_acknowledged_put_is_got(aftermath: Aftermath) -> None:
    aftermath.assert_acknowledged_are_got()
    assert len(aftermath.named) >= ACKNOWLEDGED_PER_ROUND


def test_every_acknowledged_put_without_an_id_is_got(aftermath: Aftermath) -> None:
    aftermath.assert_ids_given_are_got()
    assert len(aftermath.automatic) >= ACKNOWLEDGED_PER_ROUND // STEPS_OF_A_CYCLE


def test_no_id_was_given_out_twice(aftermath: Aftermath) -> None:
    aftermath.assert_no_id_twice()


def test_the_kind_query_finds_what_gets_find_and_nothing_else(aftermath: Aftermath) -> None:
    aftermath.assert_kind_query_agrees()


@pytest.mark.parametrize("name", [b"number", b"text", b"parity"])
@pytest.mark.parametrize("direction", [v3.Query.Order.ASCENDING, v3.Query.Order.DESCENDING])
def test_a_property_query_finds_the_same_entities(
    aftermath: Aftermath, name: bytes, direction: v3.Query.Order.Direction
) -> None:
    aftermath.assert_property_query_agrees(name, direction)


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
    aftermath.assert_transactions_are_whole()
    written = [key(KIND, name) for client in aftermath.clients for pair in client.pairs for name in pair]
    found = aftermath.get(written)
    assert sum(proto is not None for proto in found) >= 2 * ACKNOWLEDGED_PER_ROUND // STEPS_OF_A_CYCLE


def test_the_server_goes_on_as_if_nothing_had_happened(aftermath: Aftermath) -> None:
    client = Client(100)
    for _ in range(STEPS_OF_A_CYCLE * 5):
        client.step(aftermath.wire)
    found = aftermath.get([key(KIND, name) for name in client.named])
    assert [{proto and number_of(proto)} for proto in found] == list(client.named.values())
