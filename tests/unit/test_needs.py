"""Which indexes queries need: the same as the SDK says, whose words applications were written by."""

from random import Random
from typing import NamedTuple

import pytest
import yaml
from google.appengine.datastore import datastore_index, datastore_pb

from pbserver.datastore import needs
from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import encode_kind
from pbserver.datastore.needs import Need
from pbserver.datastore.queries import KEY_NAME, Order, Query
from pbserver.handlers.v3.query_messages import to_query
from protos import datastore_v3_pb2 as v3
from tests.unit.building import APP, reference

NAMES = ("a", "b", "c", "d")
KEY = KEY_NAME.decode()
CASES = 400  # of each seed


def random_message(rng: Random) -> v3.Query:
    """Of mostly legal queries, now and then with the key where a property could be."""
    made = v3.Query(app=APP, kind=b"K")
    names = rng.sample(NAMES, 4)
    cut = rng.choice((0, 0, 1, 1, 2, 3))
    for name in names[:cut]:
        add_filter(made, name, v3.Query.Filter.EQUAL)
    ordered = names[cut : cut + rng.choice((0, 0, 1, 2, 3))]
    if rng.random() < 0.4:
        ordered.append(KEY)
    for name in ordered:
        made.order.add(property=name.encode(), direction=rng.choice((1, 2)))
    if rng.random() < 0.4:
        compared = ordered[0] if ordered else rng.choice(names)
        for op in rng.choice(((1,), (3,), (2, 4))):
            add_filter(made, compared, op)
    if rng.random() < 0.1:
        add_filter(made, KEY, rng.choice((1, 3, 5)))
    if rng.random() < 0.3:
        made.ancestor.CopyFrom(reference((b"P", 1)))
    if rng.random() < 0.4:
        made.property_name.extend(name.encode() for name in rng.sample(NAMES, rng.randint(1, 3)))
        if rng.random() < 0.4:
            chosen = rng.sample([*made.property_name], rng.randint(1, len(made.property_name)))
            made.group_by_property_name.extend(chosen)
    return made


def add_filter(to: v3.Query, name: str, op: int) -> None:
    prop = to.filter.add(op=op).property.add(name=name.encode(), multiple=False)  # type: ignore[arg-type]
    if name == KEY:
        prop.value.referencevalue.app = APP
        prop.value.referencevalue.pathelement.add(type=b"K", id=1)
    else:
        prop.value.int64_value = 1


class Asked(NamedTuple):
    """The same query in both worlds."""

    ours: Query
    theirs: datastore_pb.Query


def random_query(rng: Random) -> Asked:
    while True:
        message = random_message(rng)
        if forgets_a_projected_order(message):
            continue
        try:
            ours = to_query(message)
        except BadRequest:
            continue
        return Asked(ours, datastore_pb.Query.FromString(message.SerializeToString()))


def forgets_a_projected_order(message: v3.Query) -> bool:
    """Beside a key's equality the SDK drops orders, but not the thought that the index holds what they ordered by."""
    by_key = any(each.property[0].name == KEY_NAME and each.op == v3.Query.Filter.EQUAL for each in message.filter)
    return by_key and bool({each.property for each in message.order} & {*message.property_name})


def random_indexes(rng: Random, asked: Asked) -> list[datastore_index.Index]:
    """Some that could serve the query, alone or with others, and some that could not."""
    _, kind, ancestor, (prefix, postfix) = datastore_index.CompositeIndexForQuery(asked.theirs)
    made = []
    for _ in range(rng.choice((0, 1, 2, 3))):
        share = rng.sample(sorted(prefix), rng.randint(0, len(prefix)))
        ending = [*datastore_index.GetRecommendedIndexProperties((frozenset(), postfix))]
        if rng.random() < 0.15:
            rng.shuffle(ending)
        properties = [datastore_index.PropertySpec(name, rng.choice((1, 2))) for name in share] + ending
        if rng.random() < 0.1:
            properties.insert(0, datastore_index.PropertySpec("other", 1))
        if properties:
            made.append(as_index(rng.choice([kind, kind, kind, "L"]), rng.random() < 0.4 and ancestor, properties))
    return made


def as_index(kind: str, ancestor: bool, properties: "list[datastore_index.PropertySpec]") -> datastore_index.Index:
    directions = ("desc" if each.direction == datastore_index.DESCENDING else "asc" for each in properties)
    listed = [
        datastore_index.Property(name=each.name, direction=direction)
        for each, direction in zip(properties, directions, strict=True)
    ]
    return datastore_index.Index(kind=kind, ancestor=bool(ancestor), properties=listed)


def as_composite(number: int, index: datastore_index.Index) -> Composite:
    kind, ancestor, properties = datastore_index.IndexToKey(index)
    orders = tuple(Order(each.name.encode(), each.direction == datastore_index.DESCENDING) for each in properties)
    return Composite(number, Definition(encode_kind(kind.encode()), ancestor, orders), State.SERVING)


def yaml_of(kind: str, ancestor: bool, properties: object) -> str:
    return datastore_index.IndexYamlForQuery(kind, ancestor, datastore_index.GetRecommendedIndexProperties(properties))


def cost(need: Need) -> int:
    return len(need.equal) + 2 * need.ancestor


@pytest.mark.parametrize("seed", range(4))
def test_a_query_needs_the_index_that_the_sdk_says(seed: int) -> None:
    rng = Random(seed)
    needy = 0
    for _ in range(CASES):
        asked = random_query(rng)
        required, kind, ancestor, properties = datastore_index.CompositeIndexForQuery(asked.theirs)
        need = needs.need(asked.ours)
        assert (need is not None) == required, asked.theirs
        if need is not None:
            needy += 1
            assert needs.as_yaml(needs.recommended(need)) == yaml_of(kind, ancestor, properties), asked.theirs
    assert CASES // 4 < needy < CASES


@pytest.mark.parametrize("seed", range(4))
def test_what_is_missing_beside_other_indexes_is_what_the_sdk_says(seed: int) -> None:
    rng = Random(seed)
    lacking = suffices = smaller = 0
    for _ in range(CASES):
        asked = random_query(rng)
        need = needs.need(asked.ours)
        if need is None:
            continue
        there = random_indexes(rng, asked)
        minimal = datastore_index.MinimalCompositeIndexForQuery(asked.theirs, there)
        composites = [as_composite(number, each) for number, each in enumerate(there, 1) if each.kind == "K"]
        found = needs.missing(need, composites)
        assert (found is None) == (minimal is None), (asked.theirs, there)
        if minimal is None or found is None:
            suffices += 1
            continue
        whole, kind, ancestor, properties = minimal
        lacking += 1
        smaller += not whole
        if not same(found, yaml_of(kind, ancestor, properties)):  # of several that cost the same, another
            assert not whole, (asked.theirs, there)
            assert cost(found) == len(properties[0]) + 2 * ancestor, (asked.theirs, there)
            assert needs.missing(need, [*composites, recommended(found)]) is None
    assert min(lacking, suffices, smaller) > CASES // 20


def same(found: Need, text: str) -> bool:
    return needs.as_yaml(needs.recommended(found)) == text


def recommended(need: Need) -> Composite:
    """The index that as_yaml() describes."""
    (entry,) = yaml.safe_load(needs.as_yaml(needs.recommended(need)))
    properties = [(each["name"].encode(), each.get("direction") == "desc") for each in entry["properties"]]
    kind = encode_kind(entry["kind"].encode())
    definition = Definition(kind, entry.get("ancestor", False), tuple(Order(*each) for each in properties))
    return Composite(1000, definition, State.SERVING)


@pytest.mark.parametrize("state", [state for state in State if state is not State.SERVING])
def test_an_index_that_does_not_serve_is_missing(state: State) -> None:
    need = Need(encode_kind(b"K"), False, frozenset([b"a"]), ((b"b", True),))
    serving = recommended(need)
    assert needs.missing(need, [serving]) is None
    assert needs.missing(need, [serving._replace(state=state)]) == need
    said = needs.message(need, [serving._replace(state=state)])
    assert said.endswith(needs.as_yaml(needs.recommended(need))) == (state is not State.BUILDING)
    assert ("being built" in said) == (state is State.BUILDING)


ODD = [
    "yes", "No", "on", "OFF", "y", "N", "true", "False", "null", "~", "", " ", "1a", "1", "1.5", "1e3", "0x1f",
    "1_000", "2020-01-01", "12:30:45", ".inf", ".nan", "=", "<<", "a b", " a", "a ", "a: b", "a:", "- a", "-",
    "#a", "a #b", "'", '"', '"a"', "'a'", "{a}", "[a]", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "a\nb",
    "a\n", "a\tb", "a\rb", "a\\nb", "a\x00b", "a\x7fb", "a\x85b", "a\u2028b", "\ufeffa", "\ufffe", "é", "名",
    "😀", "a.b", "_a", "__a", "Kind",
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_any_name_reads_back_from_the_yaml(odd: str) -> None:
    name = odd.encode()
    need = Need(
        encode_kind(name or b"K"),
        True,
        frozenset([b"e" + name]),
        ((name, True), (name + b"2", False)),
        frozenset([b"g" + name]),
    )
    text = needs.as_yaml(needs.recommended(need))
    expected = {
        "kind": odd or "K",
        "ancestor": True,
        "properties": [
            {"name": "e" + odd},
            {"name": odd, "direction": "desc"},
            {"name": odd + "2"},
            {"name": "g" + odd},
        ],
    }
    assert yaml.safe_load(text) == [expected]
    indexes = datastore_index.ParseIndexDefinitions(f"indexes:\n{text}\n").indexes
    assert [each.name for each in indexes[0].properties] == ["e" + odd, odd, odd + "2", "g" + odd]
