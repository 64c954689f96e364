"""Property values as byte strings whose order is the Datastore's order of values.

A tag byte gives the order across types, the encoding the order inside one: null < integers and timestamps <
booleans < texts and byte strings < doubles < points < users < keys. Users compare by e-mail, domain, and then the rest.
"""

from collections.abc import Callable
from hashlib import md5
from struct import Struct
from typing import Any

from pbserver.datastore import keys
from pbserver.datastore.encoding import END, double, read_double, read_integer, read_text, text
from pbserver.datastore.errors import BadRequest
from protos.entity_pb2 import PropertyValue

NULL = b"\x10"
INTEGER = b"\x20"
BOOLEAN = b"\x28"
STRING = b"\x30"
DOUBLE = b"\x38"
POINT = b"\x40"
USER = b"\x48"
KEY = b"\x50"


def _boolean(value: Any) -> bytes:
    return BOOLEAN + (b"\x01" if value else b"\x00")


def _integer(value: Any, _pack: Callable[[int, int], bytes] = Struct(">BQ").pack) -> bytes:  # noqa: B008
    """INTEGER + integer(value), in one call: puts make one of these per indexed number."""
    return _pack(0x20, value + (1 << 63))


def _string(value: Any) -> bytes:
    if b"\x00" in value or b"\x01" in value:
        return STRING + text(value)
    return b"\x30%b\x00" % value


def _double(value: Any) -> bytes:
    return DOUBLE + double(value)


def _point(value: Any) -> bytes:
    return POINT + double(value.x) + double(value.y)


def _user(value: Any) -> bytes:
    rest = PropertyValue.UserValue()
    rest.CopyFrom(value)
    rest.ClearField("email")
    rest.ClearField("auth_domain")
    return USER + text(value.email) + text(value.auth_domain) + text(rest.SerializePartialToString())


def _key(value: Any) -> bytes:
    part = keys.partition(value.app, value.database_id, value.name_space)
    elements = value.pathelement
    if not elements:
        raise BadRequest("a key value's path cannot be empty")
    return KEY + part + b"".join(map(keys.encode_element, elements)) + END


def name_user(user: PropertyValue.UserValue) -> None:
    """Gives a user the id that goes with the e-mail address, as the SDK's own stub makes it."""
    digest = md5(user.email.lower(), usedforsecurity=False).digest()
    user.obfuscated_gaiaid = b"1" + "".join(f"{byte:02d}" for byte in digest)[:20].encode()


#: By the number of PropertyValue's field.
ENCODERS: dict[int, Callable[[Any], bytes]] = {
    1: _integer,
    2: _boolean,
    3: _string,
    4: _double,
    5: _point,
    8: _user,
    12: _key,
}


def encode(value: PropertyValue, name: bytes = b"") -> bytes:
    """The value as bytes. Raises BadRequest, naming property `name`, when more than one field is set."""
    fields = value.ListFields()
    if not fields:
        return NULL
    if len(fields) > 1:
        raise BadRequest(f"PropertyValue for {name.decode(errors='replace')} has multiple value fields set")
    field, content = fields[0]
    return ENCODERS[field.number](content)


#: How many bytes follow the tag, where that does not depend on the value.
_FIXED = {NULL: 0, INTEGER: 8, DOUBLE: 8, BOOLEAN: 1, POINT: 16}


def size(encoded: bytes, start: int) -> int:
    """Where the encoded value that begins at `start` ends. Raises ValueError for what is no value."""
    tag = encoded[start : start + 1]
    at = start + 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        return at + fixed
    if tag == STRING:
        return encoded.index(END, at) + 1
    if tag == USER:
        return encoded.index(END, encoded.index(END, encoded.index(END, at) + 1) + 1) + 1
    if tag == KEY:
        return _key_end(encoded, at)
    raise ValueError(f"no value begins with tag {tag!r}")


def _key_end(encoded: bytes, at: int) -> int:
    for _ in range(3):  # app, database, namespace
        at = encoded.index(END, at) + 1
    while encoded[at : at + 1] != END:
        at = encoded.index(END, at) + 1
        at = at + 9 if encoded[at : at + 1] == keys.ID else encoded.index(END, at) + 1
    return at + 1


def decode(encoded: bytes, start: int, into: PropertyValue) -> int:
    """Sets `into` to the value that begins at `start`; returns where it ends."""
    tag = encoded[start : start + 1]
    at = start + 1
    if tag == INTEGER:
        into.int64_value, at = read_integer(encoded, at)
    elif tag == BOOLEAN:
        into.boolean_value = encoded[at] == 1
        at += 1
    elif tag == STRING:
        into.string_value, at = read_text(encoded, at)
    elif tag == DOUBLE:
        into.double_value, at = read_double(encoded, at)
    elif tag != NULL:
        at = _decode_group(tag, encoded, at, into)
    return at


def _decode_group(tag: bytes, encoded: bytes, at: int, into: PropertyValue) -> int:
    if tag == POINT:
        x, at = read_double(encoded, at)
        y, at = read_double(encoded, at)
        into.pointvalue.x, into.pointvalue.y = x, y
        return at
    if tag == USER:
        email, at = read_text(encoded, at)
        domain, at = read_text(encoded, at)
        rest, at = read_text(encoded, at)
        into.uservalue.MergeFromString(rest)
        into.uservalue.email, into.uservalue.auth_domain = email, domain
        if not into.uservalue.HasField("gaiaid"):
            into.uservalue.gaiaid = 0  # an SDK's schema requires it
        return at
    end = _key_end(encoded, at)
    app, at = read_text(encoded, at)
    database, at = read_text(encoded, at)
    namespace, at = read_text(encoded, at)
    reference = into.referencevalue
    reference.app = app
    if database:
        reference.database_id = database
    if namespace:
        reference.name_space = namespace
    for kind, identifier in keys.decode_path(encoded[at:end]):
        element = reference.pathelement.add(type=kind)
        if isinstance(identifier, int):
            element.id = identifier
        else:
            element.name = identifier
    return end
