"""Whether a history is strictly serializable: `check` finds its anomalies, or an order that explains all of it.

The promise checked: there is one order of all committed transactions (plain calls among them), in which each comes
after all that had ended when it began, and each read gives what the writes before it left. The reads of transactions
that failed must fit into it as well, since a client acts on them before it knows.

After Elle (Kingsbury and Alvaro, VLDB 2020): the order of versions of each object is known, so every dependency is an
edge, and an anomaly is a cycle. A read that found nothing may have several explanations in an object that was deleted
more than once: what leaves only one decides first, and when nothing does, those of one read are tried in turn. Only if
many of them come to nothing could a right history be refused. None is let through wrongly: see witness.py.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.isolation.anomalies import Anomaly, Kind, told
from tests.isolation.dependencies import Absence, Dependencies, add_read, dependencies
from tests.isolation.facts import Facts, collect, wrong_reads
from tests.isolation.graph import ALL, Edge, Graph
from tests.isolation.history import History, Outcome, Read
from tests.isolation.versions import Versions, order
from tests.isolation.witness import objections

_TRIES = 300  # edges from which a shortest cycle is looked for, in one tangle
_DEAD_ENDS = 300  # of choices between explanations
_DATA = Edge.OVERWRITE | Edge.READ | Edge.OVERTAKE
_WORDS = {
    Edge.OVERWRITE: "is overwritten in {} by",
    Edge.READ: "is read in {} by",
    Edge.OVERTAKE: "read in {} what is overwritten by",
    Edge.TIME: "had ended before there began",
}


def check(history: History) -> list[Anomaly]:
    """The anomalies; none: the history is strictly serializable, proven by playing it through in one order.

    Raises ValueError for what is no history.
    """
    facts = collect(history)
    anomalies = [*wrong_reads(facts)]
    orders = order(facts, anomalies)
    found = dependencies(facts, orders)
    anomalies += _cycles(facts, found.graph)
    if anomalies:
        return anomalies
    anomalies = _explain(facts, orders, found)
    if not anomalies:
        _prove(facts, orders, found)
    return anomalies


def _prove(facts: Facts, orders: dict[str, Versions], found: Dependencies) -> None:
    count = len(facts.history)
    times = [transaction.end for transaction in facts.history] + found.barriers
    serial = [node for node in found.graph.order(times.__getitem__) if node < count]
    placed = {each for versions in orders.values() for each in versions.places}
    problems = objections(facts, serial, placed)
    if problems:
        raise AssertionError("the checker is wrong: no anomaly, and no serial order either: " + "; ".join(problems[:5]))


class _Choice(NamedTuple):
    """What there was to choose from: `others` are the explanations of the first of `left` that were not tried yet."""

    mark: int
    left: list[Absence]
    others: list[int]


def _explain(facts: Facts, orders: dict[str, Versions], found: Dependencies) -> list[Anomaly]:
    """Adds the edges of all absences to the graph; none come back if there is an explanation for each."""
    choices: list[_Choice] = []
    first: list[Anomaly] = []
    left = found.absences
    for _ in range(_DEAD_ENDS):
        anomalies, left = _settle(facts, orders, found, left)
        while left and not anomalies:
            choices.append(_Choice(found.graph.mark(), left, [*left[0].places]))
            anomalies, left = _settle(facts, orders, found, _choose(orders, found, choices[-1]))
        if not anomalies:
            return []
        first = first or anomalies
        while choices and not choices[-1].others:
            choices.pop()
        if not choices:
            break
        found.graph.undo(choices[-1].mark)
        left = _choose(orders, found, choices[-1])
    return first


def _choose(orders: dict[str, Versions], found: Dependencies, choice: _Choice) -> list[Absence]:
    """Takes the next explanation; what is left to be explained after it."""
    (index, read, _), *left = choice.left
    add_read(found.graph, index, read.object, orders[read.object], choice.others.pop(0))
    return left


def _settle(
    facts: Facts, orders: dict[str, Versions], found: Dependencies, left: list[Absence]
) -> tuple[list[Anomaly], list[Absence]]:
    """Decides what has one explanation left, since that may rule out some of the others'. What has none, and what has
    several.
    """
    anomalies: list[Anomaly] = []
    open_before = -1
    while len(left) != open_before:
        open_before, several = len(left), []
        for index, read, places in left:
            versions = orders[read.object]
            fitting = [each for each in places if _fits(facts, found, index, versions, each)]
            if len(fitting) > 1:
                several.append(Absence(index, read, fitting))
            elif fitting:
                add_read(found.graph, index, read.object, versions, fitting[0])
            else:
                anomalies.append(_unexplainable(facts, index, read, [versions.writers[each] for each in places]))
        left = several
    return anomalies, left


def _unexplainable(facts: Facts, index: int, read: Read, rivals: list[int | None]) -> Anomaly:
    shown = (index, *(each for each in rivals if each is not None))
    return Anomaly(Kind.ABSENCE, "\n".join(f"  {told(facts.history, each, {read.object})}" for each in shown), shown)


def _fits(facts: Facts, found: Dependencies, index: int, versions: Versions, place: int) -> bool:
    """Whether a read may have seen this version, as far as the graph knows."""
    writer = versions.writers[place]
    following = versions.end_of(place)
    if writer is not None and _is_before(facts, found, index, writer):
        return False
    return following is None or following == index or not _is_before(facts, found, following, index)


def _is_before(facts: Facts, found: Dependencies, first: int, second: int) -> bool:
    """Whether there is a path. What began after `second` ended is not looked at: it comes behind it."""
    count = len(facts.history)
    last = facts.history[second]

    def may_lead_there(node: int) -> bool:
        return (facts.history[node].start if node < count else found.barriers[node - count]) <= last.end

    allowed = None if last.outcome is Outcome.UNKNOWN else may_lead_there
    return found.graph.path(first, second, allowed=allowed) is not None


def _cycles(facts: Facts, graph: Graph) -> Iterator[Anomaly]:
    """One anomaly for each tangle of transactions: the worst cycle in it, as short as possible."""
    for tangle in graph.tangles():
        kind, cycle, kinds = _worst(facts, graph, tangle)
        yield _explained(facts, graph, kind, cycle, kinds)


def _worst(facts: Facts, graph: Graph, tangle: list[int]) -> tuple[Kind, list[int], Edge]:
    flow = Edge.OVERWRITE | Edge.READ
    for kind, kinds in ((Kind.DIRTY_WRITE, Edge.OVERWRITE), (Kind.CIRCULAR_FLOW, flow)):
        if cycle := _any_cycle(graph, tangle, kinds):
            return kind, cycle, kinds
    if cycle := _cycle_by_one(graph, tangle, Edge.OVERTAKE, flow):
        return _name_skew(facts, graph, cycle), cycle, _DATA
    if cycle := _any_cycle(graph, tangle, _DATA):
        writes_nothing = not all(_changed(facts, each) for each in cycle)
        return (Kind.READ_ONLY if writes_nothing else Kind.WRITE_SKEW), cycle, _DATA
    if cycle := _cycle_by_one(graph, tangle, Edge.OVERTAKE, flow | Edge.TIME):
        return _name_late(facts, graph, cycle), cycle, ALL
    return Kind.REAL_TIME, _any_cycle(graph, tangle, ALL) or tangle, ALL


def _any_cycle(graph: Graph, tangle: list[int], kinds: Edge) -> list[int] | None:
    """A short cycle, its first node not repeated."""
    smaller = graph.tangles(kinds, tangle)
    if not smaller:
        return None
    nodes = min(smaller, key=len)
    inside = set(nodes)
    cycles = [graph.path(node, node, kinds, inside.__contains__) for node in nodes[:_TRIES]]
    return min((cycle for cycle in cycles if cycle), key=len)[:-1]


def _cycle_by_one(graph: Graph, tangle: list[int], one: Edge, others: Edge) -> list[int] | None:
    """A short cycle with exactly one edge of kind `one`, which comes first."""
    inside = set(tangle)
    best: list[int] | None = None
    for tried, (start, stop) in enumerate(graph.edges(tangle, one)):
        if tried == _TRIES:
            break
        path = graph.path(stop, start, others, inside.__contains__)
        if path and (best is None or len(path) < len(best)):
            best = path
    return best and [best[-1], *best[:-1]]


def _name_skew(facts: Facts, graph: Graph, cycle: list[int]) -> Kind:
    """Lost update: the first read an object and wrote it, and what came between is lost."""
    _, name = graph.edge(cycle[0], cycle[1], Edge.OVERTAKE)
    return Kind.LOST_UPDATE if name in _changed(facts, cycle[0]) else Kind.READ_SKEW


def _changed(facts: Facts, index: int) -> set[str]:
    """The objects a transaction wrote; none if that came to nothing."""
    return {write.object for write in facts.history[index].writes} if index in facts.applied else set()


def _name_late(facts: Facts, graph: Graph, cycle: list[int]) -> Kind:
    """Stale, or lost if nobody who began after the write's end ever saw it, or anything that came after it."""
    reader, writer = cycle[0], cycle[1]
    if any(node < len(facts.history) for node in cycle[2:]):
        return Kind.REAL_TIME
    _, name = graph.edge(reader, writer, Edge.OVERTAKE)
    written = next(write.id for write in facts.history[writer].last_writes() if write.object == name)
    end = facts.history[writer].end
    for index, read in facts.reads[name]:
        if facts.history[index].start > end and index != reader and _is_new(facts, read.seen, written, writer):
            return Kind.STALE_READ
    return Kind.LOST_WRITE


def _is_new(facts: Facts, seen: tuple[int, ...], written: int, writer: int) -> bool:
    if written in seen:
        return True
    last = facts.wrote.get(seen[-1]) if seen else None
    return last is not None and facts.history[last[0]].start > facts.history[writer].end


def _explained(facts: Facts, graph: Graph, kind: Kind, cycle: list[int], kinds: Edge) -> Anomaly:
    count = len(facts.history)
    edges = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    steps = [(start, *graph.edge(start, stop, kinds)) for start, stop in edges if start < count]
    objects = {label for _, _, label in steps if label}
    lines = []
    for start, why, label in steps:
        lines += [f"  {told(facts.history, start, objects)}", f"    {_WORDS[why].format(label)}"]
    lines.append(f"  T{steps[0][0]} again")
    return Anomaly(kind, "\n".join(lines), tuple(start for start, _, _ in steps))
