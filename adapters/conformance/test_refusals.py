"""Capabilities the other way round: what a store does not claim, it refuses, and nothing of the call is applied."""

from collections.abc import Sequence

import pytest

from adapters.conformance.addressing import at
from adapters.contract import (
    ABSENT,
    ANY,
    Atomicity,
    Check,
    KeyRange,
    Operation,
    OrderedStore,
    PointStore,
    Rows,
    Table,
    Write,
)
from adapters.errors import Unsupported

OTHER = b"other\x00"
BULK = Rows(Table.META, OTHER, b"place", {b"bulk": b"v"})

WITHOUT_CAS: list[tuple[Sequence[Operation], Sequence[Rows]]] = [
    ([Write(at(b"a"), b"v", ABSENT)], []),
    ([Write(at(b"a"), b"v", b"old")], []),
    ([Check(at(b"a"), ABSENT), Write(at(b"b"), b"v")], []),
]
BEYOND_ROW: list[tuple[Sequence[Operation], Sequence[Rows]]] = [
    ([Write(at(b"a"), b"v", ABSENT), Write(at(b"b"), b"v")], []),
    ([Write(at(b"a"), b"v"), Check(at(b"b"), ABSENT)], []),
    ([Write(at(b"a"), b"v", ABSENT)], [BULK]),
]
BEYOND_SCOPE: list[tuple[Sequence[Operation], Sequence[Rows]]] = [
    ([Write(at(b"a"), b"v", ABSENT), Check(at(b"b", scope=OTHER), ABSENT)], []),
    ([Write(at(b"a"), b"v", ABSENT), Write(at(b"b", Table.GROUPS), b"v", ABSENT)], [BULK]),
]


def refused(store: PointStore) -> list[tuple[Sequence[Operation], Sequence[Rows]]]:
    claims = store.capabilities
    calls = []
    if not claims.compare_and_set:
        calls += WITHOUT_CAS
    if claims.atomicity is Atomicity.ROW:
        calls += BEYOND_ROW
    if claims.atomicity is not Atomicity.BATCH:
        calls += BEYOND_SCOPE
    if not claims.versioned_writes:
        calls += [([Write(at(b"a"), b"v", ANY, 1)], []), ([], [BULK._replace(version=1)])]
    return calls


def test_writes_that_are_not_claimed_are_refused(points: PointStore, deadline: float) -> None:
    for operations, rows in refused(points):
        with pytest.raises(Unsupported):
            points.write(operations, rows=rows, deadline=deadline)
    keys = [at(b"a"), at(b"b"), at(b"b", scope=OTHER), at(b"b", Table.GROUPS), at(b"bulk", scope=OTHER)]
    assert points.read(keys, deadline=deadline) == [None] * 5


def test_reads_that_are_not_claimed_are_refused(points: PointStore, deadline: float) -> None:
    claims = points.capabilities
    assert isinstance(points, OrderedStore) == claims.ordered
    if not isinstance(points, OrderedStore):
        return
    if not claims.snapshot:
        with pytest.raises(Unsupported):
            points.snapshot().__enter__()
    if not claims.reverse_scan:
        with pytest.raises(Unsupported):
            points.scan(Table.META, b"s\x00", KeyRange(), limit=1, reverse=True, deadline=deadline)


def test_claims_make_sense_together(points: PointStore) -> None:
    claims = points.capabilities
    assert claims == points.capabilities
    assert claims.ordered or not (claims.reverse_scan or claims.snapshot)
    assert claims.versioned_writes == (claims.version_horizon_seconds is not None)
    assert (claims.max_key_bytes or 64) >= 64
    assert all(limit is None or limit > 0 for limit in (claims.max_value_bytes, claims.max_batch))
