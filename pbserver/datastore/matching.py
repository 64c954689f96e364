"""Tests and orders entities by a query's own terms, where no scan does it."""

from collections.abc import Iterable

from pbserver.datastore import entities
from pbserver.datastore.planner import Bounds, key_bounds, value_bounds
from pbserver.datastore.queries import KEY_NAME, Op, Position, Query
from protos.entity_pb2 import EntityProto

#: An entity's place in the order: the values its ordered properties are compared by, and its path.
Item = tuple[tuple[bytes, ...], bytes]


class Matcher:
    """A query's filters and orders, prepared for many entities."""

    def __init__(self, query: Query) -> None:
        self._paths = key_bounds(query)
        self._equal = [
            (each.name, each.value) for each in query.filters if each.op is Op.EQUAL and each.name != KEY_NAME
        ]
        self._orders = query.orders
        self._names = query.ordered_names
        self._compared = query.inequality if query.inequality != KEY_NAME else None
        self._bounds = Bounds(b"", None) if self._compared is None else value_bounds(query, self._compared)

    def matches(self, path: bytes, proto: EntityProto) -> bool:
        if not self._paths.contains(path):
            return False
        found = entities.property_values(proto)
        if any(value not in found.get(name, ()) for name, value in self._equal):
            return False
        if any(name not in found for name in self._names):
            return False
        return self._compared is None or any(map(self._bounds.contains, found.get(self._compared, ())))

    def order_values(self, proto: EntityProto) -> tuple[bytes, ...]:
        """What a matching entity is ordered by: of several values the first in the order's direction."""
        found = entities.property_values(proto)
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

    def sort(self, items: Iterable[Item]) -> list[Item]:
        """Items in the query's order."""
        ordered = sorted(items, key=lambda item: item[1], reverse=self._orders[-1].descending)
        for index in reversed(range(len(self._names))):
            ordered.sort(key=lambda item: item[0][index], reverse=self._orders[index].descending)
        return ordered

    def is_behind(self, item: Position, cursor: Position) -> bool:
        """Whether the result at `item` comes behind the cursor."""
        pairs = zip((*item.values, item.path), (*cursor.values, cursor.path), self._orders, strict=True)
        for mine, other, order in pairs:
            if mine != other:
                return (mine > other) != order.descending
        return cursor.before
