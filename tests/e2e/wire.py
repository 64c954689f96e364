"""The protocol without an SDK: calls as bytes over HTTP, right or deliberately wrong."""

import ssl
from collections.abc import Mapping
from typing import Any

import httpx
from google.protobuf.message import Message

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Property, Reference
from protos.remote_api_pb2 import Request, Response, RpcError

APP = b"s~toyapp"

HEADERS = {
    "X-Google-RPC-Service-Deadline": "60",
    "X-Google-RPC-Service-Endpoint": "app-engine-apis",
    "X-Google-RPC-Service-Method": "/VMRemoteAPI.CallRemoteAPI",
    "Content-Type": "application/octet-stream",
}


def envelope(
    method: bytes, request: bytes, *, service: bytes = b"datastore_v3", ticket: bytes | None = b"a-ticket"
) -> bytes:
    return Request(service_name=service, method=method, request=request, request_id=ticket).SerializeToString()


class Wire:
    """A client on one kept-alive connection."""

    def __init__(self, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        url = f"{'https' if tls else 'http'}://{host}:{port}"
        self._client = httpx.Client(base_url=url, headers=HEADERS, timeout=60, verify=tls or True)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def post(
        self, body: bytes, path: str = "/rpc_http", headers: Mapping[str, str | bytes] | None = None
    ) -> httpx.Response:
        return self._client.post(path, content=body, headers=dict(headers or {}))

    def send(self, body: bytes, path: str = "/rpc_http", headers: Mapping[str, str | bytes] | None = None) -> Response:
        """The envelope that answers `body`."""
        response = self.post(body, path, headers)
        assert response.status_code == 200, response.text
        return Response.FromString(response.content)

    def reply(self, method: str, message: Message, path: str = "/rpc_http", **headers: str) -> Response:
        """The envelope that answers a call, whatever came of it."""
        return self.send(envelope(method.encode(), message.SerializePartialToString()), path, headers)

    def call(self, method: str, message: Message) -> Any:
        """The answer to a call that succeeds."""
        reply = self.reply(method, message)
        assert not reply.HasField("rpc_error"), reply.rpc_error
        assert not reply.HasField("application_error"), reply.application_error
        return ANSWERS[method].FromString(reply.response)

    def put(self, *entities: EntityProto) -> Any:
        return self.call("Put", put_request(*entities))

    def get(self, *keys: Reference) -> list[EntityProto | None]:
        """The entities, None where there is none."""
        found = self.call("Get", v3.GetRequest(key=keys)).entity
        return [EntityProto.FromString(each.entity) if each.HasField("entity") else None for each in found]

    def query(self, **fields: Any) -> list[EntityProto]:
        """All results of a query, by RunQuery and Next."""
        result = self.call("RunQuery", v3.Query(app=APP, **fields))
        found = list(result.result)
        while result.more_results:
            result = self.call("Next", v3.NextRequest(cursor=result.cursor, count=1000))
            found += result.result
        return [EntityProto.FromString(each) for each in found]

    def begin(self, *, xg: bool = False) -> v3.Transaction:
        transaction: v3.Transaction = self.call(
            "BeginTransaction", v3.BeginTransactionRequest(app=APP, allow_multiple_eg=xg)
        )
        return transaction


ANSWERS: dict[str, Any] = {
    "Get": v3.GetResponse,
    "Put": v3.PutResponse,
    "Delete": v3.DeleteResponse,
    "Touch": v3.TouchResponse,
    "RunQuery": v3.QueryResult,
    "Next": v3.QueryResult,
    "DeleteCursor": v3.VoidProto,
    "Count": v3.Integer64Proto,
    "BeginTransaction": v3.Transaction,
    "Commit": v3.CommitResponse,
    "Rollback": v3.VoidProto,
    "AllocateIds": v3.AllocateIdsResponse,
    "GetIndices": v3.CompositeIndices,
}


def key(*path: bytes | int | None, app: bytes = APP, namespace: bytes = b"") -> Reference:
    """The key of kinds and ids, names or None (incomplete) in turn."""
    reference = Reference(app=app, name_space=namespace) if namespace else Reference(app=app)
    reference.path.SetInParent()
    for kind, identifier in zip(path[::2], path[1::2], strict=True):
        element = reference.path.element.add(type=kind)
        if isinstance(identifier, bytes):
            element.name = identifier
        elif identifier is not None:
            element.id = identifier
    return reference


def entity(reference: Reference, **properties: int | bytes) -> EntityProto:
    """An entity with indexed integers and strings."""
    proto = EntityProto(key=reference)
    proto.entity_group.SetInParent()
    if reference.path.element:
        proto.entity_group.element.append(reference.path.element[0])
    for name, value in properties.items():
        prop = proto.property.add(name=name.encode(), multiple=False)
        if isinstance(value, bytes):
            prop.value.string_value = value
        else:
            prop.value.int64_value = value
    return proto


def blob(proto: EntityProto, name: bytes, value: bytes) -> EntityProto:
    """The entity with an unindexed property more."""
    prop = proto.raw_property.add(name=name, multiple=False, meaning=Property.BLOB)
    prop.value.string_value = value
    return proto


def put_request(*entities: EntityProto, **fields: Any) -> v3.PutRequest:
    return v3.PutRequest(entity=[each.SerializePartialToString() for each in entities], **fields)


def assert_application_error(reply: Response, code: int, text: str = "") -> None:
    assert not reply.HasField("rpc_error"), reply
    assert reply.HasField("application_error"), reply
    assert reply.application_error.code == code, reply.application_error
    assert text.lower() in reply.application_error.detail.lower(), reply.application_error.detail


def assert_bad_request(reply: Response, text: str = "") -> None:
    assert_application_error(reply, v3.Error.BAD_REQUEST, text)


def assert_rpc_error(reply: Response, code: str) -> None:
    assert reply.HasField("rpc_error"), reply
    assert RpcError.ErrorCode.Name(reply.rpc_error.code) == code, reply.rpc_error
