"""Composite indexes change what a query costs, never what it gives: random queries over a random world.

Every query is answered three ways: without composite indexes (sorted in memory), by the indexes it is said to need or
by whatever indexes there are, and by a brute force that knows only the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore
from pbserver.datastore import cursors, keys, needs
from pbserver.datastore.composites import Composite, Definition, checked
from pbserver.datastore.core import Datastore
from pbserver.datastore.entities import property_values
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.execute import DEFAULT_LIMITS, Execution, Progress, position
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.needs import Need
from pbserver.datastore.planner import Plan, plan, read_row
from pbserver.datastore.queries import KEY_NAME, Filter, Op, Order, Position, Query, normalize
from pbserver.datastore.values import encode
from protos.entity_pb2 import IndexPostfix, Reference
from tests.unit.building import APP, FAR, entity, finish_indexes, key, reference, value

SEEDS = range(3)
QUERIES = 12  # of each seed
NAMESPACES = (b"", b"n")
PROJECT = keys.partition(APP, b"", b"")
VALUES: dict[str, list[Any]] = {
    "a": [0, 1, 2],
    "b": [b"", b"x", b"x\x00", b"x\x00y", b"x\x01", 7],
    "c": [None, True, 1.5, -1.5, (1.0, 2.0), b"\xc3\xa9", reference((b"P", 1)), reference((b"P", 1), (b"Q", b"q\x00"))],
    "d": [-1, 0, b"d"],
}

#: A result as the rules see it: the values it is ordered by and its path.
Item = tuple[tuple[bytes, ...], bytes]


@dataclass
class World:
    datastore: Datastore
    store: OrderedStore
    held: dict[bytes, dict[bytes, dict[bytes, list[bytes]]]] = field(default_factory=dict)  #: partition, path, name
    built: dict[Definition, Composite] = field(default_factory=dict)

    def index(self, definition: Definition) -> Composite:
        """The index, built when it is asked for first."""
        if definition not in self.built:
            made = self.datastore.catalog.create(PROJECT, definition, deadline=FAR)
            finish_indexes(self.datastore.builder())
            found = self.datastore.catalog.read(PROJECT, deadline=FAR).find(made.id)
            assert found is not None
            self.built[definition] = found
        return self.built[definition]


def random_reference(rng: Random, namespace: bytes, number: int) -> Reference:
    root = (b"P", rng.randint(1, 3))
    last = (b"K", rng.choice([number, b"n%d" % number, b"n\x00%d" % number]))
    middle = rng.choice([(b"Q", b"q"), (b"Q", b"q\x00"), (b"K", 1), (b"K", 2)])
    path = rng.choice([(last,), (root, last), (root, middle, last), (middle, last)])
    return reference(*path, namespace=namespace)


def random_properties(rng: Random) -> dict[str, Any]:
    """Each property: none, one value, or several, of several types."""
    made = {}
    for name, contents in VALUES.items():
        shape = rng.random()
        if shape < 0.6:
            made[name] = rng.choice(contents)
        elif shape < 0.9:
            made[name] = [rng.choice(contents) for _ in range(rng.randint(2, 3))]
    return made


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    rng = Random(1)
    store = open_store("memory:")
    made = World(Datastore(store, testing=True), store)
    made.datastore.prepare(deadline=FAR)
    for namespace in NAMESPACES:
        held = made.held[keys.partition(APP, b"", namespace)] = {}
        for number in range(1, 110):
            one = entity(random_reference(rng, namespace, number), **random_properties(rng))
            made.datastore.write([Mutation(one.key, one)], None, deadline=FAR)
            held[one.key.path] = {name: sorted(set(found)) for name, found in property_values(one.proto).items()}
    yield made
    store.close()


# Queries


def random_query(rng: Random, world: World) -> Query:
    """A legal one."""
    while True:
        try:
            return normalize(_any_query(rng, world))
        except BadRequest:
            continue


def _any_query(rng: Random, world: World) -> Query:
    partition = rng.choice([*world.held])
    names = [name.encode() for name in VALUES]
    rng.shuffle(names)
    width = rng.choice((0, 0, 1, 1, 2, 3))
    equal, free = names[:width], names[width:]
    filters = [Filter(name, Op.EQUAL, random_value(rng, name)) for name in equal for _ in range(rng.choice((1, 1, 2)))]
    orders = [Order(name, rng.random() < 0.5) for name in free[: rng.choice((0, 1, 1, 2, 2, 3))]]
    filters += inequalities(rng, world, partition, orders, free)
    if rng.random() < 0.3:
        orders.insert(rng.randint(max(0, len(orders) - 1), len(orders)), Order(KEY_NAME, rng.random() < 0.6))
    projection = tuple(rng.sample(free, rng.randint(1, min(3, len(free))))) if rng.random() < 0.4 else ()
    grouped = rng.sample(projection, rng.randint(1, len(projection))) if projection and rng.random() < 0.4 else ()
    ancestors = [((b"P", 1),), ((b"P", 2), (b"Q", b"q")), ((b"P", 1), (b"K", 1)), ((b"K", 1),), ((b"Q", b"q"),)]
    ancestor = key(*rng.choice(ancestors), namespace=keys.partition_names(partition)[2]) if rng.random() < 0.3 else None
    return Query(
        partition=partition,
        kind=keys.encode_kind(b"K"),
        ancestor=ancestor,
        filters=tuple(filters),
        orders=tuple(orders),
        keys_only=not projection and rng.random() < 0.3,
        projection=projection,
        group_by=frozenset(grouped),
    )


def random_value(rng: Random, name: bytes) -> bytes:
    return encode(value(rng.choice(VALUES[name.decode()])))


def inequalities(rng: Random, world: World, partition: bytes, orders: list[Order], free: list[bytes]) -> list[Filter]:
    """None, one or two, on the property that is ordered by first, or on the key."""
    shape = rng.random()
    if shape < 0.08:
        path = rng.choice([*world.held[partition]])
        return [Filter(KEY_NAME, rng.choice([*Op]), path)]
    if shape < 0.5:
        name = orders[0].name if orders else free[0]
        found = [Filter(name, rng.choice((Op.GREATER, Op.GREATER_OR_EQUAL)), random_value(rng, name))]
        found += [Filter(name, rng.choice((Op.LESS, Op.LESS_OR_EQUAL)), random_value(rng, name))]
        return found[rng.choice((0, 0, 1)) : rng.choice((1, 2, 2))]
    return []


# What a query gives by the rules


def compare(op: Op, mine: bytes, other: bytes) -> bool:
    return {
        Op.LESS: mine < other,
        Op.LESS_OR_EQUAL: mine <= other,
        Op.GREATER: mine > other,
        Op.GREATER_OR_EQUAL: mine >= other,
        Op.EQUAL: mine == other,
    }[op]


def by_the_rules(query: Query, world: World) -> list[Item]:
    found = [item for path, held in world.held[query.partition].items() for item in items_of(query, path, held)]
    for order in reversed(query.orders):
        found.sort(key=lambda item, name=order.name: part(query, item, name), reverse=order.descending)  # type: ignore[misc]
    if query.group_by:
        width = len(query.group_by)
        found = [item for at, item in enumerate(found) if not at or found[at - 1][0][:width] != item[0][:width]]
    if query.start is not None:
        found = [item for item in found if is_behind(query, item, query.start)]
    if query.end is not None:
        found = [item for item in found if not is_behind(query, item, query.end)]
    return found


def part(query: Query, item: Item, name: bytes) -> bytes:
    return item[1] if name == KEY_NAME else item[0][query.ordered_names.index(name)]


def items_of(query: Query, path: bytes, held: dict[bytes, list[bytes]]) -> list[Item]:
    """The results that one entity is: none, one, or in a projection one for each combination of values."""
    if query.ancestor is not None and not path.startswith(query.ancestor.path):
        return []
    allowed = {KEY_NAME: [path], **held}
    for name, op, wanted in query.filters:
        if op is Op.EQUAL:
            if wanted not in allowed.get(name, ()):
                return []
        else:
            allowed[name] = [each for each in allowed.get(name, ()) if compare(op, each, wanted)]
    if not all(allowed.get(name) for name in [*query.ordered_names, *(each.name for each in query.filters)]):
        return []
    if query.projection:
        return [(combination, path) for combination in product(*(allowed[name] for name in query.ordered_names))]
    down = {order.name: order.descending for order in query.orders}
    return [(tuple((max if down[name] else min)(allowed[name]) for name in query.ordered_names), path)]


def is_behind(query: Query, item: Item, place: Position) -> bool:
    orders = query.orders if place.path else query.orders[: len(place.values)]
    for order in orders:
        mine, other = part(query, item, order.name), part(query, (place.values, place.path), order.name)
        if mine != other:
            return (mine < other) == order.descending
    return place.before


# What it gives


def recommended(query: Query, world: World) -> list[Composite]:
    """The index that the query needs; none where it needs none, or one that cannot be."""
    need = needs.need(query)
    if need is None:
        return []
    return indexes(world, [needs.recommended(need)])


def indexes(world: World, definitions: list[Definition]) -> list[Composite]:
    """Those of them that can be."""
    made = []
    for each in definitions:
        try:
            made.append(world.index(checked(each)))
        except BadRequest:
            continue
    return made


def joinable(query: Query, world: World, rng: Random) -> list[Composite]:
    """Indexes that end like the recommended one but hold fewer of the equal properties each."""
    need = needs.need(query)
    if need is None:
        need = Need(query.kind or b"", False, frozenset(each.name for each in query.equalities), ())
    names = sorted(need.equal)
    cut = rng.randint(0, len(names))
    shares = [(names[:cut], need.ancestor), (names[cut:], False), (names[:1], False)]
    smaller = [need._replace(equal=frozenset(share), ancestor=ancestor) for share, ancestor in shares]
    return indexes(world, [*map(needs.recommended, smaller)])


def near_misses(query: Query, world: World, rng: Random) -> list[Composite]:
    """Indexes that differ from the recommended one in one thing."""
    need = needs.need(query)
    if need is None:
        return []
    right = needs.recommended(need)
    *others, last = right.properties
    bare = (*others,) if last.name == KEY_NAME else right.properties
    turned = [Order(name, descending != (rng.random() < 0.5)) for name, descending in bare]
    wrong = [
        right._replace(properties=(*bare, Order(KEY_NAME, last.name != KEY_NAME))),
        right._replace(properties=(*turned, *right.properties[len(bare) :])),
        right._replace(ancestor=not right.ancestor),
        right._replace(properties=right.properties[1:]),
    ]
    return indexes(world, [each for each in wrong if each != right])


def given(planned: Plan, world: World, size: int = 1000, other: Plan | None = None) -> tuple[list[Item], list[bytes]]:
    """The results in batches of a size, each by an execution of its own, as calls of Next are.

    With another plan, the two take turns, as when indexes change while a query is under way.
    """
    items: list[Item] = []
    frames: list[bytes] = []
    progress = Progress(None, 0, None)
    while True:
        batch = Execution(planned, world.store, DEFAULT_LIMITS, FAR).batch(progress, size)
        assert len(batch.rows) == len(batch.frames) <= size
        items += [read_row(planned, row) for row, _ in batch.rows]
        frames += batch.frames
        if not batch.more:
            return items, frames
        progress = Progress(progress.after, 0, None)
        planned, other = other or planned, planned if other else None


def round_trip(place: Position, of: Query, into: Query) -> Position:
    """A cursor of one query, sent to a client and back with another."""
    postfix = IndexPostfix()
    cursors.encode(place, of, postfix)
    return cursors.decode(IndexPostfix.FromString(postfix.SerializeToString()), into)


def mirrored(query: Query) -> Query:
    orders = tuple(Order(name, not descending) for name, descending in query.orders)
    return normalize(replace(query, orders=orders))


def every_case(seed: int, world: World) -> Iterator[tuple[Random, Query, list[Composite]]]:
    """Queries, each with the indexes it may use: the recommended ones, ones to join, and wrong ones."""
    rng = Random(seed)
    for _ in range(QUERIES):
        query = random_query(rng, world)
        best = recommended(query, world)
        some = rng.sample([*world.built.values()], min(len(world.built), 5))
        for chosen in (best, joinable(query, world, rng), near_misses(query, world, rng) + some):
            yield rng, query, list(dict.fromkeys(chosen))


@pytest.mark.parametrize("seed", SEEDS)
def test_indexes_change_no_result(seed: int, world: World) -> None:
    rescued = 0
    for rng, query, composites in every_case(seed, world):
        expected = by_the_rules(query, world)
        plain = plan(query)
        items, frames = given(plain, world)
        assert items == expected, query
        planned = plan(query, composites)
        if planned != plain:
            assert not planned.sort
            rescued += plain.sort
            assert given(planned, world) == (items, frames), (query, composites)
            assert given(planned, world, rng.randint(1, 7)) == (items, frames), (query, composites)
            assert given(planned, world, rng.randint(3, 9), plain) == (items, frames), (query, composites)
    assert rescued > QUERIES // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_the_recommended_index_serves_its_query(seed: int, world: World) -> None:
    rng = Random(seed)
    for _ in range(QUERIES):
        query = random_query(rng, world)
        need = needs.need(query)
        composites = recommended(query, world)
        if need is None or composites:
            keyed = any(each.name == KEY_NAME for each in query.filters)
            assert keyed or not plan(query, composites).sort, (query, need)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_query_goes_on_from_the_cursor_of_any_result(seed: int, world: World) -> None:
    for rng, query, composites in every_case(seed + 100, world):
        planned = plan(query, composites)
        expected, _ = given(planned, world)
        rows = Execution(planned, world.store, DEFAULT_LIMITS, FAR).batch(Progress(None, 0, None), 1000).rows
        for at in rng.sample(range(len(rows)), min(3, len(rows))):
            place = round_trip(position(planned, rows[at][0]), query, query)
            behind = replace(query, start=place)
            upto = replace(query, end=place)
            between = replace(upto, start=round_trip(position(planned, rows[at // 2][0]), query, query))
            for asked, wanted in (
                (behind, expected[at + 1 :]),
                (upto, expected[: at + 1]),
                (between, expected[at // 2 + 1 : at + 1]),
            ):
                assert given(plan(asked, composites), world, rng.randint(1, 60))[0] == wanted, (asked, composites)


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_and_offsets_agree_with_the_results(seed: int, world: World) -> None:
    for rng, query, composites in every_case(seed + 200, world):
        planned = plan(query, composites)
        expected = by_the_rules(query, world)
        limit, offset = rng.choice([None, rng.randint(0, 9)]), rng.randint(0, 9)
        execution = Execution(planned, world.store, DEFAULT_LIMITS, FAR)
        wanted = expected[offset:][:limit]
        assert execution.count(Progress(None, offset, limit)) == len(wanted), (query, composites)
        batch = execution.batch(Progress(None, offset, limit), 1000)
        assert [read_row(planned, row) for row, _ in batch.rows] == wanted, (query, composites)
        assert batch.skipped == min(offset, len(expected))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mirrored_query_sees_from_a_cursor_what_came_before_it(seed: int, world: World) -> None:
    compared = 0
    for rng, query, composites in every_case(seed + 300, world):
        planned = plan(query, composites)
        expected, _ = given(planned, world)
        rows = Execution(planned, world.store, DEFAULT_LIMITS, FAR).batch(Progress(None, 0, None), 1000).rows
        back = mirrored(query)
        best = recommended(back, world)
        turned = all(mine.descending != other.descending for mine, other in zip(query.orders, back.orders, strict=True))
        alike = turned and by_the_rules(back, world) == expected[::-1]
        for at in rng.sample(range(len(rows)), min(2, len(rows))):
            asked = replace(back, start=round_trip(position(planned, rows[at][0]), query, back))
            wanted = by_the_rules(asked, world)
            if alike:  # else entities with several values stand at another one of them
                compared += 1
                assert wanted == expected[: at + 1][::-1]
            for chosen in ((), best):
                assert given(plan(asked, chosen), world, rng.randint(5, 60))[0] == wanted, (asked, chosen)
    assert compared
