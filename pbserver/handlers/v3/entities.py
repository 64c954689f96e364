"""Get, Put, Delete, Touch. Stored entities pass through as bytes."""

from collections.abc import Sequence

from pbserver.datastore import entities, keys, values
from pbserver.datastore.encoding import varint
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import IdInUse, Mutation
from pbserver.handlers.v3.call import MAX_GETS, MAX_MUTATIONS, Call, check_count, parse
from protos.datastore_v3_pb2 import (
    DeleteRequest,
    DeleteResponse,
    GetRequest,
    PutRequest,
    TouchRequest,
    TouchResponse,
)
from protos.entity_pb2 import EntityProto

_MAX_DEFERRED_BYTES = 2_000_000
_RETRIES = 10
_USER = b"\x43\x4a"  # how a user value begins on the wire; so entities without one are not looked through


def get(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(GetRequest, data)
    references = request.key
    check_count(len(references), MAX_GETS, "get more than 1,000 keys")
    wanted = list(map(keys.from_reference, references))
    call.check_keys(wanted)
    handle = call.transaction(request.transaction) if request.HasField("transaction") else None
    found = call.datastore.get(wanted, handle, deadline=call.deadline)
    pieces: list[bytes] = []
    size = 0
    for index, stored in enumerate(found):
        if stored is None:
            reference = references[index].SerializeToString()
            pieces += (b"\x0b\x22", varint(len(reference)), reference, b"\x0c")
            continue
        if request.allow_deferred and size and size + len(stored) > _MAX_DEFERRED_BYTES:
            pieces += (_deferred(reference.SerializeToString()) for reference in references[index:])
            break
        size += len(stored)
        pieces += (b"\x0b", stored, b"\x18", entities.version_bytes(stored), b"\x0c")
    if request.allow_deferred:
        pieces.append(b"\x30\x00")  # in_order = false
    return pieces


def _deferred(reference: bytes) -> bytes:
    return b"\x2a" + varint(len(reference)) + reference


def put(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(PutRequest, data)
    check_count(len(request.entity), MAX_MUTATIONS, "put more than 500 entities")
    sequential = request.auto_id_policy == PutRequest.SEQUENTIAL
    protos = [parse(EntityProto, serialized) for serialized in request.entity]
    handle = call.transaction(request.transaction) if request.HasField("transaction") else None
    inserts = [_complete(call, proto, sequential=sequential) for proto in protos]
    mutations = [
        _mutation(call, proto, serialized, insert=insert)
        for proto, serialized, insert in zip(protos, request.entity, inserts, strict=True)
    ]
    call.check_keys(mutation.key for mutation in mutations)
    if not mutations:
        return ()
    for _ in range(_RETRIES):
        try:
            version = call.datastore.write(mutations, handle, deadline=call.deadline)
            break
        except IdInUse as error:
            index = next(i for i, mutation in enumerate(mutations) if mutation.key == error.key)
            protos[index].key.path.element[-1].ClearField("id")
            _complete(call, protos[index], sequential=sequential)
            mutations[index] = _mutation(call, protos[index], b"", insert=True)
    else:
        raise BadRequest("no free id was found for a new entity; reserve ids that you set yourself by AllocateIds")
    return _put_response(protos, version)


def _put_response(protos: Sequence[EntityProto], version: int | None) -> Sequence[bytes]:
    pieces: list[bytes] = []
    for proto in protos:
        reference = proto.key.SerializeToString()
        pieces += (b"\x0a", varint(len(reference)), reference)
    if version is not None:
        pieces.append((b"\x18" + varint(version)) * len(protos))
    return pieces


def _complete(call: Call, proto: EntityProto, *, sequential: bool) -> bool:
    """Gives an id to an entity that waits for one; whether it did."""
    if not keys.is_incomplete(proto.key.path):
        return False
    key = proto.key
    partition = keys.partition(key.app, key.database_id, key.name_space)
    call.check_app(key.app)
    last = key.path.element[-1]
    last.ClearField("name")
    last.id = call.datastore.new_id(partition, sequential=sequential, deadline=call.deadline)
    return True


def _mutation(call: Call, proto: EntityProto, serialized: bytes, *, insert: bool) -> Mutation:
    """The checked mutation. The bytes are the client's own wherever nothing had to be filled in."""
    key = keys.from_reference(proto.key)
    _check_reserved(key, testing=call.datastore.testing)
    named = _USER in serialized and _name_users(proto)
    if insert or named or not _has_group(proto):
        proto.entity_group.Clear()
        proto.entity_group.element.append(proto.key.path.element[0])
        serialized = proto.SerializeToString()
    return Mutation(key, entities.build(key, proto, serialized), insert)


def _name_users(proto: EntityProto) -> bool:
    """Gives the users among the values their ids; whether there were any."""
    users = [
        each.value.uservalue for each in (*proto.property, *proto.raw_property) if each.value.HasField("uservalue")
    ]
    for user in users:
        values.name_user(user)
    return bool(users)


def _has_group(proto: EntityProto) -> bool:
    """Whether the entity group is there and right; field by field, which is cheaper than comparing messages."""
    group = proto.entity_group.element
    if len(group) != 1:
        return False
    mine, root = group[0], proto.key.path.element[0]
    return bool(mine.type == root.type and mine.id == root.id and mine.name == root.name)


def _check_reserved(key: Key, *, testing: bool) -> None:
    """Raises BadRequest for a kind or name of the form __x__, which belong to the Datastore itself."""
    if b"__" not in key.path:
        return
    for kind, identifier in keys.decode_path(key.path):
        if _is_reserved(kind) and not (testing and kind.startswith(b"__Stat_")):
            raise BadRequest(f'The key path element kind "{kind.decode()}" is reserved.')
        if isinstance(identifier, bytes) and _is_reserved(identifier) and not testing:
            raise BadRequest(f'The key path element name "{identifier.decode()}" is reserved.')


def _is_reserved(name: bytes) -> bool:
    return len(name) >= 4 and name.startswith(b"__") and name.endswith(b"__")


def delete(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(DeleteRequest, data)
    check_count(len(request.key), MAX_MUTATIONS, "delete more than 500 entities")
    wanted = list(map(keys.from_reference, request.key))
    call.check_keys(wanted)
    handle = call.transaction(request.transaction) if request.HasField("transaction") else None
    if not wanted:
        return ()
    version = call.datastore.write([Mutation(key, None) for key in wanted], handle, deadline=call.deadline)
    versions = [] if version is None else [version] * len(wanted)
    return (DeleteResponse(version=versions).SerializeToString(),)


def touch(call: Call, data: bytes) -> Sequence[bytes]:
    """Every commit is applied before it is answered, so there is nothing to bring up to date: only checked."""
    request = parse(TouchRequest, data)
    check_count(len(request.key), MAX_GETS, "touch more than 1,000 keys")
    call.check_keys(map(keys.from_reference, request.key))
    return (TouchResponse().SerializeToString(),)
