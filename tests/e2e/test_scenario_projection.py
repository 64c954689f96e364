"""Projection with every operator and order, and distinct results (group by)."""

from collections.abc import Callable
from typing import Any

import pytest
from google.appengine.api import apiproxy_stub_map, datastore, datastore_errors
from google.appengine.datastore import datastore_pb
from google.appengine.ext import db, ndb

from tests.e2e.sdk import APP

pytestmark = pytest.mark.usefixtures("sdk")


class Song(ndb.Model):
    title = ndb.StringProperty()
    year = ndb.IntegerProperty()
    genre = ndb.StringProperty()
    tags = ndb.StringProperty(repeated=True)
    lyrics = ndb.TextProperty()


@pytest.fixture
def songs(sdk: None) -> list[Any]:
    """20 songs; years with ties, three genres, the last song without a year's value."""
    found = [
        Song(
            id=f"s{number:02}",
            title=f"t{number * 7 % 20:02}",
            year=1990 + number * 3 % 7 if number < 19 else None,
            genre=("rock", "jazz", "folk")[number % 3],
            tags=[f"g{number % 2}", f"h{number % 4}"],
            lyrics="la " * 500,
        )
        for number in range(20)
    ]
    ndb.put_multi(found)
    return found


def year_of(song: Any) -> Any:
    """Sorts as the Datastore does: None first."""
    return (song.year is not None, song.year or 0)


def rows(query: Any, *names: str, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(getattr(song, name) for name in names) for song in query.fetch(projection=names, **options)]


def years(songs: list[Any], condition: Callable[[Any], bool], *, down: bool = False) -> list[tuple[Any, ...]]:
    chosen = sorted((song for song in songs if condition(song)), key=lambda song: song.key)
    return [(song.year,) for song in sorted(chosen, key=year_of, reverse=down)]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(
    ("restrict", "condition"),
    [
        (lambda: Song.year < 1993, lambda year: year is None or year < 1993),
        (lambda: Song.year <= 1993, lambda year: year is None or year <= 1993),
        (lambda: Song.year > 1993, lambda year: year is not None and year > 1993),
        (lambda: Song.year >= 1993, lambda year: year is not None and year >= 1993),
        (lambda: ndb.AND(Song.year > 1990, Song.year < 1995), lambda year: year is not None and 1990 < year < 1995),
    ],
    ids=["lt", "le", "gt", "ge", "range"],
)
def test_projection_with_every_operator(
    songs: list[Any], restrict: Callable[[], Any], condition: Callable[[Any], bool], down: bool
) -> None:
    query = Song.query(restrict()).order(-Song.year if down else Song.year)
    wanted = years(songs, lambda song: condition(song.year), down=down)
    assert rows(query, "year") == wanted
    assert rows(query, "year", limit=3, offset=2) == wanted[2:5]
    assert query.count() == len(wanted)


def test_projection_beside_an_equality_filter_and_two_orders(songs: list[Any]) -> None:
    jazz = sorted((song for song in songs if song.genre == "jazz"), key=lambda song: (year_of(song), song.title))
    query = Song.query(Song.genre == "jazz").order(Song.year, Song.title)
    assert rows(query, "year", "title") == [(song.year, song.title) for song in jazz]


def test_projection_in_a_batched_ancestor_query() -> None:
    album = ndb.Key("Album", "a")
    ndb.put_multi([Song(parent=album, id=number + 1, year=number) for number in range(30)])
    ndb.put_multi([Song(parent=ndb.Key("Album", "b"), id=number + 1, year=number) for number in range(5)])
    query = Song.query(ancestor=album).order(-Song.year)
    assert rows(query, "year", batch_size=4) == [(number,) for number in reversed(range(30))]


def test_projection_leaves_out_entities_without_an_indexed_value() -> None:
    class Loose(ndb.Expando):
        pass

    Loose(id="both", a=1, b=2).put()
    Loose(id="one", a=3).put()
    assert [(each.key.id(), each.a) for each in Loose.query().fetch(projection=["a"])] == [("both", 1), ("one", 3)]
    assert [each.key.id() for each in Loose.query().fetch(projection=["a", "b"])] == ["both"]


def test_a_projection_of_an_unindexed_property_finds_nothing(songs: list[Any]) -> None:
    assert list(datastore.Query("Song", projection=["lyrics"]).Run()) == []
    assert list(datastore.Query("Song", projection=["lyrics", "year"]).Run()) == []


def test_distinct_values_come_once_in_order(songs: list[Any]) -> None:
    wanted = sorted({(song.year,) for song in songs if song.year}, key=lambda row: row[0])
    query = Song.query(projection=["year"], distinct=True).order(Song.year)
    assert [(song.year,) for song in query] == [(None,), *wanted]
    backwards = Song.query(projection=["year"], distinct=True).order(-Song.year)
    assert [(song.year,) for song in backwards] == [*wanted[::-1], (None,)]
    assert query.count() == len(wanted) + 1


def test_distinct_combinations_of_two_properties(songs: list[Any]) -> None:
    query = Song.query(projection=["genre", "year"], distinct=True).order(Song.genre, -Song.year)
    wanted = sorted({(song.genre, song.year or 0) for song in songs}, key=lambda row: (row[0], -row[1]))
    assert [(song.genre, song.year or 0) for song in query] == wanted


def test_a_distinct_result_is_the_first_of_its_group(songs: list[Any]) -> None:
    first = {song.genre: song.key for song in sorted(songs, key=lambda song: song.key, reverse=True)}
    query = Song.query(projection=["genre"], distinct=True).order(Song.genre)
    assert [(song.genre, song.key) for song in query] == sorted(first.items())


@pytest.mark.parametrize("down", [False, True])
def test_group_by_shows_the_least_or_the_greatest_of_each_group(songs: list[Any], down: bool) -> None:
    """The SDK lets one project only what one groups by; the protocol has no such rule."""
    query = datastore_pb.Query(app=APP, kind="Song", property_name=["genre", "year"], group_by_property_name=["genre"])
    query.order.add(property="genre")
    query.order.add(property="year", direction=1 + down)
    query.count = 100
    result = datastore_pb.QueryResult()
    apiproxy_stub_map.MakeSyncCall("datastore_v3", "RunQuery", query, result)
    found = [{prop.name: prop.value for prop in each.property} for each in result.result]
    best = max if down else min
    wanted = [best((s for s in songs if s.genre == genre), key=year_of) for genre in ("folk", "jazz", "rock")]
    assert [(row["genre"].stringValue.decode(), row["year"].int64Value) for row in found] == [
        (song.genre, song.year or 0) for song in wanted
    ]


def test_distinct_with_filters_limits_and_offsets(songs: list[Any]) -> None:
    wanted = sorted({song.year for song in songs if song.year and song.year > 1991})
    query = Song.query(Song.year > 1991, projection=["year"], distinct=True).order(Song.year)
    assert [song.year for song in query] == wanted
    assert [song.year for song in query.fetch(2, offset=1)] == wanted[1:3]
    rock = sorted({song.year for song in songs if song.genre == "rock"})
    query = Song.query(Song.genre == "rock", projection=["year"], distinct=True).order(Song.year)
    assert [song.year for song in query] == rock


def test_distinct_values_of_a_repeated_property(songs: list[Any]) -> None:
    query = Song.query(projection=["tags"], distinct=True).order(Song.tags)
    assert [song.tags for song in query] == [["g0"], ["g1"], ["h0"], ["h1"], ["h2"], ["h3"]]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_distinct_results_in_pages_by_cursor(songs: list[Any], size: int) -> None:
    query = Song.query(projection=["genre", "year"], distinct=True).order(Song.genre, Song.year)
    whole = [(song.genre, song.year) for song in query]
    assert len(whole) == len(set(whole)) > 10
    found: list[Any] = []
    cursor, more = None, True
    while more:
        page, cursor, more = query.fetch_page(size, start_cursor=cursor)
        assert page
        found += [(song.genre, song.year) for song in page]
    assert found == whole


def test_distinct_in_batches(songs: list[Any]) -> None:
    query = Song.query(projection=["genre", "year"], distinct=True).order(Song.genre, Song.year)
    assert list(query.iter(batch_size=2)) == query.fetch()


def test_distinct_in_gql(songs: list[Any]) -> None:
    found = db.GqlQuery("SELECT DISTINCT genre FROM SongRow ORDER BY genre DESC")
    assert found.fetch(10) == []
    for number in range(6):
        SongRow(genre=f"g{number % 3}").put()
    assert [song.genre for song in found.fetch(10)] == ["g2", "g1", "g0"]


class SongRow(db.Model):
    genre = db.StringProperty()


def test_group_by_must_name_projected_properties_and_start_the_order(songs: list[Any]) -> None:
    with pytest.raises((datastore_errors.BadRequestError, datastore_errors.BadArgumentError)):
        Song.query(projection=["year"], group_by=["genre"]).fetch()
    with pytest.raises((datastore_errors.BadRequestError, datastore_errors.BadArgumentError)):
        Song.query(projection=["genre", "year"], group_by=["genre"]).order(Song.year, Song.genre).fetch()
