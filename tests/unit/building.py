"""Short ways to write keys, entities and queries in unit tests."""

from typing import Any

from pbserver.datastore import entities, keys
from pbserver.datastore.building import Builder
from pbserver.datastore.composites import Definition
from pbserver.datastore.entities import Entity
from pbserver.datastore.keys import Key
from pbserver.datastore.queries import Filter, Op, Order, Query, normalize
from pbserver.datastore.values import encode
from protos.entity_pb2 import EntityProto, PropertyValue, Reference

APP = b"s~unit"
FAR = 1e12  #: a deadline that never comes


def reference(*path: tuple[bytes, int | bytes | None], app: bytes = APP, namespace: bytes = b"") -> Reference:
    made = Reference(app=app)
    if namespace:
        made.name_space = namespace
    for kind, identifier in path:
        element = made.path.element.add(type=kind)
        if isinstance(identifier, int):
            element.id = identifier
        elif identifier is not None:
            element.name = identifier
    return made


def key(*path: tuple[bytes, int | bytes | None], namespace: bytes = b"") -> Key:
    return keys.from_reference(reference(*path, namespace=namespace))


def value(content: Any) -> PropertyValue:
    made = PropertyValue()
    if isinstance(content, bool):
        made.boolean_value = content
    elif isinstance(content, int):
        made.int64_value = content
    elif isinstance(content, float):
        made.double_value = content
    elif isinstance(content, bytes):
        made.string_value = content
    elif isinstance(content, tuple):
        made.pointvalue.x, made.pointvalue.y = content
    elif isinstance(content, Reference):
        made.referencevalue.app = content.app
        made.referencevalue.name_space = content.name_space
        for element in content.path.element:
            added = made.referencevalue.pathelement.add(type=element.type)
            if element.HasField("id"):
                added.id = element.id
            else:
                added.name = element.name
    return made


def proto(at: Reference, **properties: Any) -> EntityProto:
    """A list makes a property with several values."""
    made = EntityProto(key=at)
    made.entity_group.element.append(at.path.element[0])
    for name, contents in properties.items():
        several = isinstance(contents, list)
        for content in contents if several else [contents]:
            made.property.add(name=name.encode(), multiple=several, value=value(content))
    return made


def entity(at: Reference, **properties: Any) -> Entity:
    made = proto(at, **properties)
    return entities.build(keys.from_reference(at), made, made.SerializeToString())


def query(
    kind: bytes | None = b"K",
    filters: list[tuple[bytes, Op, Any]] | None = None,
    orders: list[tuple[bytes, bool]] | None = None,
    ancestor: Key | None = None,
) -> Query:
    return normalize(
        Query(
            partition=keys.partition(APP, b"", b""),
            kind=None if kind is None else keys.encode_kind(kind),
            ancestor=ancestor,
            filters=tuple(
                Filter(name, op, content if name == b"__key__" else encode(value(content)))
                for name, op, content in filters or []
            ),
            orders=tuple(Order(name, descending) for name, descending in orders or []),
        )
    )


def definition(*properties: tuple[bytes, bool], kind: bytes = b"K", ancestor: bool = False) -> Definition:
    """Of an index of properties, each with whether it descends."""
    return Definition(keys.encode_kind(kind), ancestor, tuple(Order(*each) for each in properties))


def finish_indexes(builder: Builder) -> int:
    """Builds and removes all there is to be built and removed; how many steps that took."""
    steps = 0
    while unfinished := builder.unfinished(deadline=FAR):
        for work in unfinished:
            steps += 1
            while builder.step(work, deadline=FAR):
                steps += 1
    return steps
