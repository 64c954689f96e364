"""Several equality filters at once, alone and with an ancestor, a key, an order or an inequality."""

from itertools import combinations
from typing import Any

import pytest
from google.appengine.ext import db, ndb

pytestmark = pytest.mark.usefixtures("sdk")


class Stone(ndb.Model):
    color = ndb.StringProperty()
    shape = ndb.StringProperty()
    hard = ndb.BooleanProperty()
    carat = ndb.IntegerProperty()
    places = ndb.StringProperty(repeated=True)


FILTERS = {"color": "red", "shape": "oval", "hard": True, "carat": 3}


@pytest.fixture
def stones(sdk: None) -> list[Any]:
    """120 stones in three boxes, so that each further filter finds fewer, and all four together some."""
    found = [
        Stone(
            key=ndb.Key("Box", number % 3 + 1, Stone, f"s{number:03}"),
            color=("red", "blue")[number % 7 > 4],
            shape=("oval", "round")[number % 11 > 7],
            hard=number % 4 != 1,
            carat=number * number % 5 + 2,
            places=[f"p{number % 2}", f"p{number % 5}", f"q{number % 3}"],
        )
        for number in range(120)
    ]
    ndb.put_multi(found)
    return found


def having(stones: list[Any], **values: Any) -> list[Any]:
    """Those with these values, by key."""
    chosen = [stone for stone in stones if all(getattr(stone, name) == value for name, value in values.items())]
    return sorted(chosen, key=lambda stone: stone.key)


def keys(stones: list[Any]) -> list[Any]:
    assert len(stones) > 1, "the filters show nothing"
    return [stone.key for stone in stones]


def equal(*names: str, **options: Any) -> Any:
    return Stone.query(*(getattr(Stone, name) == FILTERS[name] for name in names), **options)


def values(names: Any) -> dict[str, Any]:
    return {name: FILTERS[name] for name in names}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_several_equality_filters(stones: list[Any], count: int) -> None:
    for names in combinations(FILTERS, count):
        wanted = keys(having(stones, **values(names)))
        assert equal(*names).fetch(keys_only=True) == wanted
        assert equal(*reversed(names)).fetch(keys_only=True) == wanted
        assert equal(*names).order(-Stone.key).fetch(keys_only=True) == wanted[::-1]
        assert equal(*names).count() == len(wanted)
        assert equal(*names).fetch(2, offset=1, keys_only=True) == wanted[1:3]


def test_zigzag_with_an_ancestor(stones: list[Any]) -> None:
    for number in (1, 2, 3):
        box = ndb.Key("Box", number)
        for names in combinations(FILTERS, 2):
            inside = [stone for stone in having(stones, **values(names)) if stone.key.parent() == box]
            assert equal(*names, ancestor=box).fetch(keys_only=True) == keys(inside)
            assert equal(*names, ancestor=box).order(-Stone.key).fetch(keys_only=True) == keys(inside)[::-1]
    assert equal("color", "shape", ancestor=ndb.Key("Box", 4)).fetch() == []


def test_zigzag_with_a_key(stones: list[Any]) -> None:
    whole = having(stones, **values(["color", "shape"]))
    at = whole[len(whole) // 2].key
    query = equal("color", "shape")
    assert query.filter(Stone.key == at).fetch(keys_only=True) == [at]
    assert query.filter(Stone.key > at).fetch(keys_only=True) == [stone.key for stone in whole if stone.key > at]
    assert query.filter(Stone.key <= at).fetch(keys_only=True) == [stone.key for stone in whole if stone.key <= at]
    elsewhere = having(stones, color="blue")[0].key
    assert query.filter(Stone.key == elsewhere).fetch(keys_only=True) == []


def test_zigzag_with_an_ancestor_and_a_key(stones: list[Any]) -> None:
    box = ndb.Key("Box", 2)
    whole = [stone.key for stone in having(stones, **values(["color", "hard"])) if stone.key.parent() == box]
    at = whole[len(whole) // 2]
    query = equal("color", "hard", ancestor=box)
    assert query.filter(Stone.key >= at).fetch(keys_only=True) == [key for key in whole if key >= at]
    assert query.filter(Stone.key < at).order(-Stone.key).fetch(keys_only=True) == [k for k in whole[::-1] if k < at]


@pytest.mark.parametrize("down", [False, True])
def test_zigzag_with_an_order_and_with_an_inequality(stones: list[Any], down: bool) -> None:
    whole = having(stones, **values(["color", "shape"]))
    order = -Stone.carat if down else Stone.carat
    sign = -1 if down else 1
    wanted = sorted(whole, key=lambda stone: (sign * stone.carat, stone.key))
    assert equal("color", "shape").order(order).fetch(keys_only=True) == keys(wanted)
    above = equal("color", "shape").filter(Stone.carat > 2).order(order)
    assert above.fetch(keys_only=True) == keys([stone for stone in wanted if stone.carat > 2])


def test_zigzag_over_one_repeated_property(stones: list[Any]) -> None:
    by_key = having(stones)
    for wanted in ({"p0", "p3"}, {"p1", "p4"}, {"p1", "p3", "q2"}):
        query = Stone.query(*(Stone.places == place for place in sorted(wanted)))
        found = keys([stone for stone in by_key if wanted <= set(stone.places)])
        assert query.fetch(keys_only=True) == found
        assert query.filter(Stone.color == "red").count() == len([key for key in found if key.get().color == "red"])
    assert Stone.query(Stone.places == "p2", Stone.places == "p3", Stone.places == "p4").fetch() == []


def test_zigzag_when_one_filter_matches_nothing_or_everything(stones: list[Any]) -> None:
    assert equal("color", "shape").filter(Stone.places == "nowhere").fetch() == []
    ndb.put_multi([Stone(key=stone.key, color="red", shape=stone.shape) for stone in stones])
    wanted = keys(having(stones, shape="oval"))
    assert equal("color", "shape").fetch(keys_only=True) == wanted
    assert equal("color", "shape").get(keys_only=True) == wanted[0]


def test_zigzag_over_matches_that_lie_far_apart() -> None:
    """Two dense sets whose only common members are the first, one in the middle and the last."""
    both = {0, 311, 600}
    ndb.put_multi(
        [
            Stone(
                id=number + 1,
                color="red" if number % 2 or number in both else "blue",
                hard=number % 2 == 0 or number in both,
            )
            for number in range(601)
        ]
    )
    query = Stone.query(Stone.color == "red", Stone.hard == True)  # noqa: E712 - builds a filter
    assert [key.id() - 1 for key in query.fetch(keys_only=True)] == sorted(both)
    assert [key.id() - 1 for key in query.iter(keys_only=True, batch_size=1)] == sorted(both)
    page, cursor, more = query.fetch_page(2, keys_only=True)
    assert ([key.id() - 1 for key in page], more) == ([0, 311], True)
    assert [key.id() - 1 for key in query.fetch(start_cursor=cursor, keys_only=True)] == [600]


def test_zigzag_follows_puts_and_deletes() -> None:
    class Coin(db.Model):
        metal = db.StringProperty()
        country = db.StringProperty()

    query = Coin.all(keys_only=True).filter("metal =", "gold").filter("country =", "x")
    for number in range(12):
        Coin(key_name=f"c{number:02}", metal="gold", country="xy"[number % 2]).put()
    assert [key.name() for key in query] == [f"c{number:02}" for number in range(0, 12, 2)]
    Coin(key_name="c02", metal="tin", country="x").put()
    Coin(key_name="c03", metal="gold", country="x").put()
    db.delete(db.Key.from_path("Coin", "c10"))
    assert [key.name() for key in query] == ["c00", "c03", "c04", "c06", "c08"]
