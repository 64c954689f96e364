"""Bytes <-> the remote_api envelope. Answers are put together by hand: a payload may be a megabyte of stored bytes."""

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from pbserver.datastore.encoding import varint
from protos.remote_api_pb2 import ApplicationError, Request, Response, RpcError

__all__ = ["Request", "RpcError", "application_error", "decode", "reply", "rpc_error"]


def decode(body: bytes) -> Request:
    """The call in an envelope. Raises google.protobuf.message.DecodeError for anything else."""
    request = Request.FromString(body)
    if not request.IsInitialized():
        raise DecodeError("the envelope names no service, method or request")
    return request


def reply(payload: Iterable[bytes]) -> bytes:
    """`Response.response` (field 1) around the pieces of a payload."""
    pieces = [*payload]
    return b"".join((b"\x0a", varint(sum(map(len, pieces))), *pieces))


def application_error(code: int, detail: str) -> bytes:
    """An error of the Datastore's own. AppScale's clients want `response` set on every answer."""
    error = ApplicationError(code=code, detail=detail)
    return Response(response=b"", application_error=error).SerializeToString()


def rpc_error(code: int, detail: str) -> bytes:
    """An error of the call itself (RpcError.ErrorCode)."""
    return Response(response=b"", rpc_error=RpcError(code=code, detail=detail)).SerializeToString()
