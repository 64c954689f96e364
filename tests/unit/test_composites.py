"""The rows of an entity in composite indexes, their number and size beforehand, and what cannot be an index."""

import time
from itertools import product
from random import Random
from typing import Any

import pytest

from pbserver.datastore import composites, keys
from pbserver.datastore.composites import Composite, Definition, Size, State, Values, checked
from pbserver.datastore.entities import all_rows, property_values
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.queries import KEY_NAME
from pbserver.datastore.tables import is_repeated, key_of_row
from pbserver.datastore.values import encode
from protos.entity_pb2 import Reference
from tests.unit.building import definition, entity, key, reference, value

UP, DOWN = False, True
DEEP = ((b"P", 1), (b"Q", b"q\x00\x01"), (b"K", 7))
CONTENTS: list[Any] = [
    None,
    0,
    -5,
    True,
    b"",
    b"\x00",
    b"\x00\x01\xff"[:2],
    b"x",
    b"x\x00",
    1.5,
    -0.0,
    (1.0, -2.0),
    DEEP,
]


def index(*properties: tuple[bytes, bool], ancestor: bool = False, state: State = State.SERVING) -> Composite:
    return Composite(258, definition(*properties, ancestor=ancestor), state)


def encoded(*contents: Any) -> list[bytes]:
    return [encode(value(reference(*each) if each is DEEP else each)) for each in contents]


def slowly(composite: Composite, at: Key, values: Values) -> list[bytes]:
    """The keys of the rows, by the letter of the module's description."""
    *others, last = composite.definition.properties
    mirrored = last == (KEY_NAME, DOWN)
    stored = others if mirrored else [*others, last]
    elements = [*keys.decode_path(at.path)]
    pins = [b""]
    if composite.definition.ancestor:
        pins = [key(*elements[: size + 1]).path + b"\x00" for size in range(len(elements))]
    rows = []
    for chosen in product(*(values.get(name, []) for name, _ in stored)):
        column = b""
        for (_, descending), one in zip(stored, chosen, strict=True):
            upside_down = descending != mirrored
            column += bytes(255 - byte for byte in one) if upside_down else one
        rows += [b"\x03\x00\x00\x01\x02" + pin + column + at.path for pin in pins]
    return sorted({*rows})


SHAPES = [
    [(b"a", UP)],
    [(b"a", DOWN), (b"b", UP)],
    [(b"a", UP), (b"b", DOWN), (b"c", DOWN)],
    [(b"a", UP), (KEY_NAME, DOWN)],
    [(b"a", DOWN), (b"b", UP), (KEY_NAME, DOWN)],
]
ALONE = [[(KEY_NAME, DOWN)]]
PATHS: list[tuple[tuple[bytes, int | bytes], ...]] = [
    ((b"K", 1),),
    ((b"K", b"\x00n\x01"),),
    DEEP,
    (*DEEP, (b"K", b"z")),
]


@pytest.mark.parametrize("ancestor", [False, True])
@pytest.mark.parametrize("shape", SHAPES + ALONE)
def test_an_entity_has_a_row_for_each_combination_of_its_values(
    shape: list[tuple[bytes, bool]], ancestor: bool
) -> None:
    rng = Random(7)
    composite = index(*shape, ancestor=ancestor)
    for _ in range(60):
        values = {name: encoded(*rng.choices(CONTENTS, k=rng.randint(1, 4))) for name in (b"a", b"b", b"c", b"z")}
        for name in rng.sample([b"a", b"b", b"c"], rng.choice((0, 0, 0, 1))):
            del values[name]
        at = key(*rng.choice(PATHS))
        made = composites.entries(composite, at, values)
        assert sorted(made) == slowly(composite, at, values)
        assert composites.size(composite, at, values) == Size(len(made), sum(map(len, made)))
        several = len(made) > (len([*keys.decode_path(at.path)]) if ancestor else 1)
        for row, content in made.items():
            assert key_of_row(at.partition, at.kind, (row, content)) == at
            assert is_repeated(content) == several


def test_rows_under_an_ancestor_are_one_per_element_of_the_path() -> None:
    made = [*composites.entries(index((b"a", UP), ancestor=True), key(*DEEP), {b"a": encoded(1)})]
    for size in (1, 2, 3):
        assert sum(row.startswith(index().prefix + key(*DEEP[:size]).path + b"\x00") for row in made) == 1
    assert len(made) == 3


def test_values_given_twice_are_one_row_that_is_not_repeated() -> None:
    ((_, content),) = composites.entries(index((b"a", UP)), key(*DEEP), {b"a": encoded(1, 1, 1)}).items()
    assert not is_repeated(content)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_stand_in_the_order_of_the_index_or_just_the_other_way_round(shape: list[tuple[bytes, bool]]) -> None:
    rng = Random(3)
    composite = index(*shape)
    names = [name for name, _ in composite.definition.values]
    found: list[tuple[list[bytes], bytes, bytes]] = []  # values, path, row
    for number in range(200):
        at = key((b"K", number % 5 + 1), (b"K", number + 1))
        chosen = encoded(*rng.choices(CONTENTS[:-2], k=len(names)))
        (row,) = composites.entries(composite, at, {name: [one] for name, one in zip(names, chosen, strict=True)})
        found.append((chosen, at.path, row))
    turned = composite.definition.key_descending
    found.sort(key=lambda each: each[1], reverse=turned)
    for place, (_, descending) in reversed([*enumerate(composite.definition.values)]):
        found.sort(key=lambda each, place=place: each[0][place], reverse=descending)  # type: ignore[misc]
    rows = [row for _, _, row in found]
    assert rows == sorted(rows, reverse=turned)


def many(*counts: int) -> tuple[tuple[bytes, bool], ...]:
    return tuple((b"p%d" % number, UP) for number in range(len(counts)))


def values_of(*counts: int, width: int = 0) -> Values:
    return {
        b"p%d" % number: encoded(*(b"%d" % each + b"x" * width for each in range(count)))
        for number, count in enumerate(counts)
    }


@pytest.mark.parametrize(
    ("counts", "ancestor", "width", "built_in", "refused"),
    [
        ((100, 100), False, 0, 10_000, None),
        ((100, 100), False, 0, 10_001, "20001 index entries; the limit is 20000"),
        ((100, 67), True, 0, 0, "20100 index entries"),
        ((100, 66), True, 0, 200, None),
        ((100, 66), True, 0, 201, "20001 index entries"),
        ((50, 50, 50, 50, 50), False, 0, 0, "312500000 index entries"),
        ((3000, 3000, 3000), True, 0, 0, "81000000000 index entries"),
        ((40, 40), False, 800, 0, "are too large: [0-9]{7} bytes; the limit is 2097152"),
        ((30, 30), False, 800, 0, None),
    ],
)
def test_the_limits_of_an_entity_hold_before_its_rows_are_made(
    counts: tuple[int, ...], ancestor: bool, width: int, built_in: int, refused: str | None
) -> None:
    composite = index(*many(*counts), ancestor=ancestor)
    values = values_of(*counts, width=width)
    began = time.monotonic()
    if refused is None:
        assert composites.all_entries((composite,), key(*DEEP), values, built_in)
    else:
        with pytest.raises(BadRequest, match=refused):
            composites.all_entries((composite,), key(*DEEP), values, built_in)
    assert time.monotonic() - began < 2


def test_the_byte_limit_is_exact() -> None:
    composite = index((b"p0", UP))
    at = key((b"K", 1))
    bare = len(composite.prefix) + len(at.path)

    def sized(total: int) -> Values:
        first = b"\x30" + b"x" * 1_000_000 + b"\x00"
        second = b"\x30" + b"y" * (total - 2 * bare - len(first) - 2) + b"\x00"
        return {b"p0": [first, second]}

    limit = composites.MAX_COMPOSITE_BYTES
    assert sum(map(len, composites.all_entries((composite,), at, sized(limit), 0))) == limit
    with pytest.raises(BadRequest, match=f"{limit + 1} bytes"):
        composites.all_entries((composite,), at, sized(limit + 1), 0)


def test_all_indexes_of_a_kind_count_together_and_those_not_written_do_not() -> None:
    values = values_of(100, 100)
    half = [index(*many(1, 1), state=state) for state in (State.SERVING, State.BUILDING)]
    idle = [index(*many(1, 1), state=state) for state in (State.DELETING, State.ERROR)]
    one, other = half[0], half[1]._replace(id=2)
    assert len(composites.all_entries((one, other, *idle), key((b"K", 1)), values, 0)) == 20_000
    assert composites.all_entries((*idle,), key((b"K", 1)), values, 0) == {}
    with pytest.raises(BadRequest, match="30000 index entries"):
        composites.all_entries((one, other, one), key((b"K", 1)), values, 0)


def test_an_entity_without_one_of_the_properties_is_not_in_the_index() -> None:
    made = entity(reference((b"K", 1)), a=1)
    composite = index((b"a", UP), (b"b", UP))
    assert all_rows(made, (composite,)) == made.rows
    assert composites.size(composite, made.key, property_values(made.proto)) == Size(0, 0)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (definition(), "needs properties"),
        (definition((KEY_NAME, UP)), "needs properties"),
        (definition((KEY_NAME, UP), ancestor=True), "needs properties"),
        (definition((KEY_NAME, DOWN), (b"a", UP)), "only be the last"),
        (definition((KEY_NAME, UP), (b"a", UP)), "only be the last"),
        (definition((b"a", UP), (b"b", UP), (b"a", DOWN)), "property a stands in the index twice"),
        (definition((b"a", UP), (KEY_NAME, DOWN), (KEY_NAME, UP)), "__key__"),
        (definition((b"a", UP), (KEY_NAME, UP), (KEY_NAME, UP)), "__key__"),
        (definition((b"a", UP), (b"\xff", UP)), "not valid UTF-8"),
    ],
)
def test_what_cannot_be_an_index_is_refused(refused: Definition, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        checked(refused)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (definition((b"a", UP), (KEY_NAME, UP)), definition((b"a", UP))),
        (definition((b"a", UP), (KEY_NAME, DOWN)), definition((b"a", UP), (KEY_NAME, DOWN))),
        (definition((KEY_NAME, DOWN), ancestor=True), definition((KEY_NAME, DOWN), ancestor=True)),
        (definition((b"a", DOWN), ancestor=True), definition((b"a", DOWN), ancestor=True)),
    ],
)
def test_an_index_that_ends_in_the_key_ascending_is_the_one_without(given: Definition, kept: Definition) -> None:
    assert checked(given) == kept
    assert checked(kept) == kept


def test_the_values_of_a_user_defined_key_are_told_from_its_path() -> None:
    """A key as a value ends where it ends, though its path goes on as the entity's own path does."""
    at = key(*DEEP)
    rows = {
        row
        for deep in (DEEP[:1], DEEP[:2], DEEP)
        for row in composites.entries(index((b"a", DOWN)), at, {b"a": [encode(value(reference_of(deep)))]})
    }
    assert len(rows) == 3


def reference_of(path: tuple[tuple[bytes, int | bytes], ...]) -> Reference:
    return reference(*path)
