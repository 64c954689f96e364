"""Fills a store without a server: the Datastore's own commits, many entities in each."""

import random
import time
from collections.abc import Callable, Iterator

from adapters.build import open_store
from bench import data
from pbserver.datastore import entities, keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.mutations import Mutation
from protos.entity_pb2 import EntityProto

#: Of the property `value`, different in nearly every entity: values are below this.
RANGE = 1 << 40
#: How many values `first` and `second` have: of two equality filters, one entity in VALUES ** 2 matches.
VALUES = 5
_AT_ONCE = 5000
_CALL_SECONDS = 600.0


def load(url: str, kind: bytes, count: int, on_progress: Callable[[float], None]) -> None:
    """`count` entities in ids' order with random values. Closes the store."""
    store = open_store(url)
    try:
        datastore = Datastore(store)
        datastore.prepare(deadline=time.monotonic() + _CALL_SECONDS)
        source = mutations(kind, count)
        for start in range(0, count, _AT_ONCE):
            batch = [each for each, _ in zip(source, range(min(_AT_ONCE, count - start)), strict=False)]
            datastore.write(batch, None, deadline=time.monotonic() + _CALL_SECONDS)
            on_progress(start + len(batch))
    finally:
        store.close()


def mutations(kind: bytes, count: int) -> Iterator[Mutation]:
    randomly = random.Random(5)
    for number in range(1, count + 1):
        proto = entity(kind, number, randomly)
        key = keys.from_reference(proto.key)
        yield Mutation(key, entities.build(key, proto, proto.SerializeToString()))


def entity(kind: bytes, identifier: int | bytes, randomly: random.Random) -> EntityProto:
    """A root entity of three indexed integers."""
    proto = EntityProto(key=data.reference(kind, identifier))
    proto.entity_group.element.append(proto.key.path.element[0])
    for name, values in ((b"value", RANGE), (b"first", VALUES), (b"second", VALUES)):
        proto.property.add(name=name, multiple=False).value.int64_value = randomly.randrange(values)
    return proto
