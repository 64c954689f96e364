"""CutKeysStore: order among keys that share a stem, what its scans read, the Datastore over stores with short keys."""

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from adapters.build import open_store
from adapters.conformance.interleaving import Scheduled, Turns, interleaved
from adapters.conformance.plugin import bare
from adapters.contract import ABSENT, ANY, Address, Check, KeyRange, OrderedStore, Row, Rows, Table, Write
from adapters.errors import Conflict, Corrupt, Unsupported
from adapters.layers.cutkeys import LONGEST_KEY_BYTES, PAGE_ROWS, CutKeysStore, Cuts
from pbserver.datastore.core import Datastore
from pbserver.datastore.execute import Progress
from pbserver.datastore.keys import from_reference
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Op
from protos.datastore_v3_pb2 import QueryResult
from protos.entity_pb2 import EntityProto
from tests.unit.building import FAR, entity, query, reference

SOON = 1e18
LIMIT = 128
EVERYTHING = KeyRange()
SCOPES = [b"s\x00", b"s" * 63 + b"\x00", b"s" * 64 + b"\x00", b"s" * 3000 + b"\x00"]


class Counted:
    """A store whose scans are counted, by the rows they return."""

    def __init__(self, options: str = "") -> None:
        store = bare(f"weak:?max_key_bytes={LIMIT}{options}")
        assert isinstance(store, OrderedStore)
        self.store = store
        self.scans: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        rows = self.store.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        self.scans.append(len(rows))
        return rows


def over(options: str = "") -> tuple[CutKeysStore, Counted]:
    below: Any = Counted(options)
    return CutKeysStore(below), below


def at(key: bytes, scope: bytes = SCOPES[0]) -> Address:
    return Address(Table.META, scope, b"place", key)


def scanned(
    store: CutKeysStore,
    keys: KeyRange = EVERYTHING,
    *,
    scope: bytes = SCOPES[0],
    limit: int,
    reverse: bool = False,
) -> list[Row]:
    return store.scan(Table.META, scope, keys, limit=limit, reverse=reverse, deadline=SOON)


@pytest.mark.parametrize("scope", SCOPES)
def test_every_range_is_in_order_around_every_length_at_which_keys_are_cut(scope: bytes) -> None:
    store, _ = over()
    cuts = Cuts(LIMIT)
    cut = cuts.cut(cuts.scope(scope))
    lengths = [0, 1, cut - 1, cut, cut + 1, cut + 31, cut + 32, cut + 33, 300]
    keys = {byte * length + tail for byte, length, tail in product((b"a", b"\xff"), lengths, (b"", b"\x00", b"b"))}
    store.write([], rows=[Rows(Table.META, scope, b"place", {key: key + b"v" for key in keys})], deadline=SOON)
    rows = [(key, key + b"v") for key in sorted(keys)]
    assert store.read([at(key, scope) for key in keys], deadline=SOON) == [key + b"v" for key in keys]
    for start, stop in product([b"", *sorted(keys)[::2]], [None, *sorted(keys)[1::3], b"a" * cut + b"a\x00"]):
        inside = [row for row in rows if start <= row[0] and (stop is None or row[0] < stop)]
        for limit in (1, 4, 1000):
            assert scanned(store, KeyRange(start, stop), scope=scope, limit=limit) == inside[:limit]
            backwards = scanned(store, KeyRange(start, stop), scope=scope, limit=limit, reverse=True)
            assert backwards == inside[::-1][:limit]


def test_a_large_group_is_paged_through_and_a_small_one_costs_one_more_call_at_most() -> None:
    store, below = over()
    together = [b"k" * 200 + b"%04d" % number for number in range(1000)]
    alone = [b"%04d" % number + b"l" * 200 for number in range(50)]
    store.write([Write(at(key), key) for key in together + alone], deadline=SOON)
    for reverse in (False, True):
        below.scans.clear()
        rows = scanned(store, KeyRange(together[500]), limit=3, reverse=reverse)
        assert [key for key, _ in rows] == (together[:-4:-1] if reverse else together[500:503])
        assert sum(below.scans) == 1000
        assert max(below.scans) == PAGE_ROWS
    below.scans.clear()
    assert [key for key, _ in scanned(store, limit=20)] == alone[:20]
    assert len(below.scans) == 2
    below.scans.clear()
    assert [key for key, _ in scanned(store, KeyRange(alone[45], alone[49]), limit=20)] == alone[45:49]
    assert len(below.scans) == 1


def test_short_keys_pass_through() -> None:
    store, below = over()
    store.write([Write(at(b"a"), b"1")], rows=[Rows(Table.INDEXES, b"t", b"", {b"b": b"2"})], deadline=SOON)
    assert below.store.read([at(b"a")], deadline=SOON) == [b"1"]
    assert scanned(store, KeyRange(b"a", b"b"), limit=9) == [(b"a", b"1")]
    assert below.scans == [1]


def test_conditions_and_versions_reach_the_row_itself() -> None:
    key = at(b"k" * 300, SCOPES[-1])
    store, _ = over("&versions=yes")
    store.write([Write(key, b"1", ABSENT)], deadline=SOON)
    store.write([Check(key, b"1")], deadline=SOON)
    store.write([Write(key, b"2", b"1")], deadline=SOON)
    for wrong in (ABSENT, b"1"):
        with pytest.raises(Conflict) as raised:
            store.write([Write(key, b"3", wrong)], deadline=SOON)
        assert (raised.value.index, raised.value.current) == (0, b"2")
    late = key._replace(key=b"l" * 300)
    for version, value in ((5, b"five"), (4, b"four"), (7, None), (6, b"six")):
        store.write([Write(late, value, ANY, version)], deadline=SOON)
    assert store.read([key, late], deadline=SOON) == [b"2", None]


def test_a_row_of_another_key_with_the_same_digest_is_told_from_what_was_asked_for() -> None:
    store, below = over()
    key, cuts = at(b"k" * 300), Cuts(LIMIT)
    scope = key.scope
    for stored, text in ((cuts.value(scope, b"k" * 299 + b"l", b"v"), "another|ends in"), (b"\x00\x00", "cut off")):
        below.store.write([Write(cuts.address(key), stored)], deadline=SOON)
        with pytest.raises(Corrupt, match=text):
            store.read([key], deadline=SOON)


def test_what_it_cannot_stand_over_and_what_it_claims() -> None:
    below: Any = bare(f"weak:?max_key_bytes={LIMIT - 1}")
    with pytest.raises(Unsupported, match="too short to cut; 128 are needed"):
        CutKeysStore(below)
    with pytest.raises(Unsupported, match="only over a store with max_key_bytes"):
        CutKeysStore(open_store("memory:"))
    assert over()[0].capabilities.max_key_bytes is None
    claims = over("&max_value_bytes=100000")[0].capabilities
    assert (claims.max_key_bytes, claims.max_value_bytes) == (LONGEST_KEY_BYTES, 100_000 - LONGEST_KEY_BYTES - 4)


def test_any_interleaving_of_writers_and_scans_meets_every_long_row_that_stays_once() -> None:
    for seed in range(10):
        turns = Turns(seed, 3)
        below: Any = Scheduled(bare(f"weak:?max_key_bytes={LIMIT}"), turns)
        layer = CutKeysStore(below)
        staying = [b"k" * (90 + 10 * (number % 2)) + b"%03d" % number for number in range(0, 60, 2)]
        coming = [key + b"x" for key in staying]
        CutKeysStore(below._store).write([Write(at(key), b"stays") for key in staying], deadline=SOON)

        def churn(layer: CutKeysStore = layer, coming: Sequence[bytes] = coming, seed: int = seed) -> None:
            random = Random(seed)
            for _ in range(40):
                layer.write([Write(at(random.choice(coming)), random.choice([b"v", None]))], deadline=SOON)

        def look(layer: CutKeysStore = layer, staying: Sequence[bytes] = staying) -> None:
            for reverse in (False, True, False):
                found: list[bytes] = []
                keys = KeyRange()
                while rows := scanned(layer, keys, limit=7, reverse=reverse):
                    found += [key for key, _ in rows]
                    keys = KeyRange(stop=rows[-1][0]) if reverse else KeyRange(rows[-1][0] + b"\x00")
                assert found == sorted({*found}, reverse=reverse)
                assert {*staying} <= {*found}

        work: list[Callable[[], None]] = [churn, churn, look]
        interleaved(turns, work)


@pytest.mark.parametrize(
    "options",
    [
        "atomicity=row&versions=yes",
        "atomicity=row&versions=yes&shuffle=1&fail=3",
        "atomicity=row&max_value_bytes=65536",
        "atomicity=scope",
        "atomicity=batch&snapshot=yes",
        "atomicity=batch",
    ],
)
def test_the_datastore_keeps_long_properties_and_names_over_250_byte_keys(options: str) -> None:
    store = open_store(f"weak:?max_key_bytes=250&{options}")
    datastore = Datastore(store, testing=True)
    datastore.prepare(deadline=FAR)
    kind = b"K" * 300
    texts = [b"t" * 480 + b"%02d" % (37 * number % 50) + b"u" * 900 for number in range(50)]
    made = [
        entity(reference((b"P", b"p" * 400), (kind, b"n" * 450 + b"%02d" % number)), text=text, plain=number)
        for number, text in enumerate(texts)
    ]
    for one in made:
        datastore.write([Mutation(one.key, one)], None, deadline=FAR)
    for descending in (False, True):
        asked = query(kind, orders=[(b"text", descending)])
        frames = datastore.query(asked, Progress(None, 0, None), 100, None, deadline=FAR).frames
        found = [
            EntityProto.FromString(QueryResult.FromString(frame).result[0]).property[0].value.string_value
            for frame in frames
        ]
        assert found == sorted(texts, reverse=descending)
    between = query(kind, [(b"text", Op.GREATER, texts[3]), (b"text", Op.LESS, texts[5])])
    rows = datastore.query(between, Progress(None, 0, None), 100, None, deadline=FAR).rows
    assert len(rows) == sum(texts[3] < text < texts[5] for text in texts)
    parent = from_reference(reference((b"P", b"p" * 400)))
    asked = query(kind, ancestor=parent)
    assert len(datastore.query(asked, Progress(None, 0, None), 100, None, deadline=FAR).rows) == 50
    datastore.write([Mutation(one.key, None) for one in made], None, deadline=FAR)
    for asked in (query(kind), query(kind, orders=[(b"text", False)]), query(kind, ancestor=parent)):
        assert datastore.query(asked, Progress(None, 0, None), 100, None, deadline=FAR).rows == []
    store.close()
