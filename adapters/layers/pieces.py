"""How long values are cut and found again. What is done with it stands in longvalues.py."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from adapters.contract import Address, KeyRange, Reader, Table, Write
from adapters.errors import Corrupt

MARK = b"\xff"
ESCAPE = b"\xff\x00"
POINTER = b"\xff\x01"
SCOPE = b"\xfd"
SHARD_BYTES = 8
TIME_BYTES = 6
ID_BYTES = SHARD_BYTES + TIME_BYTES + 10
SCANNED_AT_ONCE = 16  # pieces are large
_COUNT_BYTES = 4
_LENGTHS_BYTES = 12
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


def shard(scope: bytes) -> bytes:
    """Names the owners' scope in its pieces' ids. Two scopes of one shard do no harm: the pieces name their owner."""
    return hashlib.sha256(scope).digest()[:SHARD_BYTES]


def fresh_id(scope: bytes) -> bytes:
    """The shard of the owner's scope, the milliseconds of its birth, ten random bytes."""
    return shard(scope) + int(time.time() * 1000).to_bytes(TIME_BYTES, "big") + os.urandom(10)


def born_milliseconds(piece_id: bytes) -> int:
    return int.from_bytes(piece_id[SHARD_BYTES : SHARD_BYTES + TIME_BYTES], "big")


def piece_address(table: Table, piece_id: bytes, number: int) -> Address:
    key = piece_id[SHARD_BYTES:] + number.to_bytes(_COUNT_BYTES, "big")
    return Address(table, SCOPE + piece_id[:SHARD_BYTES], piece_id, key)


def pieces_scope(scope: bytes) -> bytes:
    """Where the pieces of long values of a scope stand."""
    return SCOPE + shard(scope)


def id_of_piece(scope: bytes, key: bytes) -> bytes:
    if len(key) != ID_BYTES - SHARD_BYTES + _COUNT_BYTES:
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
    pointer = Pointer(fresh_id(scope), len(starts))
    addresses = pointer.pieces(owner.table)
    return pointer, [
        Write(address, whole[start : start + size]) for address, start in zip(addresses, starts, strict=True)
    ]


def owner_in(table: Table, whole: bytes) -> tuple[Address | None, int]:
    """The owner that stands before a value, and where the value begins. `whole`: its pieces, the first ones at least;
    None where they end before the owner does.
    """
    ends = [_LENGTHS_BYTES]
    for start in range(0, _LENGTHS_BYTES, 4):
        ends.append(ends[-1] + int.from_bytes(whole[start : start + 4], "big"))
    if len(whole) < ends[-1]:
        return None, ends[-1]
    scope, place, key = (whole[start:end] for start, end in pairwise(ends))
    return Address(table, scope, place, key), ends[-1]


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
    if len(there) < len(pieces):
        return Missing()
    whole = b"".join(there)
    owner, start = owner_in(table, whole)
    if owner is None:
        raise Corrupt(f"the pieces of a long value have {len(whole)} bytes together, its owner alone has {start}")
    return whole[start:]


def born_before(
    reader: Reader, table: Table, scope: bytes, before: int, deadline: float
) -> Iterator[tuple[Pointer, Address | None]]:
    """The long values of one scope of pieces born before an instant (milliseconds), with as many pieces as are there.

    With its owner; None where pieces are missing that name it. Holds a few pieces at a time.
    """
    for piece_id, pieces in groupby(_pieces_in(reader, table, scope, deadline), lambda piece: piece[0]):
        head, owner, last = b"", None, -1
        for _, number, content in pieces:
            if owner is None and number == last + 1:
                head += content
                owner, _ = owner_in(table, head)
            last = number
        if born_milliseconds(piece_id) < before:
            yield Pointer(piece_id, last + 1), owner


def _pieces_in(reader: Reader, table: Table, scope: bytes, deadline: float) -> Iterator[tuple[bytes, int, bytes]]:
    """Id, number and content of every piece."""
    keys = KeyRange()
    while True:
        rows = reader.scan(table, scope, keys, limit=SCANNED_AT_ONCE, deadline=deadline)
        for key, content in rows:
            yield id_of_piece(scope, key), int.from_bytes(key[-_COUNT_BYTES:], "big"), content
        if len(rows) < SCANNED_AT_ONCE:
            return
        keys = KeyRange(rows[-1][0] + b"\x00")
