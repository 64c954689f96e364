"""SplitStore: calls over the limits become several, others stay one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from adapters.contract import ABSENT, Address, Atomicity, Capabilities, Operation, Rows, Table, Write, row_writes
from adapters.errors import Applied, Conflict, Unavailable, Unsupported
from adapters.layers.checked import CheckedStore
from adapters.layers.split import SplitStore
from adapters.memory import CAPABILITIES, MemoryStore

SOON = 1e18


class Limited(MemoryStore):
    """Writes row by row, so many a call; fails a numbered call."""

    def __init__(self, **limits: Any) -> None:
        super().__init__()
        self._claims = replace(CAPABILITIES, atomicity=Atomicity.ROW, snapshot=False, **limits)
        self.calls: list[int] = []
        self.fails_at: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._claims

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self.calls.append(len(operations) + len(row_writes(rows)))
        if len(self.calls) == self.fails_at:
            raise Unavailable("not now")
        super().write(operations, rows=rows, deadline=deadline)


def at(number: int) -> Address:
    return Address(Table.META, b"s", b"", b"%05d" % number)


def over(**limits: Any) -> tuple[SplitStore, Limited]:
    below = Limited(**limits)
    return SplitStore(CheckedStore(below)), below


def test_rows_and_operations_over_the_limit_become_several_calls() -> None:
    store, below = over(max_batch=7)
    bulk: dict[bytes, bytes | None] = {b"%d" % number: b"v" for number in range(10)}
    store.write([Write(at(n), b"v") for n in range(12)], rows=[Rows(Table.INDEXES, b"s", b"", bulk)], deadline=SOON)
    assert below.calls == [7, 7, 7, 1]
    assert store.read([at(11), Address(Table.INDEXES, b"s", b"", b"9")], deadline=SOON) == [b"v", b"v"]
    store.write([Write(at(n), b"w") for n in range(7)], deadline=SOON)
    store.write([Write(at(20), b"w", ABSENT)], deadline=SOON)
    with pytest.raises(Conflict):
        store.write([Write(at(20), b"x", ABSENT)], deadline=SOON)
    assert below.calls[4:] == [7, 1, 1]


def test_a_call_never_holds_more_bytes_than_fit() -> None:
    store, below = over(max_batch_bytes=1000, max_key_bytes=100)
    most = store.capabilities.max_value_bytes
    assert (most, store.capabilities.max_batch_bytes) == (900, None)
    sizes = [1, 900, 900, 10, 400, 400, 400]
    store.write([Write(at(number), b"v" * size) for number, size in enumerate(sizes)], deadline=SOON)
    assert below.calls == [2, 2, 2, 1]
    assert [len(value or b"") for value in store.read([at(n) for n in range(7)], deadline=SOON)] == sizes


@pytest.mark.parametrize(("fails_at", "applied"), [(1, Applied.NO), (2, Applied.UNKNOWN), (3, Applied.UNKNOWN)])
def test_a_later_call_that_fails_says_that_earlier_ones_were_applied(fails_at: int, applied: Applied) -> None:
    store, below = over(max_batch=2)
    below.fails_at = fails_at
    with pytest.raises(Unavailable) as raised:
        store.write([Write(at(number), b"v") for number in range(6)], deadline=SOON)
    assert raised.value.applied is applied
    assert len(below.calls) == fails_at


def test_what_is_applied_as_one_is_not_taken_apart() -> None:
    with pytest.raises(Unsupported, match="only over a store with atomicity ROW"):
        SplitStore(MemoryStore())
