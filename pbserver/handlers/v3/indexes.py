"""GetIndices. No composite index can be made yet, so the list is empty."""

from collections.abc import Sequence

from pbserver.handlers.v3.call import Call, parse
from protos.datastore_v3_pb2 import CompositeIndices, GetIndicesRequest


def get_indices(call: Call, data: bytes) -> Sequence[bytes]:
    call.check_app(parse(GetIndicesRequest, data).app_id)
    return (CompositeIndices().SerializeToString(),)
