"""Composite indexes: what one is, and the rows an entity has in it. Pure functions.

A row is `0x03 id [path of an ancestor, END] values path`, one per combination of the entity's values and, in an index
with ancestors, per element of its path. Values that the index holds in descending order are stored with every bit
turned. Keys always ascend: an index that ends in `__key__` descending is stored as its mirror image, every direction
turned round, and scanned backwards.
"""

from enum import Enum
from itertools import product
from math import prod
from typing import NamedTuple

from pbserver.datastore import keys
from pbserver.datastore.encoding import END, inverted
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.queries import KEY_NAME, Order
from pbserver.datastore.tables import COMPOSITE_ROW, row_value

MAX_ENTRIES = 20_000  #: index rows of one entity, as at Google
MAX_COMPOSITE_BYTES = 2 * 1024 * 1024  #: of one entity's rows in composite indexes, as at Google


class State(Enum):
    """Of an index; the values are the wire's."""

    BUILDING = 1  #: written with every put; not complete yet, so no query uses it
    SERVING = 2
    DELETING = 3  #: nobody writes or reads it; its rows are being removed
    ERROR = 4  #: an entity has too many entries in it, so it cannot be built


class Definition(NamedTuple):
    """What an index holds. `kind` is ended (keys.encode_kind); `__key__` descending may be the last property."""

    kind: bytes
    ancestor: bool
    properties: tuple[Order, ...]

    @property
    def key_descending(self) -> bool:
        return self.properties[-1] == Order(KEY_NAME, descending=True)

    @property
    def values(self) -> tuple[Order, ...]:
        """The properties whose values stand in the rows."""
        return self.properties[:-1] if self.key_descending else self.properties


class Composite(NamedTuple):
    """An index of a project."""

    id: int
    definition: Definition
    state: State
    note: str = ""

    @property
    def prefix(self) -> bytes:
        """How every row of the index begins, in each scope of the kind."""
        return COMPOSITE_ROW + self.id.to_bytes(4, "big")

    @property
    def is_written(self) -> bool:
        """Whether puts and deletes keep it up to date."""
        return self.state in (State.BUILDING, State.SERVING)


#: An entity's encoded values, by the name of the property.
Values = dict[bytes, list[bytes]]


def checked(definition: Definition) -> Definition:
    """The definition without what has no effect. Raises BadRequest for one that cannot be built."""
    properties = definition.properties
    names = [order.name for order in properties]
    if KEY_NAME in names[:-1]:
        raise BadRequest("__key__ can only be the last property of an index: keys are unique")
    if names and properties[-1] == Order(KEY_NAME, descending=False):
        properties = properties[:-1]
    if not properties:
        raise BadRequest("a composite index needs properties")
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"property {name.decode(errors='replace')} stands in the index twice")
        if name != KEY_NAME:
            keys.check_utf8(name, "property name")
    return definition._replace(properties=properties)


def ancestor_prefix(path: bytes) -> bytes:
    """What stands between prefix and values in the rows under one ancestor."""
    return path + END


def entries(composite: Composite, key: Key, values: Values) -> dict[bytes, bytes]:
    """Key and value of every row an entity has in an index."""
    definition = composite.definition
    columns = []
    for name, descending in definition.values:
        found = values.get(name)
        if found is None:
            return {}
        column = [*dict.fromkeys(found)]
        columns.append([*map(inverted, column)] if descending != definition.key_descending else column)
    several = prod(map(len, columns)) > 1
    starts = [composite.prefix]
    if definition.ancestor:
        starts = [composite.prefix + ancestor_prefix(path) for path in keys.self_and_ancestors(key.path)]
    ends = [b"".join(combination) + key.path for combination in product(*columns)]
    return dict.fromkeys((start + end for start in starts for end in ends), row_value(key, repeated=several))


class Size(NamedTuple):
    """Of an entity's rows in an index: how many, and the bytes of their keys."""

    rows: int
    key_bytes: int

    @property
    def is_too_large(self) -> bool:
        return self.rows > MAX_ENTRIES or self.key_bytes > MAX_COMPOSITE_BYTES


def size(composite: Composite, key: Key, values: Values) -> Size:
    """The size of entries(), without making them."""
    definition = composite.definition
    columns = [set(values.get(name, ())) for name, _ in definition.values]
    combinations = prod(map(len, columns))
    if not combinations:
        return Size(0, 0)
    ends = sum(sum(map(len, column)) * combinations // len(column) for column in columns)
    ends += combinations * len(key.path)
    starts = [len(composite.prefix)]
    if definition.ancestor:
        starts = [starts[0] + len(ancestor_prefix(path)) for path in keys.self_and_ancestors(key.path)]
    return Size(combinations * len(starts), ends * len(starts) + combinations * sum(starts))


def all_entries(composites: tuple[Composite, ...], key: Key, values: Values, built_in: int) -> dict[bytes, bytes]:
    """The rows in all of a kind's indexes that are written, of an entity with `built_in` other index rows.

    Raises BadRequest past MAX_ENTRIES or MAX_COMPOSITE_BYTES, before it makes more than that.
    """
    written = [each for each in composites if each.is_written]
    sizes = [size(each, key, values) for each in written]
    total = built_in + sum(each.rows for each in sizes)
    if total > MAX_ENTRIES:
        raise BadRequest(
            f"too many indexed properties for an entity: {total} index entries; the limit is {MAX_ENTRIES}"
        )
    key_bytes = sum(each.key_bytes for each in sizes)
    if key_bytes > MAX_COMPOSITE_BYTES:
        raise BadRequest(
            f"the entity's composite index entries are too large: {key_bytes} bytes; the limit is {MAX_COMPOSITE_BYTES}"
        )
    rows: dict[bytes, bytes] = {}
    for each in written:
        rows.update(entries(each, key, values))
    return rows
