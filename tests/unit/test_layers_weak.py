"""The weak store: what it does not promise, one can see not hold."""

from contextlib import suppress
from typing import Any

import pytest

from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, KeyRange, OrderedStore, PointStore, Table, Write
from adapters.errors import Applied, Conflict, StoreError, Unavailable, Unsupported

SOON = 1e18


def at(key: bytes, scope: bytes = b"s") -> Address:
    return Address(Table.META, scope, b"", key)


def ordered(url: str) -> OrderedStore:
    store = bare(url)
    assert isinstance(store, OrderedStore)
    return store


def rows(store: OrderedStore) -> dict[bytes, bytes]:
    return dict(store.scan(Table.META, b"s", KeyRange(), limit=1000, deadline=SOON))


def calls_until(store: PointStore, key: bytes, value: bytes | None, most: int) -> int | None:
    """How many reads it takes to see the value."""
    for number in range(most):
        if store.read([at(key)], deadline=SOON) == [value]:
            return number
    return None


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("weak:here", "takes no place"),
        ("weak:?ordered=no&snapshot=yes", "need ordered=yes"),
        ("weak:?atomicity=some", "none of row, scope, batch"),
        ("weak:?shuffle=x", "no seed"),
        ("weak:?colour=red", "unknown option"),
    ],
)
def test_urls_that_make_no_sense(url: str, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        bare(url)


def outcomes(atomicity: str, seeds: int) -> set[tuple[bool, ...]]:
    """Which of three rows, two of one scope, were there after a call that failed midway."""
    keys = [at(b"a", b"1"), at(b"b", b"1"), at(b"c", b"2")]
    found = set()
    for seed in range(seeds):
        store = bare(f"weak:?atomicity={atomicity}&fail=100&shuffle={seed}")
        with pytest.raises(Unavailable) as raised:
            store.write([Write(key, b"v") for key in keys], deadline=SOON)
        assert raised.value.applied is Applied.UNKNOWN
        found.add(tuple(value is not None for value in store.read(keys, deadline=SOON)))
    return found


def test_a_failed_call_is_applied_in_part_as_its_atomicity_allows() -> None:
    assert len(outcomes("row", 200)) == 8
    assert outcomes("scope", 100) == {(a, a, c) for a in (True, False) for c in (True, False)}
    assert outcomes("batch", 50) == {(True,) * 3, (False,) * 3}


def test_shuffled_rows_without_version_come_back_late() -> None:
    store = bare("weak:?shuffle=1")
    for number in range(20):
        store.write([Write(at(b"%d" % number), b"old")], deadline=SOON)
        store.write([Write(at(b"%d" % number), b"new")], deadline=SOON)
    assert any(calls_until(store, b"%d" % number, b"old", 30) is not None for number in range(20))


def test_shuffled_rows_with_versions_do_not() -> None:
    store = bare("weak:?shuffle=1&versions=yes")
    for number in range(20):
        store.write([Write(at(b"%d" % number), b"old", ANY, 1)], deadline=SOON)
        store.write([Write(at(b"%d" % number), None, ANY, 2)], deadline=SOON)
    assert all(calls_until(store, b"%d" % number, b"old", 30) is None for number in range(20))


@pytest.mark.parametrize("settle", [False, True])
def test_a_failed_condition_may_come_true_later_but_not_after_another_change(settle: bool) -> None:
    late = 0
    for seed in range(100):
        for other in (None, b"other"):
            store = bare(f"weak:?fail=50&shuffle={seed}")
            try:
                store.write([Write(at(b"k"), b"v", ABSENT)], deadline=SOON)
            except StoreError:
                before = store.read([at(b"k")], deadline=SOON, settle=settle)
                if before == [None]:
                    changed = other is not None and changes(store, other)
                    came = calls_until(store, b"k", b"v", 30) is not None
                    late += came
                    assert not (came and changed)
    assert late


def changes(store: PointStore, value: bytes) -> bool:
    """Puts the value where there is none; whether it is there after all."""
    with suppress(StoreError):
        store.write([Write(at(b"k"), value, ABSENT)], deadline=SOON)
    return store.read([at(b"k")], deadline=SOON) == [value]


def test_stale_reads_are_bounded_and_settled_ones_are_not_stale() -> None:
    store = ordered("weak:?stale=yes")
    behind = []
    for number in range(300):
        store.write([Write(at(b"k"), b"%d" % number)], deadline=SOON)
        (found,) = store.read([at(b"k")], deadline=SOON)
        behind.append(number - int(found or b"0"))
        assert store.read([at(b"k")], deadline=SOON, settle=True) == [b"%d" % number]
        assert rows(store) in [{b"k": b"%d" % (number - lag)} for lag in range(9)] + [{}]
    assert 0 < max(behind[10:]) <= 8
    assert min(behind) == 0


def test_the_same_seed_meets_the_same_faults() -> None:
    def history(seed: int) -> list[Any]:
        store = ordered(f"weak:?atomicity=scope&shuffle={seed}&fail=20&stale=yes")
        seen: list[Any] = []
        for number in range(200):
            try:
                store.write([Write(at(b"%d" % (number % 7)), b"%d" % number)], deadline=SOON)
            except Unavailable as error:
                seen.append(str(error))
            seen.append(rows(store))
        return seen

    assert history(3) == history(3)
    assert history(3) != history(4)


def test_a_conflict_applies_nothing_of_the_other_scopes_in_any_order() -> None:
    for seed in range(30):
        store = bare(f"weak:?atomicity=scope&shuffle={seed}")
        others = [Write(at(b"k", b"%d" % number), b"v") for number in range(5)]
        with pytest.raises(Conflict) as raised:
            store.write([*others, Write(at(b"k"), b"v", b"x")], deadline=SOON)
        assert raised.value.index == 5
        assert store.read([each.address for each in others], deadline=SOON) == [None] * 5
