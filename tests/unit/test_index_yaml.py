"""index.yaml <-> definitions of composite indexes."""

import re

import pytest

from pbserver import index_yaml
from pbserver.datastore.queries import Order

FILE = """
indexes:
- kind: Book
  ancestor: yes
  properties:
  - name: shelf
  - name: pages
    direction: desc
  - name: __key__
    direction: desc

- kind: "no"
  properties:
  - {name: "1 \\"\\0", direction: asc}
  - name: __key__
"""


def test_a_file_is_read_and_written_back() -> None:
    first, second = index_yaml.load(FILE)
    assert first.kind == b"Book\x00"
    assert first.ancestor
    assert first.properties == (Order(b"shelf", False), Order(b"pages", True), Order(b"__key__", True))
    assert first.key_descending
    assert second.properties == (Order(b'1 "\x00', False),)
    assert index_yaml.load("indexes:\n" + "\n".join(map(index_yaml.dump, (first, second)))) == [first, second]


@pytest.mark.parametrize("text", ["", "# nothing", "indexes:", "indexes: []"])
def test_a_file_may_be_empty(text: str) -> None:
    assert index_yaml.load(text) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("indexes: [", "it is not YAML"),
        ("- kind: K", "it has no list `indexes:`"),
        ("indexes:\n- properties: [{name: a}]", "index 1 names no kind"),
        ("indexes:\n- kind: K", "index 1 (kind K): a composite index needs properties"),
        ("indexes:\n- kind: K\n  properties: [{name: a, direction: up}]", "direction is asc or desc, not 'up'"),
        ("indexes:\n- kind: K\n  properties: [{name: a}, {name: a}]", "property a stands in the index twice"),
        ("indexes:\n- kind: K\n  properties: [{name: a, mode: geospatial}]", "mode geospatial"),
        ("indexes:\n- kind: K\n  ancestors: yes\n  properties: [{name: a}]", "unknown keys: ancestors"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(index_yaml.WrongIndexFile, match=re.escape(complaint)):
        index_yaml.load(text)
