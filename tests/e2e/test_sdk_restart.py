"""What lasts: data, cursors and ids across restarts of the server, and the same app on every store."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psutil
import pytest
from google.appengine.datastore.datastore_query import Cursor
from google.appengine.ext import ndb

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto
from tests.e2e.sdk import APP, in_threads
from tests.e2e.server import Server
from tests.e2e.wire import Wire, entity, key, put_request

Connect = Callable[[Server], None]


class Record(ndb.Model):
    rank = ndb.IntegerProperty()
    tags = ndb.StringProperty(repeated=True)


def put_many(count: int) -> list[Any]:
    """Keys of new records with ranks from 0, in the order of their ranks."""
    return ndb.put_multi([Record(rank=rank, tags=[f"t{rank % 3}", "all"]) for rank in range(count)])


@pytest.mark.parametrize("end", ["stop", "kill", "kill_parent"])
def test_everything_is_there_after_a_restart(production_server: Server, connect: Connect, end: str) -> None:
    connect(production_server)
    keys = put_many(60)
    ndb.delete_multi(keys[50:])
    page, cursor, more = Record.query().order(-Record.rank).fetch_page(20)
    assert more
    getattr(production_server, end)()
    production_server.start()
    connect(production_server)

    assert [record and record.rank for record in ndb.get_multi(keys)] == [*range(50), *[None] * 10]
    assert Record.query(Record.tags == "t1").count() == 17
    text = cursor.to_websafe_string()
    rest = Record.query().order(-Record.rank).fetch(start_cursor=Cursor.from_websafe_string(text))
    assert [record.rank for record in [*page, *rest]] == list(range(49, -1, -1))
    assert not set(put_many(60)) & set(keys)


def test_a_stopped_server_ends_by_itself_with_code_zero(production_server: Server, connect: Connect) -> None:
    connect(production_server)
    put_many(5)
    assert production_server.stop() == 0


def test_an_iteration_goes_on_on_another_worker_after_the_first_died(
    production_server: Server, connect: Connect
) -> None:
    connect(production_server)
    put_many(40)
    order = [v3.Query.Order(property=b"rank")]
    with Wire(production_server.port) as wire:
        result = wire.call("RunQuery", v3.Query(app=APP.encode(), kind=b"Record", order=order, count=10))
    found = list(result.result)
    while result.more_results:
        production_server.kill_workers()
        with Wire(production_server.port) as wire:
            result = wire.call("Next", v3.NextRequest(cursor=result.cursor, count=10))
        found += result.result
    assert [EntityProto.FromString(each).property[0].value.int64_value for each in found] == list(range(40))


def test_a_transaction_goes_on_on_another_worker_after_the_first_died(
    production_server: Server, connect: Connect
) -> None:
    connect(production_server)
    key = Record(id="x", rank=1).put()

    def work() -> None:
        record = key.get()
        production_server.kill_workers()
        record.rank += 1
        record.put()
        Record(parent=key, rank=5).put()
        ndb.get_context().flush()
        production_server.kill_workers()

    ndb.transaction(work, retries=0)
    assert key.get().rank == 2
    assert Record.query(ancestor=key).count() == 2


def test_ids_are_not_given_out_again_after_kills(production_server: Server, connect: Connect) -> None:
    connect(production_server)
    given: list[Any] = []
    for _ in range(4):
        given += in_threads(8, lambda _: Record().put().id(), range(40))
        first, last = Record.allocate_ids(size=10)
        given += range(first, last + 1)
        production_server.kill()
        production_server.start()
        connect(production_server)
    assert len(set(given)) == len(given) == 200


def test_every_worker_continues_what_another_began(production_server: Server) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(production_server.port)) for _ in range(24)]
        proto = entity(key(b"Shared", b"one"), number=0)
        for number, wire in enumerate(wires):
            assert wire.get(proto.key) == [proto if number else None]
            transaction = wires[number - 1].begin()
            proto.property[0].value.int64_value = number
            wire.call("Put", put_request(proto, transaction=transaction))
            wires[number - 2].call("Commit", transaction)
        wires[0].put(*(entity(key(b"Row", number + 1)) for number in range(len(wires))))
        result = wires[0].call("RunQuery", v3.Query(app=APP.encode(), kind=b"Row", count=1))
        for wire in wires[1:]:
            result = wire.call("Next", v3.NextRequest(cursor=result.cursor, count=1))
            assert len(result.result) == 1
        assert not result.more_results
        busy = [worker.net_connections("tcp") for worker in production_server.workers().values()]
        established = [sum(each.status == psutil.CONN_ESTABLISHED for each in connections) for connections in busy]
        assert sum(established) == len(wires)
        assert all(established), "the kernel gave one worker all of the connections"


def test_without_testing_ids_are_scattered_and_stay_exact_in_a_double(
    production_server: Server, connect: Connect
) -> None:
    connect(production_server)
    numbers = [key.id() for key in put_many(50)]
    assert max(numbers) - min(numbers) > 10**12
    assert all(int(float(number)) == number > 0 for number in numbers)


def test_the_main_path_on_every_store(each_store: Server, connect: Connect) -> None:
    connect(each_store)
    keys = put_many(40)
    assert [record.rank for record in ndb.get_multi(keys)] == list(range(40))
    keys.pop().delete()
    assert [record.rank for record in Record.query().order(-Record.rank)] == list(range(38, -1, -1))
    assert [record.rank for record in Record.query(Record.rank > 30, Record.rank <= 33)] == [31, 32, 33]
    assert Record.query(Record.tags == "t2").count() == 13
    in_order = sorted(keys)
    assert Record.query(Record.key > in_order[19]).fetch(5, offset=1, keys_only=True) == in_order[21:26]
    assert [record.rank for record in Record.query().order(Record.rank).iter(batch_size=7)] == list(range(39))
    page, cursor, more = Record.query().order(Record.rank).fetch_page(30)
    assert more
    assert len(page) + len(Record.query().order(Record.rank).fetch(start_cursor=cursor)) == 39

    def move() -> None:
        first, second = ndb.get_multi(keys[:2])
        first.rank, second.rank = first.rank + 1, second.rank - 1
        ndb.put_multi([first, second])

    in_threads(8, lambda _: ndb.transaction(move, xg=True, retries=300), range(40))
    assert [record.rank for record in ndb.get_multi(keys[:2])] == [40, -39]
    each_store.reset()
    assert ndb.get_multi(keys) == [None] * 39
    assert Record.query().count() == 0
    assert put_many(1)[0].id() == 1
