"""The parts of the hbase adapter that need no server: places, the table's facts, plans, pages, bounds of scans."""

from typing import Any

import pytest

from adapters.contract import ANY, Address, Check, Durable, KeyRange, Rows, Table, Write
from adapters.errors import Applied, Unavailable, Unsupported
from adapters.hbase import codec
from adapters.hbase.codec import wire
from adapters.hbase.errors import translated
from adapters.hbase.nodes import PURGE, Facts, facts, parse_place, table_creation
from adapters.hosts import Host
from adapters.url import parse_url


def place(text: str) -> Any:
    return parse_place(parse_url(text))


def at(key: bytes, table: Table = Table.GROUPS) -> Address:
    return Address(table, b"s\x00", b"place", key)


def cell(qualifier: bytes, value: bytes, timestamp: int = 0, family: bytes = codec.CELLS) -> Any:
    return wire.TColumnValue(family=family, qualifier=qualifier, value=value, timestamp=timestamp)


def result(*cells: Any, row: bytes = b"") -> Any:
    return wire.TResult(row=row, columnValues=list(cells))


def test_a_url_names_hosts_and_a_table() -> None:
    found = place("hbase:a,[::1]:99/space:rows?transport=framed")
    assert found.hosts == (Host("a", 9091), Host("::1", 99))
    assert (found.table, found.framed) == (b"space:rows", True)
    assert found.table_name == wire.TTableName(ns=b"space", qualifier=b"rows")
    assert place("hbase:a").table_name == wire.TTableName(ns=b"default", qualifier=b"pbserver")


@pytest.mark.parametrize("name", ["a/b", "-a", "a b", ":a", "a:", "a:b:c"])
def test_what_is_no_table_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="is no table"):
        place(f"hbase:host/{name}")


def described(purge: str | None, durability: int | None = None) -> Any:
    configuration = None if purge is None else {PURGE: purge}
    families = [wire.TColumnFamilyDescriptor(name=b"f", configuration=configuration)]
    families.append(wire.TColumnFamilyDescriptor(name=b"m"))
    return wire.TTableDescriptor(columns=families, durability=durability)


def test_the_table_that_is_made_fits() -> None:
    descriptor, splits = table_creation(place("hbase:host"))
    assert facts(descriptor, [1, 2], "here") == Facts(86_400, Durable.REPLICATED)
    assert splits == sorted(splits)


def test_what_a_table_promises() -> None:
    assert facts(described("3600000"), [1], "here") == Facts(3600, Durable.MEMORY)
    assert facts(described("3600000", wire.TDurability.FSYNC_WAL), [1], "here").durable is Durable.SYNCED
    for purge in (None, "0", "3599999", "-1", "soon"):
        with pytest.raises(Unsupported, match=f"here: .*{PURGE} = {purge or 0}; alter it to 3600000"):
            facts(described(purge), [1], "here")
    with pytest.raises(Unsupported, match="no column family f, m"):
        facts(wire.TTableDescriptor(columns=None), [1], "here")


def test_a_call_becomes_puts_and_deletes() -> None:
    rows = Rows(Table.INDEXES, b"s\x00", b"p", {b"a": b"1", b"b": None}, 7)
    plan = codec.planned([Write(at(b"k"), b"v"), Check(at(b"c"), ANY), Write(at(b"d"), None)], [rows])
    assert [(put.row, put.columnValues[0].qualifier, put.columnValues[0].timestamp) for put in plan.puts] == [
        (b"gs\x00k", b"l", None),
        (b"is\x00a", b"p", 7),
    ]
    assert [(delete.row, delete.columns[0].timestamp) for delete in plan.deletes] == [(b"is\x00b", 7)]
    plan.remove([result(cell(b"l", b"v"), cell(b"p", b"w", 5))])
    assert (plan.puts[-1].row, plan.puts[-1].columnValues[0].value) == (b"gs\x00d", b"")
    assert (plan.deletes[-1].row, plan.deletes[-1].columns[0].timestamp) == (b"gs\x00d", 5)


def test_what_is_gone_already_is_not_deleted_again() -> None:
    plan = codec.planned([Write(at(b"a"), None), Write(at(b"b"), None)], [])
    plan.remove([result(), result(cell(b"l", b""))])
    assert plan == codec.Plan(removed=plan.removed)


def test_the_highest_version_is_not_the_servers_clock() -> None:
    (put,) = codec.planned([Write(at(b"k"), b"v", ANY, (1 << 63) - 1)], []).puts
    assert put.columnValues[0].timestamp == (1 << 63) - 2


def test_only_rows_of_volatile_tables_go_by_themselves() -> None:
    assert codec.unversioned(at(b"k", Table.SESSIONS), b"v").attributes == {b"_ttl": (86_400_000).to_bytes(8, "big")}
    assert codec.unversioned(at(b"k"), b"v").attributes is None


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        ([], None),
        ([cell(b"p", b"v")], b"v"),
        ([cell(b"l", b"v")], b"v"),
        ([cell(b"l", b"v"), cell(b"p", b"w")], b"v"),
        ([cell(b"l", b""), cell(b"p", b"w")], None),
        ([cell(b"l", b"", family=codec.MARKS)], None),
        ([cell(b"p", b"v"), cell(b"l", b"", family=codec.MARKS)], b"v"),
    ],
)
def test_what_a_row_holds(cells: list[Any], value: bytes | None) -> None:
    assert codec.value_of(result(*cells)) == value
    assert codec.has_mark(result(*cells)) == any(each.family == codec.MARKS for each in cells)


def test_large_calls_come_in_parts() -> None:
    puts = [codec.unversioned(at(b"%d" % number), b"v" * 1_000_000) for number in range(9)]
    parts = list(codec.parts(puts))
    assert [len(part) for part in parts] == [4, 4, 1]
    assert [put for part in parts for put in part] == puts
    assert [len(part) for part in codec.parts([codec.unversioned(at(b"k"), b"v")] * 4100)] == [2000, 2000, 100]
    assert list(codec.parts([])) == []
    assert len(list(codec.parts([codec.unversioned(at(b"k"), b"v" * 9_000_000)]))) == 1


def test_the_next_page_is_as_long_as_rows_like_these_allow() -> None:
    assert codec.rows_at_once([result(cell(b"l", b"v"))] * 10) == codec.MOST_ROWS
    assert codec.rows_at_once([result(cell(b"l", b"v" * 100_000))] * 10) == 41
    assert codec.rows_at_once([result(cell(b"l", b"v" * 9_000_000))]) == 1


@pytest.mark.parametrize("row", [b"ga", b"g\x00", b"g", b"g\xff", b"ga\x00\x00"])
def test_a_bound_below_a_row_is_just_below_it(row: bytes) -> None:
    found = codec.below(row)
    assert found < row
    assert found + b"\x00" == row or found == row[:-1] + bytes([row[-1] - 1]) + b"\xff" * 8


def test_spans_stay_in_their_scope() -> None:
    whole = codec.span(Table.GROUPS, b"s\xff", KeyRange(), reverse=False)
    assert (whole.start, whole.stop) == (b"gs\xff", b"gt")
    rows = [result(cell(b"l", b"v"), row=row) for row in (b"gs", b"gs\xff", b"gs\xffk", b"gt")]
    assert list(whole.rows_of(rows)) == [(b"", b"v"), (b"k", b"v")]
    assert whole.after(b"gs\xffk").start == b"gs\xffk\x00"
    back = codec.span(Table.GROUPS, b"s", KeyRange(b"a", b"c"), reverse=True)
    scan, asked = back.request(10)
    assert (scan.startRow, scan.limit, scan.reversed, asked) == (b"gsc", 11, True, 11)
    assert scan.stopRow < b"gsa"
    assert back.after(b"gsb").stop == b"gsb"


def test_failures_are_told_in_one_line() -> None:
    failed = translated(wire.TIOError(message="Failed after\n\tat " + "x" * 1000), "here", b"t", wrote=True)
    assert isinstance(failed, Unavailable)
    assert failed.applied is Applied.UNKNOWN
    assert str(failed).startswith("here: TIOError Failed after at xxx")
    assert len(str(failed)) < 400
    missing = translated(wire.TIOError(message="t"), "here", b"t")
    assert (str(missing), missing.applied) == ("here: the table is missing; ensure_tables creates it", Applied.NO)
    assert translated(TimeoutError("timed out"), "here", b"t").applied is Applied.NO
