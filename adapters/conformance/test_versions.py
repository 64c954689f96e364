"""Stores with versioned writes: the version rule of contract.py."""

from random import Random

import pytest

from adapters.conformance.addressing import at
from adapters.conformance.matrix import AtOnce
from adapters.contract import ABSENT, ANY, PointStore, Rows, Table, Write

LONG = b"long" * 40


def put(store: PointStore, deadline: float, version: int | None, value: bytes | None) -> bytes | None:
    """Writes the row, once more to be sure, and reads it."""
    for _ in range(2):
        store.write([Write(at(b"k"), value, ANY, version)], deadline=deadline)
    return store.read([at(b"k")], deadline=deadline)[0]


def test_a_lower_version_loses_silently(versioned_points: PointStore, deadline: float) -> None:
    assert put(versioned_points, deadline, 5, b"five") == b"five"
    assert put(versioned_points, deadline, 4, b"four") == b"five"
    assert put(versioned_points, deadline, 3, None) == b"five"
    assert put(versioned_points, deadline, 6, LONG) == LONG
    assert put(versioned_points, deadline, 5, LONG + b"5") == LONG
    assert put(versioned_points, deadline, 1 << 62, b"last") == b"last"


@pytest.mark.parametrize("there", [True, False])
def test_a_lower_version_loses_to_a_delete(versioned_points: PointStore, deadline: float, there: bool) -> None:
    if there:
        put(versioned_points, deadline, 1, b"one")
    assert put(versioned_points, deadline, 5, None) is None
    assert put(versioned_points, deadline, 4, b"four") is None
    assert put(versioned_points, deadline, 3, LONG) is None
    assert put(versioned_points, deadline, 6, b"six") == b"six"


def test_a_write_without_version_always_wins(versioned_points: PointStore, deadline: float) -> None:
    put(versioned_points, deadline, 5, b"five")
    assert put(versioned_points, deadline, None, b"plain") == b"plain"
    assert put(versioned_points, deadline, None, None) is None
    assert put(versioned_points, deadline, None, b"plain again") == b"plain again"


def test_one_call_may_win_some_rows_and_lose_others(versioned_points: PointStore, deadline: float) -> None:
    keys = [b"%d" % number for number in range(6)]
    versioned_points.write([Write(at(key), b"old", ANY, 10 * n) for n, key in enumerate(keys)], deadline=deadline)
    bulk: dict[bytes, bytes | None] = dict.fromkeys(keys, b"bulk")
    versioned_points.write(
        [Write(at(key), b"new", ANY, 25) for key in keys],
        rows=[Rows(Table.INDEXES, b"s\x00", b"p", bulk, 7)],
        deadline=deadline,
    )
    versioned_points.write([], rows=[Rows(Table.INDEXES, b"s\x00", b"p", bulk | {b"0": None}, 8)], deadline=deadline)
    late: dict[bytes, bytes | None] = dict.fromkeys(keys, b"late")
    versioned_points.write([], rows=[Rows(Table.INDEXES, b"s\x00", b"p", late, 6)], deadline=deadline)
    found = versioned_points.read([at(key) for key in keys], deadline=deadline)
    assert found == [b"new"] * 3 + [b"old"] * 3
    indexed = [at(key, Table.INDEXES, b"s\x00")._replace(place=b"p") for key in keys]
    assert versioned_points.read(indexed, deadline=deadline) == [None, *[b"bulk"] * 5]


def test_of_16_threads_the_highest_version_wins(versioned_points: PointStore, deadline: float, at_once: AtOnce) -> None:
    versions = [*range(1, 17)]
    Random(7).shuffle(versions)  # noqa: S311 - an order

    def write(number: int) -> None:
        version = versions[number]
        for key in (b"put", b"deleted"):
            value = None if key == b"deleted" and version == 16 else b"%d" % version
            versioned_points.write([Write(at(key), value, ANY, version)], deadline=deadline)

    assert at_once(16, write) == [None] * 16
    assert versioned_points.read([at(b"put"), at(b"deleted")], deadline=deadline) == [b"16", None]


def test_the_horizon_is_stated(versioned_points: PointStore) -> None:
    horizon = versioned_points.capabilities.version_horizon_seconds
    assert horizon is not None
    assert horizon > 0


def test_a_version_beside_a_condition_and_a_senseless_version_are_refused(
    versioned_points: PointStore, deadline: float
) -> None:
    if versioned_points.capabilities.compare_and_set:
        with pytest.raises(ValueError, match="not both"):
            versioned_points.write([Write(at(b"k"), b"v", ABSENT, 3)], deadline=deadline)
    for version in (-1, 1 << 63):
        with pytest.raises(ValueError, match="whole number"):
            versioned_points.write([Write(at(b"k"), b"v", ANY, version)], deadline=deadline)
    assert versioned_points.read([at(b"k")], deadline=deadline) == [None]
