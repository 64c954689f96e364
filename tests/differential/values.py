"""Random keys, property values and entities of a small world, so that the calls of a program meet each other's data."""

import random
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from google.appengine.datastore import entity_bytes_pb2
from google.appengine.datastore.datastore_stub_util import SynthesizeUserId

APP = "s~differential"
KINDS = ["A", "B", "Ж\x00k"]
IDS = [10_001, 10_002, 2**40, 2**62]  # far from those given automatically: the referee refuses an id that is taken
NAMES = ["a", "b", "ü\n", "n\x00\x01", "名"]
PROPERTIES = ["p", "q", "ß\x00"]
NAMESPACES = ["", "", "", "", "n-1", "N.2"]

Property = entity_bytes_pb2.Property
Identifier = int | str | None
Path = list[tuple[str, Identifier]]
Root = tuple[str, tuple[str, Identifier]]  #: a namespace and the first element of a path: an entity group
T = TypeVar("T")

_INTEGERS = [-(2**63), -3, -1, 0, 1, 2, 3, 255, 256, 2**63 - 1]
_DOUBLES = [-float("inf"), -2.5, -0.5, 0.0, 1.5, 1e300, float("inf")]
_POINTS = [(1.0, 2.0), (1.0, -2.0), (-90.0, 0.0)]
_STRINGS = ["", "x", "xy", "x\x00", "x\x01y", "é", "z", "\U0001f600"]
_USERS = [("a@x", "x"), ("a@x", "y"), ("B@x", "x"), ("ü\x00@x", "")]
_LONG_STRINGS = ["l" * 1500, "l" * 1501]
_INDEXED_MEANINGS = [
    (Property.GD_WHEN, 1_700_000_000_000_000),
    (Property.ATOM_LINK, b"http://x/"),
    (Property.ATOM_LINK, b"l" * 1501),
    (Property.GD_PHONENUMBER, b"x"),
    (Property.BYTESTRING, b"\xff\x00x"),
    (Property.BLOBKEY, b"x"),
    (Property.BLOB, b"x"),
    (Property.TEXT, b"x"),
    (Property.NO_MEANING, b"\xff"),
]
_RAW_MEANINGS = [
    (Property.TEXT, "ü\x00".encode()),
    (Property.TEXT, b"t" * 2000),
    (Property.BLOB, b"\xff\x00"),
    (Property.ENTITY_PROTO, b"\xff"),
    (Property.BYTESTRING, b"\xfe"),
    (Property.NO_MEANING, b"unindexed"),
    (Property.GD_WHEN, 5),
    (Property.BLOB, 5),
    (Property.INDEX_VALUE, b"x"),
]


class Values:
    """Draws from one random source; `features` are names of programs.FEATURES."""

    def __init__(self, source: random.Random, features: Collection[str]) -> None:
        self.random = source
        self.features = features
        self._makers = [self._integer] * 4 + [self._string] * 4 + [self._boolean, self._double, self._point]
        self._makers += [self._key, self._null]
        if "users" in features:
            self._makers.append(self._user)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def namespace(self) -> str:
        return self.one(NAMESPACES) if "namespaces" in self.features else ""

    def identifier(self) -> Identifier:
        return self.one(IDS) if self.chance(0.5) else self.one(NAMES)

    def path(self, root: Root | None = None, *, complete: bool = True) -> Path:
        """A path of one to three elements, in the entity group of `root` if there is one."""
        depth = self.one([1, 1, 1, 2, 2, 3])
        path = [(self.one(KINDS), self.identifier()) for _ in range(depth)]
        if root is not None:
            path[0] = root[1]
        if not complete and (root is None or depth > 1):
            path[-1] = (path[-1][0], None)
        return path

    def reference(self, into: Any, root: Root | None = None, *, complete: bool = True, strange: bool = False) -> None:
        """Sets a key; a strange one has an empty name somewhere."""
        namespace = self.namespace() if root is None else root[0]
        path = self.path(root, complete=complete)
        if strange and "empty_names" in self.features:
            path[self.random.randrange(len(path))] = (self.one(KINDS), "")
        set_reference(into, namespace, path)

    def value(self, into: Any) -> None:
        """Sets a property value; often one of a few, so that filters find something."""
        into.SetInParent()
        if self.chance(0.5):
            into.int64Value = self.one([1, 2, 3])
        else:
            self.one(self._makers)(into)

    def _integer(self, into: Any) -> None:
        into.int64Value = self.one(_INTEGERS)

    def _string(self, into: Any) -> None:
        into.stringValue = self.one(_STRINGS).encode()

    def _boolean(self, into: Any) -> None:
        into.booleanValue = self.chance(0.5)

    def _double(self, into: Any) -> None:
        into.doubleValue = self.one([*_DOUBLES, -0.0] if "negative_zero" in self.features else _DOUBLES)
        if "nan" in self.features and self.chance(0.1):
            into.doubleValue = float("nan")

    def _point(self, into: Any) -> None:
        into.pointvalue.x, into.pointvalue.y = self.one(_POINTS)

    def _key(self, into: Any) -> None:
        into.referencevalue.app = APP
        if namespace := self.namespace():
            into.referencevalue.name_space = namespace
        for _ in range(self.one([1, 2])):  # ids only: the referee cannot sort ids among names here
            into.referencevalue.pathelement.add(type=self.one(KINDS), id=self.one(IDS))

    def _user(self, into: Any) -> None:
        user = into.uservalue
        user.email, user.auth_domain = self.one(_USERS)
        user.gaiaid = 0
        user.obfuscated_gaiaid = SynthesizeUserId(user.email)  # as the referee would add it to what it stores

    def _null(self, into: Any) -> None:
        """A value with no field set."""

    def entity(self, into: Any, root: Root | None = None, *, strange: bool = False) -> None:
        """An entity; a strange one may break a rule, and never waits for an id."""
        self.reference(into.key, root, complete=strange or self.chance(0.9))
        into.entity_group.SetInParent()
        for name in PROPERTIES:
            count = self.one([0, 1, 1, 1, 1, 2, 3, 3])
            for _ in range(count):
                self.value(into.property.add(name=name, multiple=count > 1).value)
        if self.chance(0.3):
            raw = into.raw_property.add(name="raw", multiple=False, meaning=Property.TEXT)
            raw.value.stringValue = b"t" * self.random.randrange(50)
        if strange and "meanings" in self.features:
            self._add_meaning(into)

    def _add_meaning(self, into: Any) -> None:
        indexed = self.chance(0.6)
        name = self.one(PROPERTIES)
        multiple = any(each.name == name for each in into.property)
        meaning, content = self.one(_INDEXED_MEANINGS if indexed else _RAW_MEANINGS)
        added = (into.property if indexed else into.raw_property).add(name=name, multiple=multiple)
        if meaning != Property.NO_MEANING:
            added.meaning = meaning
        if isinstance(content, int):
            added.value.int64Value = content
        else:
            added.value.stringValue = content
        if indexed and self.chance(0.05):
            added.value.stringValue = self.one(_LONG_STRINGS).encode()
            added.value.ClearField("int64Value")

    def bulk(self, into: Any, count: int) -> None:
        """Plain entities of one kind, more than one answer may hold."""
        for number in range(count):
            entity = into.entity.add()
            set_reference(entity.key, "", [("Bulk", f"b{number}")])
            entity.entity_group.SetInParent()
            entity.property.add(name="p", multiple=False).value.int64Value = number % 7


def set_reference(into: Any, namespace: str, path: Path) -> None:
    """Sets a Reference message."""
    into.app = APP
    if namespace:
        into.name_space = namespace
    for kind, identifier in path:
        element = into.path.element.add(type=kind)
        set_identifier(element, identifier)


def set_identifier(element: Any, identifier: Identifier) -> None:
    if isinstance(identifier, int):
        element.id = identifier
    elif identifier is not None:
        element.name = identifier
