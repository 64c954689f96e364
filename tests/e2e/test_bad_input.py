"""Calls that are wrong as bytes: envelopes, messages, sizes, deadlines. Each is refused, and the next one served."""

import random
import socket
import time

import httpx
import pytest
from google.protobuf.message import Message

from protos import datastore_v3_pb2 as v3
from protos.remote_api_pb2 import Response
from tests.e2e.server import Server
from tests.e2e.wire import (
    ANSWERS,
    APP,
    Wire,
    assert_rpc_error,
    blob,
    entity,
    envelope,
    key,
    put_request,
)

MAX_REQUEST_BYTES = 10 * 1024 * 1024

GOOD = entity(key(b"Kind", b"name"), number=7, text=b"text")
GET = v3.GetRequest(key=[GOOD.key])

GARBAGE = {
    "zero": b"\x00",
    "high": b"\xff" * 100,
    "text": b"<html>not a message</html>",
    "open-group": b"\x0b\x0b\x0b",
    "endless-varint": b"\x80" * 50,
    "length-beyond-the-end": b"\x12\xff\xff\xff\xff\x07",
    "nested": b"\x0b" * 5000,
}
each_garbage = pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)


@each_garbage
def test_garbage_in_place_of_the_envelope_is_a_parse_error(wire: Wire, garbage: bytes) -> None:
    assert_rpc_error(wire.send(garbage), "PARSE_ERROR")


def test_an_empty_body_is_a_parse_error(wire: Wire) -> None:
    assert_rpc_error(wire.send(b""), "PARSE_ERROR")


def test_every_truncation_of_an_envelope_is_a_parse_error(wire: Wire) -> None:
    whole = envelope(b"Get", GET.SerializeToString(), ticket=None)
    assert not wire.send(whole).HasField("rpc_error")
    for size in range(len(whole)):
        assert_rpc_error(wire.send(whole[:size]), "PARSE_ERROR")


@each_garbage
@pytest.mark.parametrize("method", ANSWERS)
def test_garbage_in_place_of_the_message_is_a_parse_error(wire: Wire, method: str, garbage: bytes) -> None:
    assert_rpc_error(wire.send(envelope(method.encode(), garbage)), "PARSE_ERROR")


@pytest.mark.parametrize(
    "method", ["RunQuery", "Next", "Count", "BeginTransaction", "Commit", "Rollback", "GetIndices"]
)
def test_a_message_without_its_required_fields_is_a_parse_error(wire: Wire, method: str) -> None:
    assert_rpc_error(wire.send(envelope(method.encode(), b"")), "PARSE_ERROR")


def test_every_truncation_of_a_put_is_a_parse_error(wire: Wire) -> None:
    whole = put_request(GOOD).SerializeToString()
    for size in range(1, len(whole)):
        assert_rpc_error(wire.send(envelope(b"Put", whole[:size])), "PARSE_ERROR")
    assert wire.query(kind=b"Kind") == []


def test_every_truncation_of_an_entity_is_refused(wire: Wire) -> None:
    whole = GOOD.SerializeToString()
    for size in range(len(whole)):
        reply = wire.reply("Put", v3.PutRequest(entity=[whole[:size]]))
        if reply.HasField("rpc_error"):
            assert_rpc_error(reply, "PARSE_ERROR")
        else:  # cut between two fields: an entity with less in it
            assert not reply.HasField("application_error")


@each_garbage
def test_garbage_in_place_of_an_entity_is_a_parse_error(wire: Wire, garbage: bytes) -> None:
    assert_rpc_error(wire.reply("Put", v3.PutRequest(entity=[GOOD.SerializeToString(), garbage])), "PARSE_ERROR")
    assert wire.get(GOOD.key) == [None]


@pytest.mark.parametrize("service", [b"memcache", b"taskqueue", b"datastore_v4", b"", b"\xff\x00", b"DATASTORE_V3"])
def test_an_unknown_service_is_not_found(wire: Wire, service: bytes) -> None:
    reply = wire.send(envelope(b"Get", GET.SerializeToString(), service=service))
    assert_rpc_error(reply, "CALL_NOT_FOUND")


@pytest.mark.parametrize("method", [b"Fly", b"get", b"", b"\xff\x00", b"Get\x00", b"G" * 100_000])
def test_an_unknown_method_is_not_found(wire: Wire, method: bytes) -> None:
    assert_rpc_error(wire.send(envelope(method, GET.SerializeToString())), "CALL_NOT_FOUND")


@pytest.mark.parametrize("ticket", [b"", b"\xff\xfe", b"t" * 100_000])
def test_any_ticket_will_do(wire: Wire, ticket: bytes) -> None:
    assert not wire.send(envelope(b"Get", GET.SerializeToString(), ticket=ticket)).HasField("rpc_error")
    assert_rpc_error(wire.send(envelope(b"Get", b"\xff", ticket=ticket)), "PARSE_ERROR")
    assert_rpc_error(wire.send(envelope(b"Fly", b"", ticket=ticket)), "CALL_NOT_FOUND")


MUTATED: dict[str, Message] = {
    "Put": put_request(GOOD, entity(key(b"Up", 1, b"Kind", None), number=1)),
    "Get": v3.GetRequest(key=[GOOD.key, key(b"Up", 1, b"Kind", 2**62)]),
    "Delete": v3.DeleteRequest(key=[GOOD.key, key(b"Up", 1, b"Kind", 2**62)]),
    "RunQuery": v3.Query(
        app=APP,
        kind=b"Kind",
        ancestor=key(b"Up", 1),
        limit=5,
        order=[v3.Query.Order(property=b"number", direction=v3.Query.Order.DESCENDING)],
        filter=[v3.Query.Filter(op=v3.Query.Filter.EQUAL, property=GOOD.property[1:])],
        compile=True,
    ),
    "BeginTransaction": v3.BeginTransactionRequest(app=APP, allow_multiple_eg=True),
    "AllocateIds": v3.AllocateIdsRequest(model_key=key(b"Kind", 1), size=5),
}


@pytest.mark.parametrize(("method", "message"), MUTATED.items(), ids=MUTATED)
def test_a_call_with_wrong_bytes_in_it_is_answered_and_never_an_internal_error(
    wire: Wire, method: str, message: Message
) -> None:
    whole = message.SerializeToString()
    chance = random.Random(method)
    for _ in range(400):
        wrong = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        reply = wire.send(envelope(method.encode(), bytes(wrong)))
        assert reply.application_error.code != v3.Error.INTERNAL_ERROR, bytes(wrong)


@pytest.mark.parametrize("deadline", ["0", "0.0", "-1", "0.0000001"])
def test_a_call_whose_deadline_has_passed_is_not_begun(wire: Wire, deadline: str) -> None:
    reply = wire.reply("Put", put_request(GOOD), **{"X-Google-RPC-Service-Deadline": deadline})
    assert_rpc_error(reply, "DEADLINE_EXCEEDED")
    assert wire.get(GOOD.key) == [None]


@pytest.mark.parametrize("deadline", ["soon", "", "nan", "inf", "1e999", "0x10", "60;60", "9" * 500, "0.5", "1e3"])
def test_a_deadline_that_is_no_number_of_seconds_is_ignored(wire: Wire, deadline: str) -> None:
    reply = wire.reply("Put", put_request(GOOD), **{"X-Google-RPC-Service-Deadline": deadline})
    assert not reply.HasField("rpc_error")
    assert wire.get(GOOD.key) == [GOOD]


def test_other_paths_and_methods_are_refused_as_http(wire: Wire, server: Server) -> None:
    body = envelope(b"Get", GET.SerializeToString())
    for path in ("/rpc", "/rpc_http/", "/%00", "/" + "x" * 5000):
        assert wire.post(body, path).status_code == 404
    assert httpx.get(f"{server.url}/rpc_http").status_code == 405


def test_a_request_of_nearly_the_limit_is_served(wire: Wire) -> None:
    entities = [blob(entity(key(b"Large", number)), b"data", b"x" * 1_040_000) for number in range(1, 11)]
    request = envelope(b"Put", put_request(*entities).SerializeToString())
    assert MAX_REQUEST_BYTES - 100_000 < len(request) < MAX_REQUEST_BYTES
    assert not wire.send(request).HasField("rpc_error")
    assert len(wire.query(kind=b"Large")) == 10


def test_a_request_over_the_limit_is_refused_before_its_body_comes(wire: Wire, server: Server) -> None:
    head = f"POST /rpc_http HTTP/1.1\r\nHost: x\r\nContent-Length: {MAX_REQUEST_BYTES + 1}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode())
        assert_rpc_error(_read_answer(connection), "REQUEST_TOO_LARGE")


def test_an_endless_chunked_request_is_refused_near_the_limit(wire: Wire, server: Server) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"POST /rpc_http HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.setblocking(False)
        deadline = time.monotonic() + 20
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        pending = chunk
        while not _readable(connection):
            assert time.monotonic() < deadline, f"not refused after {sent} bytes"
            try:
                count = connection.send(pending)
            except BlockingIOError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                return  # refused and closed while we were still talking
            sent += count
            pending = pending[count:] or chunk
        connection.setblocking(True)
        connection.settimeout(20)
        assert_rpc_error(_read_answer(connection), "REQUEST_TOO_LARGE")
    assert sent < MAX_REQUEST_BYTES + 20_000_000  # what lies in the kernel's buffers counts as sent


def _readable(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def _read_answer(connection: socket.socket) -> Response:
    """The envelope in an HTTP answer of status 200."""
    with connection.makefile("rb") as stream:
        assert stream.readline().split()[1] == b"200"
        size = 0
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return Response.FromString(stream.read(size))


def test_reset_drops_all_data_of_a_testing_server(wire: Wire, server: Server) -> None:
    wire.put(GOOD)
    server.reset()
    assert wire.get(GOOD.key) == [None]
    assert wire.query(kind=b"Kind") == []


def test_reset_does_not_exist_without_testing(production_server: Server) -> None:
    with Wire(production_server.port) as wire:
        wire.put(GOOD)
        assert wire.post(b"", "/reset").status_code == 404
        assert wire.get(GOOD.key) == [GOOD]


def test_indexes_and_old_calls_answer(wire: Wire) -> None:
    wire.put(GOOD)
    assert list(wire.call("GetIndices", v3.GetIndicesRequest(app_id=APP)).index) == []
    assert wire.call("Count", v3.Query(app=APP, kind=b"Kind")).value == 1
    wire.call("Touch", v3.TouchRequest(key=[GOOD.key]))
