"""Defects of AppScale's history that had to do with who is calling, each as a test named after its symptom."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.protobuf.message import Message

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from protos.remote_api_pb2 import Response
from tests.e2e.server import Server
from tests.e2e.wire import Wire, assert_bad_request, entity, key, put_request

SECRET = b"the other app's secret"


def headers(app: str) -> dict[str, str]:
    return {"ProtocolBufferType": "Request", "AppData": f"{app}:a@example.com:a:gmail.com"}


def ask(wire: Wire, app: str, method: str, message: Message) -> Response:
    """A call as AppScale's app servers send it, by the app of the header."""
    return wire.reply(method, message, "/", **headers(app))


def owned(app: bytes) -> EntityProto:
    return entity(key(b"Kind", b"name", app=app), secret=SECRET)


def reads(mine: Reference) -> list[tuple[str, Message]]:
    """Every way to read an app's data."""
    app = mine.app
    everything = [
        v3.Query(app=app, kind=b"Kind", count=9),
        v3.Query(app=app, count=9),
        v3.Query(app=app, ancestor=mine, count=9),
        v3.Query(app=app, kind=b"Kind", keys_only=True, count=9),
        v3.Query(app=app, kind=b"Kind", property_name=[b"secret"], count=9),
        v3.Query(app=app, kind=b"__kind__", count=9),
        v3.Query(app=app, kind=b"__property__", count=9),
        v3.Query(app=app, kind=b"__namespace__", count=9),
    ]
    return [
        ("Get", v3.GetRequest(key=[mine])),
        *(("RunQuery", query) for query in everything),
        *(("Count", query) for query in everything[:4]),
        ("GetIndices", v3.GetIndicesRequest(app_id=app)),
        ("BeginTransaction", v3.BeginTransactionRequest(app=app)),
    ]


@pytest.mark.parametrize("caller", ["other", "victimx", "other:victim"])
@pytest.mark.parametrize("victim", [b"victim", b"s~victim"])
def test_an_app_named_in_a_header_cannot_read_anothers_data(wire: Wire, caller: str, victim: bytes) -> None:
    """Any caller could name any app in the request, whatever its header said."""
    stored = owned(victim)
    wire.put(stored)
    for method, message in reads(stored.key):
        reply = ask(wire, caller, method, message)
        assert_bad_request(reply, "cannot access")
        assert SECRET not in reply.SerializeToString()
    assert wire.get(stored.key) == [stored]


def test_a_query_cannot_be_pointed_at_another_app_by_its_parts(wire: Wire) -> None:
    """Only the query's own app was looked at, not those of its ancestor, its filters and its cursor."""
    mine, theirs = owned(b"mine"), owned(b"victim")
    wire.put(mine)
    wire.put(theirs)
    for query in (
        v3.Query(app=b"mine", ancestor=theirs.key),
        v3.Query(app=b"mine", kind=b"Kind", transaction=v3.Transaction(handle=1, app=b"victim")),
    ):
        reply = ask(wire, "mine", "RunQuery", query)
        assert reply.HasField("application_error"), query
        assert SECRET not in reply.SerializeToString()
    both = v3.GetRequest(key=[mine.key, theirs.key])
    assert_bad_request(ask(wire, "mine", "Get", both))


def test_an_iteration_begun_by_one_app_cannot_be_continued_by_another(wire: Wire) -> None:
    """Cursors were numbers that anybody could count through."""
    for number in range(10):
        wire.put(entity(key(b"Kind", number + 1, app=b"victim"), secret=SECRET))
    begun = v3.QueryResult.FromString(
        ask(wire, "victim", "RunQuery", v3.Query(app=b"victim", kind=b"Kind", count=2)).response
    )
    assert begun.more_results
    for app in (b"victim", b"other", b""):
        stolen = v3.Cursor(cursor=begun.cursor.cursor, app=app)
        reply = ask(wire, "other", "Next", v3.NextRequest(cursor=stolen, count=9))
        assert reply.HasField("application_error")
        assert SECRET not in reply.SerializeToString()
    rest = ask(wire, "victim", "Next", v3.NextRequest(cursor=begun.cursor, count=99))
    assert len(v3.QueryResult.FromString(rest.response).result) == 8


def _life_of(app: str, wire: Wire) -> list[Any]:
    """What an app sees of 20 rounds of its own puts, gets and queries, some in a transaction."""
    seen: list[Any] = []
    for number in range(20):
        stored = entity(key(b"Kind", number % 5 + 1, app=app.encode()), owner=app.encode(), number=number)
        request = put_request(stored)
        if number % 4 == 3:
            begun = v3.Transaction.FromString(
                ask(wire, app, "BeginTransaction", v3.BeginTransactionRequest(app=app.encode())).response
            )
            request.transaction.CopyFrom(begun)
            assert not ask(wire, app, "Put", request).HasField("application_error")
            assert not ask(wire, app, "Commit", begun).HasField("application_error")
        else:
            assert not ask(wire, app, "Put", request).HasField("application_error")
        got = v3.GetResponse.FromString(ask(wire, app, "Get", v3.GetRequest(key=[stored.key])).response)
        query = v3.Query(app=app.encode(), kind=b"Kind", count=99)
        found = v3.QueryResult.FromString(ask(wire, app, "RunQuery", query).response)
        assert EntityProto.FromString(got.entity[0].entity) == stored
        seen += [EntityProto.FromString(each) for each in found.result]
    return seen


def test_concurrent_calls_keep_their_own_identity(server: Server) -> None:
    """Who was calling stood in os.environ, one for all threads: calls at once were answered as each other's."""

    def client(number: int) -> None:
        app = f"app{number:02}"
        with Wire(server.port) as wire:
            seen = _life_of(app, wire)
        assert len(seen) == 1 + 2 + 3 + 4 + 5 * 16
        assert {each.key.app for each in seen} == {app.encode()}
        assert {prop.value.string_value for each in seen for prop in each.property if prop.name == b"owner"} == {
            app.encode()
        }

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(client, range(12)))


def test_concurrent_calls_under_anothers_name_are_all_refused(server: Server) -> None:
    """Among calls of the right owner, some of the wrong caller's slipped through."""
    stored = owned(b"victim")

    def client(number: int) -> list[bool]:
        app = ("victim", "other")[number % 2]
        with Wire(server.port) as wire:
            replies = [ask(wire, app, method, message) for _ in range(5) for method, message in reads(stored.key)[:4]]
        return [reply.HasField("application_error") for reply in replies]

    with Wire(server.port) as wire:
        wire.put(stored)
    with ThreadPoolExecutor(12) as pool:
        refused = list(pool.map(client, range(12)))
    assert refused == [[bool(number % 2)] * 20 for number in range(12)]
