"""Cursors as clients hold them: `IndexPostfix` messages, the form the SDK's stub uses.

They name a place by values, not by position, so they stay right across restarts and changes, and mean the same in a
query of the opposite direction. `before_ascending` says on which side of its place a cursor stands in ascending
order; `before`, in the order of the query at hand.
"""

from pbserver.datastore import keys, values
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.queries import KEY_NAME, Position, Query
from protos.entity_pb2 import IndexPostfix


def decode(postfix: IndexPostfix, query: Query) -> Position:
    """The place in `query` (normalized, its cursors not yet set). Raises BadRequest for a cursor of another query."""
    wanted = [order.name for order in query.orders]
    given = {each.property_name: each.value for each in postfix.index_value}
    for name in given:
        if name not in wanted:
            raise BadRequest(f"Cursor does not match query: extra value {name.decode(errors='replace')}")
    missing = {name.decode(errors="replace") for name in wanted if name != KEY_NAME and name not in given}
    if not postfix.HasField("key"):
        missing.add(KEY_NAME.decode())
    if missing:
        raise BadRequest(f"Cursor does not match query: missing values for {missing!r}")
    key = keys.from_reference(postfix.key)
    if key.partition != query.partition:
        raise BadRequest("Cursor does not match query: it belongs to another app or namespace")
    before = postfix.before
    if postfix.HasField("before_ascending"):
        before = postfix.before_ascending != query.orders[0].descending
    ordered = tuple(values.encode(given[name], name) for name in query.ordered_names)
    return Position(ordered, key.path, before)


def encode(position: Position, query: Query, into: IndexPostfix) -> None:
    """Sets `into` to the cursor of a place in `query`."""
    into.key.CopyFrom(keys.to_reference(query.partition, position.path))
    for name, value in zip(query.ordered_names, position.values, strict=True):
        index_value = into.index_value.add(property_name=name)
        values.decode(value, 0, index_value.value)
        index_value.value.SetInParent()
    into.before = position.before
    into.before_ascending = position.before != query.orders[0].descending
