"""Keys and values as byte strings: their order is the Datastore's, and they read back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbserver.datastore import encoding, keys, values
from pbserver.datastore.errors import BadRequest
from protos.entity_pb2 import EntityProto, Path, PropertyValue, Reference
from tests.unit.building import APP, key, reference, value

IDENTIFIERS = st.one_of(st.integers(1, 2**63 - 1), st.text(min_size=1, max_size=8).map(str.encode))
KINDS = st.text(min_size=1, max_size=6).map(str.encode)
PATHS = st.lists(st.tuples(KINDS, IDENTIFIERS), min_size=1, max_size=4)


def comparable(path: list[tuple[bytes, int | bytes]]) -> list[tuple[bytes, bool, int | bytes]]:
    """The order the Datastore defines: kinds by bytes, ids before names, ancestors before descendants."""
    return [(kind, isinstance(identifier, bytes), identifier) for kind, identifier in path]


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_text_keeps_the_order_of_bytes(left: bytes, right: bytes) -> None:
    assert (encoding.text(left) < encoding.text(right)) == (left < right)
    assert encoding.read_text(encoding.text(left) + right, 0) == (left, len(encoding.text(left)))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_keep_their_order(left: int, right: int) -> None:
    assert (encoding.integer(left) < encoding.integer(right)) == (left < right)
    assert encoding.read_integer(encoding.integer(left), 0) == (left, 8)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_doubles_keep_their_order(left: float, right: float) -> None:
    if left != right:  # -0.0 and 0.0 are two values with one meaning
        assert (encoding.double(left) < encoding.double(right)) == (left < right)
    assert encoding.read_double(encoding.double(left), 0) == (left, 8)


def test_a_nan_reads_back() -> None:
    assert math.isnan(encoding.read_double(encoding.double(math.nan), 0)[0])


@given(PATHS, PATHS)
def test_paths_sort_like_keys(left: list[tuple[bytes, int | bytes]], right: list[tuple[bytes, int | bytes]]) -> None:
    mine, other = key(*left).path, key(*right).path
    assert (mine < other) == (comparable(left) < comparable(right))
    assert list(keys.decode_path(mine)) == left


@given(PATHS)
def test_an_ancestor_is_a_prefix_and_the_root_is_known(path: list[tuple[bytes, int | bytes]]) -> None:
    made = key(*path)
    for depth in range(1, len(path) + 1):
        assert made.path.startswith(key(*path[:depth]).path)
    assert made.root == len(key(path[0]).path)
    assert made.kind == keys.last_kind(made.path) == keys.encode_kind(path[-1][0])


@given(PATHS, st.text(max_size=5).map(str.encode))
def test_a_reference_written_by_hand_reads_back(path: list[tuple[bytes, int | bytes]], namespace: bytes) -> None:
    made = key(*path, namespace=namespace)
    written = Reference.FromString(keys.serialized_reference(made.partition, made.path))
    assert written == reference(*path, namespace=namespace) == keys.to_reference(made.partition, made.path)


def test_a_keys_only_frame_is_a_result_with_nothing_but_the_key() -> None:
    made = key((b"K", -5), (b"L", b"\x00n"))
    frame = keys.keys_only_frame(made.partition, made.path)
    assert frame[0] == 0x12
    size, start = encoding.read_varint(frame, 1)
    assert start + size == len(frame)
    assert EntityProto.FromString(frame[start:]) == EntityProto(
        key=reference((b"K", -5), (b"L", b"\x00n")), entity_group=Path()
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Reference(app=APP), "path cannot be empty"),
        (reference((b"K", None)), "missing key id/name"),
        (reference((b"K", 0)), "missing key id/name"),
        (reference((b"K", b"")), "missing key id/name"),
        (reference((b"K", None), (b"L", 1)), "missing key id/name"),
        (reference((b"", 1)), "no kind"),
        (reference((b"K", 1), app=b""), "names no app"),
        (reference((b"\xff", 1)), "not valid UTF-8"),
        (reference((b"K", b"\xff")), "not valid UTF-8"),
        (reference((b"K", b"n" * 1501)), "1500 bytes"),
        (reference((b"k" * 1501, 1)), "1500 bytes"),
        (reference(*[(b"K", b"n" * 1500)] * 5), "a key may have 6144 bytes"),
    ],
)
def test_a_malformed_key_is_refused(bad: Reference, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        keys.from_reference(bad)


def test_an_element_with_id_and_name_is_refused() -> None:
    both = reference((b"K", 1))
    both.path.element[0].name = b"n"
    with pytest.raises(BadRequest, match="id or name but not both"):
        keys.from_reference(both)


ASCENDING = [
    None,
    -(2**63),
    -1,
    0,
    2**63 - 1,
    False,
    True,
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\x01",
    b"ab",
    b"\xff",
    -math.inf,
    -1.5,
    0.0,
    1e-300,
    math.inf,
    (-90.0, 0.0),
    (1.0, -2.0),
    (1.0, 2.0),
    reference((b"K", 1)),
    reference((b"K", 1), (b"K", 1)),
    reference((b"K", 2)),
    reference((b"K", b"a")),
    reference((b"L", 1)),
]


def test_values_sort_across_types() -> None:
    encoded = [values.encode(value(content)) for content in ASCENDING]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(encoded)


@pytest.mark.parametrize("content", ASCENDING, ids=repr)
def test_a_value_reads_back_and_ends_where_it_says(content: object) -> None:
    encoded = values.encode(value(content))
    assert values.size(b"xy" + encoded + b"\x01rest", 2) == 2 + len(encoded)
    back = PropertyValue()
    assert values.decode(b"xy" + encoded + b"\x01rest", 2, back) == 2 + len(encoded)
    assert values.encode(back) == encoded


def test_two_fields_in_one_value_are_refused() -> None:
    both = PropertyValue(int64_value=1, boolean_value=True)
    with pytest.raises(BadRequest, match="p has multiple value fields"):
        values.encode(both, b"p")
