"""Store URLs, what is refused at assembly, and what the checked layer refuses."""

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from adapters import registry, weak
from adapters.build import layers_for, missing_capabilities, open_store, with_layers
from adapters.contract import (
    ABSENT,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Consistency,
    KeyRange,
    Row,
    Table,
    Write,
)
from adapters.errors import Conflict, Corrupt, TooLarge, Unsupported
from adapters.layers.checked import CheckedStore
from adapters.layers.ordered import TreeStore
from adapters.layers.recorded import RECORD, Record
from adapters.memory import CAPABILITIES, MemoryStore
from adapters.registry import STORES, Registration
from adapters.template import TemplateStore
from adapters.url import parse_url, shown
from adapters.weak import WeakPoints
from pbserver.__main__ import app

SOON = 1e18
GOOD = Address(Table.META, b"s", b"p", b"k")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "is not NAME:PLACE"),
        ("memory", "is not NAME:PLACE"),
        ("oracle:x", "unknown store 'oracle'; known stores: .*lmdb, memory"),
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
        ({"compare_and_set": False}, "compare_and_set"),
        ({"ordered": False, "compare_and_set": False}, "ordered"),
        ({"reverse_scan": False}, "reverse_scan"),
        ({"consistency": Consistency.EVENTUAL}, "consistency STRONG"),
        ({"max_key_bytes": 63}, "max_key_bytes of at least 64 (it has 63)"),
        ({"max_key_bytes": 127, "snapshot": False}, "max_key_bytes of at least 128 (it has 127)"),
        ({"max_batch": 20_000}, "max_batch of at least 20100 (it has 20000)"),
        (
            {"max_batch_bytes": 1 << 20, "atomicity": Atomicity.SCOPE},
            "max_batch_bytes of at least 16777216 (it has 1048576)",
        ),
        ({"max_value_bytes": 60_000}, "max_value_bytes of at least 65536 (it has 60000)"),
    ],
)
def test_a_missing_capability_is_named(change: dict[str, Any], text: str) -> None:
    assert missing_capabilities(CAPABILITIES) == []
    assert text in " ".join(missing_capabilities(replace(CAPABILITIES, **change)))


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


def test_a_store_that_lacks_something_is_refused() -> None:
    store = Fake(replace(CAPABILITIES, compare_and_set=False, reverse_scan=False))
    with pytest.raises(Unsupported, match="store poor cannot be used: it lacks compare_and_set, reverse_scan"):
        with_layers("poor", store)


def test_the_template_would_do_as_it_stands() -> None:
    assert missing_capabilities(TemplateStore("host", pool_size=1).capabilities) == []


ROW: dict[str, Any] = {"atomicity": Atomicity.ROW, "snapshot": False}
UNORDERED: dict[str, Any] = {"ordered": False, "reverse_scan": False, "snapshot": False}
NATIVE_VERSIONS: dict[str, Any] = {"versioned_writes": True, "version_horizon_seconds": 60.0}


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({}, "checked"),
        ({"remote": True}, "retried checked"),
        ({"max_key_bytes": 510}, "longkeys checked"),
        ({"max_key_bytes": 40_000}, "checked"),
        ({"max_value_bytes": 1_000_000}, "longvalues checked"),
        ({"max_value_bytes": 1_153_434}, "checked"),
        ({"max_value_bytes": 70_000, "max_key_bytes": 510, "remote": True}, "retried longvalues longkeys checked"),
        ({"max_key_bytes": 3071}, "cutkeys checked"),
        ({"max_key_bytes": 3071, "max_value_bytes": 1_200_000}, "longvalues cutkeys checked"),
        ({"max_key_bytes": 3071, "max_value_bytes": 1_300_000}, "cutkeys checked"),
        ({"max_key_bytes": 510, "snapshot": False}, "versioned cutkeys checked"),
        (ROW, "versioned checked"),
        ({**ROW, "max_batch": 100}, "split versioned checked"),
        ({**ROW, "max_batch_bytes": 1 << 20}, "split versioned longvalues checked"),
        ({**ROW, **UNORDERED, "max_batch": 100}, "ordered versioned checked"),
        ({"max_batch": 20_100, "max_batch_bytes": 1 << 24}, "checked"),
        ({**ROW, "max_value_bytes": 1_153_434}, "versioned longvalues checked"),
        ({**ROW, "max_key_bytes": 250}, "versioned cutkeys checked"),
        ({**ROW, **NATIVE_VERSIONS}, "checked"),
        ({**ROW, "compare_and_set": False}, "checked"),
        ({"atomicity": Atomicity.SCOPE, "max_value_bytes": 70_000}, "versioned longvalues checked"),
        ({**ROW, "max_value_bytes": 70_000, "remote": True}, "retried versioned longvalues checked"),
        (UNORDERED, "ordered versioned checked"),
        ({**UNORDERED, **ROW, **NATIVE_VERSIONS}, "ordered versioned checked"),
        ({**UNORDERED, "max_value_bytes": 1 << 20}, "ordered versioned longvalues checked"),
        ({**UNORDERED, "max_key_bytes": 250}, "ordered versioned checked"),
        ({**UNORDERED, "compare_and_set": False}, "checked"),
    ],
)
def test_layers_follow_the_capabilities(change: dict[str, Any], layers: str) -> None:
    claims = replace(CAPABILITIES, **change)
    assert layers_for(claims) == layers.split()
    if not missing_capabilities(claims):
        fake = Fake(claims) if claims.ordered else WeakPoints(claims, seed=None, fail_percent=0)
        store: Any = with_layers("fake", fake)
        found = []
        while store is not fake:
            found.append(type(store).__module__.rpartition(".")[2])
            store = store.inner
        assert found[::-1] == layers.split()


def test_a_store_that_writes_row_by_row_will_do() -> None:
    assert missing_capabilities(replace(CAPABILITIES, **ROW)) == []
    assert missing_capabilities(replace(CAPABILITIES, **ROW, compare_and_set=False)) == ["compare_and_set"]
    assert missing_capabilities(replace(CAPABILITIES, **ROW, max_key_bytes=250, max_batch=5)) == []


def test_a_recorder_measures_what_the_adapter_is_asked() -> None:
    class Calls(list[str]):
        def observe(self, call: str, outcome: str, **_: Any) -> None:
            self.append(f"{call} {outcome}")

    calls = Calls()
    store = open_store("memory:", recorder=calls)
    store.write([Write(GOOD, b"v")], deadline=SOON)
    with pytest.raises(Conflict):
        store.write([Write(GOOD, b"v", ABSENT)], deadline=SOON)
    assert store.read([GOOD], deadline=SOON) == [b"v"]
    assert calls == ["write ok", "write conflict", "read ok"]


def test_a_store_that_does_not_have_what_it_claims_is_a_bug() -> None:
    class Liar(WeakPoints):
        def __init__(self) -> None:
            super().__init__(CAPABILITIES, seed=None, fail_percent=0)

    with pytest.raises(TypeError, match="liar claims to be ordered"):
        with_layers("liar", Liar())


@pytest.mark.parametrize("name", sorted(STORES))
def test_an_adapter_states_its_capabilities_unopened(name: str) -> None:
    assert isinstance(registry.capabilities(name), Capabilities)


@pytest.mark.parametrize(
    ("first", "second", "said", "wants"),
    [
        ({}, ROW, "through no layers;", "with versioned:"),
        (ROW, {}, "through versioned;", "with no layers:"),
        (ROW, {**ROW, **NATIVE_VERSIONS}, "through versioned;", "with no layers:"),
        (
            {"max_key_bytes": 510},
            {"max_key_bytes": 1000},
            "through longkeys scope_bytes=170 chunk_bytes=339;",
            "with longkeys scope_bytes=333 chunk_bytes=666:",
        ),
        ({**ROW, "max_key_bytes": 250}, ROW, "through versioned, cutkeys max_key_bytes=250;", "with versioned:"),
        (
            {"max_value_bytes": 70_000},
            {"max_value_bytes": 80_000},
            "through longvalues max_value_bytes=70000 piece_bytes=70000;",
            "with longvalues max_value_bytes=80000 piece_bytes=80000:",
        ),
    ],
)
def test_rows_written_through_other_layers_are_refused_in_one_line_untouched(
    first: dict[str, Any], second: dict[str, Any], said: str, wants: str
) -> None:
    store = Fake(replace(CAPABILITIES, **first))
    for _ in range(2):
        with_layers("fake", store).ensure_tables()
    with_layers("fake", store).write([Write(GOOD, b"v")], deadline=SOON)
    before = {place: dict(rows.values) for place, rows in store.scopes.items()}
    store.claims = replace(CAPABILITIES, **second)
    with pytest.raises(Corrupt) as raised:
        with_layers("fake", store).ensure_tables()
    assert said in str(raised.value)
    assert wants in str(raised.value)
    assert "\n" not in str(raised.value)
    assert {place: dict(rows.values) for place, rows in store.scopes.items()} == before
    with_layers("fake", store).drop_tables()
    with_layers("fake", store).ensure_tables()
    store.claims = replace(CAPABILITIES, **first)
    with pytest.raises(Corrupt):
        with_layers("fake", store).ensure_tables()


def test_pages_of_another_size_are_refused_and_the_first_of_two_who_open_decides() -> None:
    class Overtaken(WeakPoints):
        def read(self, addresses: Any, **named: Any) -> list[bytes | None]:
            found = super().read(addresses, **named)
            if addresses == [RECORD] and self.others:
                self.others.pop()()
            return found

    below: Any = Overtaken(replace(CAPABILITIES, **UNORDERED), seed=None, fail_percent=0)
    below.others = []
    stores: list[Any] = [TreeStore(below), TreeStore(below, 1000)]
    below.others = [lambda: CheckedStore(stores[0], Record(stores[0])).ensure_tables()]
    with pytest.raises(Corrupt, match=r"through ordered page_bytes=32768 .*; this would open them with .*=1000 "):
        CheckedStore(stores[1], Record(stores[1])).ensure_tables()
    CheckedStore(stores[0], Record(stores[0])).ensure_tables()


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


def test_the_command_lists_stores_with_layers_drivers_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "pigeon", Registration("adapters.pigeon", driver="no_such_driver", package="pigeons"))
    run = CliRunner().invoke(app, ["stores", "--json"])
    assert run.exit_code == 0, run.output
    found = {each["store"]: each for each in json.loads(run.output)}
    assert set(found) == set(STORES)
    assert found["lmdb"]["layers"] == ["longkeys", "checked"]
    assert found["lmdb"]["missing"] == []
    assert found["lmdb"]["capabilities"]["durable"] == "synced"
    assert found["weak"]["layers"] == ["versioned", "checked"]
    assert found["weak"]["missing"] == []
    assert found["pigeon"] == {"store": "pigeon", "installed": False, "package": "pigeons"}


def test_the_command_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "pigeon", Registration("adapters.pigeon", driver="no_such_driver", package="pigeons"))
    monkeypatch.setattr(weak, "CAPABILITIES", replace(weak.CAPABILITIES, compare_and_set=False))
    monkeypatch.setenv("COLUMNS", "200")
    output = CliRunner().invoke(app, ["stores"]).output
    for text in ("pip install pigeons", "max_key_bytes 510", "longkeys", "no: lacks compare_and_set"):
        assert text in output


def conformance(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pbserver", "conformance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.timeout(60)
def test_the_suite_runs_on_a_store_given_by_url() -> None:
    run = conformance("--store", "weak:?fail=0", "--delete-all-rows", "--only", "points or conditions or refused")
    assert run.returncode == 0, run.stdout
    assert "[weak]" not in run.stdout
    assert " passed" in run.stdout


@pytest.mark.timeout(60)
def test_the_suite_fails_a_store_that_breaks_its_promises() -> None:
    run = conformance("--store", "weak:?fail=60", "--delete-all-rows", "--only", "rows_are_overwritten_and_deleted")
    assert run.returncode == 1
    assert "test_rows_are_overwritten_and_deleted[weak]" in run.stdout


def test_the_suite_does_not_run_on_a_store_that_may_be_wanted() -> None:
    run = CliRunner().invoke(app, ["conformance", "--store", "lmdb:/somewhere"])
    assert run.exit_code == 2
    assert "every row of lmdb:/somewhere will be deleted" in run.output


@pytest.mark.parametrize("url", ["mysql", "memory:?password=geheim&password=geheim", "memory:?x&password=geheim"])
def test_no_message_shows_a_password(url: str) -> None:
    with pytest.raises(Unsupported) as raised:
        parse_url(url)
    assert "geheim" not in str(raised.value)


def test_a_url_is_shown_without_its_password() -> None:
    assert shown("mysql:h:1/d?user=u&password=a&b=c") == "mysql:h:1/d?user=u&password=***&b=c"
    assert shown("mysql:h/d?password=x%26y") == "mysql:h/d?password=***"
    assert shown("mysql:h/d?password_file=/etc/p") == "mysql:h/d?password_file=/etc/p"
