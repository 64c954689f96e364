"""What the znodes of the zookeeper layer hold, as data. What is done with it stands in buckets.py.

Rows are hashed onto a fixed number of buckets, one znode each. A bucket holds its last change: a sequence number, who
made it, and the row writes it consists of. A value that is too long for a znode stands in a row of its own instead,
the intent, whose address follows from the change.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from adapters.contract import Address, Table, Write
from adapters.errors import Corrupt, TooLarge

#: Rows of a change carry this plus its sequence number as their version: always above versions that callers give,
#: which are clocks and counters, since a write without a version always wins.
FIRST_VERSION = 1 << 62
INLINE_BYTES = 16 << 10  #: a longer value stands in an intent row
PORTION_BYTES = 64 << 10  #: of the rows changed at once: ZooKeeper keeps all znodes in memory
MAX_BYTES = 900 << 10  #: what a znode may hold is a megabyte, unless its server was told otherwise
UID_BYTES = 16

_INTENTS = b"\xffz"  # before the scope of the row that the value belongs to
LAYOUT_ADDRESS = Address(Table.META, b"\xfflayout of zookeeper\x00", b"", b"layout")
_WRITTEN, _DELETED = 1, 2  # versions of an intent row

_FORMAT = 1
_HEAD = struct.Struct(f">BQ{UID_BYTES}s")
_ROW = struct.Struct(">cBIIII")  # table, kind, lengths
_DELETE, _VALUE, _INTENT = range(3)
_INTENT_KEY = struct.Struct(f">IQ{UID_BYTES}sI")
INTENT_BYTES = len(_INTENTS) + _INTENT_KEY.size  #: of an intent's address, beside the scope it belongs to


class Pending(NamedTuple):
    """One row of a change. `apart`: its value stands in an intent row."""

    address: Address
    value: bytes | None
    apart: bool


class Change(NamedTuple):
    """The last change of a bucket. `uid` is fresh for every attempt."""

    sequence: int
    uid: bytes
    pending: tuple[Pending, ...]

    @property
    def version(self) -> int:
        return FIRST_VERSION + self.sequence

    def intents(self, number: int) -> list[Address]:
        """Where the values that stand apart are; `number` is the bucket's."""
        addresses = [(index, row.address) for index, row in enumerate(self.pending) if row.apart]
        return [
            Address(table, intent_scope(scope), self.uid, _INTENT_KEY.pack(number, self.sequence, self.uid, index))
            for index, (table, scope, _, _) in addresses
        ]


UNTOUCHED = Change(0, bytes(UID_BYTES), ())


class Intent(NamedTuple):
    """What the key of an intent row tells of it."""

    number: int
    sequence: int
    uid: bytes


def intent_scope(scope: bytes) -> bytes:
    return _INTENTS + scope


def intent_of(key: bytes) -> Intent:
    if len(key) != _INTENT_KEY.size:
        raise Corrupt(f"no intent of a change: {key!r:.60} in a scope that belongs to zookeeper")
    number, sequence, uid, _ = _INTENT_KEY.unpack(key)
    return Intent(number, sequence, uid)


def intent_writes(number: int, change: Change, writes: Iterable[Write]) -> list[Write]:
    """The intent rows of a change that was made of `writes`."""
    values = [write.value for write, row in zip(writes, change.pending, strict=True) if row.apart]
    return [
        Write(address, value, version=_WRITTEN) for address, value in zip(change.intents(number), values, strict=True)
    ]


def intent_deletes(addresses: Iterable[Address]) -> list[Write]:
    return [Write(address, None, version=_DELETED) for address in addresses]


def change_of(sequence: int, writes: Iterable[Write]) -> Change:
    def pending(write: Write) -> Pending:
        apart = write.value is not None and len(write.value) > INLINE_BYTES
        return Pending(write.address, None if apart else write.value, apart)

    return Change(sequence, os.urandom(UID_BYTES), tuple(map(pending, writes)))


def portions(writes: Iterable[Write]) -> Iterator[list[Write]]:
    """The writes in their order, in lists that one znode can hold."""
    portion: list[Write] = []
    size = 0
    for write in writes:
        value = write.value or b""
        own = sum(map(len, write.address[1:])) + (len(value) if len(value) <= INLINE_BYTES else 0)
        if portion and size + own > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(write)
        size += own
    if portion:
        yield portion


def encoded(change: Change) -> bytes:
    parts = [_HEAD.pack(_FORMAT, change.sequence, change.uid)]
    for (table, *names), value, apart in change.pending:
        kind = _INTENT if apart else _DELETE if value is None else _VALUE
        texts = [*names, value or b""]
        parts += [_ROW.pack(table.value, kind, *map(len, texts)), *texts]
    data = b"".join(parts)
    if len(data) > MAX_BYTES:
        raise TooLarge(f"a change of {len(data)} bytes of addresses and short values; a znode takes {MAX_BYTES}")
    return data


def decoded(data: bytes) -> Change:
    """Raises Corrupt for what `encoded` did not make."""
    try:
        version, sequence, uid = _HEAD.unpack_from(data)
        if version != _FORMAT:
            raise Corrupt(f"a bucket in ZooKeeper is of format {version}, this pbserver reads {_FORMAT}")
        return Change(sequence, uid, tuple(_decoded_rows(data)))
    except (struct.error, ValueError) as error:
        raise Corrupt(f"a bucket in ZooKeeper holds no change: {data!r:.60}") from error


def _decoded_rows(data: bytes) -> Iterator[Pending]:
    offset = _HEAD.size
    while offset < len(data):
        table, kind, *lengths = _ROW.unpack_from(data, offset)
        offset += _ROW.size
        texts = []
        for length in lengths:
            texts.append(data[offset : offset + length])
            offset += length
        if offset > len(data):
            raise ValueError(f"a row ends at {offset} of {len(data)} bytes")
        scope, place, key, value = texts
        yield Pending(Address(Table(table), scope, place, key), value if kind == _VALUE else None, kind == _INTENT)


class Layout(NamedTuple):
    """Which buckets there are; recorded on first use in ZooKeeper and in the database, and the same ever after."""

    id: str
    buckets: int

    def encoded(self) -> bytes:
        return f"{_FORMAT} {self.id} {self.buckets}".encode()

    def number_of(self, address: Address) -> int:
        table, scope, _, key = address
        digest = hashlib.blake2b(table.value + scope + key, digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.buckets


def new_layout(buckets: int) -> Layout:
    return Layout(os.urandom(8).hex(), buckets)


def decoded_layout(data: bytes) -> Layout:
    try:
        version, name, buckets = data.decode("ascii").split(" ")
        if int(version) == _FORMAT and int(buckets) > 0:
            return Layout(name, int(buckets))
    except ValueError as error:
        raise Corrupt(f"the layout in ZooKeeper is {data!r:.60}") from error
    raise Corrupt(f"the layout in ZooKeeper is {data!r:.60}")
