"""The documents, and what one call turns into. Pure: nothing here talks to a server.

Rows stand in one collection, those of volatile tables in another, a document each:

    {_id: table + scope + key, r: {d: value}}               written without a version
    {_id: table + scope + key, r: {v: version, d: value}}
    {_id: table + scope + key, r: {v: version, t: milliseconds}}    deleted; the clock is for `sweep`

- Binary values sort by length first in MongoDB, strings by their bytes. So a key is a string with a character for each
  byte, U+0000 to U+00FF: UTF-8 keeps the order of characters. It costs a byte for each byte above 0x7f; hexadecimal
  would cost one for every byte.
- A versioned write is `$max` of r, for documents are compared field by field, v first: the server keeps what has the
  higher version, a tombstone as well as a value. The filter is _id alone, so there is no duplicate key when a newer
  one is there, which would end FerretDB's whole command; and MongoDB repeats by itself an upsert that lost a race.
- A binary sorts after every number: r without v is above all versions, so a row written without one stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bson import Int64
from pymongo import DeleteOne, UpdateOne

from adapters.contract import Address, Check, KeyRange, Operation, Row, Rows, Table, after_prefix

ROWS, VOLATILE_ROWS = "pbserver_rows", "pbserver_volatile_rows"
KEY_BYTES = 1 << 16  # of what a document may have, 16 MiB, values get the rest
ROWS_AT_ONCE = 1000  # of one query
NAMES_BYTES = 1 << 20  # as above, of its keys
ALIVE: Mapping[str, Any] = {"r.d": {"$exists": True}}
DEAD: Mapping[str, Any] = {"r.d": {"$exists": False}}

Document = dict[str, Any]
Change = UpdateOne | DeleteOne


def name_of(table: Table, scope: bytes, key: bytes) -> str:
    return (table._value_ + scope + key).decode("latin-1")


def name(address: Address) -> str:
    return name_of(address.table, address.scope, address.key)


def value_in(document: Document | None) -> bytes | None:
    value: bytes | None = None if document is None else document["r"].get("d")
    return value


def rows_in(documents: Iterable[Document], scope: bytes) -> list[Row]:
    """Keys and values, as a scan returns them."""
    cut = 1 + len(scope)
    return [(each["_id"][cut:].encode("latin-1"), each["r"]["d"]) for each in documents]


def changes(operations: Iterable[Operation], rows: Iterable[Rows], milliseconds: int) -> list[Change]:
    """Of a call without conditions; `milliseconds`: now."""
    found = [
        _change(name(each.address), each.value, each.version, milliseconds)
        for each in operations
        if not isinstance(each, Check)
    ]
    for table, scope, _, values, version in rows:
        found += [_change(name_of(table, scope, key), value, version, milliseconds) for key, value in values.items()]
    return found


def _change(row: str, value: bytes | None, version: int | None, milliseconds: int) -> Change:
    if version is None:
        if value is None:
            return DeleteOne({"_id": row})
        return UpdateOne({"_id": row}, {"$set": {"r": {"d": value}}}, upsert=True)
    number = Int64(version)
    state: Document = {"v": number, "t": Int64(milliseconds)} if value is None else {"v": number, "d": value}
    return UpdateOne({"_id": row}, {"$max": {"r": state}}, upsert=True)


def within(table: Table, scope: bytes, keys: KeyRange) -> Document | None:
    """What _id must be; None when no key can lie in the range."""
    start = name_of(table, scope, keys.start)
    stop = after_prefix(table._value_ + scope) if keys.stop is None else table._value_ + scope + keys.stop
    assert stop is not None, "a table's byte is below 0xff"
    end = stop.decode("latin-1")
    return {"$gte": start, "$lt": end} if start < end else None


def queries(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """Rows as they are asked for at once."""
    start = size = 0
    for end, row in enumerate(rows):
        if end > start and (end - start == ROWS_AT_ONCE or size + len(row) > NAMES_BYTES):
            yield rows[start:end]
            start, size = end, 0
        size += len(row)
    if start < len(rows):
        yield rows[start:]
