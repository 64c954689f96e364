"""A query as the Datastore understands it: checked, and with every implicit order spelled out.

The rules and their wording are those of the SDK's own stub, which is how applications know them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key

KEY_NAME = b"__key__"
MAX_COMPONENTS = 100


class Op(Enum):
    """A comparison; the values are the wire's."""

    LESS = 1
    LESS_OR_EQUAL = 2
    GREATER = 3
    GREATER_OR_EQUAL = 4
    EQUAL = 5


class Filter(NamedTuple):
    """`value` is encoded as in an index row; for `__key__` it is the encoded path."""

    name: bytes
    op: Op
    value: bytes


class Order(NamedTuple):
    name: bytes
    descending: bool


class Position(NamedTuple):
    """A place between two results: the values of the ordered properties, in their order, and the path.

    `before`: it stands before the result with these values, else after it. In a query with groups it has the values
    grouped by only, and no path: it stands before or after all results that have them.
    """

    values: tuple[bytes, ...]
    path: bytes
    before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """`orders` always ends with `__key__`; in a projection it may stand earlier as well. `kind`: keys.encode_kind.

    `asked_orders` are those of `orders` that the client named. `group_by` properties stand first in `orders`.
    """

    partition: bytes
    kind: bytes | None
    ancestor: Key | None
    filters: tuple[Filter, ...]
    orders: tuple[Order, ...]
    keys_only: bool = False
    projection: tuple[bytes, ...] = ()  #: not empty: results are these properties' index values, one per combination
    group_by: frozenset[bytes] = frozenset()  #: of results that agree in these projected properties only the first
    asked_orders: tuple[Order, ...] = ()
    start: Position | None = None
    end: Position | None = None

    @property
    def cursor_names(self) -> tuple[bytes, ...]:
        """The properties whose values a cursor holds, in their order."""
        return tuple(order.name for order in self.orders[: len(self.group_by)]) or self.ordered_names

    @property
    def ordered_names(self) -> tuple[bytes, ...]:
        """The properties whose values results are ordered by."""
        return tuple(order.name for order in self.orders if order.name != KEY_NAME)

    @property
    def equalities(self) -> list[Filter]:
        """The filters that compare a property by equality."""
        return [each for each in self.filters if each.op is Op.EQUAL and each.name != KEY_NAME]

    @property
    def inequality(self) -> bytes | None:
        """The one property that is compared with <, <=, > or >=."""
        return next((each.name for each in self.filters if each.op is not Op.EQUAL), None)


def normalize(query: Query) -> Query:
    """Drops orders that cannot matter and adds the implicit ones. Raises BadRequest for an illegal query.

    Projected properties are ordered by too, after the others and by name: their results come from an index of them.
    Those to group by come first.
    """
    orders = _useful_orders(query.filters, query.orders)
    _check(query, orders)
    asked = tuple(orders)
    if not orders and query.inequality is not None:
        orders = [Order(query.inequality, descending=False)]
    if query.projection:
        _add_projected(query, orders)
    if not orders or orders[-1].name != KEY_NAME:
        orders.append(Order(KEY_NAME, descending=False))
    return replace(query, orders=tuple(orders), asked_orders=asked, filters=tuple(dict.fromkeys(query.filters)))


def _add_projected(query: Query, orders: list[Order]) -> None:
    ordered = {order.name for order in orders}
    names = [*sorted(query.group_by), *sorted(set(query.projection) - query.group_by)]
    orders += [Order(name, descending=False) for name in names if name not in ordered]


def _useful_orders(filters: Sequence[Filter], orders: Sequence[Order]) -> list[Order]:
    compared = {each.name for each in filters if each.op is not Op.EQUAL}
    fixed = {each.name for each in filters if each.op is Op.EQUAL} - compared
    if KEY_NAME in fixed:
        return []
    useful: list[Order] = []
    for order in orders:
        if order.name not in fixed:
            fixed.add(order.name)
            useful.append(order)
        if order.name == KEY_NAME:
            break
    return useful


def _check(query: Query, orders: Sequence[Order]) -> None:
    if query.projection or query.group_by:
        _check_projection(query)
    components = len(query.filters) + len(orders) + (query.ancestor is not None)
    if components > MAX_COMPONENTS:
        raise BadRequest(
            f"query is too large. may not have more than {MAX_COMPONENTS} filters + sort orders ancestor total"
        )
    _check_group_by(query, orders)
    compared = list(dict.fromkeys(each.name for each in query.filters if each.op is not Op.EQUAL))
    if len(compared) > 1:
        first, second = (name.decode(errors="replace") for name in compared[:2])
        raise BadRequest(f"Only one inequality filter per query is supported. Encountered both {first} and {second}")
    if compared and orders and orders[0].name != compared[0]:
        raise BadRequest(
            "The first sort property must be the same as the property to which the inequality filter is applied.  "
            f"In your query the first sort property is {orders[0].name.decode(errors='replace')} "
            f"but the inequality filter is on {compared[0].decode(errors='replace')}"
        )
    if query.kind is None:
        _check_kindless(query, orders)


def _check_projection(query: Query) -> None:
    if query.keys_only:
        raise BadRequest("projection and keys_only cannot both be set")
    for name in query.projection:
        if name.startswith(b"__") and name.endswith(b"__"):
            shown = name.decode(errors="replace")
            raise BadRequest(f"projections are not supported for the property: {shown}")
        if any(each.name == name and each.op is Op.EQUAL for each in query.filters):
            raise BadRequest("cannot use projection on a property with an equality filter")
    if len(set(query.projection)) != len(query.projection):
        raise BadRequest("cannot project a property multiple times")
    if query.kind is None:
        raise BadRequest("kind is required for all orders except __key__ ascending")


def _check_group_by(query: Query, orders: Sequence[Order]) -> None:
    not_projected = query.group_by.difference(query.projection)
    if not_projected:
        shown = b", ".join(sorted(not_projected)).decode(errors="replace")
        raise BadRequest(f"cannot group by a property that is not projected: {shown}")
    if any(order.name not in query.group_by for order in orders[: len(query.group_by)]):
        raise BadRequest("items in the group by clause must be specified first in the ordering")
    if query.group_by and not orders and query.inequality not in (None, *query.group_by):
        name = (query.inequality or b"").decode(errors="replace")
        raise BadRequest(
            f"Inequality filter on {name} must also be a group by property when group by properties are set."
        )


def _check_kindless(query: Query, orders: Sequence[Order]) -> None:
    if any(each.name != KEY_NAME for each in query.filters):
        raise BadRequest("kind is required for non-__key__ filters")
    if any(order.name != KEY_NAME or order.descending for order in orders):
        raise BadRequest("kind is required for all orders except __key__ ascending")
