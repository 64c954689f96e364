"""Projection queries through ndb: index values only, one result per combination."""

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import ndb


class Book(ndb.Model):
    title = ndb.StringProperty()
    year = ndb.IntegerProperty()
    tags = ndb.StringProperty(repeated=True)


BOOKS = [("a", 1990, ["x", "y"]), ("b", 1980, ["y"]), ("c", 1990, []), ("d", 2000, ["x", "z", "x"])]


@pytest.fixture
def books(sdk: None) -> None:
    del sdk
    ndb.put_multi([Book(id=title, title=title, year=year, tags=tags) for title, year, tags in BOOKS])


@pytest.mark.usefixtures("books")
def test_one_property_in_order_of_its_values() -> None:
    found = Book.query().order(-Book.year).fetch(projection=[Book.year])
    assert [(book.key.id(), book.year) for book in found] == [("d", 2000), ("a", 1990), ("c", 1990), ("b", 1980)]
    with pytest.raises(ndb.UnprojectedPropertyError):
        _ = found[0].title


@pytest.mark.usefixtures("books")
def test_a_repeated_property_gives_a_result_for_each_value() -> None:
    found = Book.query().fetch(projection=["tags"])
    assert [(book.key.id(), book.tags) for book in found] == [
        ("a", ["x"]),
        ("d", ["x"]),
        ("a", ["y"]),
        ("b", ["y"]),
        ("d", ["z"]),
    ]
    assert [book.key.id() for book in Book.query(Book.tags > "x").fetch(projection=["tags"])] == ["a", "b", "d"]


@pytest.mark.usefixtures("books")
def test_several_properties_with_a_filter() -> None:
    found = Book.query(Book.year >= 1990).order(Book.year).fetch(projection=["title", "year"])
    assert [(book.title, book.year) for book in found] == [("a", 1990), ("c", 1990), ("d", 2000)]
    found = Book.query(Book.year == 1990).fetch(projection=["title", "tags"])
    assert [(book.title, book.tags) for book in found] == [("a", ["x"]), ("a", ["y"])]


@pytest.mark.usefixtures("books")
@pytest.mark.parametrize("names", [["tags"], ["tags", "year"]])
def test_pages_by_cursor(names: list[str]) -> None:
    query = Book.query()
    whole = [(book.key.id(), book.tags) for book in query.fetch(projection=names)]
    paged = []
    cursor, more = None, True
    while more:
        page, cursor, more = query.fetch_page(2, start_cursor=cursor, projection=names)
        paged += [(book.key.id(), book.tags) for book in page]
    assert paged == whole
    assert len(whole) == 5


@pytest.mark.usefixtures("books")
def test_a_property_with_an_equality_filter_is_not_projected() -> None:
    with pytest.raises(datastore_errors.BadRequestError, match="equality filter"):
        Book.query(Book.year == 1990).fetch(projection=["year"])
