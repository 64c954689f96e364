"""ndb: entities put, got and deleted through the SDK."""

import datetime
from typing import Any

import pytest
from google.appengine.api import users
from google.appengine.ext import ndb
from google.appengine.ext.ndb import polymodel, tasklets
from google.appengine.runtime import apiproxy_errors

from tests.e2e.sdk import Calls

pytestmark = pytest.mark.usefixtures("sdk")


class Note(ndb.Model):
    text = ndb.StringProperty()
    rank = ndb.IntegerProperty()


class Address(ndb.Model):
    street = ndb.StringProperty()
    city = ndb.StringProperty()


class Everything(ndb.Model):
    integer = ndb.IntegerProperty()
    floating = ndb.FloatProperty()
    boolean = ndb.BooleanProperty()
    string = ndb.StringProperty()
    text = ndb.TextProperty()
    packed = ndb.TextProperty(compressed=True)
    blob = ndb.BlobProperty()
    short = ndb.BlobProperty(indexed=True)
    json = ndb.JsonProperty()
    pickled = ndb.PickleProperty()
    moment = ndb.DateTimeProperty()
    day = ndb.DateProperty()
    clock = ndb.TimeProperty()
    point = ndb.GeoPtProperty()
    user = ndb.UserProperty()
    key_to = ndb.KeyProperty()
    blob_key = ndb.BlobKeyProperty()
    generic = ndb.GenericProperty()
    numbers = ndb.IntegerProperty(repeated=True)
    home = ndb.StructuredProperty(Address)
    moves = ndb.StructuredProperty(Address, repeated=True)
    office = ndb.LocalStructuredProperty(Address)
    shouted = ndb.ComputedProperty(lambda self: (self.string or "").upper())


class Animal(polymodel.PolyModel):
    name = ndb.StringProperty()


class Cat(Animal):
    lives = ndb.IntegerProperty()


VALUES: dict[str, Any] = {
    "integer": -(2**63),
    "floating": 0.1,
    "boolean": True,
    "string": "naïve 東京 \x00 \n end",
    "text": "t" * 100_000,
    "packed": "p" * 100_000,
    "blob": bytes(range(256)) * 100,
    "short": bytes(range(256)),
    "json": {"a": [1, None, "ü"]},
    "pickled": {1: (2, {3})},
    "moment": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "day": datetime.date(2038, 1, 20),
    "clock": datetime.time(1, 2, 3, 4),
    "point": ndb.GeoPt(-90, 180),
    "key_to": ndb.Key("Parent", "p", "Child", 2**62, app="s~other", namespace="n"),
    "blob_key": ndb.BlobKey("blob"),
    "generic": 2**62,
    "numbers": [3, 1, 2, 3],
    "home": Address(street="1 Main", city="X"),
    "moves": [Address(street="a", city="b"), Address(street="c", city=None)],
    "office": Address(street="2 Main", city="Y"),
}


def test_every_property_type_comes_back_as_it_was_put() -> None:
    values = {**VALUES, "user": users.User("a@example.com", _user_id="7")}
    found = Everything(id="all", **values).put().get()
    assert {name: getattr(found, name) for name in values} == values
    assert found.shouted == VALUES["string"].upper()


def test_properties_that_were_never_set_come_back_as_none() -> None:
    found = Everything().put().get()
    assert (found.integer, found.user, found.key_to, found.numbers, found.home) == (None, None, None, [], None)


def test_an_expando_keeps_properties_of_its_own() -> None:
    class Flexible(ndb.Expando):
        pass

    key = Flexible(anything=b"x", number=3, several=[1, b"two", 3.0]).put()
    found = key.get()
    assert (found.anything, found.number, found.several) == (b"x", 3, [1, b"two", 3.0])


def test_a_polymodel_is_found_as_base_and_as_subclass() -> None:
    Animal(name="any").put()
    Cat(name="tom", lives=9).put()
    assert sorted(animal.name for animal in Animal.query()) == ["any", "tom"]
    assert [cat.lives for cat in Cat.query()] == [9]


def test_a_second_put_replaces_the_entity_in_gets_and_in_queries() -> None:
    key = Note(id=1, text="old", rank=1).put()
    Note(id=1, text="new").put()
    assert key.get().text == "new"
    assert Note.query(Note.text == "old").count() == 0
    assert Note.query(Note.rank == 1).count() == 0
    assert [note.key for note in Note.query(Note.text == "new")] == [key]


def test_fifty_roots_are_put_and_got_in_one_go() -> None:
    keys = ndb.put_multi([Note(rank=rank) for rank in range(50)])
    assert len(set(keys)) == 50
    assert [note.rank for note in ndb.get_multi(keys)] == list(range(50))
    assert sorted(note.rank for note in Note.query()) == list(range(50))


def test_five_hundred_entities_under_one_ancestor_are_put_and_got_in_one_go() -> None:
    parent = ndb.Key("Book", "b")
    keys = ndb.put_multi([Note(parent=parent, rank=rank) for rank in range(500)])
    assert all(key.parent() == parent for key in keys)
    assert [note.rank for note in ndb.get_multi(keys)] == list(range(500))


def test_an_ancestor_need_not_exist_and_is_not_created() -> None:
    key = Note(parent=ndb.Key("Book", "b", "Chapter", 3), text="x").put()
    assert key.get().text == "x"
    assert key.parent().get() is None


def test_ids_and_names_that_look_alike_are_different_entities() -> None:
    Note(id=12, text="id").put()
    Note(id="12", text="name").put()
    assert ndb.Key(Note, 12).get().text == "id"
    assert ndb.Key(Note, "12").get().text == "name"


def test_get_multi_answers_none_in_the_place_of_what_is_missing() -> None:
    here = Note(text="here").put()
    assert [note and note.text for note in ndb.get_multi([ndb.Key(Note, "no"), here, ndb.Key(Note, 999), here])] == [
        None,
        "here",
        None,
        "here",
    ]


def test_a_deleted_entity_is_gone_from_gets_and_from_every_query() -> None:
    key = Note(text="x", rank=1).put()
    key.delete()
    assert key.get() is None
    assert Note.query().count() == Note.query(Note.text == "x").count() == 0
    assert Note.query().order(-Note.rank).fetch() == []


def test_delete_multi_deletes_what_is_named_and_nothing_else() -> None:
    keys = ndb.put_multi([Note(rank=rank) for rank in range(20)])
    ndb.delete_multi(keys[5:])
    assert [note is not None for note in ndb.get_multi(keys)] == [True] * 5 + [False] * 15
    assert sorted(note.rank for note in Note.query()) == list(range(5))


def test_deleting_what_is_not_there_does_nothing() -> None:
    ndb.Key(Note, "never").delete()
    ndb.delete_multi([ndb.Key(Note, number) for number in range(1, 30)])
    assert Note.query().count() == 0


def test_get_or_insert_inserts_once() -> None:
    assert Note.get_or_insert("one", text="first").text == "first"
    assert Note.get_or_insert("one", text="second").text == "first"


def test_asynchronous_calls_overlap_and_all_succeed() -> None:
    futures = [Note(id=number, rank=number).put_async() for number in range(1, 31)]
    keys = [future.get_result() for future in futures]
    notes = [future.get_result() for future in [key.get_async() for key in keys]]
    assert [note.rank for note in notes] == list(range(1, 31))


def test_an_entity_of_nearly_a_mebibyte_is_stored() -> None:
    key = Everything(blob=b"x" * 1_000_000).put()
    assert len(key.get().blob) == 1_000_000


def test_several_large_entities_are_got_in_one_call() -> None:
    keys = [Everything(id=f"n{number}", blob=bytes([number]) * 900_000).put() for number in range(6)]
    assert [entity.blob[:1] for entity in ndb.get_multi(keys)] == [bytes([number]) for number in range(6)]


def test_ndb_carries_on_without_memcache() -> None:
    tasklets.set_context(None)  # the context as a request finds it: both caches on
    with Calls() as calls:
        key = Note(id="cached", text="one").put()
        ndb.get_context().clear_cache()
        assert key.get().text == "one"
        Note(id="cached", text="two").put()
        ndb.get_context().clear_cache()
        assert key.get().text == "two"
        key.delete()
        assert key.get() is None
    refused = [error for name, error in calls.made if name.startswith("memcache.")]
    assert refused
    assert all(isinstance(error, apiproxy_errors.CallNotFoundError) for error in refused)
    assert calls.count("datastore_v3.Get") >= 2
