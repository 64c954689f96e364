"""Entity keys as byte strings whose order is the Datastore's order of keys.

A path element is `text(kind)` and then `0x01 integer(id)` or `0x02 text(name)`: ids sort before names, an ancestor's
path is a prefix of its descendants' paths and sorts before them, and every path reads back without ambiguity.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

from pbserver.datastore.encoding import END, integer, read_integer, read_text, text, varint
from pbserver.datastore.errors import BadRequest
from protos.entity_pb2 import Path, Reference

MAX_KEY_BYTES = 6 * 1024  #: of the serialized Reference, as at Google
MAX_NAME_BYTES = 1500  #: of one kind or name

ID = b"\x01"
NAME = b"\x02"


class Key(NamedTuple):
    """A complete key. `partition` is project, database and namespace; `path` all elements; `root` how many bytes
    of the path its first element takes (partition + path[:root] is the entity group); `kind` the last kind, ended.
    """

    partition: bytes
    path: bytes
    root: int
    kind: bytes

    @property
    def group(self) -> bytes:
        """The entity group, as the scope of its rows."""
        return self.partition + self.path[: self.root]


class _Element(Protocol):
    type: bytes
    id: int
    name: bytes

    def HasField(self, field_name: str, /) -> bool: ...  # noqa: N802


@lru_cache(maxsize=4096)
def partition(app: bytes, database: bytes, namespace: bytes) -> bytes:
    """The part of every scope that names project, database and namespace."""
    for value, what in ((app, "app id"), (database, "database id"), (namespace, "namespace")):
        check_utf8(value, what)
    if not app:
        raise BadRequest("the key names no app")
    return text(app) + text(database) + text(namespace)


@lru_cache(maxsize=4096)
def partition_names(encoded: bytes) -> tuple[bytes, bytes, bytes]:
    """App, database and namespace of a partition."""
    app, at = read_text(encoded, 0)
    database, at = read_text(encoded, at)
    namespace, _ = read_text(encoded, at)
    return app, database, namespace


@lru_cache(maxsize=4096)
def project_of(part: bytes) -> bytes:
    """The project of a partition: that of the same app and database with the default namespace."""
    app, database, _ = partition_names(part)
    return partition(app, database, b"")


def app_of(group: bytes) -> bytes:
    """The app an entity group belongs to."""
    return read_text(group, 0)[0]


def check_utf8(value: bytes, what: str) -> None:
    """Raises BadRequest unless `value` is UTF-8."""
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            raise BadRequest(f"{what} is not valid UTF-8") from None


@lru_cache(maxsize=4096)
def encode_kind(kind: bytes) -> bytes:
    """A checked, ended kind; kinds are few, so this is remembered."""
    if not kind:
        raise BadRequest("a key path element has no kind")
    if len(kind) > MAX_NAME_BYTES:
        raise BadRequest(f"a kind may have {MAX_NAME_BYTES} bytes, this one has {len(kind)}")
    check_utf8(kind, "key path element type")
    return text(kind)


def _encode_name(name: bytes) -> bytes:
    if len(name) > MAX_NAME_BYTES:
        raise BadRequest(f"a key name may have {MAX_NAME_BYTES} bytes, this one has {len(name)}")
    check_utf8(name, "key path element name")
    return text(name)


def encode_element(element: _Element) -> bytes:
    """One complete path element. Raises BadRequest for one with neither id nor name, or with both."""
    name = element.name
    number = element.id
    if name:
        if element.HasField("id"):
            raise BadRequest("each key path element should have id or name but not both")
        return encode_kind(element.type) + NAME + _encode_name(name)
    if not number:
        raise BadRequest("missing key id/name")
    return encode_kind(element.type) + ID + integer(number)


def from_reference(reference: Reference) -> Key:
    """The key a Reference stands for. Raises BadRequest unless it is complete and well formed."""
    elements = reference.path.element
    if not elements:
        raise BadRequest("key's path cannot be empty")
    path = root = encode_element(elements[0])
    if len(elements) > 1:
        path = b"".join(map(encode_element, elements))
    if len(path) > 3000 and reference.ByteSize() > MAX_KEY_BYTES:
        raise BadRequest(f"a key may have {MAX_KEY_BYTES} bytes, this one has {reference.ByteSize()}")
    return Key(
        partition(reference.app, reference.database_id, reference.name_space),
        path,
        len(root),
        encode_kind(elements[-1].type),
    )


def is_incomplete(path: Path) -> bool:
    """Whether the last element waits for an id from the server. An empty name is a name, though no valid one."""
    elements = path.element
    if not elements:
        raise BadRequest("key's path cannot be empty")
    last = elements[-1]
    return not last.id and not last.HasField("name")


def decode_path(path: bytes) -> Iterator[tuple[bytes, int | bytes]]:
    """(kind, id or name) of each element of an encoded path, which may be followed by END."""
    at = 0
    while at < len(path) and path[at : at + 1] != END:
        kind, at = read_text(path, at)
        if path[at : at + 1] == ID:
            number, at = read_integer(path, at + 1)
            yield kind, number
        else:
            name, at = read_text(path, at + 1)
            yield kind, name


def self_and_ancestors(path: bytes) -> list[bytes]:
    """The paths that an encoded path goes through, from the root to itself."""
    found = []
    at = 0
    while at < len(path):
        at = path.index(END, at) + 1
        at = at + 9 if path[at : at + 1] == ID else path.index(END, at) + 1
        found.append(path[:at])
    return found


def last_kind(path: bytes) -> bytes:
    """The ended kind of the last element of an encoded path."""
    return text([kind for kind, _ in decode_path(path)][-1])


def to_path(encoded: bytes, into: Path) -> None:
    """Appends the elements of an encoded path to a Path message."""
    for kind, identifier in decode_path(encoded):
        element = into.element.add(type=kind)
        if isinstance(identifier, int):
            element.id = identifier
        else:
            element.name = identifier


def to_reference(part: bytes, path: bytes) -> Reference:
    """The Reference message of an encoded key."""
    app, database, namespace = partition_names(part)
    reference = Reference(app=app)
    if database:
        reference.database_id = database
    if namespace:
        reference.name_space = namespace
    to_path(path, reference.path)
    return reference


@lru_cache(maxsize=1024)
def _reference_frame(part: bytes) -> tuple[bytes, bytes]:
    """What stands before and behind the path in a serialized Reference."""
    app, database, namespace = partition_names(part)
    before = b"\x6a" + varint(len(app)) + app
    behind = b""
    if namespace:
        behind += b"\xa2\x01" + varint(len(namespace)) + namespace
    if database:
        behind += b"\xba\x01" + varint(len(database)) + database
    return before, behind


def serialized_reference(part: bytes, path: bytes) -> bytes:
    """A serialized Reference, written by hand: keys-only queries make one per result."""
    elements = b"".join(map(_serialized_element, decode_path(path)))
    before, behind = _reference_frame(part)
    return b"".join((before, b"\x72", varint(len(elements)), elements, behind))


def _serialized_element(element: tuple[bytes, int | bytes]) -> bytes:
    kind, identifier = element
    head = b"\x0b\x12" + varint(len(kind)) + kind
    if isinstance(identifier, int):
        return head + b"\x18" + varint(identifier & (1 << 64) - 1) + b"\x0c"
    return head + b"\x22" + varint(len(identifier)) + identifier + b"\x0c"


def keys_only_frame(part: bytes, path: bytes) -> bytes:
    """A result with nothing but its key: `QueryResult.result` with key (13) and an empty entity group (16)."""
    reference = serialized_reference(part, path)
    entity = b"".join((b"\x6a", varint(len(reference)), reference, b"\x82\x01\x00"))
    return b"".join((b"\x12", varint(len(entity)), entity))
