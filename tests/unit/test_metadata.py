"""Pseudo-kinds: what they say about what is stored now, and what cannot be asked of them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore
from pbserver.datastore import keys, metadata
from pbserver.datastore.core import Datastore
from pbserver.datastore.entities import parse, property_values
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.execute import Progress
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Op, Query
from pbserver.datastore.transactions import Handle
from pbserver.datastore.values import decode
from protos.entity_pb2 import PropertyValue, Reference
from tests.unit.building import APP, FAR, entity, key, query, reference

PARTITION = keys.partition(APP, b"", b"")
KIND, PROPERTY, NAMESPACE = b"__kind__", b"__property__", b"__namespace__"
NUL = b"K\x00"  # a kind that is escaped in every place


@pytest.fixture
def store() -> Iterator[OrderedStore]:
    opened = open_store("memory:")
    yield opened
    opened.close()


@pytest.fixture
def datastore(store: OrderedStore) -> Datastore:
    made = Datastore(store, testing=True)
    made.prepare(deadline=FAR)
    return made


def put(datastore: Datastore, at: Reference, **properties: Any) -> None:
    one = entity(at, **properties)
    datastore.write([Mutation(one.key, one)], None, deadline=FAR)


def delete(datastore: Datastore, at: Reference) -> None:
    datastore.write([Mutation(keys.from_reference(at), None)], None, deadline=FAR)


Found = list[tuple[tuple[bytes | int, ...], list[bytes]]]


def results(datastore: Datastore, asked: Query, count: int = 100) -> Found:
    """The identifiers in the keys of the results, and their representations, asked for in batches."""
    found: Found = []
    progress = Progress(None, 0, None)
    more = True
    while more:
        batch = datastore.query(asked, progress, count, None, deadline=FAR)
        more = batch.more
        for frame in batch.frames:
            proto = parse(frame + b"\x58" + b"\x80" * 8 + b"\x00" if asked.keys_only else frame)
            names = tuple(each.name or each.id for each in proto.key.path.element)
            values = property_values(proto).get(b"property_representation", [])
            found.append((names, [text_of(each) for each in values]))
    return found


def text_of(encoded: bytes) -> bytes:
    into = PropertyValue()
    decode(encoded, 0, into)
    return into.string_value


def named(*names: bytes) -> Key:
    return key(*zip((KIND, PROPERTY), names, strict=False))


def fill(datastore: Datastore) -> None:
    put(datastore, reference((b"A", 1)), p=[1, b"x", None, True], q=1.5)
    put(datastore, reference((b"A", 1), (b"B", 2)), p=(1.0, 2.0), r=reference((b"A", 1)))
    put(datastore, reference((NUL, 1)), **{"p\x00": 1, "p": 2})
    put(datastore, reference((b"C", 1), namespace=b"n"), s=1)


def test_kinds_and_namespaces_are_those_that_have_entities_now(datastore: Datastore, store: OrderedStore) -> None:
    fill(datastore)
    other = keys.partition(APP, b"", b"n")

    def kinds(partition: bytes) -> list[bytes]:
        return [*metadata.live_kinds(store, partition, FAR)]

    def namespaces() -> list[bytes]:
        return [*metadata.live_namespaces(store, PARTITION, FAR)]

    assert kinds(PARTITION) == [keys.encode_kind(each) for each in (b"A", b"B", NUL)]
    assert kinds(other) == [keys.encode_kind(b"C")]
    assert namespaces() == [b"", b"n"]
    delete(datastore, reference((b"A", 1)))
    assert kinds(PARTITION) == [keys.encode_kind(each) for each in (b"B", NUL)]
    delete(datastore, reference((b"C", 1), namespace=b"n"))
    assert (kinds(other), namespaces()) == ([], [b""])
    put(datastore, reference((b"C", 2), namespace=b"n"))
    assert (kinds(other), namespaces()) == ([keys.encode_kind(b"C")], [b"", b"n"])
    known = [*metadata.partitions_of_kind(store, PARTITION, keys.encode_kind(b"C"), FAR)]
    assert known == [other]


def test_more_kinds_and_namespaces_than_one_page(
    datastore: Datastore, store: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_PAGE", 3)
    for number in range(10):
        put(datastore, reference((b"K%d" % number, 1), namespace=b"n%d" % (number % 4)))
        put(datastore, reference((b"K%d" % number, 1)))
    kinds = [keys.encode_kind(b"K%d" % number) for number in range(10)]
    assert [*metadata.live_kinds(store, PARTITION, FAR)] == kinds
    assert [*metadata.live_namespaces(store, PARTITION, FAR)] == [b"", *(b"n%d" % each for each in range(4))]


def test_kinds_and_namespaces_can_be_queried(datastore: Datastore) -> None:
    fill(datastore)
    assert results(datastore, query(KIND), count=1) == [((each,), []) for each in (b"A", b"B", NUL)]
    assert results(datastore, query(NAMESPACE)) == [((1,), []), ((b"n",), [])]


@pytest.mark.parametrize(
    ("op", "bound", "expected"),
    [
        (Op.GREATER, b"A", [b"B", NUL]),
        (Op.GREATER_OR_EQUAL, b"B", [b"B", NUL]),
        (Op.LESS, NUL, [b"A", b"B"]),
        (Op.LESS_OR_EQUAL, b"K", [b"A", b"B"]),
        (Op.EQUAL, NUL, [NUL]),
        (Op.EQUAL, b"K", []),
    ],
)
def test_key_ranges_of_kinds(datastore: Datastore, op: Op, bound: bytes, expected: list[bytes]) -> None:
    fill(datastore)
    asked = query(KIND, [(b"__key__", op, named(bound).path)])
    assert results(datastore, asked) == [((each,), []) for each in expected]


REPRESENTED: Found = [
    ((b"A", b"p"), [b"NULL", b"INT64", b"BOOLEAN", b"STRING"]),
    ((b"A", b"q"), [b"DOUBLE"]),
    ((b"B", b"p"), [b"POINT"]),
    ((b"B", b"r"), [b"REFERENCE"]),
    ((NUL, b"p"), [b"INT64"]),
    ((NUL, b"p\x00"), [b"INT64"]),
]


def test_properties_are_told_with_their_types(datastore: Datastore) -> None:
    fill(datastore)
    assert results(datastore, query(PROPERTY), count=2) == REPRESENTED
    bare = results(datastore, replace(query(PROPERTY), keys_only=True))
    assert bare == [(names, []) for names, _ in REPRESENTED]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (query(PROPERTY, ancestor=named(b"A")), REPRESENTED[:2]),
        (query(PROPERTY, ancestor=named(b"A", b"q")), REPRESENTED[1:2]),
        (query(PROPERTY, ancestor=named(b"K")), []),
        (query(PROPERTY, [(b"__key__", Op.GREATER_OR_EQUAL, named(b"A", b"q").path)]), REPRESENTED[1:]),
        (query(PROPERTY, [(b"__key__", Op.GREATER, named(b"A", b"q").path)]), REPRESENTED[2:]),
        (query(PROPERTY, [(b"__key__", Op.LESS, named(b"B", b"r").path)]), REPRESENTED[:3]),
        (query(PROPERTY, [(b"__key__", Op.GREATER, named(b"B").path)]), REPRESENTED[2:]),
        (
            query(PROPERTY, [(b"__key__", Op.LESS, named(b"A", b"q").path)], ancestor=named(b"A")),
            REPRESENTED[:1],
        ),
    ],
)
def test_properties_of_a_kind_or_a_range(datastore: Datastore, asked: Query, expected: Found) -> None:
    fill(datastore)
    assert results(datastore, asked) == expected


def test_properties_go_with_the_last_entity_that_has_them(datastore: Datastore) -> None:
    fill(datastore)
    put(datastore, reference((b"A", 1)), q=b"now a text")
    assert results(datastore, query(PROPERTY, ancestor=named(b"A"))) == [((b"A", b"q"), [b"STRING"])]
    delete(datastore, reference((b"A", 1)))
    assert results(datastore, query(PROPERTY, ancestor=named(b"A"))) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (query(b"__entity_group__"), "queries not supported on __entity_group__"),
        (query(KIND, ancestor=named(b"A")), "ancestor queries on __kind__ not allowed"),
        (query(NAMESPACE, ancestor=named(b"A")), "ancestor queries on __namespace__ not allowed"),
        (query(KIND, [(b"p", Op.EQUAL, 1)]), "Only comparison filters on __key__"),
        (query(KIND, orders=[(b"__key__", True)]), "Only ascending order on __key__"),
        (query(KIND, orders=[(b"p", False)]), "Only ascending order on __key__"),
        (query(KIND, [(b"__key__", Op.EQUAL, key((b"A", b"x")).path)]), "invalid Key for __kind__ table"),
        (query(KIND, [(b"__key__", Op.EQUAL, key((KIND, 1)).path)]), "invalid Key for __kind__ table"),
        (query(PROPERTY, ancestor=key((b"A", b"x"))), "invalid Key for __property__ table"),
        (query(NAMESPACE, [(b"__key__", Op.LESS, key((NAMESPACE, 2)).path)]), "invalid Key for __namespace__ table"),
        (replace(query(KIND), projection=(b"p",)), "Only comparison filters"),
    ],
)
def test_what_cannot_be_asked_of_a_pseudo_kind_is_refused(datastore: Datastore, asked: Query, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        results(datastore, asked)


def test_a_transaction_asks_no_pseudo_kind(datastore: Datastore) -> None:
    handle = datastore.transactions.begin(APP, cross_group=False, read_only=False, deadline=FAR)
    asked = query(PROPERTY, ancestor=named(b"A"))
    with pytest.raises(BadRequest, match='transactional queries on "__property__" not allowed'):
        datastore.query(asked, Progress(None, 0, None), 1, handle, deadline=FAR)


def version(datastore: Datastore, root: tuple[bytes, int], handle: Handle | None = None) -> int | None:
    (stored,) = datastore.get([key(root, (b"__entity_group__", 1))], handle, deadline=FAR)
    if stored is None:
        return None
    into = PropertyValue()
    decode(property_values(parse(stored))[b"__version__"][0], 0, into)
    return into.int64_value


def test_the_version_of_a_group_grows_with_every_commit_in_it(datastore: Datastore) -> None:
    root = (b"A", 1)
    seen = []
    for number in range(10):
        put(datastore, reference(root, (b"B", number + 1)), p=1)
        seen.append(version(datastore, root))
        put(datastore, reference((b"A", 2)), p=1)
        assert version(datastore, root) == seen[-1]
    delete(datastore, reference(root, (b"B", 1)))
    seen.append(version(datastore, root))
    assert all(later > earlier for earlier, later in pairwise(seen))  # type: ignore[operator]
    handle = datastore.transactions.begin(APP, cross_group=False, read_only=False, deadline=FAR)
    assert version(datastore, root, handle) == seen[-1]


@pytest.mark.parametrize("path", [((b"A", 1), (b"__entity_group__", 2)), ((b"A", 1), (b"__entity_group__", b"1"))])
def test_only_the_first_entity_group_entity_has_a_version(datastore: Datastore, path: Any) -> None:
    put(datastore, reference((b"A", 1)))
    assert datastore.get([key(*path)], None, deadline=FAR) == [None]
