"""Tests and orders entities by a query's own terms, where no scan does it."""

from collections.abc import Callable, Iterable
from itertools import product

from pbserver.datastore import entities
from pbserver.datastore.planner import Bounds, key_bounds, value_bounds
from pbserver.datastore.queries import KEY_NAME, Op, Position, Query
from protos.entity_pb2 import EntityProto

#: An entity's place in the order: the values its ordered properties are compared by, and its path.
Item = tuple[tuple[bytes, ...], bytes]

#: An entity's encoded values, by the name of the property.
Values = dict[bytes, list[bytes]]


class Matcher:
    """A query's filters and orders, prepared for many entities."""

    def __init__(self, query: Query) -> None:
        self._paths = key_bounds(query)
        self._equal = [
            (each.name, each.value) for each in query.filters if each.op is Op.EQUAL and each.name != KEY_NAME
        ]
        self._orders = query.orders
        self._names = query.ordered_names
        self._places = [  # what each order compares
            _path_of if order.name == KEY_NAME else _value_at(self._names.index(order.name)) for order in query.orders
        ]
        self._compared = query.inequality if query.inequality != KEY_NAME else None
        self._bounds = Bounds(b"", None) if self._compared is None else value_bounds(query, self._compared)

    def matching(self, path: bytes, proto: EntityProto) -> Values | None:
        """The values of an entity that belongs to the results; None for one that does not."""
        if not self._paths.contains(path):
            return None
        found = entities.property_values(proto)
        return found if self._match(found) else None

    def _match(self, found: Values) -> bool:
        if any(value not in found.get(name, ()) for name, value in self._equal):
            return False
        if any(name not in found for name in self._names):
            return False
        return self._compared is None or any(map(self._bounds.contains, found.get(self._compared, ())))

    def order_values(self, found: Values) -> tuple[bytes, ...]:
        """What a matching entity is ordered by: of several values the first in the order's direction."""
        chosen = []
        for name, descending in self._orders:
            if name == KEY_NAME:
                continue
            candidates = found[name]
            if name == self._compared:
                candidates = [
                    value for value in candidates if self._bounds.contains(value) or (name, value) in self._equal
                ]
            chosen.append(max(candidates) if descending else min(candidates))
        return tuple(chosen)

    def all_values(self, found: Values) -> list[tuple[bytes, ...]]:
        """Every combination of values that an index of the ordered properties has a row for, and that matches."""
        columns = []
        for name in self._names:
            column = dict.fromkeys(found[name])
            wanted = [value for other, value in self._equal if other == name]
            columns.append(
                [
                    value
                    for value in column
                    if (name != self._compared or self._bounds.contains(value))
                    and all(value == each for each in wanted)
                ]
            )
        return [*product(*columns)]

    def sort(self, items: Iterable[Item]) -> list[Item]:
        """Items in the query's order."""
        ordered = list(items)
        for place, order in reversed([*zip(self._places, self._orders, strict=True)]):
            ordered.sort(key=place, reverse=order.descending)
        return ordered

    def is_behind(self, item: Position, cursor: Position) -> bool:
        """Whether the result at `item` comes behind the cursor. One without a path compares its values only."""
        width = len(self._orders) if cursor.path else len(cursor.values)
        for place, order in zip(self._places[:width], self._orders, strict=False):
            mine, other = place((item.values, item.path)), place((cursor.values, cursor.path))
            if mine != other:
                return (mine > other) != order.descending
        return cursor.before


def _path_of(item: Item) -> bytes:
    return item[1]


def _value_at(index: int) -> Callable[[Item], bytes]:
    return lambda item: item[0][index]
