"""What the checked layer refuses of rows written together."""

import pytest

from adapters.contract import Address, KeyRange, OrderedStore, Rows, Table, Write
from adapters.errors import Unsupported
from adapters.layers.checked import CheckedStore
from adapters.memory import MemoryStore

SCOPE = b"scope\x00"


@pytest.fixture
def checked() -> CheckedStore:
    return CheckedStore(MemoryStore())


@pytest.fixture
def deadline() -> float:
    return 1e18


def rows_of(values: dict[bytes, bytes | None], scope: bytes = SCOPE, table: Table = Table.INDEXES) -> Rows:
    return Rows(table, scope, b"place", values)


def stored(store: OrderedStore, deadline: float, scope: bytes = SCOPE) -> dict[bytes, bytes]:
    return dict(store.scan(Table.INDEXES, scope, KeyRange(), limit=1000, deadline=deadline))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([rows_of({})], TypeError, "not rows"),
        ([rows_of({b"a": b""})], ValueError, "empty"),
        ([rows_of({b"a": "text"})], TypeError, "a value is bytes"),  # type: ignore[dict-item]
        ([rows_of({"a": b"1"})], TypeError, "not all of these are addresses"),  # type: ignore[dict-item]
        ([rows_of({b"a": b"1"}), rows_of({b"a": b"2"})], ValueError, "twice"),
        ([rows_of({b"a": b"1"}), rows_of({b"a": b"2"}, table=Table.SESSIONS)], ValueError, "volatile"),
        ([rows_of({b"a": b"1"})._replace(version=3)], Unsupported, "version"),
    ],
)
def test_senseless_rows_are_refused(
    checked: CheckedStore, deadline: float, rows: list[Rows], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        checked.write([], rows=rows, deadline=deadline)
    assert stored(checked, deadline) == {}


def test_a_row_that_is_also_an_operation_is_refused(checked: CheckedStore, deadline: float) -> None:
    write = Write(Address(Table.INDEXES, SCOPE, b"", b"a"), b"1")
    with pytest.raises(ValueError, match="twice"):
        checked.write([write], rows=[rows_of({b"a": b"2"})], deadline=deadline)
    checked.write([write], rows=[rows_of({b"b": b"2"})], deadline=deadline)
    assert stored(checked, deadline) == {b"a": b"1", b"b": b"2"}
