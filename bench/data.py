"""The entities and keys that are put, got and queried."""

import random
from collections.abc import Iterator, Sequence

from bench.calls import NAME, request
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Property, Reference

APP = b"bench"
ENTITY_BYTES = 1200
INDEXED = 20  #: single-valued indexed properties of an entity; with the entity and its kind row: 22 rows


def reference(kind: bytes, identifier: int | bytes) -> Reference:
    """The key of a root entity."""
    key = Reference(app=APP)
    element = key.path.element.add(type=kind)
    if isinstance(identifier, int):
        element.id = identifier
    else:
        element.name = identifier
    return key


def entity(kind: bytes, identifier: int | bytes, randomly: random.Random) -> bytes:
    """1,200 bytes: ten integers, ten texts of 16 letters, and an unindexed text that fills up."""
    proto = EntityProto(key=reference(kind, identifier))
    proto.entity_group.element.append(proto.key.path.element[0])
    for number in range(INDEXED // 2):
        proto.property.add(name=b"number%d" % number, multiple=False).value.int64_value = randomly.getrandbits(40)
        text = b"%016x" % randomly.getrandbits(64)
        proto.property.add(name=b"text%d" % number, multiple=False).value.string_value = text
    filler = proto.raw_property.add(meaning=Property.TEXT, name=b"filler", multiple=False).value
    filler.string_value = b""
    filler.string_value = b"x" * (ENTITY_BYTES - proto.ByteSize() - 3)  # the three lengths around it grow by a byte
    return proto.SerializeToString()


def entities(kind: bytes, count: int, first: int = 1) -> list[bytes]:
    """The entities of `kind` with ids from `first`; the same in every run."""
    randomly = random.Random(first)
    return [entity(kind, number, randomly) for number in range(first, first + count)]


def puts(serialized: Sequence[bytes], at_once: int = 100) -> Iterator[bytes]:
    """Requests that store entities, so many in one call."""
    for start in range(0, len(serialized), at_once):
        yield request(b"Put", v3.PutRequest(entity=serialized[start : start + at_once]))


def single_puts(kind: bytes, count: int) -> list[bytes]:
    """Puts of one entity whose key name, NAME, is to be replaced before sending. Values differ between them."""
    randomly = random.Random(2)
    return [request(b"Put", v3.PutRequest(entity=[entity(kind, NAME, randomly)])) for _ in range(count)]


def gets(kind: bytes, count: int) -> list[bytes]:
    """Gets of one key each, in no order."""
    numbers = random.Random(3).sample(range(1, count + 1), count)
    return [request(b"Get", v3.GetRequest(key=[reference(kind, number)])) for number in numbers]


def touch() -> bytes:
    """The no-op: a Touch of no keys passes through everything but the store."""
    return request(b"Touch", v3.TouchRequest())


def kind_query(kind: bytes, limit: int, count: int | None = None) -> v3.Query:
    """The first `limit` entities of a kind; `count` (all): how many the first answer should give."""
    return v3.Query(app=APP, kind=kind, limit=limit, count=limit if count is None else count)
