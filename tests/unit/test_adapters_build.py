"""Store URLs, what is refused at assembly, and what the checked layer refuses."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from adapters.build import missing_capabilities, open_store, with_layers
from adapters.contract import (
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Consistency,
    KeyRange,
    OrderedStore,
    Row,
    Table,
    Write,
)
from adapters.errors import Corrupt, TooLarge, Unsupported
from adapters.layers.checked import CheckedStore
from adapters.layers.longkeys import LongKeysStore
from adapters.memory import CAPABILITIES, MemoryStore
from adapters.registry import STORES, Registration
from adapters.template import TemplateStore

SOON = 1e18
GOOD = Address(Table.META, b"s", b"p", b"k")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "is not NAME:PLACE"),
        ("memory", "is not NAME:PLACE"),
        ("oracle:x", "unknown store 'oracle'; known stores: lmdb, memory"),
        ("memory:somewhere", "takes no place"),
        ("memory:?size=1", "unknown option 'size'; known options: none"),
        ("memory:?size", "not option=value"),
    ],
)
def test_url_is_refused_with_a_reason(url: str, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        open_store(url)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "pigeon", Registration("adapters.pigeon", driver="no_such_driver", package="pigeons"))
    with pytest.raises(Unsupported, match=r"driver no_such_driver is not installed; pip install pigeons"):
        open_store("pigeon:")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"atomicity": Atomicity.SCOPE}, "atomicity BATCH"),
        ({"compare_and_set": False}, "compare_and_set"),
        ({"ordered": False}, "ordered"),
        ({"reverse_scan": False}, "reverse_scan"),
        ({"snapshot": False}, "snapshot"),
        ({"consistency": Consistency.EVENTUAL}, "consistency STRONG"),
        ({"max_value_bytes": 1_000_000}, "max_value_bytes of at least 1153434"),
    ],
)
def test_a_missing_capability_is_named(change: dict[str, Any], text: str) -> None:
    assert missing_capabilities(CAPABILITIES) == []
    assert text in " ".join(missing_capabilities(replace(CAPABILITIES, **change)))


def test_a_store_that_lacks_something_is_refused() -> None:
    store: OrderedStore = TemplateStore("host", pool_size=1)
    with pytest.raises(Unsupported, match="store template cannot be used: it lacks atomicity BATCH, snapshot"):
        with_layers("template", store)


class Fake(MemoryStore):
    """Claims what it is told to and scans what it is told to."""

    def __init__(self, claims: Capabilities = CAPABILITIES, rows: list[Row] | None = None) -> None:
        super().__init__()
        self.claims = claims
        self.rows = rows or []

    @property
    def capabilities(self) -> Capabilities:
        return self.claims

    def scan(self, *_: Any, **__: Any) -> list[Row]:
        return self.rows

    def snapshot(self) -> Any:
        return nullcontext(self)


def test_layers_follow_the_key_limit() -> None:
    limited = with_layers("fake", Fake(replace(CAPABILITIES, max_key_bytes=510)))
    assert isinstance(limited, CheckedStore)
    assert isinstance(limited.inner, LongKeysStore)
    assert limited.capabilities.max_key_bytes is None
    free = with_layers("fake", Fake())
    assert isinstance(free, CheckedStore)
    assert isinstance(free.inner, Fake)


def test_rows_written_under_another_key_limit_are_refused() -> None:
    store = Fake(replace(CAPABILITIES, max_key_bytes=510))
    LongKeysStore(store).ensure_tables()
    LongKeysStore(store).ensure_tables()
    store.claims = replace(CAPABILITIES, max_key_bytes=1000)
    with pytest.raises(Unsupported, match="written for"):
        LongKeysStore(store).ensure_tables()


@pytest.mark.parametrize(
    "rows",
    [
        [(b"b", b"1"), (b"a", b"2")],
        [(b"a", b"1"), (b"a", b"2")],
        [(b"a", b"1"), (b"z", b"2")],
        [(b"\x00", b"1")],
        [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1")],
    ],
)
def test_rows_out_of_order_range_or_number_are_corrupt(rows: list[Row]) -> None:
    store = CheckedStore(Fake(rows=rows))
    with pytest.raises(Corrupt):
        store.scan(Table.META, b"s", KeyRange(b"a", b"z"), limit=3, deadline=SOON)
    with store.snapshot() as view, pytest.raises(Corrupt):
        view.scan(Table.META, b"s", KeyRange(b"a", b"z"), limit=3, deadline=SOON)


@pytest.mark.parametrize(
    "operations",
    [
        [Write(GOOD, b"")],
        [Write(GOOD, "text")],  # type: ignore[arg-type]
        [Write(GOOD, b"v", "text")],  # type: ignore[arg-type]
        [Write(GOOD, b"v", ANY, 7)],
        [Write(GOOD, b"v"), Check(GOOD, b"v")],
        [Write(GOOD._replace(table="meta"), b"v")],  # type: ignore[arg-type]
        [Write(GOOD._replace(scope="s"), b"v")],  # type: ignore[arg-type]
        [Write(GOOD._replace(key=None), b"v")],  # type: ignore[arg-type]
        [Write(GOOD, b"v"), Write(GOOD._replace(table=Table.SESSIONS), b"v")],
        [(GOOD, b"v")],
        [Write(GOOD[:3], b"v")],  # type: ignore[arg-type]
    ],
)
def test_operations_that_are_a_callers_bug(operations: list[Any]) -> None:
    store = CheckedStore(MemoryStore())
    with pytest.raises((TypeError, ValueError)):
        store.write(operations, deadline=SOON)
    assert store.read([GOOD], deadline=SOON) == [None]


@pytest.mark.parametrize(
    "address", [GOOD._replace(table=b"m"), GOOD._replace(scope=None), GOOD._replace(place=0), GOOD._replace(key="k")]
)
def test_addresses_that_are_a_callers_bug(address: Address) -> None:
    with pytest.raises(TypeError, match="not all of these are addresses"):
        CheckedStore(MemoryStore()).read([address], deadline=SOON)


def test_limits_are_said_with_both_sizes() -> None:
    claims = replace(CAPABILITIES, max_key_bytes=9, max_value_bytes=8, max_batch=2, max_batch_bytes=30)
    store = CheckedStore(Fake(claims))
    with pytest.raises(TooLarge, match="a key of 10 bytes; this store takes 9"):
        store.write([Write(GOOD._replace(key=b"k" * 9), b"v")], deadline=SOON)
    with pytest.raises(TooLarge, match="a value of 9 bytes; this store takes 8"):
        store.write([Write(GOOD, b"v" * 9)], deadline=SOON)
    with pytest.raises(TooLarge, match="a batch of 3 operations; this store takes 2"):
        store.write([Write(GOOD._replace(key=key), b"v") for key in (b"1", b"2", b"3")], deadline=SOON)
    with pytest.raises(TooLarge, match="a batch of 34 bytes of keys and values; this store takes 30"):
        store.write([Write(GOOD._replace(key=key * 8), b"v" * 8) for key in (b"1", b"2")], deadline=SOON)
    store.write([Write(GOOD._replace(key=b"k" * 8), b"v" * 8)], deadline=SOON)


def test_a_bug_in_a_store_passes_through_unchanged() -> None:
    class Buggy(Fake):
        def read(self, *_: Any, **__: Any) -> list[bytes | None]:
            raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        CheckedStore(Buggy()).read([GOOD], deadline=SOON)
