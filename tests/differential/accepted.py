"""The differences from Google's implementation that are accepted: all of them, each with its reason.

Two kinds: outcomes that are not compared (SETTLED) and parts of a result that do not count (`normal`). What the
programs leave out altogether is listed in LEFT_OUT, what becomes of a transaction or a cursor is settled below it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.appengine.datastore import datastore_pb

from tests.differential.players import Outcome
from tests.differential.programs import Step

_ERROR = datastore_pb.Error

#: What the programs never contain, and why.
LEFT_OUT = {
    "keys with ids and with names as values of one property": "the referee compares an int with a str and crashes",
    "automatic ids in a put that may be refused": "how many ids a refused put uses up is nobody's promise",
    "puts and deletes of keys with an empty name": "the referee takes them, here they are BAD_REQUEST: the worlds part",
    "properties with an empty name": "the referee's query for __property__ crashes on them",
    "ids that automatic ones reach": "the referee refuses the put, this server takes the next id",
    "cursors of queries with orders and filters on several properties": (
        "the referee compares a cursor with an entity of which it has dropped what its filters look at"
    ),
    "filters without a property": "the referee crashes",
    "projections of queries whose order goes on after the key": (
        "the referee drops such an order and then forgets that its property must be there"
    ),
    "the kind __namespace__ asked for inside a namespace": "the referee finds nothing but in the empty one",
    "negative limits and counts": "the referee takes them for slices of a Python list; here they are BAD_REQUEST",
    "a transaction after its end": "the referee's handles are memory addresses, used again for other transactions",
}

#: Features that the Java referee is not asked for, and why.
NOT_WITH_JAVA = {
    "bulk": "it cuts its answers, and what an offset skips, elsewhere",
    "default_count": "its first batch has 20 results where no count is given, whatever the limit",
    "distinct": "its cursors of groups have another form",
    "empty_names": "it takes them for missing names",
    "ids": "it does not reserve ids and answers other ranges",
    "illegal": "it takes negative offsets and has a rule on kinds of its own",
    "indexes": "it has no calls for them",
    "meanings": "it stores strings that are not UTF-8",
    "metadata": "not yet compared",
    "modes": "a READ_WRITE transaction locks what it reads",
    "previous": "as modes",
    "users": "it takes users for equal whose ids are, whatever their domains",
    "transactions": "a group that is only written counts as read, and contention shows at the next call of any kind",
}


@dataclass(frozen=True)
class Played:
    """A step and what came of it. `request` is the one that this server got."""

    step: Step
    request: Any
    mine: Outcome
    other: Outcome


def ends_transaction(played: Played) -> bool:
    """After an error the referee has joined the groups of the keys before the one it refused; ours has joined none."""
    return bool(played.mine.code)


def cursors_for_referee(played: Played, *, distinct: bool) -> Sequence[Any]:
    """The cursors that later steps give to the referee: ours, so that ours are proven to mean what Google's mean.

    The referee's own hold every value of a repeated property, and it refuses those. Only those of distinct queries
    are its own: they name a group, in whatever form.
    """
    outcome = played.other if distinct else played.mine
    return list(outcome.answer.result_compiled_cursor)


def empty_name(played: Played) -> bool:
    """A key with an empty name is refused here, as by the Datastore; the referee takes it for a name like others."""
    if played.step.method != "Get" or played.mine.code != _ERROR.BAD_REQUEST or played.other.code:
        return False
    elements = [element for key in played.request.key for element in key.path.element]
    return any(element.HasField("name") and not element.name for element in elements)


def snapshot_has_moved(played: Played) -> bool:
    """The referee keeps a snapshot of each group of a transaction and may answer from it although the group has moved;
    ours answers CONCURRENT_TRANSACTION at once. Neither could commit any more. Where one call breaks both rules, ours
    may name the limit of groups first.
    """
    mine, other = played.mine, played.other
    if played.step.method not in ("Get", "RunQuery", "Next"):
        return False
    if mine.code == _ERROR.CONCURRENT_TRANSACTION:
        return True
    return other.code == _ERROR.CONCURRENT_TRANSACTION and "many entity groups" in mine.detail


def projection_ordered_by_key_first(played: Played) -> bool:
    """The referee splits repeated values only of ordered properties; when `__key__` ends the order before a projected
    one it meets two values and gives up with INTERNAL_ERROR.
    """
    return played.other.detail == "datastore dev stub produced bad result" and not played.mine.code


SETTLED: tuple[Callable[[Played], bool], ...] = (snapshot_has_moved, projection_ordered_by_key_first, empty_name)


def normal(result: Any) -> Any:
    """A result without what does not count: the properties of a projection's row have no order of their own."""
    if any(each.meaning == each.INDEX_VALUE for each in result.property):
        result.property.sort(key=lambda each: each.name)
    return result


def settles(played: Played) -> bool:
    """Whether the outcomes of a step need not be compared."""
    return any(rule(played) for rule in SETTLED)
