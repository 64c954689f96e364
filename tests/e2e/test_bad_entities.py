"""Entities and keys that are too long, malformed, reserved or somebody else's; and the largest that are allowed."""

from typing import Any

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Property, Reference
from tests.e2e.server import Server
from tests.e2e.wire import Wire, assert_bad_request, assert_rpc_error, blob, entity, key, put_request

MAX_ENTITY_BYTES = 1_048_572
MAX_RAW_BYTES = 1_048_487
MAX_INDEXED_BYTES = 1500
MAX_LINK_BYTES = 2083
MAX_KEY_BYTES = 6 * 1024


def entity_of(size: int) -> EntityProto:
    """An entity whose serialized form has exactly `size` bytes."""
    proto = blob(entity(key(b"Large", b"n")), b"first", b"x" * 500_000)
    overhead = blob(EntityProto.FromString(proto.SerializeToString()), b"second", b"x" * 500_000).ByteSize() - 500_000
    blob(proto, b"second", b"x" * (size - overhead))
    assert proto.ByteSize() == size
    return proto


def key_of(size: int, kind: bytes = b"K") -> Reference:
    """A key whose serialized form has exactly `size` bytes."""
    names = [b"a" * 1400, b"b" * 1400, b"c" * 1400, b"d" * 1400]
    reference = key(*(part for name in names for part in (b"Up", name)), kind, b"e" * 200)
    missing = size - reference.ByteSize()
    reference.path.element[-1].name = b"e" * (200 + missing)
    assert reference.ByteSize() == size
    return reference


def with_property(**value: Any) -> EntityProto:
    """An entity with one property; `value` sets fields of it, or of its value."""
    proto = entity(key(b"Kind", b"n"))
    prop = (proto.raw_property if value.pop("raw", False) else proto.property).add(name=b"p", multiple=False)
    prop.value.SetInParent()
    for field, content in value.items():
        setattr(prop if field in {"name", "meaning"} else prop.value, field, content)
    return proto


def refuse(wire: Wire, proto: EntityProto, text: str = "") -> None:
    """The entity is refused, and so is the good one put with it."""
    good = entity(key(b"Good", b"companion"))
    assert_bad_request(wire.reply("Put", put_request(good, proto)), text)
    assert wire.get(good.key) == [None]


def accept(wire: Wire, proto: EntityProto) -> None:
    wire.put(proto)
    assert wire.get(proto.key) == [proto]


def test_the_largest_entity_is_stored_and_one_byte_more_is_refused(wire: Wire) -> None:
    accept(wire, entity_of(MAX_ENTITY_BYTES))
    assert wire.query(kind=b"Large")[0].ByteSize() == MAX_ENTITY_BYTES
    refuse(wire, entity_of(MAX_ENTITY_BYTES + 1), "too big")


def test_the_longest_blob_is_stored_and_one_byte_more_is_refused(wire: Wire) -> None:
    accept(wire, blob(entity(key(b"K", 1)), b"p", b"x" * MAX_RAW_BYTES))
    refuse(wire, blob(entity(key(b"K", 1)), b"p", b"x" * (MAX_RAW_BYTES + 1)), "too long")


def test_the_longest_indexed_string_is_found_and_one_byte_more_is_refused(wire: Wire) -> None:
    for value in (b"x" * MAX_INDEXED_BYTES, "é".encode() * (MAX_INDEXED_BYTES // 2), b"\x00" * MAX_INDEXED_BYTES):
        proto = with_property(string_value=value)
        accept(wire, proto)
        condition = v3.Query.Filter(op=v3.Query.Filter.EQUAL, property=proto.property)
        assert wire.query(kind=b"Kind", filter=[condition]) == [proto]
        refuse(wire, with_property(string_value=value + b"x"), "too long")


def test_long_strings_that_differ_in_their_last_byte_are_kept_apart(wire: Wire) -> None:
    for last in b"abc":
        wire.put(entity(key(b"Kind", last), text=b"x" * (MAX_INDEXED_BYTES - 1) + bytes([last])))
    order = v3.Query.Order(property=b"text", direction=v3.Query.Order.DESCENDING)
    found = wire.query(kind=b"Kind", order=[order])
    assert [proto.key.path.element[0].id for proto in found] == list(b"cba")


def test_a_link_may_be_longer_but_not_endless(wire: Wire) -> None:
    accept(wire, with_property(meaning=Property.ATOM_LINK, string_value=b"x" * MAX_LINK_BYTES))
    refuse(wire, with_property(meaning=Property.ATOM_LINK, string_value=b"x" * (MAX_LINK_BYTES + 1)), "too long")


def test_the_longest_key_works_everywhere_and_one_byte_more_is_refused(wire: Wire) -> None:
    largest, larger = key_of(MAX_KEY_BYTES), key_of(MAX_KEY_BYTES + 1)
    proto = entity(largest, number=7)
    accept(wire, proto)
    assert wire.query(kind=b"K") == wire.query(ancestor=largest) == [proto]
    order = v3.Query.Order(property=b"number", direction=v3.Query.Order.DESCENDING)
    assert wire.query(kind=b"K", order=[order]) == [proto]
    refuse(wire, entity(larger), "key")
    for method, message in (
        ("Get", v3.GetRequest(key=[larger])),
        ("Delete", v3.DeleteRequest(key=[larger])),
        ("Touch", v3.TouchRequest(key=[larger])),
    ):
        assert_bad_request(wire.reply(method, message), "key")
    wire.call("Delete", v3.DeleteRequest(key=[largest]))
    assert wire.get(largest) == [None]


def test_long_keys_that_differ_in_their_last_byte_are_kept_apart_and_in_order(wire: Wire) -> None:
    keys = [key_of(MAX_KEY_BYTES) for _ in range(3)]
    for reference, last in zip(keys, (b"x", b"y", b"z"), strict=True):
        reference.path.element[-1].name = reference.path.element[-1].name[:-1] + last
        wire.put(entity(reference, text=last * MAX_INDEXED_BYTES))
    assert [proto.key for proto in wire.query(kind=b"K")] == keys
    assert [proto.property[0].value.string_value[:1] for proto in wire.query()] == [b"x", b"y", b"z"]


@pytest.mark.parametrize("part", ["kind", "name"])
def test_a_kind_or_name_of_1500_bytes_is_the_longest(wire: Wire, part: str) -> None:
    accept(wire, entity(key(b"k" * 1500, b"n") if part == "kind" else key(b"K", b"n" * 1500), number=1))
    refuse(wire, entity(key(b"k" * 1501, b"n") if part == "kind" else key(b"K", b"n" * 1501)), "1500")


def test_500_puts_500_deletes_and_1000_gets_are_the_most_of_one_call(wire: Wire) -> None:
    keys = [key(b"Many", number) for number in range(1, 1002)]
    wire.put(*map(entity, keys[:500]))
    assert_bad_request(wire.reply("Put", put_request(*map(entity, keys[500:]))), "500")
    assert sum(found is not None for found in wire.get(*keys[:1000])) == 500
    assert_bad_request(wire.reply("Get", v3.GetRequest(key=keys)), "1,000")
    assert_bad_request(wire.reply("Delete", v3.DeleteRequest(key=keys[:501])), "500")
    wire.call("Delete", v3.DeleteRequest(key=keys[:500]))
    assert wire.query(kind=b"Many") == []


BAD_KEYS: dict[str, Reference] = {
    "no-path": key(),
    "id-and-name": Reference(app=b"s~toyapp"),
    "no-kind": key(b"", b"n"),
    "incomplete-parent": key(b"Up", None, b"K", b"n"),
    "zero-parent": key(b"Up", 0, b"K", b"n"),
    "no-app": key(b"K", b"n", app=b""),
    "app-not-utf8": key(b"K", b"n", app=b"\xff"),
    "namespace-not-utf8": key(b"K", b"n", namespace=b"\xff"),
    "kind-not-utf8": key(b"\xff", b"n"),
    "name-not-utf8": key(b"K", b"\xc3"),
    "empty-name": key(b"K", b""),
}
BAD_KEYS["id-and-name"].path.element.add(type=b"K", id=1, name=b"n")


@pytest.mark.parametrize("bad", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_malformed_key_is_refused_by_every_call(wire: Wire, bad: Reference) -> None:
    refuse(wire, EntityProto(key=bad, entity_group=bad.path))
    assert_bad_request(wire.reply("Get", v3.GetRequest(key=[bad])))
    assert_bad_request(wire.reply("Delete", v3.DeleteRequest(key=[bad])))
    assert_bad_request(wire.reply("Touch", v3.TouchRequest(key=[bad])))
    assert_bad_request(wire.reply("RunQuery", v3.Query(app=b"s~toyapp", ancestor=bad)))


@pytest.mark.parametrize("incomplete", [key(b"K", None), key(b"K", 0), key(b"Up", 1, b"K", None)], ids=repr)
def test_an_incomplete_key_is_completed_by_put_and_refused_by_the_others(wire: Wire, incomplete: Reference) -> None:
    (completed,) = wire.put(entity(incomplete)).key
    assert completed.path.element[-1].id > 0
    assert not completed.path.element[-1].HasField("name")
    found = wire.get(completed)[0]
    assert found is not None
    assert found.key == completed
    for method, message in (
        ("Get", v3.GetRequest(key=[incomplete])),
        ("Delete", v3.DeleteRequest(key=[incomplete])),
        ("RunQuery", v3.Query(app=b"s~toyapp", ancestor=incomplete)),
    ):
        assert_bad_request(wire.reply(method, message), "missing key id/name")


def test_one_call_cannot_touch_the_data_of_two_apps(wire: Wire) -> None:
    mine, other = key(b"K", b"n", app=b"a"), key(b"K", b"n", app=b"b")
    text = 'app "a" cannot access app "b"\'s data'
    assert_bad_request(wire.reply("Put", put_request(entity(mine), entity(other))), text)
    assert_bad_request(wire.reply("Get", v3.GetRequest(key=[mine, other])), text)
    assert_bad_request(wire.reply("Delete", v3.DeleteRequest(key=[mine, other])), text)
    assert_bad_request(wire.reply("Touch", v3.TouchRequest(key=[mine, other])), text)
    assert wire.get(mine) == wire.get(other) == [None]


def test_apps_do_not_see_each_other(wire: Wire) -> None:
    wire.put(entity(key(b"K", b"n", app=b"a"), number=1))
    wire.put(entity(key(b"K", b"n", app=b"b"), number=2))
    (found,) = wire.get(key(b"K", b"n", app=b"a"))
    assert found is not None
    assert found.property[0].value.int64_value == 1
    for app in (b"a", b"b"):
        result = wire.call("RunQuery", v3.Query(app=app, kind=b"K"))
        assert [EntityProto.FromString(each).key.app for each in result.result] == [app]
    assert wire.query(kind=b"K") == []


@pytest.mark.parametrize("name", [b"__x__", b"__key__", b"____"])
def test_a_reserved_property_name_is_refused(wire: Wire, name: bytes) -> None:
    refuse(wire, with_property(name=name, int64_value=1), "reserved property name")
    refuse(wire, with_property(name=name, int64_value=1, raw=True), "reserved property name")


@pytest.mark.parametrize("name", [b"__", b"___", b"__x", b"x__", b"__x_", b"_x_"])
def test_a_name_that_only_looks_reserved_is_stored(wire: Wire, name: bytes) -> None:
    accept(wire, with_property(name=name, int64_value=1))
    accept(wire, entity(key(name, name)))


def test_reserved_kinds_and_names_are_refused(production_server: Server) -> None:
    with Wire(production_server.port) as wire:
        for reserved in (
            key(b"__x__", b"n"),
            key(b"__Stat_Total__", b"total_entity_usage"),
            key(b"__kind__", 1),
            key(b"Up", 1, b"__x__", 1),
            key(b"__x__", 1, b"K", 1),
            key(b"K", b"__x__"),
        ):
            refuse(wire, entity(reserved), "reserved")


def test_statistics_can_be_written_in_testing(wire: Wire) -> None:
    accept(wire, entity(key(b"__Stat_Total__", b"total_entity_usage"), bytes=7))
    assert len(wire.query(kind=b"__Stat_Total__")) == 1
    refuse(wire, entity(key(b"__x__", b"n")), "reserved")


def test_values_that_contradict_themselves_are_refused(wire: Wire) -> None:
    refuse(wire, with_property(int64_value=1, string_value=b"x"), "multiple value fields")
    refuse(wire, with_property(meaning=Property.BLOB, string_value=b"x"), "raw_property")
    refuse(wire, with_property(meaning=Property.TEXT, string_value=b"x"), "raw_property")
    refuse(wire, with_property(raw=True, meaning=Property.BLOB, int64_value=1), "string value")
    refuse(wire, with_property(meaning=Property.INDEX_VALUE, string_value=b"x"), "incomplete properties")


def test_text_must_be_utf8_and_bytes_need_not(wire: Wire) -> None:
    refuse(wire, with_property(string_value=b"\xff"), "UTF-8")
    refuse(wire, with_property(raw=True, string_value=b"\xc3"), "UTF-8")
    refuse(wire, with_property(name=b"\xff", int64_value=1), "UTF-8")
    accept(wire, with_property(meaning=Property.BYTESTRING, string_value=b"\xff"))
    accept(wire, with_property(raw=True, meaning=Property.BLOB, string_value=b"\xff"))


def test_an_entity_without_a_key_is_a_parse_error(wire: Wire) -> None:
    assert_rpc_error(wire.reply("Put", put_request(EntityProto(entity_group=key(b"K", 1).path))), "PARSE_ERROR")


@pytest.mark.parametrize(
    "request_",
    [
        v3.AllocateIdsRequest(model_key=key(b"K", 1), size=0),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), size=-1),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), size=2**62),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), max=-1),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), max=2**63 - 1),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), size=5, max=5),
        v3.AllocateIdsRequest(model_key=key(b"K", 1, app=b""), size=5),
        v3.AllocateIdsRequest(size=5),
        v3.AllocateIdsRequest(model_key=key(b"K", 1), reserve=[key(b"K", 1)]),
        v3.AllocateIdsRequest(size=5, reserve=[key(b"K", 1)]),
        v3.AllocateIdsRequest(reserve=[key(b"K", None)]),
    ],
    ids=repr,
)
def test_a_senseless_range_of_ids_is_refused(wire: Wire, request_: v3.AllocateIdsRequest) -> None:
    assert_bad_request(wire.reply("AllocateIds", request_))
    assert wire.call("AllocateIds", v3.AllocateIdsRequest(model_key=key(b"K", 1), size=1)).start == 1


def test_reserved_ids_are_not_given_out(wire: Wire) -> None:
    wire.call("AllocateIds", v3.AllocateIdsRequest(reserve=[key(b"K", 5), key(b"Up", 9, b"K", b"n")]))
    given = [wire.put(entity(key(b"K", None))).key[0].path.element[0].id for _ in range(5)]
    assert not {5, 9} & set(given)
