"""Kinds, key names, property names, values and namespaces in every script, and with bytes that like to be forgotten."""

from typing import Any

import pytest
from google.appengine.api import datastore, namespace_manager
from google.appengine.api.datastore_types import Key
from google.appengine.ext import ndb

from tests.e2e.sdk import fresh_context, in_threads

pytestmark = pytest.mark.usefixtures("sdk")

#: Sorted by their UTF-8.
TEXTS = [
    "\x00",
    "\x00\x00",
    "\x00\x01",
    "\x00\xff",
    "\x01",
    "\t",
    "\n",
    "\r\n",
    " ",
    '"quoted"',
    "%s%d",
    "'; drop table",
    "../../etc",
    "/",
    "//",
    ":",
    "A",
    "A" * 400,
    "A\x00",
    "A\x00A",
    "\\",
    "___",
    "a",
    "a/b:c___d",
    "~",
    "~~",
    "\x7f",
    "é",
    "ﬀ",
    "\uffff",
    "😀",
    "\U0010ffff",
]
TEXTS.sort(key=lambda text: text.encode())


def test_key_names_of_any_characters_are_kept_apart_and_in_order() -> None:
    keys = [Key.from_path("Named", text) for text in TEXTS]
    for key in reversed(keys):
        datastore.Put(datastore.Entity("Named", name=key.name()))
    assert list(datastore.Query("Named").Run(keys_only=True)) == keys
    assert [entity.key() for entity in datastore.Get(keys)] == keys
    for at, key in enumerate(keys):
        assert list(datastore.Query("Named", {"__key__ >": key}).Run(keys_only=True)) == keys[at + 1 :]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_kind_of_any_characters_holds_its_own_entities(text: str) -> None:
    own = datastore.Put(datastore.Entity(text, name="x"))
    datastore.Put([datastore.Entity(other, name="x") for other in ("A", text + "\x00", text + "a") if other != text])
    assert list(datastore.Query(text).Run(keys_only=True)) == [own]


def test_string_values_of_any_characters_are_kept_apart_and_in_order() -> None:
    for number, text in enumerate(TEXTS):
        entity = datastore.Entity("Valued", id=number + 1)
        entity["text"] = text
        datastore.Put(entity)
    query = datastore.Query("Valued")
    query.Order("text")
    assert [entity["text"] for entity in query.Run()] == TEXTS
    for text in TEXTS:
        assert [entity["text"] for entity in datastore.Query("Valued", {"text =": text}).Run()] == [text]


def test_property_names_of_any_characters_are_kept_apart() -> None:
    entity = datastore.Entity("Props", name="all")
    texts = [text for text in TEXTS if not text.startswith("__")]
    entity.update({text: number for number, text in enumerate(texts)})
    key = datastore.Put(entity)
    assert dict(datastore.Get(key)) == {text: number for number, text in enumerate(texts)}


@pytest.mark.parametrize("name", ["é", "a\x00", "a\x00\x01", "a\nb", "東京", "a b"], ids=ascii)
def test_a_property_of_any_name_can_be_queried(name: str) -> None:
    class Flexible(ndb.Expando):
        pass

    prop = ndb.GenericProperty(name)
    keys = []
    for number in range(5):
        entity = Flexible(id=number + 1)
        entity._properties[prop._name] = prop
        prop._set_value(entity, number)
        keys.append(entity.put())
    assert Flexible.query(ndb.FilterNode(name, "=", 3)).fetch(keys_only=True) == [keys[3]]
    assert Flexible.query().order(-prop).fetch(keys_only=True) == keys[::-1]


class Doc(ndb.Model):
    text = ndb.StringProperty()


def test_namespaces_do_not_see_each_other() -> None:
    spaces = ["", "a", "a.b", "A", "a-", "-", "z" * 100]
    for space in spaces:
        Doc(key=ndb.Key(Doc, "same", namespace=space), text=f"in {space}").put()
    for space in spaces:
        assert ndb.Key(Doc, "same", namespace=space).get().text == f"in {space}"
        assert [doc.text for doc in Doc.query(namespace=space)] == [f"in {space}"]
        assert [doc.text for doc in Doc.query(Doc.text >= "", namespace=space)] == [f"in {space}"]
    ndb.Key(Doc, "same", namespace="a").delete()
    assert [ndb.Key(Doc, "same", namespace=space).get() is None for space in spaces] == [
        space == "a" for space in spaces
    ]


def test_kindless_queries_stay_in_their_namespace() -> None:
    for space in ("", "a", "ab"):
        Doc(key=ndb.Key(Doc, f"in-{space}", namespace=space)).put()
    for space in ("", "a", "ab"):
        found = datastore.Query(namespace=space).Run(keys_only=True)
        assert [(key.name(), key.namespace()) for key in found] == [(f"in-{space}", space)]


def test_the_namespace_manager_decides_for_new_keys_and_queries() -> None:
    namespace_manager.set_namespace("tenant")
    key = Doc(text="x").put()
    assert key.namespace() == "tenant"
    assert Doc.query().count() == 1
    namespace_manager.set_namespace("")
    assert Doc.query().count() == 0
    assert key.get().text == "x"


def test_each_thread_has_a_namespace_of_its_own() -> None:
    def work(space: str) -> list[Any]:
        fresh_context()
        namespace_manager.set_namespace(space)
        for number in range(5):
            Doc(id=f"d{number}", text=space).put()
        found = [doc.text for doc in Doc.query()]
        namespace_manager.set_namespace("")
        return found

    spaces = [f"t{number}" for number in range(8)]
    assert in_threads(8, work, spaces) == [[space] * 5 for space in spaces]
