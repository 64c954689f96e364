"""Which composite index a query needs, and the text for index.yaml that says so. Pure functions.

The rules are those by which applications were written (the SDK's datastore_index): what is built in needs nothing,
and several indexes that end alike may serve a query together.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.encoding import read_text
from pbserver.datastore.queries import KEY_NAME, Op, Order, Query

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # to YAML; JSON leaves them as they are
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))  # YAML takes them for something else


class Need(NamedTuple):
    """An index: `equal` in any order, then `ordered` (direction None: any), then `grouped`, then `present`."""

    kind: bytes
    ancestor: bool
    equal: frozenset[bytes]
    ordered: tuple[tuple[bytes, bool | None], ...]
    grouped: frozenset[bytes] = frozenset()
    present: frozenset[bytes] = frozenset()


def need(query: Query) -> Need | None:
    """What a normalized query needs beyond the built-in indexes; None: nothing."""
    if query.kind is None:
        return None
    compared = [each.name for each in query.filters if each.op is not Op.EQUAL]
    equal = {each.name for each in query.filters if each.op is Op.EQUAL}
    orders = query.asked_orders
    settled = (equal - {*compared}) | {*compared} | {order.name for order in orders}
    present = (query.group_by | {*query.projection}) - settled
    if not present:
        orders, equal = _without_built_in(orders, equal, compared)
    ordered: tuple[tuple[bytes, bool | None], ...] = tuple(orders)
    if compared and not orders and (present or compared[0] != KEY_NAME):
        ordered = ((compared[0], None),)
    found = Need(
        query.kind,
        query.ancestor is not None,
        frozenset(equal),
        ordered,
        present & query.group_by,
        present - query.group_by,
    )
    return None if _is_built_in(found) else found


def _without_built_in(
    orders: Sequence[Order], equal: set[bytes], compared: Sequence[bytes]
) -> tuple[tuple[Order, ...], set[bytes]]:
    """Every index ends in the key, ascending; key filters ride on it unless a property is compared."""
    if orders and orders[-1] == Order(KEY_NAME, descending=True):
        return tuple(orders), equal
    if orders and orders[-1].name == KEY_NAME:
        orders = orders[:-1]
    if all(name == KEY_NAME for name in compared):
        equal = equal - {KEY_NAME}
    return tuple(orders), equal


def can_exist(found: Need) -> bool:
    """Whether there can be such an index: `__key__` is the last property, or none. Nobody can ask for the others."""
    before = found.equal.union(name for name, _ in found.ordered[:-1])
    last = found.ordered[-1][0] if found.ordered else b""
    return KEY_NAME not in before and not (last == KEY_NAME and (found.grouped or found.present))


def _is_built_in(found: Need) -> bool:
    behind = len(found.ordered) + len(found.grouped) + len(found.present)
    if not behind:
        return KEY_NAME not in found.equal
    if found.ancestor or behind + len(found.equal) > 1:
        return False
    return found.ordered != ((KEY_NAME, True),)


def missing(wanted: Need, composites: Iterable[Composite]) -> Need | None:
    """The smallest index to add so that the serving ones suffice; None: they do."""
    left: dict[tuple[Order, ...], tuple[frozenset[bytes], bool]] = {}
    for each in composites:
        definition = each.definition
        if each.state is not State.SERVING or (definition.ancestor and not wanted.ancestor):
            continue
        split = _before_postfix(definition.properties, wanted)
        names = {order.name for order in definition.properties[:split]} if split is not None else {b""}
        if split is None or names - wanted.equal:
            continue
        postfix = definition.properties[split:]
        equal, ancestor = left.get(postfix, (wanted.equal, wanted.ancestor))
        left[postfix] = (equal - names, ancestor and not definition.ancestor)
        if left[postfix] == (frozenset(), False):
            return None
    if not left:
        return wanted
    postfix = min(left, key=lambda each: (len(left[each][0]) + 2 * left[each][1], each))
    equal, ancestor = left[postfix]
    return Need(wanted.kind, ancestor, equal, tuple(postfix))


def _before_postfix(properties: Sequence[Order], wanted: Need) -> int | None:
    """Where the part begins in which an index has to be as the query wants it; None: it is not."""
    at = len(properties)
    for names in (wanted.present, wanted.grouped):
        if {order.name for order in properties[at - len(names) : at]} != names or at < len(names):
            return None
        at -= len(names)
    start = at - len(wanted.ordered)
    if start < 0:
        return None
    fits = all(
        name == order.name and descending in (None, order.descending)
        for (name, descending), order in zip(wanted.ordered, properties[start:at], strict=True)
    )
    return start if fits else None


def message(lacking: Need, composites: Iterable[Composite]) -> str:
    """What a client is told when indexes have to be there and one is not."""
    text = (
        "This query requires a composite index that is not defined. "
        "You must update the index.yaml file in your application root.\n"
        f"The following index is the minimum index required:\n{as_yaml(recommended(lacking))}"
    )
    soon = [each._replace(state=State.SERVING) for each in composites if each.state is State.BUILDING]
    if soon and missing(lacking, soon) is None:
        text += "\n(It is being built; the query can be answered when that is done.)"
    return text


def recommended(wanted: Need) -> Definition:
    """The index that serves a need best: what may stand in any order is sorted by name."""
    equal = [Order(name, descending=False) for name in sorted(wanted.equal)]
    ordered = [Order(name, bool(descending)) for name, descending in wanted.ordered]
    behind = [Order(name, descending=False) for names in (wanted.grouped, wanted.present) for name in sorted(names)]
    return Definition(wanted.kind, wanted.ancestor, (*equal, *ordered, *behind))


def as_yaml(definition: Definition) -> str:
    """An index as an entry of index.yaml."""
    lines = [f"- kind: {_shown(read_text(definition.kind, 0)[0])}"]
    if definition.ancestor:
        lines.append("  ancestor: yes")
    lines.append("  properties:")
    for name, descending in definition.properties:
        lines.append(f"  - name: {_shown(name)}")
        if descending:
            lines.append("    direction: desc")
    return "\n".join(lines)


def _shown(name: bytes) -> str:
    """A name as YAML reads it back."""
    shown = name.decode(errors="replace")
    plain = _PLAIN.fullmatch(shown) and shown.lower() not in _WORDS
    return shown if plain else _UNPRINTABLE.sub(_escaped, json.dumps(shown, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
