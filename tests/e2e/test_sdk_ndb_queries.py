"""ndb: queries, their filters, orders, limits and counts."""

from typing import Any

import pytest
from google.appengine.ext import ndb

from tests.e2e.sdk import Calls

pytestmark = pytest.mark.usefixtures("sdk")


class Item(ndb.Model):
    rank = ndb.IntegerProperty()
    name = ndb.StringProperty()
    tags = ndb.StringProperty(repeated=True)
    sizes = ndb.IntegerProperty(repeated=True)
    hidden = ndb.StringProperty(indexed=False)


class Other(ndb.Model):
    rank = ndb.IntegerProperty()


#: Not in order, with ties.
RANKS = [5, 1, 9, 3, 5, 7, 1, 5, -4, 0]


@pytest.fixture
def items(sdk: None) -> list[Any]:
    """Ten items with RANKS; keys k0 to k9."""
    entities = [Item(id=f"k{number}", rank=rank, name=f"n{rank}") for number, rank in enumerate(RANKS)]
    ndb.put_multi([*entities, Other(id="k0", rank=5)])
    return entities


def ids(found: Any) -> list[Any]:
    return [(entity if isinstance(entity, ndb.Key) else entity.key).id() for entity in found]


def test_a_kind_query_finds_its_kind_in_key_order(items: list[Any]) -> None:
    assert ids(Item.query()) == [f"k{number}" for number in range(10)]


def test_a_kind_that_was_never_put_has_no_results(items: list[Any]) -> None:
    assert ndb.Query(kind="Nothing").fetch(keys_only=True) == []


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (lambda rank: rank == 5, [5, 5, 5]),
        (lambda rank: rank == 4, []),
        (lambda rank: rank < 3, [-4, 0, 1, 1]),
        (lambda rank: rank <= 3, [-4, 0, 1, 1, 3]),
        (lambda rank: rank > 5, [7, 9]),
        (lambda rank: rank >= 5, [5, 5, 5, 7, 9]),
        (lambda rank: rank != 5, [-4, 0, 1, 1, 3, 7, 9]),
        (lambda rank: rank.IN([9, 1, 4]), [1, 1, 9]),
        (lambda rank: ndb.AND(rank > 0, rank <= 5), [1, 1, 3, 5, 5, 5]),
        (lambda rank: ndb.AND(rank > 5, rank < 5), []),
        (lambda rank: ndb.OR(rank == 9, rank < 0), [-4, 9]),
    ],
    ids=["eq", "eq-none", "lt", "le", "gt", "ge", "ne", "in", "range", "empty-range", "or"],
)
def test_every_operator_in_both_directions(items: list[Any], condition: Any, wanted: list[int]) -> None:
    query = Item.query(condition(Item.rank))
    assert [item.rank for item in query.order(Item.rank)] == wanted
    assert [item.rank for item in query.order(-Item.rank)] == wanted[::-1]


def test_strings_compare_by_their_bytes() -> None:
    names = ["", "A", "a", "a\x00", "a\x00b", "a\x01", "aa", "b", "~", "é", "東", "\U0001f600"]
    ndb.put_multi([Item(name=name) for name in reversed(names)])
    assert [item.name for item in Item.query().order(Item.name)] == names
    for at, name in enumerate(names):
        assert [item.name for item in Item.query(Item.name < name)] == names[:at]
        assert [item.name for item in Item.query(Item.name == name)] == [name]
        assert [item.name for item in Item.query(Item.name > name).order(-Item.name)] == names[:at:-1]


def test_ties_are_broken_by_key_in_both_directions(items: list[Any]) -> None:
    assert ids(Item.query().order(Item.rank)) == ["k8", "k9", "k1", "k6", "k3", "k0", "k4", "k7", "k5", "k2"]
    assert ids(Item.query().order(-Item.rank)) == ["k2", "k5", "k0", "k4", "k7", "k3", "k1", "k6", "k9", "k8"]
    assert ids(Item.query(Item.rank == 5)) == ["k0", "k4", "k7"]


def test_the_order_by_key_runs_both_ways(items: list[Any]) -> None:
    names = [f"k{number}" for number in range(10)]
    assert ids(Item.query().order(Item.key)) == names
    assert ids(Item.query().order(-Item.key)) == names[::-1]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (lambda: Item.key == ndb.Key(Item, "k3"), [3]),
        (lambda: Item.key == ndb.Key(Item, "kx"), []),
        (lambda: Item.key < ndb.Key(Item, "k2"), [0, 1]),
        (lambda: Item.key <= ndb.Key(Item, "k2"), [0, 1, 2]),
        (lambda: Item.key > ndb.Key(Item, "k7"), [8, 9]),
        (lambda: Item.key >= ndb.Key(Item, "k7"), [7, 8, 9]),
        (lambda: ndb.AND(Item.key > ndb.Key(Item, "k4"), Item.key < ndb.Key(Item, "k6")), [5]),
        (lambda: Item.key > ndb.Key(Item, 2**62), range(10)),
        (lambda: Item.key > ndb.Key("Aaa", 1), range(10)),
        (lambda: Item.key > ndb.Key("Zzz", 1), []),
        (lambda: Item.key != ndb.Key(Item, "k5"), [0, 1, 2, 3, 4, 6, 7, 8, 9]),
        (lambda: Item.key.IN([ndb.Key(Item, "k9"), ndb.Key(Item, "k1")]), [1, 9]),
    ],
    ids=["eq", "eq-none", "lt", "le", "gt", "ge", "range", "after-ids", "kind-before", "kind-after", "ne", "in"],
)
def test_key_filters_in_both_directions(items: list[Any], condition: Any, wanted: Any) -> None:
    names = [f"k{number}" for number in wanted]
    assert ids(Item.query(condition()).order(Item.key)) == names
    assert ids(Item.query(condition()).order(-Item.key)) == names[::-1]


def test_ids_sort_before_names_and_by_number() -> None:
    wanted = [1, 2, 10, 2**31, 2**62, "1", "A", "a", "ab", "b", "é", "東"]
    ndb.put_multi([Item(id=identifier) for identifier in reversed(wanted)])
    assert ids(Item.query()) == wanted
    assert ids(Item.query(Item.key > ndb.Key(Item, 10))) == wanted[3:]


def test_keys_only_agrees_with_entities(items: list[Any]) -> None:
    for query in (Item.query(), Item.query(Item.rank > 2), Item.query().order(-Item.rank), Item.query(Item.rank == 5)):
        keys = query.fetch(keys_only=True)
        assert all(isinstance(key, ndb.Key) for key in keys)
        assert keys == [item.key for item in query.fetch()]


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11])
def test_limit_and_offset_cut_what_the_whole_query_finds(items: list[Any], limit: int, offset: int) -> None:
    for query in (Item.query(), Item.query().order(-Item.rank), Item.query(Item.rank >= 3).order(Item.rank)):
        whole = ids(query)
        assert ids(query.fetch(limit, offset=offset)) == whole[offset : offset + limit]


def test_limit_zero_finds_nothing(items: list[Any]) -> None:
    assert list(Item.query().iter(limit=0)) == []
    assert Item.query().count(0) == 0


def test_get_answers_the_first_result_or_none(items: list[Any]) -> None:
    assert Item.query().order(-Item.rank).get().key.id() == "k2"
    assert Item.query(Item.rank > 100).get() is None


@pytest.mark.parametrize(("limit", "wanted"), [(None, 10), (1, 1), (10, 10), (11, 10)])
def test_count_with_a_limit(items: list[Any], limit: int | None, wanted: int) -> None:
    assert Item.query().count(limit) == wanted
    assert Item.query().order(-Item.rank).count(limit) == wanted


def test_count_follows_the_filter(items: list[Any]) -> None:
    assert Item.query(Item.rank == 5).count() == 3
    assert Item.query(Item.rank != 5).count() == 7
    assert Item.query(Item.key > ndb.Key(Item, "k3")).count() == 6


def test_count_goes_on_past_one_answers_skipped_results() -> None:
    ndb.put_multi([Item(rank=rank) for rank in range(1300)])
    assert Item.query().count() == 1300
    assert Item.query(Item.rank >= 100).count(1150) == 1150
    assert Item.query().order(Item.rank).fetch(2, offset=1250)[1].rank == 1251


def test_a_thousand_results_come_in_batches_by_next() -> None:
    ndb.put_multi([Item(rank=rank, name="n" * 50) for rank in range(1000)])
    with Calls() as calls:
        found = [item.rank for item in Item.query().order(Item.rank).iter(batch_size=50)]
    assert found == list(range(1000))
    assert calls.count("datastore_v3.RunQuery") == 1
    assert calls.count("datastore_v3.Next") >= 19


def test_a_thousand_results_come_complete_without_a_batch_size() -> None:
    ndb.put_multi([Item(rank=rank) for rank in range(1000)])
    assert [item.rank for item in Item.query().order(-Item.rank)] == list(range(999, -1, -1))
    assert len(Item.query().fetch(keys_only=True)) == 1000
    assert len(Item.query().fetch(999)) == 999


def test_large_results_come_complete_over_several_answers() -> None:
    ndb.put_multi([Item(id=number, hidden="x" * 400_000) for number in range(1, 13)])
    found = Item.query().fetch()
    assert ids(found) == list(range(1, 13))
    assert all(len(item.hidden) == 400_000 for item in found)


def test_an_ancestor_query_finds_the_ancestor_and_all_below_it() -> None:
    root = ndb.Key(Item, "root")
    child = ndb.Key(Item, "child", parent=root)
    grandchild = ndb.Key(Item, 3, parent=child)
    elsewhere = ndb.Key(Item, "roots")
    ndb.put_multi([Item(key=key) for key in (grandchild, elsewhere, child, root, ndb.Key(Item, "x", parent=elsewhere))])
    ndb.put_multi([Other(parent=child, id="o")])
    assert Item.query(ancestor=root).fetch(keys_only=True) == [root, child, grandchild]
    assert Item.query(ancestor=child).fetch(keys_only=True) == [child, grandchild]
    assert Item.query(ancestor=grandchild).count() == 1
    assert Other.query(ancestor=root).count() == 1
    assert Item.query(ancestor=ndb.Key(Item, "roo")).fetch() == []


def test_an_ancestor_query_takes_key_filters_and_both_key_orders() -> None:
    root = ndb.Key(Item, "root")
    keys = [ndb.Key(Item, f"c{number}", parent=root) for number in range(5)]
    ndb.put_multi([Item(key=key) for key in keys])
    query = Item.query(Item.key > keys[1], ancestor=root)
    assert query.fetch(keys_only=True) == keys[2:]
    assert query.order(-Item.key).fetch(keys_only=True) == keys[:1:-1]
    assert query.fetch(1, offset=1, keys_only=True) == [keys[3]]


def test_none_is_found_and_sorts_first_while_a_property_never_set_is_not_found() -> None:
    class Loose(ndb.Expando):
        pass

    ndb.put_multi([Loose(id="none", rank=None), Loose(id="absent"), Loose(id="one", rank=1)])
    rank = ndb.GenericProperty("rank")
    assert ids(Loose.query().order(rank)) == ["none", "one"]
    assert ids(Loose.query(rank == None)) == ["none"]  # noqa: E711 - builds a filter
    assert ids(Loose.query()) == ["absent", "none", "one"]


def test_an_unindexed_property_is_not_found() -> None:
    Item(id="x", hidden="secret").put()
    assert Item.query(ndb.GenericProperty("hidden") == b"secret").fetch() == []
    assert Item.query().order(ndb.GenericProperty("hidden")).fetch() == []


def test_a_repeated_property_matches_by_any_value_and_each_entity_comes_once() -> None:
    ndb.put_multi([Item(id="a", sizes=[1, 5, 9]), Item(id="b", sizes=[4, 4, 6]), Item(id="c", sizes=[])])
    assert ids(Item.query(Item.sizes == 4)) == ["b"]
    assert ids(Item.query(Item.sizes > 3)) == ["b", "a"]  # by their least matching value: 4, 5
    assert ids(Item.query(Item.sizes > 4)) == ["a", "b"]  # 5, 6
    assert ids(Item.query(Item.sizes > 0).order(-Item.sizes)) == ["a", "b"]  # 9, 6
    assert ids(Item.query(Item.sizes < 6).order(-Item.sizes)) == ["a", "b"]  # 5, 4
    assert ids(Item.query().order(Item.sizes)) == ["a", "b"]
    assert Item.query(Item.sizes > 0).count() == 2
    assert ids(Item.query(Item.sizes.IN([4, 5, 6]))) == ["b", "a"]


def test_a_repeated_property_is_counted_once_across_batches() -> None:
    ndb.put_multi([Item(id=f"i{number:03}", sizes=list(range(number, number + 40))) for number in range(120)])
    query = Item.query(Item.sizes >= 0).order(Item.sizes)
    assert ids(query.iter(batch_size=7)) == [f"i{number:03}" for number in range(120)]
    assert query.count() == 120
    assert ids(query.fetch(5, offset=100)) == [f"i{number:03}" for number in range(100, 105)]


def test_a_repeated_property_with_two_equal_filters_needs_both_values() -> None:
    ndb.put_multi([Item(id="a", tags=["x", "y"]), Item(id="b", tags=["x"]), Item(id="c", tags=["y", "x", "z"])])
    assert ids(Item.query(Item.tags == "x")) == ["a", "b", "c"]
    assert ids(Item.query(Item.tags >= "y")) == ["a", "c"]


def test_queries_see_every_put_and_delete_before_them() -> None:
    for rank in range(30):
        key = Item(rank=rank).put()
        assert Item.query(Item.rank == rank).get(keys_only=True) == key
        if rank % 2:
            key.delete()
            assert Item.query(Item.rank == rank).count() == 0
    assert [item.rank for item in Item.query().order(Item.rank)] == list(range(0, 30, 2))
