"""google.appengine.ext.db: the older API's models, queries, GQL, cursors and transactions."""

import datetime
from typing import Any

import pytest
from google.appengine.api import datastore_errors, users
from google.appengine.ext import db

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")


class Page(db.Model):
    title = db.StringProperty()
    rank = db.IntegerProperty()
    tags = db.StringListProperty()


class All(db.Model):
    string = db.StringProperty()
    text = db.TextProperty()
    blob = db.BlobProperty()
    short = db.ByteStringProperty()
    integer = db.IntegerProperty()
    floating = db.FloatProperty()
    boolean = db.BooleanProperty()
    moment = db.DateTimeProperty()
    point = db.GeoPtProperty()
    user = db.UserProperty()
    link = db.LinkProperty()
    email = db.EmailProperty()
    phone = db.PhoneNumberProperty()
    address = db.PostalAddressProperty()
    rating = db.RatingProperty()
    category = db.CategoryProperty()
    messenger = db.IMProperty()
    page = db.ReferenceProperty(Page)
    numbers = db.ListProperty(int)


@pytest.fixture
def pages(sdk: None) -> list[Any]:
    ranks = [4, 2, 9, 2, 7, 0, 5]
    entities = [Page(key_name=f"p{at}", title=f"t{rank}", rank=rank) for at, rank in enumerate(ranks)]
    return db.put(entities)


def names(found: Any) -> list[str]:
    return [(page if isinstance(page, db.Key) else page.key()).name() for page in found]


def test_every_property_type_comes_back_as_it_was_put() -> None:
    values: dict[str, Any] = {
        "string": "naïve\x00",
        "text": db.Text("t" * 5000),
        "blob": db.Blob(bytes(range(256)) * 20),
        "short": db.ByteString(bytes(range(256))),
        "integer": 2**63 - 1,
        "floating": float("-inf"),
        "boolean": False,
        "moment": datetime.datetime(1601, 1, 1),
        "point": db.GeoPt(1.5, -2.5),
        "user": users.User("a@example.com"),
        "link": db.Link("http://example.com/" + "x" * 1900),
        "email": db.Email("a@example.com"),
        "phone": db.PhoneNumber("1 555"),
        "address": db.PostalAddress("1 Main"),
        "rating": db.Rating(97),
        "category": db.Category("c"),
        "messenger": db.IM("http://aim.com/", "x"),
        "page": Page(key_name="p").put(),
        "numbers": [3, 1, 3, -1],
    }
    found = db.get(All(**values).put())
    assert {name: getattr(found, name) for name in values if name != "page"} == {
        name: value for name, value in values.items() if name != "page"
    }
    assert All.page.get_value_for_datastore(found) == values["page"]
    assert found.page.key() == values["page"]


def test_put_get_and_delete_of_many() -> None:
    keys = db.put([Page(rank=rank) for rank in range(50)])
    assert [page.rank for page in db.get(keys)] == list(range(50))
    db.delete(keys[10:])
    assert [page and page.rank for page in db.get(keys)] == [*range(10), *[None] * 40]
    assert Page.all().count() == 10


def test_get_by_key_name_and_id_below_a_parent() -> None:
    parent = Page(key_name="parent")
    parent.put()
    Page(key_name="child", parent=parent, rank=1).put()
    number = Page(parent=parent, rank=2).put().id()
    assert Page.get_by_key_name("child", parent=parent).rank == 1
    assert Page.get_by_id(number, parent=parent).rank == 2
    assert Page.get_by_key_name("child") is None
    assert Page.get_or_insert("child", parent=parent, rank=9).rank == 1


@pytest.mark.parametrize(
    ("condition", "value", "wanted"),
    [
        ("rank =", 2, ["p1", "p3"]),
        ("rank <", 4, ["p5", "p1", "p3"]),
        ("rank <=", 4, ["p5", "p1", "p3", "p0"]),
        ("rank >", 4, ["p6", "p4", "p2"]),
        ("rank >=", 4, ["p0", "p6", "p4", "p2"]),
        ("rank !=", 2, ["p5", "p0", "p6", "p4", "p2"]),
        ("rank IN", [9, 2], ["p1", "p3", "p2"]),
    ],
)
def test_every_operator(pages: list[Any], condition: str, value: Any, wanted: list[str]) -> None:
    assert names(Page.all().filter(condition, value).order("rank")) == wanted
    assert Page.all().filter(condition, value).count() == len(wanted)


def test_orders_limits_and_offsets(pages: list[Any]) -> None:
    whole = ["p5", "p1", "p3", "p0", "p6", "p4", "p2"]
    assert names(Page.all().order("rank")) == whole
    assert names(Page.all().order("-rank")) == ["p2", "p4", "p6", "p0", "p1", "p3", "p5"]
    assert names(Page.all().order("rank").fetch(3, offset=2)) == whole[2:5]
    assert names(Page.all().order("-__key__")) == [f"p{at}" for at in range(6, -1, -1)]
    assert Page.all().order("rank").get().key().name() == "p5"
    assert Page.all().count(limit=5) == 5
    assert Page.all().count(offset=5) == 2


def test_gql(pages: list[Any]) -> None:
    assert names(db.GqlQuery("SELECT * FROM Page WHERE rank > :1 ORDER BY rank DESC LIMIT 2", 3)) == ["p2", "p4"]
    assert names(db.GqlQuery("SELECT __key__ FROM Page WHERE __key__ >= KEY('Page', 'p5')")) == ["p5", "p6"]
    assert names(Page.gql("WHERE title = 't9'")) == ["p2"]


def test_cursors_page_through_a_query(pages: list[Any]) -> None:
    found: list[str] = []
    cursor = None
    for size in (2, 2, 2, 1, 0):
        query = Page.all().order("rank").with_cursor(cursor)
        page = names(query.fetch(2))
        assert len(page) == size
        found += page
        cursor = query.cursor()
    assert found == ["p5", "p1", "p3", "p0", "p6", "p4", "p2"]


def test_ancestor_and_kindless_queries() -> None:
    root = Page(key_name="root").put()
    child = Page(key_name="child", parent=root).put()
    other = All(key_name="all", parent=child).put()
    Page(key_name="roots").put()
    assert list(Page.all(keys_only=True).ancestor(root)) == [root, child]
    assert list(db.Query(keys_only=True).ancestor(root)) == [root, child, other]
    assert [entity.key() for entity in db.query_descendants(Page.get(root))] == [child, other]


def test_a_list_property_matches_by_any_value() -> None:
    Page(key_name="a", tags=["x", "y", "x"]).put()
    Page(key_name="b", tags=["y"]).put()
    assert names(Page.all().filter("tags =", "x")) == ["a"]
    assert names(Page.all().filter("tags >", "a").order("tags")) == ["a", "b"]
    assert db.get(db.Key.from_path("Page", "a")).tags == ["x", "y", "x"]


def test_a_transaction_repeats_until_it_succeeds() -> None:
    key = Page(key_name="counter", rank=0).put()

    def increment() -> None:
        page = db.get(key)
        page.rank += 1
        page.put()

    def work(_: int) -> None:
        db.run_in_transaction_custom_retries(500, increment)

    in_threads(20, work, range(60))
    assert db.get(key).rank == 60


def test_a_failing_transaction_changes_nothing(pages: list[Any]) -> None:
    def work() -> None:
        Page(key_name="p0", rank=99).put()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.run_in_transaction(work)
    assert db.get(pages[0]).rank == 4


def test_reads_in_a_transaction_show_the_state_before_its_own_writes(pages: list[Any]) -> None:
    def work() -> tuple[int, int]:
        Page(key_name="p0", rank=99).put()
        Page(key_name="child", parent=pages[0]).put()
        return db.get(pages[0]).rank, Page.all().ancestor(pages[0]).count()

    assert db.run_in_transaction(work) == (4, 1)
    assert db.get(pages[0]).rank == 99


def test_several_groups_need_xg(pages: list[Any]) -> None:
    def work() -> None:
        for page in db.get(pages):
            page.rank = 1
            page.put()

    with pytest.raises(datastore_errors.BadRequestError, match="xg=True"):
        db.run_in_transaction(work)
    db.run_in_transaction_options(db.create_transaction_options(xg=True), work)
    assert [page.rank for page in db.get(pages)] == [1] * 7


def test_a_read_only_transaction_reads_and_is_refused_writes(pages: list[Any]) -> None:
    assert db.run_in_read_only_transaction(lambda: db.get(pages[0]).rank) == 4
    with pytest.raises(datastore_errors.BadRequestError, match="read-only"):
        db.run_in_read_only_transaction(lambda: Page(key_name="p0", rank=99).put())
    assert db.get(pages[0]).rank == 4


def test_a_non_transactional_function_runs_outside(pages: list[Any]) -> None:
    @db.non_transactional
    def outside() -> int:
        return Page.all().count()

    assert db.run_in_transaction(outside) == 7
