"""What is put comes back byte for byte: meanings, raw properties, URIs, owners and fields the server does not index."""

import math
import random
from typing import Any

import pytest
from google.appengine.api import apiproxy_stub_map
from google.appengine.datastore import datastore_v3_bytes_pb2, entity_bytes_pb2
from google.appengine.datastore.entity_bytes_pb2 import Property
from google.appengine.runtime import apiproxy_errors

from tests.e2e.sdk import APP

pytestmark = pytest.mark.usefixtures("sdk")

RAW = (Property.BLOB, Property.TEXT, Property.ENTITY_PROTO)


def call(method: str, request: Any, response: Any) -> Any:
    apiproxy_stub_map.MakeSyncCall("datastore_v3", method, request, response)
    return response


def new_entity(*path: str | int, namespace: str = "") -> Any:
    entity = entity_bytes_pb2.EntityProto()
    entity.key.app = APP
    if namespace:
        entity.key.name_space = namespace
    for kind, identifier in zip(path[::2], path[1::2], strict=True):
        element = entity.key.path.element.add(type=kind)
        if isinstance(identifier, int):
            element.id = identifier
        else:
            element.name = identifier
    entity.entity_group.element.add().CopyFrom(entity.key.path.element[0])
    return entity


def add(entity: Any, name: str, *, meaning: int = 0, multiple: bool = False, raw: bool = False, **value: Any) -> Any:
    """Adds a property; `value` names the field of PropertyValue, none leaves it null."""
    prop = (entity.raw_property if raw or meaning in RAW else entity.property).add(name=name, multiple=multiple)
    prop.value.SetInParent()
    if meaning:
        prop.meaning = meaning
    for field, content in value.items():
        if field == "pointvalue":
            prop.value.pointvalue.x, prop.value.pointvalue.y = content
        else:
            setattr(prop.value, field, content)
    return prop


def put_and_get(*entities: Any) -> list[Any]:
    """The entities as Get answers them, after one Put."""
    put = datastore_v3_bytes_pb2.PutRequest(entity=entities)
    keys = call("Put", put, datastore_v3_bytes_pb2.PutResponse()).key
    assert list(keys) == [entity.key for entity in entities]
    get = datastore_v3_bytes_pb2.GetRequest(key=keys)
    return [found.entity for found in call("Get", get, datastore_v3_bytes_pb2.GetResponse()).entity]


def comparable(entity: Any) -> bytes:
    """The serialized entity without its entity group, which is the server's to fill in."""
    copy = entity_bytes_pb2.EntityProto()
    copy.CopyFrom(entity)
    copy.ClearField("entity_group")
    return copy.SerializePartialToString(deterministic=True)


def assert_comes_back(*entities: Any) -> None:
    assert [comparable(found) for found in put_and_get(*entities)] == [comparable(entity) for entity in entities]


@pytest.mark.parametrize("name", sorted(set(Property.Meaning.keys()) - {"NO_MEANING", "INDEX_VALUE"}))
def test_every_meaning_comes_back(name: str) -> None:
    meaning = Property.Meaning.Value(name)
    assert_comes_back(_meant(meaning))


def test_a_result_of_a_projection_cannot_be_put() -> None:
    with pytest.raises(apiproxy_errors.ApplicationError, match="incomplete properties"):
        put_and_get(_meant(Property.INDEX_VALUE))


def _meant(meaning: int) -> Any:
    entity = new_entity("Meant", "m")
    values: dict[int, dict[str, Any]] = {
        Property.GD_WHEN: {"int64Value": -1},
        Property.GD_RATING: {"int64Value": 97},
        Property.GEORSS_POINT: {"pointvalue": (1.5, -2.5)},
        Property.EMPTY_LIST: {},
    }
    value = values.get(meaning, {"stringValue": b"http://example.com"})
    add(entity, "indexed", meaning=meaning, **value)
    add(entity, "unindexed", meaning=meaning, raw=True, **value)
    return entity


@pytest.mark.parametrize(
    "number", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1.7976931348623157e308, 0.1]
)
def test_every_double_comes_back(number: float) -> None:
    entity = new_entity("Number", "n")
    add(entity, "indexed", doubleValue=number)
    add(entity, "unindexed", raw=True, doubleValue=number)
    add(entity, "point", raw=True, pointvalue=(number, -number))
    assert_comes_back(entity)


def test_every_kind_of_value_comes_back_indexed_and_raw() -> None:
    entity = new_entity("Any", "a", "Child", 2**63 - 1, namespace="space")
    for raw in (False, True):
        prefix = "raw" if raw else "indexed"
        add(entity, f"{prefix}-null", raw=raw)
        add(entity, f"{prefix}-integer", raw=raw, int64Value=-(2**63))
        add(entity, f"{prefix}-boolean", raw=raw, booleanValue=False)
        add(entity, f"{prefix}-string", raw=raw, stringValue="é\x00".encode())
        user = add(entity, f"{prefix}-user", raw=raw).value.uservalue
        user.email, user.auth_domain, user.gaiaid = b"a@example.com", b"gmail.com", 7
        user.federated_identity, user.federated_provider = b"http://id", b"http://p"
        user.obfuscated_gaiaid = b"118024119584481251151"  # what the referee would make of the address
        reference = add(entity, f"{prefix}-key", raw=raw).value.referencevalue
        reference.app, reference.name_space = "s~other", "other"
        reference.pathelement.add(type="A", id=5)
        reference.pathelement.add(type="B", name="n\x00")
    add(entity, "blob", meaning=Property.BLOB, stringValue=bytes(range(256)) * 4)
    assert_comes_back(entity)


def test_repeated_values_keep_their_order_and_duplicates() -> None:
    entity = new_entity("List", "l")
    for number in (3, 1, 3, 2, 1):
        add(entity, "numbers", multiple=True, int64Value=number)
        add(entity, "raw", multiple=True, raw=True, int64Value=number)
    add(entity, "mixed", multiple=True, stringValue=b"x")
    add(entity, "mixed", multiple=True)
    add(entity, "single", multiple=True, int64Value=1)
    assert_comes_back(entity)


def test_owner_kind_and_uris_come_back() -> None:
    entity = new_entity("Rich", "r")
    entity.owner.email, entity.owner.auth_domain, entity.owner.gaiaid = b"o@example.com", b"gmail.com", 0
    entity.kind, entity.kind_uri = entity_bytes_pb2.EntityProto.GD_CONTACT, b"http://kind"
    add(entity, "uri", stringValue=b"x").meaning_uri = b"http://meaning"
    add(entity, "stashed", stringValue=b"x").stashed = 3
    add(entity, "computed", stringValue=b"x").computed = True
    assert_comes_back(entity)


def test_an_entity_without_properties_comes_back() -> None:
    assert_comes_back(new_entity("Empty", "e"))


def test_the_entity_group_is_filled_in() -> None:
    entity = new_entity("Root", "r", "Child", 1)
    entity.entity_group.Clear()
    entity.entity_group.SetInParent()
    (found,) = put_and_get(entity)
    assert [(element.type, element.name) for element in found.entity_group.element] == [("Root", "r")]


def test_an_auto_id_is_filled_into_the_stored_key() -> None:
    entity = new_entity("Root", "r", "Child", "x")
    entity.key.path.element[1].ClearField("name")
    put = datastore_v3_bytes_pb2.PutRequest(entity=[entity])
    (key,) = call("Put", put, datastore_v3_bytes_pb2.PutResponse()).key
    assert key.path.element[1].id > 0
    get = datastore_v3_bytes_pb2.GetRequest(key=[key])
    (found,) = call("Get", get, datastore_v3_bytes_pb2.GetResponse()).entity
    assert found.entity.key == key
    root = new_entity("Thing", "x")
    root.key.path.element[0].ClearField("name")
    root.entity_group.element[0].ClearField("name")
    (key,) = call("Put", datastore_v3_bytes_pb2.PutRequest(entity=[root]), datastore_v3_bytes_pb2.PutResponse()).key
    get = datastore_v3_bytes_pb2.GetRequest(key=[key])
    (found,) = call("Get", get, datastore_v3_bytes_pb2.GetResponse()).entity
    assert found.entity.entity_group.element[0].id == key.path.element[0].id


def test_entities_come_back_from_queries_as_from_gets() -> None:
    entities = [new_entity("Queried", number) for number in range(1, 40)]
    for number, entity in enumerate(entities):
        add(entity, "rank", int64Value=number)
        add(entity, "data", meaning=Property.BLOB, stringValue=random.Random(number).randbytes(number * 100))
    got = put_and_get(*entities)
    query = datastore_v3_bytes_pb2.Query(app=APP, kind="Queried", count=100)
    result = call("RunQuery", query, datastore_v3_bytes_pb2.QueryResult())
    assert [comparable(found) for found in result.result] == [comparable(found) for found in got]
    assert [comparable(found) for found in got] == [comparable(entity) for entity in entities]


def test_versions_grow_with_every_put() -> None:
    entity = new_entity("Versioned", "v")
    versions = []
    for number in range(5):
        del entity.property[:]
        add(entity, "number", int64Value=number)
        put = datastore_v3_bytes_pb2.PutRequest(entity=[entity])
        (version,) = call("Put", put, datastore_v3_bytes_pb2.PutResponse()).version
        get = datastore_v3_bytes_pb2.GetRequest(key=[entity.key])
        (found,) = call("Get", get, datastore_v3_bytes_pb2.GetResponse()).entity
        assert found.version == version
        versions.append(version)
    assert versions == sorted(set(versions))
