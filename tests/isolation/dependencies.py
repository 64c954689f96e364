"""The graph of what must come before what: Adya's dependencies and the real time.

A transaction is the node of its place in the history; one that was not applied is there for what it read. Behind them
stand barriers of time: one for each end of a transaction, in the order of the ends.
"""

from bisect import bisect_left
from typing import NamedTuple

from tests.isolation.facts import Facts, is_doubtful
from tests.isolation.graph import Edge, Graph
from tests.isolation.history import Outcome, Read
from tests.isolation.versions import Versions

_NEVER = 1 << 63


class Absence(NamedTuple):
    """A read that found nothing, and several times at which there was nothing: places as Versions.absences has them."""

    transaction: int
    read: Read
    places: list[int]


class Dependencies(NamedTuple):
    """`absences`: reads without edges so far."""

    graph: Graph
    barriers: list[int]
    absences: list[Absence]


def dependencies(facts: Facts, orders: dict[str, Versions]) -> Dependencies:
    ends = (_last_instant(facts, index) for index in range(len(facts.history)))
    barriers = sorted(end for end in ends if end < _NEVER)
    graph = Graph(len(facts.history) + len(barriers))
    _add_time(facts, graph, barriers)
    absences = []
    for name, versions in orders.items():
        for place in range(2, len(versions.writers)):
            _add(graph, versions.writers[place - 1], versions.writers[place], Edge.OVERWRITE, name)
        for index, read in facts.reads.get(name, ()):
            places = _places(facts, index, read, versions)
            if len(places) == 1:
                add_read(graph, index, name, versions, places[0])
            elif places:
                absences.append(Absence(index, read, places))
    absences.sort(key=lambda absence: facts.history[absence.transaction].end)
    return Dependencies(graph, barriers, absences)


def _last_instant(facts: Facts, index: int) -> int:
    """When a transaction was certainly over. What was applied without being acknowledged may have been at any time."""
    transaction = facts.history[index]
    if transaction.outcome is Outcome.UNKNOWN:
        return _NEVER
    return transaction.end


def _add_time(facts: Facts, graph: Graph, barriers: list[int]) -> None:
    first = len(facts.history)
    for at in range(1, len(barriers)):
        graph.add(first + at - 1, first + at, Edge.TIME)
    for index, transaction in enumerate(facts.history):
        end = _last_instant(facts, index)
        if end < _NEVER:
            graph.add(index, first + bisect_left(barriers, end), Edge.TIME)
        ended = bisect_left(barriers, transaction.start)
        if ended:
            graph.add(first + ended - 1, index, Edge.TIME)


def _add(graph: Graph, start: int | None, stop: int | None, kind: Edge, label: str) -> None:
    if start is not None and stop is not None and start != stop:
        graph.add(start, stop, kind, label)


def add_read(graph: Graph, index: int, name: str, versions: Versions, place: int) -> None:
    """The edges of a read that saw the version at `place`."""
    _add(graph, versions.writers[place], index, Edge.READ, name)
    _add(graph, index, versions.end_of(place), Edge.OVERTAKE, name)


def _places(facts: Facts, index: int, read: Read, versions: Versions) -> list[int]:
    """Which versions a read may have seen; none if that is unknowable (or told elsewhere: an id nobody wrote)."""
    if read.seen:
        place = versions.places.get(read.seen[-1])
        return [] if place is None else [place]
    if is_doubtful(facts, index, read):
        return []
    absences = versions.absences()
    if len(absences) == 1:
        return absences
    if index in versions.writers and versions.is_absent(before := versions.writers.index(index) - 1):
        return [max(each for each in absences if each <= before)]  # what it wrote itself came next
    return [place for place in absences if _could_see(facts, index, versions, place)] or _nearest(
        facts, index, versions, absences
    )


def _could_see(facts: Facts, index: int, versions: Versions, place: int) -> bool:
    """Whether the version was there at some instant of the transaction."""
    reader = facts.history[index]
    writer = versions.writers[place]
    following = versions.end_of(place)
    begun = writer is None or facts.history[writer].start <= reader.end
    return begun and (following is None or _last_instant(facts, following) >= reader.start)


def _nearest(facts: Facts, index: int, versions: Versions, absences: list[int]) -> list[int]:
    """The last absence that had begun: no right one is left, and this one makes the shortest cycle."""
    begun = [place for place in absences if _has_begun(facts, index, versions.writers[place])]
    return begun[-1:]


def _has_begun(facts: Facts, index: int, writer: int | None) -> bool:
    return writer is None or facts.history[writer].start <= facts.history[index].end
