"""Random queries over the world of values.py: mostly legal ones, some that break a rule on purpose."""

from typing import Any

from google.appengine.datastore import datastore_pb, entity_bytes_pb2

from tests.differential.values import (
    APP,
    IDS,
    KINDS,
    NAMES,
    NAMESPACES,
    PROPERTIES,
    Path,
    Root,
    Values,
    set_identifier,
    set_reference,
)

Query = datastore_pb.Query
Filter = Query.Filter
KEY = "__key__"
METADATA_KINDS = ["__kind__", "__namespace__", "__property__"]

_NO_KEY = entity_bytes_pb2.Property(name=KEY, multiple=False, value=entity_bytes_pb2.PropertyValue())
_UPWARDS = [Filter.GREATER_THAN, Filter.GREATER_THAN_OR_EQUAL]
_DOWNWARDS = [Filter.LESS_THAN, Filter.LESS_THAN_OR_EQUAL]
_OPERATORS = [Filter.EQUAL, *_UPWARDS, *_DOWNWARDS]
_DIRECTIONS = [Query.Order.ASCENDING, Query.Order.DESCENDING]


class Queries:
    """Draws queries; `root` binds a query to one entity group, as a transaction wants it."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._chance = values.chance
        self._one = values.one

    def query(self, root: Root | None = None) -> Any:
        query = Query(app=APP)
        namespace = root[0] if root else self._values.namespace()
        if namespace:
            query.name_space = namespace
        if self._chance(0.85):
            query.kind = self._one([*KINDS * 3, "Bulk"])
            self._add_conditions(query)
        if root is not None or self._chance(0.25):
            self._set_ancestor(query, root)
        if self._chance(0.15):
            self._add_filter(query, KEY, self._one(_OPERATORS))
        if self._chance(0.2):
            query.keys_only = True
        if query.kind and self._chance(0.25):
            self._project(query)
        if "illegal" in self._values.features and self._chance(0.06):
            self._break(query)
        if any(order.property == KEY for order in query.order[:-1]):
            query.ClearField("property_name")
            query.ClearField("group_by_property_name")
        self._set_bounds(query)
        return query

    def _set_ancestor(self, query: Any, root: Root | None) -> None:
        namespace = query.name_space
        if "illegal" in self._values.features and self._chance(0.02):
            namespace = self._values.namespace()
        set_reference(query.ancestor, namespace, self._values.path(root))

    def _set_bounds(self, query: Any) -> None:
        if self._chance(0.4):
            query.limit = self._one([0, 1, 2, 5, 50])
        if self._chance(0.3):
            query.offset = self._one([1, 2, 5, 50, 301])
        if "default_count" not in self._values.features or self._chance(0.6):
            query.count = self._one([0, 1, 2, 3, 20, 1000])
        query.compile = self._chance(0.75)

    def _add_conditions(self, query: Any) -> None:
        """Filters and orders that fit each other: an inequality's property comes first in the order."""
        compared = self._one(PROPERTIES) if self._chance(0.35) else None
        if compared is not None:
            sides = self._one([[_UPWARDS], [_DOWNWARDS], [_UPWARDS, _DOWNWARDS]])
            for operators in sides:
                self._add_filter(query, compared, self._one(operators))
        for _ in range(self._one([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4]) - len(query.filter)):
            self._add_filter(query, self._one(PROPERTIES), Filter.EQUAL)
        names = [self._one([*PROPERTIES * 2, KEY]) for _ in range(self._one([0, 0, 0, 1, 1, 2, 3]))]
        if names and compared is not None:
            names[0] = compared
        if names and self._chance(0.3):
            names.append(KEY)  # explicit to the end, so that it can be reversed
        for name in names:
            query.order.add(property=name, direction=self._one(_DIRECTIONS))

    def _add_filter(self, query: Any, name: str, operator: int) -> None:
        added = query.filter.add(op=operator)
        prop = added.property.add(name=name, multiple=False)
        if name == KEY:
            self._set_key_value(prop.value, query.name_space, self._values.path())
        elif self._chance(0.7):
            prop.value.int64Value = self._one([1, 2, 3])  # what most entities have, or hardly a query would find any
        else:
            self._values.value(prop.value)

    def _set_key_value(self, value: Any, namespace: str, path: Path) -> None:
        value.referencevalue.app = APP
        if namespace:
            value.referencevalue.name_space = namespace
        for kind, identifier in path:
            set_identifier(value.referencevalue.pathelement.add(type=kind), identifier)

    def _project(self, query: Any) -> None:
        fixed = {each.property[0].name for each in query.filter if each.op == Filter.EQUAL}
        free = [name for name in PROPERTIES if name not in fixed]
        if not free or fixed & {KEY}:
            return
        query.property_name.extend(self._values.random.sample(free, self._one([1, min(2, len(free)), len(free)])))
        query.ClearField("keys_only")
        if "distinct" in self._values.features and self._chance(0.35):
            self._group(query)

    def _group(self, query: Any) -> None:
        """Distinct: by all of the projected properties, or by some that are also the first in the order."""
        names = list(query.property_name)
        compared = [each.property[0].name for each in query.filter if each.op != Filter.EQUAL]
        if compared and compared[0] not in names:
            return
        del query.order[:]
        if not compared and self._chance(0.4):
            query.group_by_property_name.extend(names)
            return
        self._values.random.shuffle(names)
        names.sort(key=lambda name: name not in compared)
        group = names[: self._one([1, len(names)])]
        query.group_by_property_name.extend(group)
        for name in group + self._one([[], names[len(group) :], [KEY]]):
            query.order.add(property=name, direction=self._one(_DIRECTIONS))

    def _break(self, query: Any) -> None:
        self._one(
            [
                lambda: self._add_filter(query, self._one(PROPERTIES), self._one(_OPERATORS)),
                lambda: query.order.insert(0, Query.Order(property=self._one(PROPERTIES))),
                lambda: query.order.insert(0, Query.Order(property=KEY, direction=self._one(_DIRECTIONS))),
                lambda: query.property_name.append(self._one(PROPERTIES)),
                lambda: query.property_name.extend(["p", "p"]),
                lambda: query.property_name.append(KEY),
                lambda: query.ClearField("kind"),
                lambda: setattr(query, "offset", -1),
                lambda: setattr(query, "keys_only", True),
                lambda: query.filter.add(op=Filter.EQUAL, property=[_NO_KEY]),
            ]
        )()

    def metadata(self) -> Any:
        """A query for kinds, namespaces or properties, perhaps of a range of them."""
        query = Query(app=APP, kind=self._one(METADATA_KINDS))
        if query.kind != "__namespace__" and (namespace := self._values.namespace()):
            query.name_space = namespace
        for operators in self._one([[], [], [_UPWARDS], [_DOWNWARDS], [_UPWARDS, _DOWNWARDS], [[Filter.EQUAL]]]):
            prop = query.filter.add(op=self._one(operators)).property.add(name=KEY, multiple=False)
            self._set_key_value(prop.value, query.name_space, self._metadata_path(query.kind))
        if query.kind == "__property__" and self._chance(0.3):
            set_reference(query.ancestor, query.name_space, self._metadata_path(query.kind))
        query.keys_only = self._chance(0.5)
        if self._chance(0.2):
            query.order.add(property=KEY)
        self._set_bounds(query)
        return query

    def _metadata_path(self, kind: str) -> Path:
        if kind == "__namespace__":
            name = self._one(NAMESPACES)
            return [(kind, name or 1)]
        path: Path = [("__kind__", self._one([*KINDS, "AA"]))]
        if kind == "__property__" and self._chance(0.6):
            path.append(("__property__", self._one([*PROPERTIES, "pp"])))
        if "illegal" in self._values.features and self._chance(0.05):
            path[-1] = (self._one(KINDS), self._one([*IDS, *NAMES]))
        return path


def reversed_orders(query: Any) -> Any:
    """The query in the opposite direction; None when its order is not explicit to the end, by the key."""
    if not query.order or query.order[-1].property != KEY:
        return None
    again = Query()
    again.CopyFrom(query)
    for order in again.order:
        order.direction = _DIRECTIONS[order.direction == _DIRECTIONS[0]]
    return again
