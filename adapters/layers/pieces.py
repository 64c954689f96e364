"""How long values are cut and found again. What is done with it stands in longvalues.py."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from adapters.contract import Address, KeyRange, Reader, Table, Write
from adapters.errors import Corrupt

MARK = b"\xff"
ESCAPE = b"\xff\x00"
POINTER = b"\xff\x01"
SCOPE = b"\xfd"
ID_BYTES = 16
_COUNT_BYTES = 4
_POINTER_BYTES = len(POINTER) + ID_BYTES + _COUNT_BYTES
SHORTEST_LIMIT = 32

Read = Callable[[Sequence[Address]], list[bytes | None]]


@dataclass(frozen=True, slots=True)
class Pointer:
    """What stands in a row in place of its long value: where the pieces are, and how many."""

    id: bytes
    count: int

    def stored(self) -> bytes:
        return POINTER + self.id + self.count.to_bytes(_COUNT_BYTES, "big")

    def pieces(self, table: Table) -> list[Address]:
        return [piece_address(table, self.id, number) for number in range(self.count)]


def fresh_id() -> bytes:
    """Random, with the milliseconds of its birth in it: one byte, six of time, nine."""
    return os.urandom(1) + int(time.time() * 1000).to_bytes(6, "big") + os.urandom(9)


def born_milliseconds(piece_id: bytes) -> int:
    return int.from_bytes(piece_id[1:7], "big")


def piece_address(table: Table, piece_id: bytes, number: int) -> Address:
    return Address(table, SCOPE + piece_id[:1], piece_id, piece_id[1:] + number.to_bytes(_COUNT_BYTES, "big"))


def shards() -> Iterable[bytes]:
    """The scopes in which a table's pieces stand."""
    return (SCOPE + bytes([byte]) for byte in range(256))


def id_of_piece(scope: bytes, key: bytes) -> bytes:
    if len(key) != ID_BYTES - 1 + _COUNT_BYTES:
        raise Corrupt(f"no piece of a long value: {key!r:.60} in scope {scope!r:.10}, which belongs to longvalues")
    return scope[len(SCOPE) :] + key[:-_COUNT_BYTES]


def pointer_in(stored: bytes | None) -> Pointer | None:
    if stored is None or not stored.startswith(POINTER):
        return None
    if len(stored) != _POINTER_BYTES:
        raise Corrupt(f"a pointer to a long value has {len(stored)} bytes: {stored!r:.60}")
    return Pointer(stored[2 : 2 + ID_BYTES], int.from_bytes(stored[2 + ID_BYTES :], "big"))


def inline(value: bytes, most: int) -> bytes | None:
    """How a value stands in its own row; None: it is too long for that."""
    if value[:1] == MARK:
        value = ESCAPE + value
    return value if len(value) <= most else None


def cut(value: bytes, owner: Address, size: int) -> tuple[Pointer, list[Write]]:
    """The pieces of `value` as writes. The owner's address goes before it, for the sweep."""
    _, scope, place, key = owner
    lengths = b"".join(len(part).to_bytes(4, "big") for part in (scope, place, key))
    whole = lengths + scope + place + key + value
    starts = range(0, len(whole), size)
    pointer = Pointer(fresh_id(), len(starts))
    addresses = pointer.pieces(owner.table)
    return pointer, [
        Write(address, whole[start : start + size]) for address, start in zip(addresses, starts, strict=True)
    ]


def joined(table: Table, pieces: Sequence[bytes]) -> tuple[Address, bytes]:
    """The owner's address and the value; an unfinished value gives nonsense or Corrupt."""
    whole = b"".join(pieces)
    if len(whole) < 12:
        raise Corrupt(f"the pieces of a long value have {len(whole)} bytes together")
    scope, place, key = (int.from_bytes(whole[start : start + 4], "big") for start in (0, 4, 8))
    ends = (12 + scope, 12 + scope + place, 12 + scope + place + key)
    return Address(table, whole[12 : ends[0]], whole[ends[0] : ends[1]], whole[ends[1] : ends[2]]), whole[ends[2] :]


class Missing(Exception):
    """A pointer leads to pieces that are gone: its row has been overwritten since it was read, or should be."""


def contents(table: Table, found: Sequence[bytes | None], read: Read) -> list[bytes | Missing | None]:
    """The values that callers see in what is stored in rows of one table; a Missing where pieces are gone.

    One read for all pieces of all of them.
    """
    pointers = {index: pointer for index, stored in enumerate(found) if (pointer := pointer_in(stored))}
    wanted = [address for pointer in pointers.values() for address in pointer.pieces(table)]
    pieces = iter(read(wanted) if wanted else ())
    values: list[bytes | Missing | None] = []
    for index, stored in enumerate(found):
        if index in pointers:
            values.append(_value(table, [next(pieces) for _ in range(pointers[index].count)]))
        else:
            values.append(stored[len(ESCAPE) :] if stored is not None and stored.startswith(ESCAPE) else stored)
    return values


def _value(table: Table, pieces: list[bytes | None]) -> bytes | Missing:
    there = [piece for piece in pieces if piece is not None]
    return joined(table, there)[1] if len(there) == len(pieces) else Missing()


def unfinished_ids(reader: Reader, table: Table, scope: bytes, before: int, deadline: float) -> list[Pointer]:
    """The long values of one shard born before an instant (milliseconds), each with as many pieces as are there."""
    counts: dict[bytes, int] = {}
    keys = KeyRange()
    while True:
        rows = reader.scan(table, scope, keys, limit=64, deadline=deadline)
        for key, _ in rows:
            piece_id = id_of_piece(scope, key)
            if born_milliseconds(piece_id) < before:
                counts[piece_id] = max(counts.get(piece_id, 0), int.from_bytes(key[-_COUNT_BYTES:], "big") + 1)
        if len(rows) < 64:
            return [Pointer(piece_id, count) for piece_id, count in counts.items()]
        keys = KeyRange(rows[-1][0] + b"\x00")
