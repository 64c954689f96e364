"""The kinds `__Stat_*__`, as an app's SDK reads them: computed from what is stored now."""

import pytest
from google.appengine.api import namespace_manager
from google.appengine.ext import ndb
from google.appengine.ext.ndb import stats

pytestmark = pytest.mark.usefixtures("server", "sdk")


class Volume(ndb.Model):
    title = ndb.StringProperty()
    pages = ndb.IntegerProperty()
    text = ndb.TextProperty()


class Chapter(ndb.Model):
    title = ndb.StringProperty(repeated=True)


def store_volumes() -> None:
    volumes = [Volume(id=number, title="t", pages=number, text="x" * 100) for number in range(1, 4)]
    ndb.put_multi(volumes)
    Chapter(parent=volumes[0].key, title=["a", "b"]).put()
    namespace_manager.set_namespace("other")
    Volume(title=None, pages=1).put()
    namespace_manager.set_namespace("")


def test_the_total_counts_every_namespace() -> None:
    assert stats.GlobalStat.query().get() is None
    store_volumes()
    total = stats.GlobalStat.query().get()
    assert (total.count, total.key.id()) == (5, "total_entity_usage")
    assert total.key.get(use_cache=False).count == 5
    rows = 3 * 3 + 3 + 3  # a kind row and one row per indexed value: three volumes, the chapter, the other volume
    assert (total.builtin_index_count, total.composite_index_count) == (rows, 0)
    assert total.bytes == total.entity_bytes + total.builtin_index_bytes
    assert total.entity_bytes > 300
    assert stats.NamespaceStat.query().fetch()[0].subject_namespace == ""
    assert [each.count for each in stats.NamespaceStat.query()] == [4, 1]


def test_kinds_can_be_asked_for_like_any_entities() -> None:
    store_volumes()
    volume = stats.KindStat.query(stats.KindStat.kind_name == "Volume").get()
    assert (volume.key.id(), volume.count) == ("Volume", 4)
    assert [each.kind_name for each in stats.KindStat.query().order(-stats.KindStat.count)] == ["Volume", "Chapter"]
    assert [each.kind_name for each in stats.KindRootEntityStat.query()] == ["Volume"]
    assert [(each.kind_name, each.count) for each in stats.KindNonRootEntityStat.query()] == [("Chapter", 1)]


def test_property_types_are_told_apart() -> None:
    store_volumes()
    types = {each.property_type: each.count for each in stats.PropertyTypeStat.query()}
    assert types == {"String": 5, "Integer": 4, "Text": 3, "NULL": 2}
    of_titles = stats.KindPropertyNamePropertyTypeStat.query(
        stats.KindPropertyNamePropertyTypeStat.property_name == "title"
    )
    assert {(each.kind_name, each.property_type, each.count) for each in of_titles} == {
        ("Volume", "String", 3),
        ("Volume", "NULL", 1),
        ("Chapter", "String", 2),
    }


def test_a_namespace_has_statistics_of_its_own() -> None:
    store_volumes()
    namespace_manager.set_namespace("other")
    assert stats.NamespaceGlobalStat.query().get().count == 1
    assert [each.kind_name for each in stats.NamespaceKindStat.query()] == ["Volume"]
    assert stats.GlobalStat.query().get() is None


def test_after_deletes_nothing_is_left_to_count() -> None:
    store_volumes()
    ndb.delete_multi([*Volume.query().fetch(keys_only=True), *Chapter.query().fetch(keys_only=True)])
    assert [each.kind_name for each in stats.KindStat.query()] == ["Volume"]
    assert stats.GlobalStat.query().get().count == 1
