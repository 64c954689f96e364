"""What calls of the mysql adapter turn into."""

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from adapters.contract import ABSENT, Address, Check, Rows, Table, Write
from adapters.mysql import codec

SCOPE = b"scope\x00"


def at(key: bytes, table: Table = Table.GROUPS) -> Address:
    return Address(table, SCOPE, b"", key)


def shown(statement: codec.Statement) -> str:
    values = [f"X'{each.hex()}'" if isinstance(each, bytes) else each for each in statement.values]
    return statement.text % tuple(values)


def texts(*operations: Write | Check, rows: Sequence[Rows] = (), certified: bool = False) -> list[str]:
    statements = codec.sorted_out(operations, rows, certified=certified).statements(certified=certified)
    return [shown(each) for each in statements]


def test_a_put_is_the_head_looked_up_what_is_checked_and_one_statement_of_rows() -> None:
    lock, head, absent, rows = texts(
        Write(at(b"h"), b"new", b"old"),
        Check(at(b"c", Table.META), ABSENT),
        rows=[Rows(Table.INDEXES, SCOPE, b"", {b"1": b"v", b"2": b"v"})],
    )
    assert lock.endswith("LOCK IN SHARE MODE")
    assert head.endswith(f"WHERE tbl = 103 AND k = X'{(SCOPE + b'h').hex()}' AND v = X'6f6c64' FOR UPDATE")
    assert absent.endswith(f"WHERE tbl = 109 AND k IN (X'{(SCOPE + b'c').hex()}')")
    assert rows.count("(103,") == 1
    assert rows.count("(105,") == 2
    assert rows.endswith("UPDATE v = VALUES(v)")


def test_only_rows_that_must_be_new_make_an_insert_fail() -> None:
    (sql,) = texts(Write(at(b"a"), b"v", ABSENT), Write(at(b"b"), b"v"))
    assert sql.endswith(f"UPDATE v = IF(tbl = 103 AND k IN (X'{(SCOPE + b'a').hex()}'), NULL, VALUES(v))")


def test_a_delete_names_all_its_rows_and_its_limit_cuts_none_off() -> None:
    found = texts(*(Write(at(b"%d" % number), None) for number in range(codec.ROWS_AT_ONCE + 1)))
    assert [int(each.rpartition("LIMIT ")[2]) for each in found] == [codec.ROWS_AT_ONCE, 1]
    assert [each.count("X'") for each in found] == [codec.ROWS_AT_ONCE, 1]


def test_what_is_too_long_for_one_statement_is_divided() -> None:
    value = b"v" * (codec.STATEMENT_BYTES // 2)
    found = texts(*(Write(at(b"%d" % number), value) for number in range(3)))
    assert [each.count("(103,") for each in found] == [1, 1, 1]
    assert texts() == []


@given(st.lists(st.tuples(st.sampled_from([103, 105, 109]), st.binary(max_size=3)), unique=True, min_size=1))
def test_a_selection_names_each_place_once(places: list[codec.Place]) -> None:
    sql = shown(codec.selection(places)).partition("WHERE ")[2]
    named = [
        (int(table), bytes.fromhex(key))
        for table, keys in re.findall(r"tbl = (\d+) AND k IN \(([^)]*)\)", sql)
        for key in re.findall(r"X'([^']*)'", keys)
    ]
    assert sorted(named) == sorted(places)
    assert codec.found_rows([[(table, key, b"v") for table, key in places], ()]) == dict.fromkeys(places, b"v")
