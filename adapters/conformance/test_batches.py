"""Stores that apply a whole batch, or what lies in one scope of it, as one."""

import threading

import pytest

from adapters.conformance.addressing import at
from adapters.conformance.matrix import AtOnce
from adapters.contract import ABSENT, ANY, Atomicity, Check, KeyRange, Operation, OrderedStore, Rows, Table, Write
from adapters.errors import Applied, Conflict

OTHER = b"other\x00"
_ROUNDS = 30


def test_a_failed_expectation_applies_nothing_and_says_where(scope_store: OrderedStore, deadline: float) -> None:
    scope_store.write([Write(at(b"a"), b"1")], deadline=deadline)
    batch: list[Operation] = [
        Write(at(b"b"), b"2"),
        Check(at(b"c"), ABSENT),
        Write(at(b"a"), b"3", b"0"),
        Write(at(b"d"), None, b"x"),
    ]
    with pytest.raises(Conflict) as raised:
        scope_store.write(batch, deadline=deadline)
    assert (raised.value.index, raised.value.current, raised.value.applied) == (2, b"1", Applied.NO)
    assert scope_store.read([at(b"a"), at(b"b")], deadline=deadline) == [b"1", None]


def test_expectations_that_hold_together(scope_store: OrderedStore, deadline: float) -> None:
    scope_store.write([Write(at(b"a"), b"1", ABSENT), Check(at(b"none"), ABSENT)], deadline=deadline)
    scope_store.write([Write(at(b"a"), b"2", b"1"), Check(at(b"b"), ABSENT), Check(at(b"c"), ANY)], deadline=deadline)
    scope_store.write([Write(at(b"b"), b"3"), Check(at(b"a"), b"2")], deadline=deadline)
    scope_store.write([Write(at(b"a"), None, b"2"), Write(at(b"never"), None)], deadline=deadline)
    assert scope_store.read([at(b"a"), at(b"b")], deadline=deadline) == [None, b"3"]


@pytest.mark.parametrize("there", [b"1", None])
def test_a_conflict_in_one_scope_applies_nothing_of_the_others(
    scope_store: OrderedStore, deadline: float, there: bytes | None
) -> None:
    if there is not None:
        scope_store.write([Write(at(b"a"), there)], deadline=deadline)
    elsewhere = [Write(at(b"%d" % number, scope=OTHER), b"v") for number in range(5)]
    batch: list[Operation] = [*elsewhere[:3], Write(at(b"b"), b"v"), Write(at(b"a"), b"2", b"0"), *elsewhere[3:]]
    bulk = Rows(Table.INDEXES, OTHER, b"place", {b"bulk": b"v"})
    with pytest.raises(Conflict) as raised:
        scope_store.write(batch, rows=[bulk], deadline=deadline)
    assert (raised.value.index, raised.value.current, raised.value.applied) == (4, there, Applied.NO)
    assert scope_store.read([each.address for each in elsewhere], deadline=deadline) == [None] * 5
    assert scope_store.scan(Table.INDEXES, OTHER, KeyRange(), limit=9, deadline=deadline) == []
    batch[4] = Write(at(b"a"), b"2", there or ABSENT)
    scope_store.write(batch, rows=[bulk], deadline=deadline)
    assert scope_store.read([each.address for each in batch], deadline=deadline) == [*[b"v"] * 4, b"2", b"v", b"v"]
    assert scope_store.scan(Table.INDEXES, OTHER, KeyRange(), limit=9, deadline=deadline) == [(b"bulk", b"v")]


def test_versions_and_a_condition_share_a_batch(scope_store: OrderedStore, deadline: float) -> None:
    """A head by condition, and rows by version, as a commit writes them."""
    version = 7 if scope_store.capabilities.versioned_writes else None
    for head, value in ((ABSENT, b"1"), (b"1", b"2")):
        rows = [Write(at(b"r%d" % number, scope=OTHER), value, ANY, version) for number in range(3)]
        scope_store.write([Write(at(b"head"), value, head), *rows], deadline=deadline)
        version = version and version + 1
        found = scope_store.read([at(b"head"), *(each.address for each in rows)], deadline=deadline)
        assert found == [value] * 4


def test_threads_that_insert_two_rows_of_one_scope_get_both_or_none(
    scope_store: OrderedStore, deadline: float, at_once: AtOnce
) -> None:
    def insert(number: int) -> None:
        rows = [Write(at(key), b"%d" % number, ABSENT) for key in ((b"a", b"b"), (b"b", b"a"))[number % 2]]
        scope_store.write(rows, deadline=deadline)

    results = at_once(16, insert)
    assert len([result for result in results if result is None]) == 1
    first, second = scope_store.read([at(b"a"), at(b"b")], deadline=deadline)
    assert first == second
    assert first is not None


def test_rows_of_one_scope_are_read_in_one_state(scope_store: OrderedStore, deadline: float, at_once: AtOnce) -> None:
    """A head and entities as long as entities may be, changed together: no reader sees some of a change."""
    keys = [b"", b"entity", b"x" * 200, b"\xff"]

    def values(round_number: int) -> list[bytes]:
        return [b"%d" % round_number, *[b"%d " % round_number * 3000] * (len(keys) - 1)]

    written = threading.Event()

    def write() -> None:
        try:
            for number in range(_ROUNDS):
                old, new = values(number - 1), values(number)
                head = Write(at(keys[0]), new[0], old[0] if number else ABSENT)
                rows = [Write(at(key), value) for key, value in zip(keys[1:], new[1:], strict=True)]
                scope_store.write([head, *rows], deadline=deadline)
        finally:
            written.set()

    def read() -> None:
        addresses = [at(key) for key in reversed(keys)]
        while not written.is_set():
            found = scope_store.read(addresses, deadline=deadline)
            head = found[-1]
            expected = values(int(head)) if head is not None else [None] * len(keys)
            assert found == expected[::-1]

    assert at_once(3, lambda number: read() if number else write()) == [None] * 3


def test_operations_in_two_scopes_fail_together(batch_store: OrderedStore, deadline: float) -> None:
    assert batch_store.capabilities.atomicity is Atomicity.BATCH
    batches: list[list[Operation]] = [
        [Write(at(b"a"), b"v", ABSENT), Check(at(b"b", scope=OTHER), b"x")],
        [Check(at(b"b", scope=OTHER), ABSENT), Write(at(b"a", Table.GROUPS), b"v"), Write(at(b"a"), b"v", b"x")],
    ]
    for batch in batches:
        with pytest.raises(Conflict) as raised:
            batch_store.write(batch, deadline=deadline)
        assert raised.value.index == len(batch) - 1
        assert batch_store.read([at(b"a"), at(b"a", Table.GROUPS)], deadline=deadline) == [None, None]
    batch_store.write([Write(at(b"a"), b"v", ABSENT), Write(at(b"b", scope=OTHER), b"v", ABSENT)], deadline=deadline)
    assert batch_store.read([at(b"a"), at(b"b", scope=OTHER)], deadline=deadline) == [b"v", b"v"]
