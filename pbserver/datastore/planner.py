"""From a query to a plan: which index rows are read, in which order, and what must still be checked. Pure functions.

Exact plans cost what their rows cost: key lookup, kindless, kind and ancestor queries; one property compared or
ordered; equalities, alone or with ancestor or key range (one scan, or a merge join of several); whatever composite
indexes serve, alone or joined. Everything else reads the narrowest of those ranges, checks each entity, and sorts in
memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapters.contract import KeyRange, Table, after_prefix
from pbserver.datastore import values
from pbserver.datastore.composites import Composite, State, ancestor_prefix
from pbserver.datastore.encoding import inverted
from pbserver.datastore.entities import property_prefix
from pbserver.datastore.joins import MergeJoin
from pbserver.datastore.queries import KEY_NAME, Filter, Op, Order, Position, Query
from pbserver.datastore.ranges import Ascending, Descending, Place, RowSource, ValueDescending, run_place
from pbserver.datastore.tables import KIND_ROW


class Bounds(NamedTuple):
    """Half-open range of encoded values or paths; None: open."""

    low: bytes
    high: bytes | None

    def contains(self, value: bytes) -> bool:
        return value >= self.low and (self.high is None or value < self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A row is `prefix`, the values of the query's order (each turned round where `turned` says so), the path.

    `sort`: the source gives more than the results, in another order: entities are read, tested and sorted.
    `distinct`: an entity may have several rows; only its first one counts.
    """

    query: Query
    source: RowSource
    prefix: bytes
    turned: tuple[bool, ...] = ()  #: empty: none
    sort: bool = False
    distinct: bool = False


def plan(query: Query, composites: Sequence[Composite] = ()) -> Plan:
    """The plan for a normalized query; `composites` are the indexes of its kind."""
    return _exact(query, [each for each in composites if each.state is State.SERVING]) or _sorted(query)


def _exact(query: Query, composites: Sequence[Composite]) -> Plan | None:
    equalities = query.equalities
    if len(query.orders) == 1:
        return _by_key(query, _equality_prefixes(equalities, composites))
    if not equalities and query.ancestor is None and _fits_value_order(query):
        return _value_scan(query, query.orders[0].name)
    return _by_composites(query, composites)


def _fits_value_order(query: Query) -> bool:
    """Whether orders are (value, key) as one scan gives them, and no filter is on the key."""
    if any(each.name == KEY_NAME for each in query.filters) or len(query.orders) != 2:
        return False
    value, key = query.orders
    return value.name != KEY_NAME and (not key.descending or value.descending)


def _sorted(query: Query) -> Plan:
    """The narrowest range that holds all results."""
    if query.equalities:
        return _by_key(query, _equality_prefixes(query.equalities, ()), sort=True)
    if query.ancestor is not None or query.inequality in (None, KEY_NAME):
        return _by_key(query, [], sort=True)
    return _value_scan(query, query.inequality, sort=True)


def _equality_prefixes(equalities: Sequence[Filter], composites: Sequence[Composite]) -> list[bytes]:
    """Prefixes of ranges that together hold the filters, with nothing but the path behind them."""
    keyed = [each for each in composites if not each.definition.ancestor and not each.definition.key_descending]
    cover = _cover(equalities, [_Candidate(each, len(each.definition.values)) for each in keyed], None)
    return cover.prefixes + [property_prefix(each.name) + each.value for each in cover.left]


class _Candidate(NamedTuple):
    """An index, and how many of its properties stand in the prefix, compared by equality."""

    composite: Composite
    width: int


class _Cover(NamedTuple):
    """Ranges that share what follows their prefixes; the filters no range holds; whether one holds the ancestor."""

    prefixes: list[bytes]
    left: list[Filter]
    ancestor: bool


def _cover(equalities: Sequence[Filter], candidates: Iterable[_Candidate], ancestor: bytes | None) -> _Cover:
    """Takes candidates, the one that holds most first, as long as each adds something."""
    left = list(equalities)
    prefixes: list[bytes] = []
    pinned = ancestor is None
    for composite, width in sorted(candidates, key=lambda each: -each.width - each.composite.definition.ancestor):
        definition = composite.definition
        while True:
            chosen = [_one_of(left, name) or _one_of(equalities, name) for name, _ in definition.values[:width]]
            filters = [each for each in chosen if each is not None]
            added = [each for each in left if each in filters]
            pins = definition.ancestor and not pinned
            if len(filters) < width or not (added or pins or not prefixes):
                break
            prefixes.append(_composite_prefix(composite, filters, ancestor))
            left = [each for each in left if each not in added]
            pinned = pinned or definition.ancestor
    return _Cover(prefixes, left, pinned)


def _one_of(filters: Sequence[Filter], name: bytes) -> Filter | None:
    return next((each for each in filters if each.name == name), None)


def _composite_prefix(composite: Composite, equalities: Sequence[Filter], ancestor: bytes | None) -> bytes:
    definition = composite.definition
    pieces = [composite.prefix]
    if definition.ancestor and ancestor is not None:
        pieces.append(ancestor_prefix(ancestor))
    for order, each in zip(definition.values, equalities, strict=False):
        turned = order.descending != definition.key_descending
        pieces.append(inverted(each.value) if turned else each.value)
    return b"".join(pieces)


def _by_composites(query: Query, composites: Iterable[Composite]) -> Plan | None:
    """A scan or join of indexes that end in just the query's order."""
    *compared, key = query.orders
    names = {order.name for order in compared}
    fixed = {each.name for each in query.equalities}
    if KEY_NAME in names or names & fixed or any(each.name == KEY_NAME for each in query.filters):
        return None
    candidates = [
        _Candidate(each, len(each.definition.values) - len(compared))
        for each in composites
        if _ends_in(each, compared, key) and (query.ancestor is not None or not each.definition.ancestor)
    ]
    cover = _cover(query.equalities, candidates, query.ancestor.path if query.ancestor else None)
    if not cover.prefixes or cover.left or not cover.ancestor:
        return None
    turned = tuple(order.descending != key.descending for order in compared)
    suffixes = KeyRange()
    if query.inequality is not None:
        suffixes = KeyRange(*value_bounds(query, query.inequality, turned=turned[0]))
    return _scan(query, cover.prefixes, suffixes, key.descending, turned=turned, distinct=not query.projection)


def _ends_in(composite: Composite, compared: Sequence[Order], key: Order) -> bool:
    definition = composite.definition
    return definition.values[-len(compared) :] == tuple(compared) and definition.key_descending == key.descending


def _by_key(query: Query, prefixes: Sequence[bytes], *, sort: bool = False) -> Plan:
    """Rows that differ in their path only."""
    descending = query.orders[-1].descending and not sort
    whole = b"" if query.kind is None else KIND_ROW
    return _scan(query, prefixes or [whole], KeyRange(*key_bounds(query)), descending, sort=sort)


def _scan(
    query: Query,
    prefixes: Sequence[bytes],
    suffixes: KeyRange,
    descending: bool,
    *,
    turned: tuple[bool, ...] = (),
    sort: bool = False,
    distinct: bool = False,
) -> Plan:
    """Ranges with the same suffixes, up to the query's end cursor."""
    table = Table.KINDLESS if query.kind is None else Table.INDEXES
    scope = query.partition + (query.kind or b"")
    start, stop = suffixes
    if query.end is not None and not sort:
        end = _boundary(query.end, turned, descending)
        if descending:
            start = max(start, end.stop)
        else:
            stop = end.key if stop is None else min(stop, end.key)
    prefix = prefixes[0]
    source: RowSource
    if len(prefixes) > 1:
        source = MergeJoin(table, scope, tuple(prefixes), KeyRange(start, stop), descending)
    else:
        keys = KeyRange(prefix + start, after_prefix(prefix) if stop is None else prefix + stop)
        source = (Descending if descending else Ascending)(table, scope, keys)
    return Plan(query=query, source=source, prefix=prefix, turned=turned, sort=sort, distinct=distinct)


def _value_scan(query: Query, name: bytes | None, *, sort: bool = False) -> Plan:
    """The rows of one property's index whose values the inequality filters allow."""
    assert name is not None
    suffixes = KeyRange(*value_bounds(query, name))
    prefix = property_prefix(name)
    descending = query.orders[0].descending and not sort
    distinct = not sort and not query.projection
    if not descending or query.orders[-1].descending:
        return _scan(query, [prefix], suffixes, descending, sort=sort, distinct=distinct)
    start, stop = prefix + suffixes.start, after_prefix(prefix) if suffixes.stop is None else prefix + suffixes.stop
    if query.end is not None:
        start = max(start, prefix + query.end.values[0])
    source = ValueDescending(Table.INDEXES, query.partition + (query.kind or b""), KeyRange(start, stop))
    made = Plan(query=query, source=source, prefix=prefix, distinct=distinct)
    if query.end is None:
        return made
    end = place_of(made, query.end)
    return replace(made, source=replace(source, end=Place(end.row, not end.inclusive)))


def place_of(plan_: Plan, position: Position) -> Place:
    """A position as a place among the plan's rows. One without a path stands before or behind all with its values."""
    row = plan_.prefix + _suffix(position, plan_.turned)
    if position.path:
        return Place(row, inclusive=position.before)
    return plan_.source.run(row, behind=not position.before)


def _boundary(position: Position, turned: tuple[bool, ...], descending: bool) -> Place:
    """place_of() among suffixes."""
    row = _suffix(position, turned)
    if position.path:
        return Place(row, inclusive=position.before)
    return run_place(row, behind=not position.before, descending=descending)


def _suffix(position: Position, turned: tuple[bool, ...]) -> bytes:
    if any(turned):
        pieces = [inverted(value) if turn else value for value, turn in zip(position.values, turned, strict=False)]
        return b"".join(pieces) + position.path
    return b"".join(position.values) + position.path


def read_row(plan_: Plan, row: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """The values of the query's order and the path in a row's key."""
    at = 0 if plan_.sort else len(plan_.prefix)
    turned = () if plan_.sort else plan_.turned
    ordered = []
    upside_down = inverted(row) if any(turned) else row
    for index in range(len(plan_.query.ordered_names)):
        written = upside_down if turned and turned[index] else row
        end = values.size(written, at)
        ordered.append(written[at:end])
        at = end
    return tuple(ordered), row[at:]


def key_bounds(query: Query) -> Bounds:
    """The paths that ancestor and `__key__` filters allow."""
    low, high = b"", None
    if query.ancestor is not None:
        low, high = query.ancestor.path, after_prefix(query.ancestor.path)
    for name, op, path in query.filters:
        if name == KEY_NAME:
            low, high = _narrow(low, high, op, path, path + b"\x00")
    return Bounds(low, high)


_OPPOSITE = {
    Op.LESS: Op.GREATER,
    Op.LESS_OR_EQUAL: Op.GREATER_OR_EQUAL,
    Op.GREATER: Op.LESS,
    Op.GREATER_OR_EQUAL: Op.LESS_OR_EQUAL,
}


def value_bounds(query: Query, name: bytes, *, turned: bool = False) -> Bounds:
    """The values, or those turned round, that the inequality filters on `name` allow. None is another's prefix."""
    low, high = b"", None
    for each in query.filters:
        if each.name == name and each.op is not Op.EQUAL:
            op, value = (_OPPOSITE[each.op], inverted(each.value)) if turned else (each.op, each.value)
            low, high = _narrow(low, high, op, value, after_prefix(value) or b"")
    return Bounds(low, high)


def _narrow(low: bytes, high: bytes | None, op: Op, value: bytes, following: bytes) -> tuple[bytes, bytes | None]:
    """The range narrowed by one comparison; `following` is the first thing behind everything equal to `value`."""
    if op in (Op.GREATER, Op.GREATER_OR_EQUAL, Op.EQUAL):
        low = max(low, following if op is Op.GREATER else value)
    if op in (Op.LESS, Op.LESS_OR_EQUAL, Op.EQUAL):
        bound = value if op is Op.LESS else following
        high = bound if high is None else min(high, bound)
    return low, high
