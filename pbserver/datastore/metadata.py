"""The pseudo-kinds `__kind__`, `__namespace__`, `__property__` and `__entity_group__`, made up when they are asked for.

Table `kinds` says which namespaces and kinds ever had an entity; whether one has now, its kind rows say. Properties
and their types are found by leaping through the kind's indexes: the cost is that of what there is to tell, not that
of the data.
"""

from collections.abc import Callable, Iterator

from adapters.contract import KeyRange, Reader, Table, after_prefix
from pbserver.datastore import entities, keys, made_up, tables, values
from pbserver.datastore.encoding import integer, read_text, text
from pbserver.datastore.entities import Entity
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.made_up import MadeUp
from pbserver.datastore.planner import key_bounds
from pbserver.datastore.queries import KEY_NAME, Order, Query

_PAGE = 1000

_KIND = text(b"__kind__")
_NAMESPACE = text(b"__namespace__")
_PROPERTY = text(b"__property__")
_ENTITY_GROUP = text(b"__entity_group__")

#: How types are called in `property_representation`, in the order they sort.
_REPRESENTATIONS = [
    (values.NULL, b"NULL"),
    (values.INTEGER, b"INT64"),
    (values.BOOLEAN, b"BOOLEAN"),
    (values.STRING, b"STRING"),
    (values.DOUBLE, b"DOUBLE"),
    (values.POINT, b"POINT"),
    (values.USER, b"USER"),
    (values.KEY, b"REFERENCE"),
]


def is_pseudo(kind: bytes | None) -> bool:
    return kind in _MAKERS or kind == _ENTITY_GROUP


def check(query: Query, *, in_transaction: bool) -> None:
    """Raises BadRequest for what cannot be asked of a pseudo-kind."""
    kind = read_text(query.kind or b"\x00", 0)[0].decode()
    if in_transaction:
        raise BadRequest(f'transactional queries on "{kind}" not allowed')
    if query.kind == _ENTITY_GROUP:
        raise BadRequest(f"queries not supported on {kind}")
    if query.ancestor is not None and query.kind != _PROPERTY:
        raise BadRequest(f"ancestor queries on {kind} not allowed")
    if query.projection or any(each.name != KEY_NAME for each in query.filters):
        raise BadRequest(f"Only comparison filters on {KEY_NAME.decode()} supported")
    if query.orders != (Order(KEY_NAME, descending=False),):
        raise BadRequest(f"Only ascending order on {KEY_NAME.decode()} supported")
    named = [each.value for each in query.filters] + ([query.ancestor.path] if query.ancestor else [])
    if not all(map(_NAMEABLE[query.kind or b""], named)):
        raise BadRequest(f"invalid Key for {kind} table")


def _names_kind(path: bytes) -> bool:
    return _shape(path) == [(b"__kind__", bytes)]


def _names_namespace(path: bytes) -> bool:
    return path == _NAMESPACE + keys.ID + integer(1) or _shape(path) == [(b"__namespace__", bytes)]


def _names_property(path: bytes) -> bool:
    return _names_kind(path) or _shape(path) == [(b"__kind__", bytes), (b"__property__", bytes)]


def _shape(path: bytes) -> list[tuple[bytes, type]]:
    return [(kind, type(identifier)) for kind, identifier in keys.decode_path(path)]


_NAMEABLE: dict[bytes, Callable[[bytes], bool]] = {
    _KIND: _names_kind,
    _NAMESPACE: _names_namespace,
    _PROPERTY: _names_property,
}


def results(query: Query, reader: Reader, deadline: float) -> MadeUp:
    """All entities of a checked query's pseudo-kind that its filters allow."""
    bounds = key_bounds(query)
    found = _MAKERS[query.kind or b""](query, reader, deadline)
    return MadeUp(_entity(query.partition, path, names) for path, names in found if bounds.contains(path))


def _entity(partition: bytes, path: bytes, representations: list[bytes]) -> Entity:
    proto = made_up.entity(partition, path)
    for each in representations:
        proto.property.add(name=b"property_representation", multiple=True).value.string_value = each
    return made_up.finished(proto)


def _kinds(query: Query, reader: Reader, deadline: float) -> Iterator[tuple[bytes, list[bytes]]]:
    for kind in live_kinds(reader, query.partition, deadline):
        yield _KIND + keys.NAME + kind, []


def _namespaces(query: Query, reader: Reader, deadline: float) -> Iterator[tuple[bytes, list[bytes]]]:
    for namespace in live_namespaces(reader, keys.project_of(query.partition), deadline):
        yield _NAMESPACE + (keys.NAME + text(namespace) if namespace else keys.ID + integer(1)), []


def _properties(query: Query, reader: Reader, deadline: float) -> Iterator[tuple[bytes, list[bytes]]]:
    for kind in live_kinds(reader, query.partition, deadline):
        scope = query.partition + kind
        for name in _property_names(reader, scope, deadline):
            found = [] if query.keys_only else _types(reader, scope, name, deadline)
            yield _KIND + keys.NAME + kind + _PROPERTY + keys.NAME + name, found


def _property_names(reader: Reader, scope: bytes, deadline: float) -> Iterator[bytes]:
    """The (encoded) names of the kind's indexed properties, in order."""
    stop = after_prefix(tables.PROPERTY_ROW)
    at = tables.PROPERTY_ROW
    while rows := reader.scan(Table.INDEXES, scope, KeyRange(at, stop), limit=1, deadline=deadline):
        end = read_text(rows[0][0], 1)[1]
        yield rows[0][0][1:end]
        at = after_prefix(rows[0][0][:end]) or b""


def _types(reader: Reader, scope: bytes, name: bytes, deadline: float) -> list[bytes]:
    prefix = tables.PROPERTY_ROW + name
    return [
        shown
        for tag, shown in _REPRESENTATIONS
        if reader.scan(
            Table.INDEXES, scope, KeyRange(prefix + tag, after_prefix(prefix + tag)), limit=1, deadline=deadline
        )
    ]


_MAKERS: dict[bytes, Callable[[Query, Reader, float], Iterator[tuple[bytes, list[bytes]]]]] = {
    _KIND: _kinds,
    _NAMESPACE: _namespaces,
    _PROPERTY: _properties,
}


def live_kinds(reader: Reader, partition: bytes, deadline: float) -> Iterator[bytes]:
    """The (encoded) kinds that have entities in a partition, in order."""
    namespace = text(keys.partition_names(partition)[2])
    for key in _known(reader, keys.project_of(partition), namespace, deadline):
        kind = key[len(namespace) :]
        if has_entities(reader, partition + kind, deadline):
            yield kind


def live_namespaces(reader: Reader, project: bytes, deadline: float) -> Iterator[bytes]:
    """The namespaces of a project that have entities, in order."""
    app, database, _ = keys.partition_names(project)
    last = None
    for key in _known(reader, project, b"", deadline):
        namespace, end = read_text(key, 0)
        if namespace != last and has_entities(reader, keys.partition(app, database, namespace) + key[end:], deadline):
            last = namespace
            yield namespace


def partitions_of_kind(reader: Reader, project: bytes, kind: bytes, deadline: float) -> Iterator[bytes]:
    """The partitions in which an (encoded) kind ever had an entity, in order of their namespaces."""
    app, database, _ = keys.partition_names(project)
    for key in _known(reader, project, b"", deadline):
        namespace, end = read_text(key, 0)
        if key[end:] == kind:
            yield keys.partition(app, database, namespace)


def _known(reader: Reader, project: bytes, prefix: bytes, deadline: float) -> Iterator[bytes]:
    start, stop = prefix, after_prefix(prefix)
    while True:
        rows = reader.scan(Table.KINDS, project, KeyRange(start, stop), limit=_PAGE, deadline=deadline)
        yield from (key for key, _ in rows)
        if len(rows) < _PAGE:
            return
        start = rows[-1][0] + b"\x00"


def has_entities(reader: Reader, scope: bytes, deadline: float) -> bool:
    """Whether there is an entity in a scope of table `indexes`."""
    keys_ = KeyRange(tables.KIND_ROW, after_prefix(tables.KIND_ROW))
    return bool(reader.scan(Table.INDEXES, scope, keys_, limit=1, deadline=deadline))


def is_entity_group(key: Key) -> bool:
    """Whether a key asks for the version of its entity group."""
    return key.kind == _ENTITY_GROUP


def entity_group(key: Key, slot: int) -> bytes | None:
    """The stored form of a group's `__entity_group__` entity, whose `__version__` grows with every commit."""
    if _shape(key.path)[1:] != [(b"__entity_group__", int)] or not key.path.endswith(integer(1)):
        return None
    proto = made_up.entity(key.partition, key.path)
    proto.property.add(name=b"__version__", multiple=False).value.int64_value = slot
    return entities.frame(proto.SerializeToString(), slot)
