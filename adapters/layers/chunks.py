"""How long keys are cut, and the walk through one scope that holds pieces of them. The idea stands in longkeys.py."""

from collections import deque
from collections.abc import Collection, Sequence
from operator import itemgetter

from adapters.contract import Address, KeyRange, Reader, Row, Table
from adapters.errors import Corrupt, Unsupported

NODE = b"\xff"
ID_BYTES = 16
ROOT = NODE + bytes(ID_BYTES)  # no random id is zero
SHORTEST_LIMIT = 64

_KEY = itemgetter(0)


class Sizes:
    """C and S for a store's limit: one byte is kept back, so that the end of a scan fits as well."""

    def __init__(self, max_key_bytes: int) -> None:
        if max_key_bytes < SHORTEST_LIMIT:
            raise Unsupported(f"keys of {max_key_bytes} bytes are too short to chain; {SHORTEST_LIMIT} are needed")
        self.scope = max(max_key_bytes // 3, len(ROOT))
        self.chunk = max_key_bytes - self.scope - 1

    def fit(self, address: Address) -> bool:
        return len(address.key) < self.chunk and len(address.scope) <= self.scope

    def all_fit(self, addresses: Sequence[Address]) -> bool:
        chunk, longest = self.chunk, self.scope
        for _, scope, _, key in addresses:  # noqa: SIM110 - a generator costs three times as much
            if len(key) >= chunk or len(scope) > longest:
                return False
        return True

    def columns_fit(self, scopes: Sequence[bytes], keys: Collection[bytes]) -> bool:
        return max(map(len, keys), default=0) < self.chunk and max(map(len, scopes), default=0) <= self.scope

    def simple(self, scope: bytes, keys: KeyRange) -> bool:
        """Whether a scan begins and ends outside all markers."""
        start, stop = keys
        chunk = self.chunk
        return len(scope) <= self.scope and len(start) <= chunk and (stop is None or len(stop) <= chunk)

    def marked(self, rows: list[Row]) -> bool:
        return self.chunk in map(len, map(_KEY, rows))


class Level:
    """A scope being walked: the rows fetched, and how far the walk has come."""

    def __init__(self, scope: bytes, prefix: bytes, keys: KeyRange, chunk: int) -> None:
        start, stop = keys
        self.scope = scope
        self.prefix = prefix
        self.rows: deque[Row] = deque()
        self.exhausted = False
        self._start = start
        self._stop = stop
        self._low = start[:chunk]
        self._high = stop if stop is None or len(stop) <= chunk else stop[:chunk] + b"\x00"
        self._chunk = chunk

    def fetch(self, reader: Reader, table: Table, limit: int, reverse: bool, deadline: float) -> None:
        keys = KeyRange(self._low, self._high)
        rows = reader.scan(table, self.scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        self.rows.extend(rows)
        self.exhausted = len(rows) < limit
        if rows and reverse:
            self._high = rows[-1][0]
        elif rows:
            self._low = rows[-1][0] + b"\x00"

    def below(self, marker: bytes, node: bytes) -> "Level":
        chunk = self._chunk
        start = self._start[chunk:] if self._start[:chunk] == marker else b""
        stop = None
        if self._stop is not None and len(self._stop) > chunk and self._stop[:chunk] == marker:
            stop = self._stop[chunk:]
        return Level(NODE + checked_id(node), self.prefix + marker, KeyRange(start, stop), chunk)


def marker_of(address: Address, chunk: int) -> Address:
    return Address(address.table, address.scope, b"", address.key[:chunk])


def below(address: Address, node: bytes, chunk: int) -> Address:
    return address._replace(scope=NODE + checked_id(node), key=address.key[chunk:])


def checked_id(value: bytes) -> bytes:
    if len(value) != ID_BYTES:
        raise Corrupt(f"a node's id has {len(value)} bytes, {value!r:.60}; the rows were not written by this layer")
    return value
