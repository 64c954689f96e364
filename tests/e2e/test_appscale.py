"""AppScale's app servers: POST / with the app's name in a header."""

from typing import Any

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto
from protos.remote_api_pb2 import Response
from tests.e2e.wire import ANSWERS, Wire, assert_bad_request, assert_rpc_error, entity, envelope, key, put_request


def headers(app_data: str) -> dict[str, str]:
    return {"ProtocolBufferType": "Request", "AppData": app_data, "Module": "default", "Version": "v1"}


PAIRS = [
    ("toyapp", b"toyapp"),
    ("toyapp:a@example.com:a:gmail.com", b"toyapp"),
    ("toyapp:::", b"toyapp"),
    ("toyapp", b"s~toyapp"),
    ("s~toyapp", b"toyapp"),
    ("s~toyapp:a@example.com:a:gmail.com", b"s~toyapp"),
]


def succeed(reply: Response, method: str) -> Any:
    assert not reply.HasField("rpc_error"), reply
    assert not reply.HasField("application_error"), reply
    return ANSWERS[method].FromString(reply.response)


@pytest.mark.parametrize(("app_data", "app"), PAIRS)
def test_the_app_of_the_header_puts_gets_queries_and_deletes(wire: Wire, app_data: str, app: bytes) -> None:
    stored = entity(key(b"Kind", b"name", app=app), number=7)
    head = headers(app_data)
    succeed(wire.reply("Put", put_request(stored), "/", **head), "Put")
    got = succeed(wire.reply("Get", v3.GetRequest(key=[stored.key]), "/", **head), "Get")
    assert EntityProto.FromString(got.entity[0].entity) == stored
    found = succeed(wire.reply("RunQuery", v3.Query(app=app, kind=b"Kind", count=9), "/", **head), "RunQuery")
    assert [EntityProto.FromString(each) for each in found.result] == [stored]
    begin = v3.BeginTransactionRequest(app=app)
    transaction = succeed(wire.reply("BeginTransaction", begin, "/", **head), "BeginTransaction")
    delete = v3.DeleteRequest(key=[stored.key], transaction=transaction)
    succeed(wire.reply("Delete", delete, "/", **head), "Delete")
    succeed(wire.reply("Commit", transaction, "/", **head), "Commit")
    assert wire.get(stored.key) == [None]


@pytest.mark.parametrize("app_data", ["other", "toy", "toyappx", "other:toyapp", "s~other", "TOYAPP"])
@pytest.mark.parametrize("app", [b"toyapp", b"s~toyapp"])
def test_an_app_cannot_touch_the_data_of_another(wire: Wire, app_data: str, app: bytes) -> None:
    head = headers(app_data)
    mine = key(b"Kind", b"name", app=app)
    for method, message in (
        ("Put", put_request(entity(mine))),
        ("Get", v3.GetRequest(key=[mine])),
        ("Delete", v3.DeleteRequest(key=[mine])),
        ("RunQuery", v3.Query(app=app, kind=b"Kind")),
        ("BeginTransaction", v3.BeginTransactionRequest(app=app)),
        ("AllocateIds", v3.AllocateIdsRequest(model_key=mine, size=1)),
        ("GetIndices", v3.GetIndicesRequest(app_id=app)),
        ("Next", v3.NextRequest(cursor=v3.Cursor(cursor=1, app=app))),
    ):
        reply = wire.reply(method, message, "/", **head)
        assert_bad_request(reply, "cannot access app")
        assert reply.HasField("response")  # AppScale's clients read it whatever happened
    assert wire.get(mine) == [None]


def test_a_transaction_and_a_cursor_stay_with_their_app(wire: Wire) -> None:
    mine, theirs = key(b"K", 1, app=b"mine"), key(b"K", 1, app=b"theirs")
    begin = v3.BeginTransactionRequest(app=b"mine")
    transaction = succeed(wire.reply("BeginTransaction", begin, "/", **headers("mine")), "BeginTransaction")
    assert_bad_request(wire.reply("Commit", transaction, "/", **headers("theirs")), "cannot access")
    crossed = v3.GetRequest(key=[theirs], transaction=transaction)
    assert_bad_request(wire.reply("Get", crossed, "/", **headers("theirs")))
    assert_bad_request(wire.reply("Get", crossed, "/", **headers("mine")))
    assert wire.get(mine) == [None]


def test_without_the_header_the_message_names_the_app(wire: Wire) -> None:
    stored = entity(key(b"Kind", b"name", app=b"toyapp"), number=7)
    succeed(wire.reply("Put", put_request(stored), "/", ProtocolBufferType="Request"), "Put")
    assert wire.get(stored.key) == [stored]


def test_bad_envelopes_are_answered_as_elsewhere(wire: Wire) -> None:
    assert_rpc_error(wire.send(b"\xff\xff", "/", headers("toyapp")), "PARSE_ERROR")
    assert_rpc_error(wire.send(envelope(b"Fly", b""), "/", headers("toyapp")), "CALL_NOT_FOUND")
    assert_rpc_error(wire.send(envelope(b"Get", b"\xff"), "/", headers("toyapp")), "PARSE_ERROR")


@pytest.mark.parametrize(
    "app_data", [b"\xff\xfe", "é".encode(), b"x" * 5000, b"*", b"s~", b"e~toyapp", b"other~toyapp"]
)
def test_a_strange_header_never_opens_another_app(wire: Wire, app_data: bytes) -> None:
    mine = key(b"Kind", b"name", app=b"toyapp")
    wire.put(entity(mine, number=1))
    body = envelope(b"Delete", v3.DeleteRequest(key=[mine]).SerializeToString())
    assert_bad_request(wire.send(body, "/", {"ProtocolBufferType": "Request", "AppData": app_data}), "cannot access")
    assert wire.get(mine) == [entity(mine, number=1)]
