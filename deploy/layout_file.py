"""Changes of a layout's file that keep its comments. Pure: text in, text out.

Every node gets its number written down, since its place in the file is no longer what it was.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from controller.layout import Layout, Role


def with_node(text: str, layout: Layout, address: str, roles: Iterable[Role]) -> str:
    """With one more node at the end. Where every node that keeps data has a PBServer without saying so, that is said
    when the new one is a gateway alone: otherwise only the new one would have one.
    """
    document, nodes = _numbered(text, layout)
    own = [str(role) for role in roles]
    named = any(Role.GATEWAY in each.roles for each in layout.nodes)
    if Role.GATEWAY in own and not named:
        for table, machine in zip(nodes, layout.nodes, strict=True):
            table["roles"] = [*map(str, machine.roles), str(Role.GATEWAY)]
    added = {"address": address, "roles": own, "number": max(layout.numbers.values()) + 1}
    if isinstance(nodes, AoT):
        nodes[-1].add(tomlkit.nl())
    nodes.append(added)
    return tomlkit.dumps(document)


def with_leaving(text: str, layout: Layout, address: str) -> str:
    """With a mark at the node that is to leave."""
    document, nodes = _numbered(text, layout)
    for table, machine in zip(nodes, layout.nodes, strict=True):
        if machine.address == address:
            table["leaving"] = True
    return tomlkit.dumps(document)


def without(text: str, layout: Layout, addresses: Iterable[str]) -> str:
    """Without these nodes."""
    gone = set(addresses)
    document, nodes = _numbered(text, layout)
    for place in reversed([place for place, each in enumerate(layout.nodes) if each.address in gone]):
        del nodes[place]
    return tomlkit.dumps(document)


def parsed(text: str) -> Layout:
    """Raises pydantic.ValidationError naming every wrong key."""
    return Layout.model_validate(tomlkit.parse(text).unwrap())


def _numbered(text: str, layout: Layout) -> tuple[tomlkit.TOMLDocument, Any]:
    document = tomlkit.parse(text)
    nodes: AoT | list[Table] = document["nodes"]
    numbers: Mapping[str, int] = layout.numbers
    for table, machine in zip(nodes, layout.nodes, strict=True):
        if "number" not in table:
            table["number"] = numbers[machine.address]
    return document, nodes
