"""Where everything stands: scopes and keys of every row the Datastore writes (the README draws them).

groups    scope = partition + first path element   key = 0x00 head | 0x01 + rest of the path: an entity
indexes   scope = partition + kind                 key = 0x01 path: kind row | 0x02 name value path: property row
                                                   | 0x03 id [ancestor] values path: composite row
kindless  scope = partition                        key = path
kinds     scope = project                          key = namespace kind: that kind had an entity once
ids       scope = project                          key = name of the counter
unfinished  scope = server                         key = group whose last commit it may not have finished
sessions  scope = minute of birth                  key = handle + part
meta      scope = "pbserver"                       key = name [project]

A project is app and database, written as the partition of its default namespace.

The value of an index row says where its path begins: 2 bytes length of the path, 2 bytes length of the path's first
element, 1 byte 0x01 when the entity has several rows in that index. So a row leads to its entity by two slices.
"""

from struct import Struct

from adapters.contract import Address, Rows, Table
from pbserver.datastore.encoding import text
from pbserver.datastore.keys import Key

KIND_ROW = b"\x01"
PROPERTY_ROW = b"\x02"
COMPOSITE_ROW = b"\x03"

PRESENT = b"\x01"  #: the value of rows that only say that there is something

_HEAD = b"\x00"
_ENTITY = b"\x01"
_VALUE = Struct(">HHB")

META_SCOPE = b"pbserver\x00"
PROJECT = "project"  #: name of the rows of table `meta` that list the projects


def head_address(group: bytes) -> Address:
    """The head of an entity group: its version, one row, changed only by compare-and-set."""
    return Address(Table.GROUPS, group, b"", _HEAD)


def entity_address(key: Key) -> Address:
    return Address(Table.GROUPS, key.partition + key.path[: key.root], b"", _ENTITY + key.path[key.root :])


def entity_columns(partition: bytes, rows: list[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Scopes and keys (in table `groups`) of the entities that index rows lead to, in their order.

    Hot: rows of one shape are sliced by one comprehension.
    """
    if not rows:
        return [], []
    shape = rows[0][1]
    found, shapes = zip(*rows, strict=True)
    if shapes.count(shape) != len(shapes):
        pairs = [_entity_column(partition, row, value) for row, value in rows]
        return [scope for scope, _ in pairs], [key for _, key in pairs]
    size, root, _ = _VALUE.unpack(shape)
    if root == size:
        return [partition + row[-size:] for row in found], [_ENTITY] * len(found)
    below = root - size
    return [partition + row[-size:below] for row in found], [_ENTITY + row[below:] for row in found]


def _entity_column(partition: bytes, row: bytes, value: bytes) -> tuple[bytes, bytes]:
    size, root, _ = _VALUE.unpack(value)
    path = row[-size:]
    return partition + path[:root], _ENTITY + path[root:]


def row_value(key: Key, *, repeated: bool) -> bytes:
    return _VALUE.pack(len(key.path), key.root, repeated)


def is_repeated(value: bytes) -> bool:
    """Whether the row's entity has other rows in the same index."""
    return value[4] == 1


def row_path(row: bytes, value: bytes) -> bytes:
    """The encoded path at the end of an index row's key."""
    return row[-(value[0] << 8 | value[1]) :]


def key_of_row(partition: bytes, kind: bytes, row: tuple[bytes, bytes]) -> Key:
    """The key of the entity that an index row of an encoded kind leads to."""
    return Key(partition, row_path(*row), row[1][2] << 8 | row[1][3], kind)


def index_changes(key: Key, old: dict[bytes, bytes], new: dict[bytes, bytes]) -> list[Rows]:
    """What turns an entity's index rows `old` into `new`; rows that stay are not written."""
    changed: dict[bytes, bytes | None] = {**new}
    if old:
        changed = {row: value for row, value in new.items() if old.get(row) != value}
        changed.update(dict.fromkeys(old.keys() - new.keys()))
    rows = [Rows(Table.INDEXES, key.partition + key.kind, key.path, changed)] if changed else []
    if bool(old) != bool(new):
        kindless = {key.path: row_value(key, repeated=False) if new else None}
        rows.append(Rows(Table.KINDLESS, key.partition, key.path, kindless))
    return rows


def kindless_group(partition: bytes, row: tuple[bytes, bytes]) -> bytes:
    """The entity group that a kindless row leads to; of a damaged row, a group that nobody has."""
    path, value = row
    return partition + path[: int.from_bytes(value[2:4], "big")]


def kind_address(project: bytes, namespace: bytes, kind: bytes) -> Address:
    """The row that says where entities of an (encoded) kind may be found."""
    return Address(Table.KINDS, project, b"", text(namespace) + kind)


def counter_address(project: bytes, name: bytes) -> Address:
    return Address(Table.IDS, project, b"", name)


def session_address(handle: int, part: bytes) -> Address:
    return Address(Table.SESSIONS, session_scope(handle), b"", session_key(handle) + part)


def session_scope(handle: int) -> bytes:
    """Handles born in the same minute share a scope, so that a whole minute can be swept."""
    return b"m%08x" % session_minute(handle)


def session_minute(handle: int) -> int:
    return (handle >> 22) // 60_000


def session_key(handle: int) -> bytes:
    return handle.to_bytes(8, "big")


def note_address(server: bytes, group: bytes) -> Address:
    """A server's note that it may leave a group unfinished. `server`: always of one length."""
    return Address(Table.UNFINISHED, server, b"", group)


def project_address(project: bytes) -> Address:
    """The row that says that there is a project: entities of it were stored once."""
    return meta_address(PROJECT, project)


def meta_address(name: str, project: bytes = b"") -> Address:
    return Address(Table.META, META_SCOPE, b"", text(name.encode()) + project)
