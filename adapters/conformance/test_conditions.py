"""Stores with compare-and-set: one condition at a time, and who wins."""

import threading

import pytest

from adapters.conformance.addressing import at
from adapters.conformance.matrix import AtOnce
from adapters.contract import ABSENT, Check, Operation, PointStore, Write
from adapters.errors import Applied, Conflict

LONG = b"\xff\x00long" * 20


def test_conditions_that_hold(cas_points: PointStore, deadline: float) -> None:
    for value in (b"1", LONG, LONG[::-1], b"\x00"):
        cas_points.write([Write(at(b"a"), value, ABSENT)], deadline=deadline)
        cas_points.write([Check(at(b"a"), value)], deadline=deadline)
        cas_points.write([Check(at(b"never"), ABSENT)], deadline=deadline)
        cas_points.write([Write(at(b"a"), value + b"2", value)], deadline=deadline)
        assert cas_points.read([at(b"a")], deadline=deadline) == [value + b"2"]
        cas_points.write([Write(at(b"a"), None, value + b"2")], deadline=deadline)
        assert cas_points.read([at(b"a")], deadline=deadline) == [None]


@pytest.mark.parametrize("there", [None, b"1", LONG])
def test_conditions_that_fail_change_nothing_and_say_what_is_there(
    cas_points: PointStore, deadline: float, there: bytes | None
) -> None:
    if there is not None:
        cas_points.write([Write(at(b"a"), there)], deadline=deadline)
    wrong: list[Operation] = [Write(at(b"a"), b"new", b"x"), Write(at(b"a"), None, LONG + b"x"), Check(at(b"a"), b"x")]
    if there is not None:
        wrong += [Write(at(b"a"), b"new", ABSENT), Check(at(b"a"), ABSENT), Write(at(b"a"), b"new", there + b"\x00")]
    for operation in wrong:
        with pytest.raises(Conflict) as raised:
            cas_points.write([operation], deadline=deadline)
        assert (raised.value.index, raised.value.current, raised.value.applied) == (0, there, Applied.NO)
    assert cas_points.read([at(b"a")], deadline=deadline) == [there]


@pytest.mark.parametrize("size", [0, 200])
def test_insert_if_absent_lets_exactly_one_of_64_threads_win(
    cas_points: PointStore, deadline: float, at_once: AtOnce, size: int
) -> None:
    def insert(number: int) -> None:
        cas_points.write([Write(at(b"one"), b"%d" % number + b"v" * size, ABSENT)], deadline=deadline)

    results = at_once(64, insert)
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, Conflict) for result in results if result is not None)
    assert cas_points.read([at(b"one")], deadline=deadline) == [b"%d" % winners[0] + b"v" * size]


@pytest.mark.parametrize("size", [0, 200])
def test_compare_and_set_lets_exactly_one_of_64_threads_win(
    cas_points: PointStore, deadline: float, at_once: AtOnce, size: int
) -> None:
    base = b"base" + b"b" * size
    cas_points.write([Write(at(b"one"), base)], deadline=deadline)

    def swap(number: int) -> None:
        cas_points.write([Write(at(b"one"), b"%d" % number + b"v" * size, base)], deadline=deadline)

    results = at_once(64, swap)
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert cas_points.read([at(b"one")], deadline=deadline) == [b"%d" % winners[0] + b"v" * size]


def test_a_conflict_is_told_while_others_read_without_a_pause(
    cas_points: PointStore, deadline: float, at_once: AtOnce
) -> None:
    cas_points.write([Write(at(b"one"), b"v" * 9000)], deadline=deadline)
    told = threading.Event()

    def conflict() -> None:
        try:
            for _ in range(20):
                with pytest.raises(Conflict):
                    cas_points.write([Write(at(b"one"), b"w", ABSENT)], deadline=deadline)
        finally:
            told.set()

    def read() -> None:
        while not told.is_set():
            assert cas_points.read([at(b"one")] * 4, deadline=deadline) == [b"v" * 9000] * 4

    assert at_once(4, lambda number: read() if number else conflict()) == [None] * 4


def test_threads_that_count_on_one_key_lose_nothing(cas_points: PointStore, deadline: float, at_once: AtOnce) -> None:
    cas_points.write([Write(at(b"n"), b"0", ABSENT)], deadline=deadline)

    def increment_ten_times(_: int) -> None:
        left = 10
        while left:
            (current,) = cas_points.read([at(b"n")], deadline=deadline)
            assert current is not None
            try:
                cas_points.write([Write(at(b"n"), b"%d" % (int(current) + 1), current)], deadline=deadline)
                left -= 1
            except Conflict as conflict:
                assert conflict.current != current

    assert at_once(8, increment_ten_times) == [None] * 8
    assert cas_points.read([at(b"n")], deadline=deadline) == [b"80"]
