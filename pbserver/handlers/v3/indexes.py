"""CreateIndex, UpdateIndex, GetIndices, DeleteIndex."""

from collections.abc import Sequence

from pbserver.datastore import catalog, keys
from pbserver.datastore.composites import State
from pbserver.datastore.errors import BadRequest
from pbserver.handlers.v3.call import Call, parse
from protos.datastore_v3_pb2 import CompositeIndices, GetIndicesRequest, Integer64Proto, VoidProto
from protos.entity_pb2 import CompositeIndex


def create_index(call: Call, data: bytes) -> Sequence[bytes]:
    """The new index is built in the background, whatever state the client names: that it serves is for us to say."""
    index = parse(CompositeIndex, data)
    project = _project(call, index.app_id, index.database_id)
    if index.id:
        raise BadRequest("New index id must be 0.")
    made = call.datastore.catalog.create(project, catalog.to_definition(index.definition), deadline=call.deadline)
    return (Integer64Proto(value=made.id).SerializeToString(),)


def update_index(call: Call, data: bytes) -> Sequence[bytes]:
    index = parse(CompositeIndex, data)
    project = _project(call, index.app_id, index.database_id)
    definition = catalog.to_definition(index.definition)
    call.datastore.catalog.update(project, definition, State(index.state), deadline=call.deadline)
    return (VoidProto().SerializeToString(),)


def get_indices(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(GetIndicesRequest, data)
    project = _project(call, request.app_id, request.database_id)
    answer = CompositeIndices()
    for each in call.datastore.catalog.read(project, deadline=call.deadline).all:
        catalog.set_index(answer.index.add(), project, each)
    return (answer.SerializeToString(),)


def delete_index(call: Call, data: bytes) -> Sequence[bytes]:
    index = parse(CompositeIndex, data)
    project = _project(call, index.app_id, index.database_id)
    found = call.datastore.catalog.find(project, catalog.to_definition(index.definition), deadline=call.deadline)
    call.datastore.catalog.delete(project, found.id, deadline=call.deadline)
    return (VoidProto().SerializeToString(),)


def _project(call: Call, app: bytes, database: bytes) -> bytes:
    call.check_app(app)
    return keys.partition(app, database, b"")
