"""RetriedStore and MeasuredStore: what is repeated, how long, and what is told about it."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.contract import ABSENT, Address, Check, KeyRange, Operation, Rows, Table, Write
from adapters.errors import Applied, Conflict, StoreError, TooLarge, Unavailable
from adapters.layers.measured import MeasuredStore
from adapters.layers.retried import LONGEST_PAUSE_SECONDS, RetriedStore
from adapters.memory import MemoryStore

KEY = Address(Table.META, b"s", b"", b"k")
NO = Unavailable("no", Applied.NO)
UNKNOWN = Unavailable("unknown", Applied.UNKNOWN)


class Failing(MemoryStore):
    """Raises what it was given, one error a call."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.calls = 0

    def read(self, *args: Any, **named: Any) -> list[bytes | None]:
        self._fail()
        return super().read(*args, **named)

    def scan(self, *args: Any, **named: Any) -> list[tuple[bytes, bytes]]:
        self._fail()
        return super().scan(*args, **named)

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self._fail()
        super().write(operations, rows=rows, deadline=deadline)

    def _fail(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def soon() -> float:
    return time.monotonic() + 60


@pytest.mark.parametrize("error", [NO, UNKNOWN])
def test_reads_are_repeated(error: Unavailable) -> None:
    below = Failing(error, error, error)
    store = RetriedStore(below, lambda _: None)
    assert store.read([KEY], deadline=soon()) == [None]
    below.errors = [error]
    assert store.fetch(Table.META, [b"s"], [b"k"], deadline=soon()) == [None]
    below.errors = [error]
    assert store.scan(Table.META, b"s", KeyRange(), limit=1, deadline=soon()) == []


@pytest.mark.parametrize(
    ("operation", "errors", "calls", "applied"),
    [
        (Write(KEY, b"v"), [NO, UNKNOWN, NO], 4, None),
        (Write(KEY, b"v", ABSENT), [NO, NO], 3, None),
        (Write(KEY, b"v", ABSENT), [NO, UNKNOWN], 2, Applied.UNKNOWN),
        (Check(KEY, ABSENT), [UNKNOWN], 1, Applied.UNKNOWN),
        (Write(KEY, b"v", b"x"), [NO], 2, Applied.NO),
        (Write(KEY, b"v"), [TooLarge("t")], 1, Applied.NO),
        (Write(KEY, b"v"), [UNKNOWN, TooLarge("t")], 2, Applied.UNKNOWN),
    ],
)
def test_writes_are_repeated_only_if_that_is_safe(
    operation: Operation, errors: list[Exception], calls: int, applied: Applied | None
) -> None:
    below = Failing(*errors)
    store = RetriedStore(below, lambda _: None)
    if applied is None:
        store.write([operation], deadline=soon())
    else:
        with pytest.raises(StoreError) as raised:
            store.write([operation], deadline=soon())
        assert raised.value.applied is applied
    assert below.calls == calls


def test_pauses_grow_with_jitter_and_end_before_the_deadline() -> None:
    pauses: list[float] = []
    store = RetriedStore(Failing(*[NO] * 200), pauses.append)
    store.read([KEY], deadline=time.monotonic() + 1e6)
    assert len(pauses) == 200
    assert max(pauses[:2]) < 0.05
    assert LONGEST_PAUSE_SECONDS * 0.9 < max(pauses) <= LONGEST_PAUSE_SECONDS
    assert len({*pauses}) > 190
    below = Failing(*[NO] * 200)
    with pytest.raises(Unavailable):
        RetriedStore(below, lambda _: None).read([KEY], deadline=time.monotonic() - 1)
    assert below.calls == 1


def test_bugs_are_not_repeated() -> None:
    below = Failing(KeyError("bug"))
    with pytest.raises(KeyError):
        RetriedStore(below, lambda _: None).read([KEY], deadline=soon())
    assert below.calls == 1


class Recorded(list[tuple[str, str, int, int]]):
    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        assert 0 <= seconds < 5
        self.append((call, outcome, rows, size_bytes))


def test_calls_rows_bytes_and_outcomes_are_told() -> None:
    told = Recorded()
    below = Failing()
    store = MeasuredStore(below, told)
    rows = Rows(Table.META, b"s", b"", {b"a": b"12", b"b": None})
    store.write([Write(KEY, b"value")], rows=[rows], deadline=soon())
    store.read([KEY, KEY._replace(key=b"none")], deadline=soon())
    store.fetch(Table.META, [b"s"] * 2, [b"k", b"a"], deadline=soon())
    store.scan(Table.META, b"s", KeyRange(), limit=9, deadline=soon())
    with store.snapshot() as view:
        view.read([KEY], deadline=soon())
    for error in (NO, UNKNOWN, Conflict("c", index=0, current=None), KeyError("bug")):
        below.errors = [error]
        with pytest.raises(type(error)):
            store.write([Write(KEY, b"v")], deadline=soon())
    assert told == [
        ("write", "ok", 3, 13),
        ("read", "ok", 1, 5),
        ("fetch", "ok", 2, 7),
        ("scan", "ok", 2, 9),
        ("read", "ok", 1, 5),
        ("snapshot", "ok", 0, 0),
        ("write", "unavailable", 0, 0),
        ("write", "unavailable unknown", 0, 0),
        ("write", "conflict", 0, 0),
        ("write", "bug", 0, 0),
    ]
