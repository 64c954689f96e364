"""The mongodb adapter's pure parts: names in order, documents by version, errors that say what happened."""

import pytest
from bson import BSON, Int64
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors

from adapters.contract import KeyRange, Rows, Table
from adapters.errors import Applied, StoreError, TooLarge, Unavailable, Unsupported
from adapters.mongodb import codec
from adapters.mongodb.errors import TRANSLATED, translated
from adapters.mongodb.nodes import VALUE_BYTES

SCOPE = b"scope\x00"

refused = errors.AutoReconnect("127.0.0.1:1: [Errno 111] Connection refused")
refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
bulk = {"writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 dup key: secret row", "op": {"d": "secret row"}}]}


@given(st.lists(st.binary(max_size=6), min_size=2))
def test_names_sort_in_utf_8_as_keys_do_in_bytes(keys: list[bytes]) -> None:
    names = [codec.name_of(Table.INDEXES, SCOPE, key) for key in keys]
    in_order = sorted(zip(names, keys, strict=True), key=lambda pair: pair[0].encode())
    assert [key for _, key in in_order] == sorted(keys)
    documents = [{"_id": name, "r": {"d": key}} for name, key in in_order]
    assert codec.rows_in(documents, SCOPE) == [(key, key) for key in sorted(keys)]


def test_a_range_ends_with_its_scope() -> None:
    assert codec.within(Table.META, b"\xff", KeyRange()) == {"$gte": "m\xff", "$lt": "n"}
    assert codec.within(Table.META, b"s\x00", KeyRange(b"a", b"b")) == {"$gte": "ms\x00a", "$lt": "ms\x00b"}
    assert codec.within(Table.META, b"s\x00", KeyRange(b"b", b"b")) is None


def test_many_rows_are_asked_for_in_parts() -> None:
    assert [*codec.queries([])] == []
    few, long = ["a"] * (codec.ROWS_AT_ONCE + 1), ["k" * 600_000] * 3
    assert [*map(len, codec.queries(few))] == [codec.ROWS_AT_ONCE, 1]
    assert [*map(len, codec.queries(long))] == [1, 1, 1]


def test_rows_become_changes_with_their_version() -> None:
    written: dict[bytes, bytes | None] = {b"a": b"1", b"b": None}
    row, gone = codec.changes([], [Rows(Table.INDEXES, b"", b"p", written, 7)], 99)
    assert row == codec.UpdateOne({"_id": "ia"}, {"$max": {"r": {"v": Int64(7), "d": b"1"}}}, upsert=True)
    assert gone == codec.UpdateOne({"_id": "ib"}, {"$max": {"r": {"v": Int64(7), "t": Int64(99)}}}, upsert=True)
    row, gone = codec.changes([], [Rows(Table.INDEXES, b"", b"p", written)], 99)
    assert row == codec.UpdateOne({"_id": "ia"}, {"$set": {"r": {"d": b"1"}}}, upsert=True)
    assert gone == codec.DeleteOne({"_id": "ib"})


def test_the_largest_change_fits_a_document() -> None:
    row = codec.name_of(Table.GROUPS, b"", b"\xff" * codec.KEY_BYTES)
    value = b"v" * VALUE_BYTES
    change = {"q": {"_id": row, "r.d": value}, "u": {"$set": {"r.d": value}}, "upsert": False, "multi": False}
    assert len(BSON.encode(change)) <= 16 << 20


@pytest.mark.parametrize(
    ("error", "kind", "applied", "text"),
    [
        (errors.NetworkTimeout("h:1: timed out"), Unavailable, Applied.UNKNOWN, "NetworkTimeout h:1: timed out"),
        (errors.AutoReconnect("connection closed"), Unavailable, Applied.UNKNOWN, "closed"),
        (refused, Unavailable, Applied.NO, "refused"),
        (errors.ServerSelectionTimeoutError("h:1: down, Timeout: 3s, Topology"), Unavailable, Applied.NO, "down$"),
        (errors.WaitQueueTimeoutError("no connection"), Unavailable, Applied.NO, "no connection"),
        (errors.ExecutionTimeout("late", 50), Unavailable, Applied.UNKNOWN, "late"),
        (errors.WTimeoutError("waiting", 64), Unavailable, Applied.UNKNOWN, "waiting"),
        (errors.NotPrimaryError("n", {"code": 10107}), Unavailable, Applied.NO, "not the primary"),
        (errors.NotPrimaryError("n", {"code": 11602}), Unavailable, Applied.UNKNOWN, "not the primary"),
        (errors.OperationFailure("bad", 18), Unavailable, Applied.NO, "the user, its password"),
        (errors.OperationFailure("what", 59), Unsupported, Applied.NO, "do not allow it"),
        (errors.OperationFailure("odd", 1), Unavailable, Applied.UNKNOWN, "odd"),
        (errors.DocumentTooLarge("17 MiB"), TooLarge, Applied.UNKNOWN, "larger"),  # others may have been sent before
        (errors.ConfigurationError("no"), Unsupported, Applied.NO, "no"),
        (errors.BulkWriteError(bulk), Unavailable, Applied.UNKNOWN, "another client"),
    ],
)
def test_an_error_says_what_may_have_happened_and_quotes_no_row(
    error: Exception, kind: type[StoreError], applied: Applied, text: str
) -> None:
    assert isinstance(error, TRANSLATED)
    made = translated(error, "mongodb h:1/db", wrote=True)
    assert type(made) is kind
    assert made.applied is applied
    with pytest.raises(kind, match=f"^mongodb h:1/db: .*{text}"):
        raise made
    assert "secret" not in str(made)
    assert translated(error, "").applied is Applied.NO
