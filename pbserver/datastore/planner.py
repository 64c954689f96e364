"""From a query to a plan: which index rows are read, in which order, and what must still be checked. Pure functions.

Served by one scan, with the cost of the rows returned: key lookup, kindless, kind and ancestor queries; one property
compared or ordered; equality of one property, with ancestor or key range. Everything else reads the narrowest of
those scans, checks each entity, and sorts in memory where the scan's order is not the query's.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from adapters.contract import KeyRange, Table, after_prefix
from pbserver.datastore.entities import property_prefix
from pbserver.datastore.queries import KEY_NAME, Filter, Op, Position, Query
from pbserver.datastore.ranges import Ascending, Descending, Place, RowSource, ValueDescending
from pbserver.datastore.tables import KIND_ROW


class Bounds(NamedTuple):
    """Half-open range of encoded values or paths; None: open."""

    low: bytes
    high: bytes | None

    def contains(self, value: bytes) -> bool:
        return value >= self.low and (self.high is None or value < self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`check`: entities must be decoded and tested. `sort`: the scan's order is not the query's.

    `distinct_in`: an entity may have several rows in the scan; only its first one in this range of values counts.
    """

    query: Query
    source: RowSource
    prefix: bytes  #: how every row of the scan begins, up to the value (or path) the order compares
    check: bool = False
    sort: bool = False
    distinct_in: Bounds | None = None
    descending: bool = False


def plan(query: Query) -> Plan:
    """The plan for a normalized query."""
    names = {each.name for each in query.filters} | {order.name for order in query.orders}
    names.discard(KEY_NAME)
    if query.projection:
        return _projection(query, names)
    equalities = [each for each in query.filters if each.op is Op.EQUAL and each.name != KEY_NAME]
    if not names:
        return _key_scan(query)
    if len(equalities) == 1 and len(names) == 1 and query.inequality in (None, KEY_NAME):
        return _equality_scan(query, equalities[0])
    if not equalities and len(names) == 1 and query.ancestor is None and _fits_value_order(query):
        return _value_scan(query, names.pop())
    return _checked_scan(query, equalities)


def _projection(query: Query, names: set[bytes]) -> Plan:
    """Of one property, its index holds all there is to say; of several, their entities' values are combined."""
    equalities = [each for each in query.filters if each.op is Op.EQUAL and each.name != KEY_NAME]
    if len(names) == 1 and query.ancestor is None and _fits_value_order(query):
        return replace(_value_scan(query, names.pop()), distinct_in=None)
    if equalities:
        return _equality_scan(query, equalities[0], check=True, sort=True)
    return _key_scan(query, check=True, sort=True)


def _fits_value_order(query: Query) -> bool:
    """Whether orders are (value, key) as one scan gives them, and no filter is on the key."""
    if any(each.name == KEY_NAME for each in query.filters) or len(query.orders) != 2:
        return False
    value, key = query.orders
    return not key.descending or value.descending


def _checked_scan(query: Query, equalities: list[Filter]) -> Plan:
    by_key = len(query.orders) == 1
    if equalities:
        return _equality_scan(query, equalities[0], check=True, sort=not by_key)
    if query.ancestor is not None or query.inequality in (None, KEY_NAME):
        return _key_scan(query, check=True, sort=not by_key)
    return _value_scan(query, query.inequality, check=True, sort=True)


def _key_scan(query: Query, *, check: bool = False, sort: bool = False) -> Plan:
    prefix = b"" if query.kind is None else KIND_ROW
    return _by_key(query, prefix, check=check, sort=sort)


def _equality_scan(query: Query, equality: Filter, *, check: bool = False, sort: bool = False) -> Plan:
    prefix = property_prefix(equality.name) + equality.value
    return _by_key(query, prefix, check=check, sort=sort)


def _by_key(query: Query, prefix: bytes, *, check: bool, sort: bool) -> Plan:
    """Rows that differ in their path only."""
    table = Table.KINDLESS if query.kind is None else Table.INDEXES
    scope = query.partition + (query.kind or b"")
    low, high = key_bounds(query)
    start = prefix + low
    stop = after_prefix(prefix) if high is None else prefix + high
    descending = query.orders[-1].descending and not sort
    if not sort:
        start, stop = _cut(start, stop, _end_place(prefix, query.end), descending=descending)
    source = (Descending if descending else Ascending)(table, scope, KeyRange(start, stop))
    return Plan(query=query, source=source, prefix=prefix, check=check, sort=sort, descending=descending)


def _value_scan(query: Query, name: bytes, *, check: bool = False, sort: bool = False) -> Plan:
    prefix = property_prefix(name)
    scope = query.partition + (query.kind or b"")
    bounds = value_bounds(query, name)
    start = prefix + bounds.low
    stop = after_prefix(prefix) if bounds.high is None else prefix + bounds.high
    descending = query.orders[0].descending and not sort
    end = None if sort else _end_place(prefix, query.end)
    source: RowSource
    if descending and not query.orders[-1].descending:
        if end is not None:
            run = prefix + (query.end.values[0] if query.end else b"")
            start = max(start, run)
        source = ValueDescending(Table.INDEXES, scope, KeyRange(start, stop), end)
    else:
        start, stop = _cut(start, stop, end, descending=descending)
        source = (Descending if descending else Ascending)(Table.INDEXES, scope, KeyRange(start, stop))
    return Plan(
        query=query,
        source=source,
        prefix=prefix,
        check=check,
        sort=sort,
        distinct_in=bounds,
        descending=descending,
    )


def _cut(start: bytes, stop: bytes | None, end: Place | None, *, descending: bool) -> tuple[bytes, bytes | None]:
    """The range up to the query's end cursor."""
    if end is None:
        return start, stop
    if descending:
        return max(start, end.key), stop
    return start, end.stop if stop is None else min(stop, end.stop)


def _end_place(prefix: bytes, end: Position | None) -> Place | None:
    """The end cursor as the last row that still belongs to the results (inclusive), or the first that does not."""
    return None if end is None else Place(_row_at(prefix, end), inclusive=not end.before)


def start_place(plan_: Plan) -> Place | None:
    """The start cursor as a place of the scan."""
    start = plan_.query.start
    return None if start is None else Place(_row_at(plan_.prefix, start), inclusive=start.before)


def _row_at(prefix: bytes, position: Position) -> bytes:
    return prefix + b"".join(position.values) + position.path


def key_bounds(query: Query) -> Bounds:
    """The paths that ancestor and `__key__` filters allow."""
    low, high = b"", None
    if query.ancestor is not None:
        low, high = query.ancestor.path, after_prefix(query.ancestor.path)
    for name, op, path in query.filters:
        if name == KEY_NAME:
            low, high = _narrow(low, high, op, path, path + b"\x00")
    return Bounds(low, high)


def value_bounds(query: Query, name: bytes) -> Bounds:
    """The values that the inequality filters on `name` allow. A value is no prefix of another."""
    low, high = b"", None
    for each in query.filters:
        if each.name == name and each.op is not Op.EQUAL:
            low, high = _narrow(low, high, each.op, each.value, after_prefix(each.value) or b"")
    return Bounds(low, high)


def _narrow(low: bytes, high: bytes | None, op: Op, value: bytes, following: bytes) -> tuple[bytes, bytes | None]:
    """The range narrowed by one comparison; `following` is the first thing behind everything equal to `value`."""
    if op in (Op.GREATER, Op.GREATER_OR_EQUAL, Op.EQUAL):
        low = max(low, following if op is Op.GREATER else value)
    if op in (Op.LESS, Op.LESS_OR_EQUAL, Op.EQUAL):
        bound = value if op is Op.LESS else following
        high = bound if high is None else min(high, bound)
    return low, high
