"""AllocateIds."""

from collections.abc import Sequence

from pbserver.datastore import keys
from pbserver.datastore.errors import BadRequest
from pbserver.handlers.v3.call import MAX_MUTATIONS, Call, check_count, parse
from protos.datastore_v3_pb2 import AllocateIdsRequest, AllocateIdsResponse
from protos.entity_pb2 import Reference


def allocate_ids(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(AllocateIdsRequest, data)
    if request.reserve:
        start = end = 0
        _reserve(call, request)
    else:
        start, end = _allocate(call, request)
    return (AllocateIdsResponse(start=start, end=end).SerializeToString(),)


def _allocate(call: Call, request: AllocateIdsRequest) -> tuple[int, int]:
    if not request.HasField("model_key"):
        raise BadRequest("AllocateIds needs a model_key or keys to reserve")
    partition = _partition(call, request.model_key)
    if request.size and request.max:
        raise BadRequest("Both size and max cannot be set.")
    if request.HasField("max") and not request.size:
        return call.datastore.ids.allocate_up_to(partition, request.max, deadline=call.deadline)
    return call.datastore.ids.allocate(partition, request.size, deadline=call.deadline)


def _reserve(call: Call, request: AllocateIdsRequest) -> None:
    if request.HasField("model_key"):
        raise BadRequest("Cannot allocate and reserve IDs in the same request")
    for field in ("size", "max"):
        if request.HasField(field):
            raise BadRequest(f"Cannot specify {field} when reserving IDs")
    check_count(len(request.reserve), MAX_MUTATIONS, "reserve more than 500 keys")
    for reference in request.reserve:
        keys.from_reference(reference)
        partition = _partition(call, reference)
        for element in reference.path.element:
            if element.id:
                call.datastore.ids.reserve(partition, element.id, deadline=call.deadline)


def _partition(call: Call, reference: Reference) -> bytes:
    call.check_app(reference.app)
    return keys.partition(reference.app, reference.database_id, reference.name_space)
