"""`datastore.indexes = "strict"`: a query is answered only by the indexes there are, as in production."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import ndb

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import CompositeIndex, Index
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import APP, Wire

UP, DOWN = Index.ASCENDING, Index.DESCENDING


class Printed(ndb.Model):
    shelf = ndb.StringProperty()
    pages = ndb.IntegerProperty()
    tags = ndb.StringProperty(repeated=True)


@pytest.fixture
def strict(tmp_path: Path, connect: Callable[[Server], None]) -> Iterator[Server]:
    settings = '[datastore]\nindexes = "strict"\n'
    with Server(tmp_path, f"lmdb:{tmp_path / 'store'}", settings=settings) as running:
        connect(running)
        ndb.put_multi([Printed(id=n, shelf="ab"[n % 2], pages=n % 5, tags=["x", "y"][: n % 3]) for n in range(1, 40)])
        yield running


def create(server: Server, *properties: tuple[bytes, int], ancestor: bool = False) -> int:
    """Creates an index and waits until it serves."""
    index = CompositeIndex(app_id=APP, id=0, state=CompositeIndex.WRITE_ONLY)
    index.definition.entity_type = b"Printed"
    index.definition.ancestor = ancestor
    for name, direction in properties:
        index.definition.property.add(name=name, direction=direction)
    with Wire(server.port) as wire:
        made = v3.Integer64Proto.FromString(wire.reply("CreateIndex", index).response).value

        def serves() -> bool:
            found = wire.call("GetIndices", v3.GetIndicesRequest(app_id=APP)).index
            return any(each.id == made and each.state == CompositeIndex.READ_WRITE for each in found)

        wait_until(serves, f"index {made} to serve")
    return int(made)


def test_need_index_names_the_index_and_the_query_works_once_it_is_there(strict: Server) -> None:
    query = Printed.query(Printed.shelf == "a").order(-Printed.pages)
    with pytest.raises(datastore_errors.NeedIndexError) as refused:
        query.fetch()
    text = "- kind: Printed\n  properties:\n  - name: shelf\n  - name: pages\n    direction: desc"
    assert text in str(refused.value)
    create(strict, (b"shelf", UP), (b"pages", DOWN))
    found = [(book.pages, book.key.id()) for book in query]
    assert found == sorted(((n % 5, n) for n in range(1, 40) if n % 2 == 0), key=lambda each: (-each[0], each[1]))


def test_an_index_that_covers_a_part_is_built_upon(strict: Server) -> None:
    create(strict, (b"shelf", UP), (b"pages", UP))
    with pytest.raises(datastore_errors.NeedIndexError) as refused:
        Printed.query(Printed.shelf == "a", Printed.tags == "x").order(Printed.pages).fetch()
    assert "- kind: Printed\n  properties:\n  - name: tags\n  - name: pages" in str(refused.value)
    create(strict, (b"tags", UP), (b"pages", UP))
    joined = Printed.query(Printed.shelf == "a", Printed.tags == "x").order(Printed.pages).fetch()
    assert [book.key.id() for book in joined] == sorted(
        (n for n in range(1, 40) if n % 2 == 0 and n % 3), key=lambda n: (n % 5, n)
    )


def test_what_is_built_in_needs_no_index(strict: Server) -> None:
    assert Printed.query(Printed.shelf == "a", Printed.tags == "x", Printed.pages == 2).count() > 0
    assert Printed.query(Printed.pages > 2).order(-Printed.pages).count() > 0
    assert Printed.query(ancestor=Printed.get_by_id(1).key).count() == 1
    assert len(Printed.query(projection=[Printed.pages]).fetch()) == 39
    assert len(Printed.query(projection=[Printed.shelf], distinct=True).fetch()) == 2


def test_a_projection_of_two_properties_needs_one(strict: Server) -> None:
    query = Printed.query(projection=[Printed.pages, Printed.shelf], distinct=True)
    with pytest.raises(datastore_errors.NeedIndexError, match="name: pages\n  - name: shelf"):
        query.fetch()
    create(strict, (b"pages", UP), (b"shelf", UP))
    assert [(book.pages, book.shelf) for book in query] == sorted({(n % 5, "ab"[n % 2]) for n in range(1, 40)})


def test_an_ancestor_query_with_an_order_needs_an_index_with_ancestors(strict: Server) -> None:
    root = ndb.Key("Shelf", 1)
    ndb.put_multi([Printed(parent=root, pages=n) for n in (3, 1, 2)])
    with pytest.raises(datastore_errors.NeedIndexError, match="ancestor: yes\n  properties:\n  - name: pages"):
        Printed.query(ancestor=root).order(Printed.pages).fetch()
    create(strict, (b"pages", UP), ancestor=True)
    assert [book.pages for book in Printed.query(ancestor=root).order(Printed.pages)] == [1, 2, 3]
