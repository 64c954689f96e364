"""index.yaml, as App Engine's tools read and write it <-> definitions of composite indexes."""

from typing import Any

import yaml

from pbserver.datastore import keys, needs
from pbserver.datastore.composites import Definition, checked
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.queries import Order

_DIRECTIONS = {None: False, "asc": False, "ascending": False, "desc": True, "descending": True}


class WrongIndexFile(Exception):
    """The file is not an index.yaml; the message says where and why."""


def load(text: str) -> list[Definition]:
    """The definitions in a file. Raises WrongIndexFile naming the entry that is wrong."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise WrongIndexFile(f"it is not YAML: {error}") from error
    if document is None:
        return []
    if not isinstance(document, dict) or not isinstance(document.get("indexes") or [], list):
        raise WrongIndexFile("it has no list `indexes:`")
    _refuse_others("the file", document, {"indexes", "application"})
    return [_definition(number, each) for number, each in enumerate(document.get("indexes") or [], 1)]


def _definition(number: int, entry: Any) -> Definition:
    where = f"index {number}"
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise WrongIndexFile(f"{where} names no kind")
    _refuse_others(where, entry, {"kind", "ancestor", "properties"})
    where += f" (kind {entry['kind']})"
    ancestor = entry.get("ancestor", False)
    if not isinstance(ancestor, bool):
        raise WrongIndexFile(f"{where}: ancestor is yes or no, not {ancestor!r}")
    properties = entry.get("properties") or []
    if not isinstance(properties, list):
        raise WrongIndexFile(f"{where}: properties is not a list")
    orders = tuple(_order(where, each) for each in properties)
    try:
        return checked(Definition(keys.encode_kind(entry["kind"].encode()), ancestor, orders))
    except BadRequest as error:
        raise WrongIndexFile(f"{where}: {error}") from error


def _order(where: str, entry: Any) -> Order:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise WrongIndexFile(f"{where}: a property has no name")
    where += f", property {entry['name']}"
    if entry.get("mode") is not None:
        raise WrongIndexFile(f"{where}: mode {entry['mode']} (search by place) is not supported")
    _refuse_others(where, entry, {"name", "direction", "mode"})
    direction = entry.get("direction")
    if direction not in _DIRECTIONS:
        raise WrongIndexFile(f"{where}: direction is asc or desc, not {direction!r}")
    return Order(entry["name"].encode(), _DIRECTIONS[direction])


def _refuse_others(where: str, entry: dict[Any, Any], known: set[str]) -> None:
    others = ", ".join(sorted(map(str, entry.keys() - known)))
    if others:
        raise WrongIndexFile(f"{where} has unknown keys: {others}")


def dump(definition: Definition) -> str:
    """One entry of an index.yaml."""
    return needs.as_yaml(definition)
