"""BeginTransaction, Commit, Rollback, AddActions."""

from collections.abc import Sequence

from pbserver.datastore import keys
from pbserver.datastore.errors import BadRequest
from pbserver.handlers.v3.call import Call, parse
from protos.datastore_v3_pb2 import BeginTransactionRequest, CommitResponse, Transaction, VoidProto


def begin_transaction(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(BeginTransactionRequest, data)
    keys.partition(request.app, request.database_id, b"")  # refuses what is no app id
    call.check_app(request.app)
    if request.HasField("previous_transaction"):
        if request.mode != BeginTransactionRequest.READ_WRITE:
            raise BadRequest("previous_transaction can only be set in READ_WRITE mode")
        previous = call.transaction(request.previous_transaction)
        call.datastore.transactions.abandon(previous, cross_group=request.allow_multiple_eg, deadline=call.deadline)
    handle = call.datastore.transactions.begin(
        request.app,
        cross_group=request.allow_multiple_eg,
        read_only=request.mode == BeginTransactionRequest.READ_ONLY,
        deadline=call.deadline,
    )
    return (Transaction(handle=handle.number, app=handle.app).SerializeToString(),)


def commit(call: Call, data: bytes) -> Sequence[bytes]:
    handle = call.transaction(parse(Transaction, data))
    changed, version = call.datastore.transactions.commit(handle, deadline=call.deadline)
    response = CommitResponse()
    response.cost.SetInParent()
    for key in changed:
        reference = keys.to_reference(key.partition, key.path)
        response.version.add(root_entity_key=reference, version=version)
    return (response.SerializeToString(),)


def rollback(call: Call, data: bytes) -> Sequence[bytes]:
    call.datastore.transactions.rollback(call.transaction(parse(Transaction, data)), deadline=call.deadline)
    return (VoidProto().SerializeToString(),)


def add_actions(call: Call, data: bytes) -> Sequence[bytes]:
    """Transactional tasks need a task queue to hand them to, and there is none behind this server."""
    del call, data
    raise BadRequest("transactional tasks (AddActions) are not supported: pbserver has no task queue service")
