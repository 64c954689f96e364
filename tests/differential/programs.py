"""Seeded random programs of calls over a small world, so that calls meet each other's data."""

import random
from typing import Any

from google.appengine.datastore import datastore_pb, entity_bytes_pb2

from tests.differential.players import APP

KINDS = ["A", "B", "Ж\x00k"]
IDS = [10_001, 10_002, 2**40, 2**62]  # far from those given automatically: the referee refuses an id that is taken
NAMES = ["a", "b", "ü\n", "n\x00\x01", "名"]
PROPERTIES = ["p", "q", "ß\x00"]
Filter = datastore_pb.Query.Filter
OPERATORS = [Filter.EQUAL] * 4 + [
    Filter.LESS_THAN,
    Filter.LESS_THAN_OR_EQUAL,
    Filter.GREATER_THAN,
    Filter.GREATER_THAN_OR_EQUAL,
]


class World:
    """Makes random keys, values, entities and queries from one random source."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def path(self, *, complete: bool = True) -> list[tuple[str, Any]]:
        depth = self.random.choice([1, 1, 1, 2, 2, 3])
        path: list[tuple[str, Any]] = [(self.random.choice(KINDS), self._identifier()) for _ in range(depth)]
        if not complete:
            path[-1] = (path[-1][0], None)
        return path

    def _identifier(self) -> Any:
        return self.random.choice([self.random.choice(IDS), self.random.choice(NAMES)])

    def reference(self, into: Any, path: list[tuple[str, Any]]) -> None:
        into.app = APP
        for kind, identifier in path:
            element = into.path.element.add(type=kind)
            if isinstance(identifier, int):
                element.id = identifier
            elif identifier is not None:
                element.name = identifier

    def value(self, into: Any) -> None:
        kind = self.random.randrange(9)
        into.SetInParent()
        if kind <= 1:
            into.int64Value = self.random.choice([-(2**63), -3, -1, 0, 1, 2, 3, 255, 256, 2**63 - 1])
        elif kind <= 3:
            into.stringValue = self.random.choice(["", "x", "xy", "x\x00", "x\x01y", "é", "z"]).encode()
        elif kind == 4:
            into.booleanValue = self.random.random() < 0.5
        elif kind == 5:
            into.doubleValue = self.random.choice([-float("inf"), -2.5, -0.5, 0.0, 1.5, 1e300, float("inf")])
        elif kind == 6:
            into.pointvalue.x, into.pointvalue.y = self.random.choice([(1.0, 2.0), (1.0, -2.0), (-90.0, 0.0)])
        elif kind == 7:
            into.referencevalue.app = APP
            for _ in range(self.random.choice([1, 2])):  # ids only: the referee cannot sort ids among names here
                into.referencevalue.pathelement.add(type=self.random.choice(KINDS), id=self.random.choice(IDS))

    def entity(self, into: Any) -> None:
        self.reference(into.key, self.path(complete=self.random.random() < 0.9))
        into.entity_group.SetInParent()
        for name in PROPERTIES:
            count = self.random.choice([0, 1, 1, 1, 2, 3])
            for _ in range(count):
                prop = into.property.add(name=name, multiple=count > 1)
                self.value(prop.value)
        if self.random.random() < 0.3:
            raw = into.raw_property.add(name="raw", multiple=False, meaning=entity_bytes_pb2.Property.TEXT)
            raw.value.stringValue = b"t" * self.random.randrange(50)

    def query(self) -> Any:
        query = datastore_pb.Query(app=APP)
        kindless = self.random.random() < 0.15
        if not kindless:
            query.kind = self.random.choice(KINDS)
            self._add_filters(query)
            self._add_orders(query)
        if self.random.random() < 0.3:
            self.reference(query.ancestor, self.path())
        if self.random.random() < 0.15:
            self._add_filter(query, "__key__", self.random.choice(OPERATORS))
        if self.random.random() < 0.2:
            query.keys_only = True
        orders_end = any(order.property == "__key__" for order in query.order[:-1]) or any(
            each.op == Filter.EQUAL and each.property[0].name == "__key__" for each in query.filter
        )
        if not kindless and not orders_end and self.random.random() < 0.25:
            # Accepted: of an order that the key makes senseless the referee forgets that its property must be there.
            query.property_name.extend(self.random.sample(PROPERTIES, self.random.choice([1, 1, 2, 3])))
        if self.random.random() < 0.4:
            query.limit = self.random.choice([0, 1, 2, 5, 50])
        if self.random.random() < 0.3:
            query.offset = self.random.choice([1, 2, 5, 50])
        if self.random.random() < 0.6:
            query.count = self.random.choice([0, 1, 2, 3, 20, 1000])
        query.compile = self.random.random() < 0.7
        return query

    def _add_filters(self, query: Any) -> None:
        for _ in range(self.random.choice([0, 0, 1, 1, 1, 2, 2, 3])):
            self._add_filter(query, self.random.choice(PROPERTIES), self.random.choice(OPERATORS))

    def _add_filter(self, query: Any, name: str, operator: int) -> None:
        added = query.filter.add(op=operator)
        prop = added.property.add(name=name, multiple=False)
        if name == "__key__" and self.random.random() < 0.95:
            prop.value.referencevalue.app = APP
            for kind, identifier in self.path():
                element = prop.value.referencevalue.pathelement.add(type=kind)
                if isinstance(identifier, int):
                    element.id = identifier
                else:
                    element.name = identifier
        else:
            self.value(prop.value)

    def _add_orders(self, query: Any) -> None:
        directions = [datastore_pb.Query.Order.ASCENDING, datastore_pb.Query.Order.DESCENDING]
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2])):
            name = self.random.choice([*PROPERTIES, *PROPERTIES, "__key__"])
            query.order.add(property=name, direction=self.random.choice(directions))
