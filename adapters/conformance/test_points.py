"""Every store: rows written and read by their whole address, limits, deadlines, what a closed store says."""

import time

import pytest

from adapters.conformance.addressing import at
from adapters.contract import ANY, Check, PointStore, Rows, Table, Write
from adapters.errors import Applied, Conflict, StoreError, TooLarge, Unavailable, Unsupported

LARGEST_TRIED = 1_200_000


def test_an_empty_batch_and_an_empty_read_do_nothing(points: PointStore, deadline: float) -> None:
    points.write([], deadline=deadline)
    assert points.read([], deadline=deadline) == []


def test_rows_are_read_in_the_order_asked_with_gaps_and_repeats(points: PointStore, deadline: float) -> None:
    points.write([Write(at(key), key) for key in (b"a", b"b", b"c")], deadline=deadline)
    wanted = [b"c", b"missing", b"a", b"c", b"b"]
    found = points.read([at(key) for key in wanted], deadline=deadline)
    assert found == [None if key == b"missing" else key for key in wanted]
    assert points.read([at(key) for key in wanted], deadline=deadline, settle=True) == found


def test_every_byte_in_keys_and_values_and_the_empty_key(points: PointStore, deadline: float) -> None:
    keys = [b"", *(bytes([byte]) for byte in range(256)), *(bytes([255, byte]) for byte in range(256))]
    most = points.capabilities.max_batch or len(keys)
    for table in (Table.GROUPS, Table.META, Table.SESSIONS):
        for start in range(0, len(keys), most):
            batch = [Write(at(key, table), key[-1:] + b"\x00\xff" + key) for key in keys[start : start + most]]
            points.write(batch, deadline=deadline)
        found = points.read([at(key, table) for key in keys], deadline=deadline)
        assert found == [key[-1:] + b"\x00\xff" + key for key in keys]


def test_one_read_may_span_all_tables(points: PointStore, deadline: float) -> None:
    for table in Table:
        points.write([Write(at(b"k", table), table.value)], deadline=deadline)
    assert points.read([at(b"k", table) for table in Table], deadline=deadline) == [table.value for table in Table]


def test_rows_are_overwritten_and_deleted(points: PointStore, deadline: float) -> None:
    points.write([Write(at(b"a"), b"1"), Write(at(b"b"), b"1"), Check(at(b"c"), ANY)], deadline=deadline)
    points.write([Write(at(b"a"), b"2" * 90), Write(at(b"b"), None), Write(at(b"never"), None)], deadline=deadline)
    assert points.read([at(b"a"), at(b"b"), at(b"never")], deadline=deadline) == [b"2" * 90, None, None]


def test_rows_in_bulk_are_rows(points: PointStore, deadline: float) -> None:
    first: dict[bytes, bytes | None] = {b"a": b"1", b"b": b"2", b"": b"3"}
    second: dict[bytes, bytes | None] = {b"a": None, b"b": b"4", b"never": None}
    points.write([Write(at(b"own"), b"5")], rows=[Rows(Table.INDEXES, b"s\x00", b"p", first)], deadline=deadline)
    points.write([], rows=[Rows(Table.INDEXES, b"s\x00", b"p", second)], deadline=deadline)
    wanted = [at(key, Table.INDEXES, b"s\x00")._replace(place=b"p") for key in (b"a", b"b", b"")]
    assert points.read([*wanted, at(b"own")], deadline=deadline) == [None, b"4", b"3", b"5"]


def test_keys_at_the_limit_and_one_byte_over(points: PointStore, deadline: float) -> None:
    most = points.capabilities.max_key_bytes
    key = b"k" * ((most or 30_000) - len(at(b"").scope))
    points.write([Write(at(key), b"long"), Write(at(key[:-1]), b"shorter")], deadline=deadline)
    assert points.read([at(key), at(key[:-1])], deadline=deadline) == [b"long", b"shorter"]
    if most is not None:
        with pytest.raises(TooLarge):
            points.write([Write(at(key + b"k"), b"v")], deadline=deadline)
        with pytest.raises(TooLarge):
            points.read([at(key + b"k")], deadline=deadline)


def test_values_at_the_limit_and_one_byte_over(points: PointStore, deadline: float) -> None:
    most = points.capabilities.max_value_bytes
    for size in {1, min(most or LARGEST_TRIED, LARGEST_TRIED)}:
        for byte in (b"v", b"\xff", b"\x00"):
            points.write([Write(at(byte), byte * size)], deadline=deadline)
            assert points.read([at(byte)], deadline=deadline) == [byte * size]
    if most is not None:
        with pytest.raises(TooLarge):
            points.write([Write(at(b"v"), b"v" * (most + 1))], deadline=deadline)


def test_batches_at_the_limits_and_one_over(points: PointStore, deadline: float) -> None:
    claims = points.capabilities
    if claims.max_batch is not None:
        batch = [Write(at(b"%d" % number), b"v") for number in range(claims.max_batch + 1)]
        points.write(batch[:-1], deadline=deadline)
        with pytest.raises(TooLarge):
            points.write(batch, deadline=deadline)
    if claims.max_batch_bytes is not None:
        size = min(claims.max_batch_bytes, claims.max_value_bytes or claims.max_batch_bytes) // 2
        batch = [Write(at(b"%d" % number), b"v" * size) for number in range(claims.max_batch_bytes // size + 1)]
        with pytest.raises(TooLarge):
            points.write(batch, deadline=deadline)


@pytest.mark.timeout(30)
def test_a_call_whose_deadline_has_passed_ends_at_once_and_says_what_it_did(points: PointStore) -> None:
    begun = time.monotonic()
    try:
        points.write([Write(at(b"k"), b"v")], deadline=begun - 1)
        allowed: list[bytes | None] = [b"v"]
    except Unavailable as error:
        allowed = [None] if error.applied is Applied.NO else [None, b"v"]
    try:
        assert points.read([at(b"k")], deadline=begun - 1)[0] in allowed
    except Unavailable as error:
        assert error.applied is Applied.NO
    assert time.monotonic() - begun < 10
    assert points.read([at(b"k")], deadline=time.monotonic() + 60)[0] in allowed


def test_drop_tables_empties_all_and_the_store_goes_on(points: PointStore, deadline: float) -> None:
    for table in Table:
        points.write([Write(at(b"k" * 300, table), b"v" * 90)], deadline=deadline)
    points.drop_tables()
    assert points.read([at(b"k" * 300, table) for table in Table], deadline=deadline) == [None] * len(Table)
    points.ensure_tables()
    points.write([Write(at(b"k" * 300), b"v")], deadline=deadline)
    assert points.read([at(b"k" * 300)], deadline=deadline) == [b"v"]


def test_ensure_tables_keeps_what_is_there(points: PointStore, deadline: float) -> None:
    points.write([Write(at(b"k"), b"v")], deadline=deadline)
    points.ensure_tables()
    assert points.read([at(b"k")], deadline=deadline) == [b"v"]


@pytest.mark.timeout(30)
def test_a_closed_store_says_so(points: PointStore) -> None:
    points.check()
    points.close()
    points.close()
    later = time.monotonic() + 60
    for use in (
        points.check,
        lambda: points.read([at(b"k")], deadline=later),
        lambda: points.write([Write(at(b"k"), b"v")], deadline=later),
    ):
        with pytest.raises(Unavailable, match="closed"):
            use()


def test_errors_are_store_errors_that_say_what_was_applied() -> None:
    for kind in (Unavailable, TooLarge, Unsupported):
        assert kind("text").applied is Applied.NO
        assert issubclass(kind, StoreError)
    assert Conflict("text", index=0, current=None).applied is Applied.NO
