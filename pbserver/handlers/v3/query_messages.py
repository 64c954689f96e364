"""Query messages <-> pbserver.datastore.queries: what is asked, and the cursors of what was found."""

from dataclasses import replace

from pbserver.datastore import cursors, keys, values
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.queries import KEY_NAME, Filter, Op, Order, Position, Query, normalize
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import IndexPostfix, PropertyValue

_OPERATORS = {op.value: op for op in Op}
_OF_NO_NAMESPACE = b"__namespace__"  # its entities have the default namespace, wherever they are asked for
_IN = v3.Query.Filter.IN


def to_query(message: v3.Query) -> Query:
    """The normalized query. Raises BadRequest for what is illegal or not supported."""
    _check_supported(message)
    namespace = b"" if message.kind == _OF_NO_NAMESPACE else message.name_space
    partition = keys.partition(message.app, message.database_id, namespace)
    query = normalize(
        Query(
            partition=partition,
            kind=keys.encode_kind(message.kind) if message.HasField("kind") else None,
            ancestor=_ancestor(message, partition),
            filters=tuple(_to_filter(each, message) for each in message.filter),
            orders=tuple(Order(each.property, each.direction == v3.Query.Order.DESCENDING) for each in message.order),
            keys_only=message.keys_only,
            projection=tuple(message.property_name),
            group_by=frozenset(message.group_by_property_name or (message.property_name if message.distinct else ())),
        )
    )
    return replace(
        query,
        start=_position(message.compiled_cursor, query) if message.HasField("compiled_cursor") else None,
        end=_position(message.end_compiled_cursor, query) if message.HasField("end_compiled_cursor") else None,
    )


def _check_supported(message: v3.Query) -> None:
    if message.search_query or message.shallow:
        raise BadRequest("search and shallow queries are not supported")
    for name in ("offset", "limit", "count"):
        if getattr(message, name) < 0:
            raise BadRequest(f"{name} must not be negative; it is {getattr(message, name)}")
    if message.HasField("transaction") and not message.HasField("ancestor"):
        raise BadRequest("Only ancestor queries are allowed inside transactions.")


def _ancestor(message: v3.Query, partition: bytes) -> keys.Key | None:
    if not message.HasField("ancestor"):
        return None
    ancestor = keys.from_reference(message.ancestor)
    if ancestor.partition != partition:
        what = "app" if message.ancestor.app != message.app else "namespace"
        mine = message.app if what == "app" else message.name_space
        other = message.ancestor.app if what == "app" else message.ancestor.name_space
        raise BadRequest(
            f"query {what} is {mine.decode(errors='replace')} but ancestor {what} is {other.decode(errors='replace')}"
        )
    return ancestor


def _to_filter(message: v3.Query.Filter, query: v3.Query) -> Filter:
    if len(message.property) != 1:
        raise BadRequest(f"Filter has {len(message.property)} properties, expected 1")
    op = Op.EQUAL if message.op == _IN else _OPERATORS.get(message.op)
    if op is None:
        raise BadRequest(f"filter operator {v3.Query.Filter.Operator.Name(message.op)} is not supported")
    prop = message.property[0]
    if prop.name == KEY_NAME:
        return Filter(KEY_NAME, op, _key_value(prop.value, query))
    if prop.value.HasField("uservalue"):
        values.name_user(prop.value.uservalue)
    return Filter(prop.name, op, values.encode(prop.value, prop.name))


def _key_value(value: PropertyValue, query: v3.Query) -> bytes:
    if not value.HasField("referencevalue"):
        raise BadRequest("__key__ filter value must be a Key")
    reference = value.referencevalue
    for what, mine, other in (
        ("app", query.app, reference.app),
        ("namespace", query.name_space, reference.name_space),
    ):
        if mine != other:
            raise BadRequest(
                f"__key__ filter {what} is {other.decode(errors='replace')} "
                f"but query {what} is {mine.decode(errors='replace')}"
            )
    if not reference.pathelement:
        raise BadRequest("__key__ filter: the key's path cannot be empty")
    return b"".join(map(keys.encode_element, reference.pathelement))


def _position(cursor: v3.CompiledCursor, query: Query) -> Position | None:
    """The cursor's place; None for an empty cursor, which stands before everything."""
    if cursor.HasField("absolute_position"):
        raise BadRequest("cursors with an absolute position are not supported")
    if cursor.HasField("postfix_position"):
        return cursors.decode(cursor.postfix_position, query)
    if not cursor.HasField("position"):
        return None
    old = cursor.position
    postfix = IndexPostfix(before=old.start_inclusive)
    for each in old.indexvalue:
        postfix.index_value.add(property_name=each.property, value=each.value)
    if old.HasField("key"):
        postfix.key.CopyFrom(old.key)
    if old.HasField("before_ascending"):
        postfix.before_ascending = old.before_ascending
    return cursors.decode(postfix, query)


def set_cursor(into: v3.CompiledCursor, place: Position | None, query: Query) -> None:
    """Sets a compiled cursor; None leaves it empty: before everything."""
    into.SetInParent()
    if place is not None:
        cursors.encode(place, query, into.postfix_position)
