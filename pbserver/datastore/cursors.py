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
    given = {each.property_name: each.value for each in postfix.index_value}
    _check_names(postfix, query, set(given))
    path = b""
    if not query.group_by:
        key = keys.from_reference(postfix.key)
        if key.partition != query.partition:
            raise BadRequest("Cursor does not match query: it belongs to another app or namespace")
        path = key.path
    before = postfix.before
    if postfix.HasField("before_ascending"):
        before = postfix.before_ascending != query.orders[0].descending
    ordered = tuple(values.encode(given[name], name) for name in query.cursor_names)
    return Position(ordered, path, before)


def _check_names(postfix: IndexPostfix, query: Query, given: set[bytes]) -> None:
    wanted = {*query.cursor_names}
    if not query.group_by:
        wanted.add(KEY_NAME)
    if postfix.HasField("key"):
        given = given | {KEY_NAME}
    for what, names in (("extra value", given - wanted), ("missing values for", wanted - given)):
        if names:
            shown = ", ".join(sorted(name.decode(errors="replace") for name in names))
            raise BadRequest(f"Cursor does not match query: {what} {shown}")


def encode(position: Position, query: Query, into: IndexPostfix) -> None:
    """Sets `into` to the cursor of a place in `query`; where results are grouped, of the whole group's place."""
    if position.path and not query.group_by:
        into.key.CopyFrom(keys.to_reference(query.partition, position.path))
    for name, value in zip(query.cursor_names, position.values, strict=False):
        index_value = into.index_value.add(property_name=name)
        values.decode(value, 0, index_value.value)
        index_value.value.SetInParent()
    into.before = position.before
    into.before_ascending = position.before != query.orders[0].descending
