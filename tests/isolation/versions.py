"""The order in which the versions of each object followed each other.

Of objects with appends the lists themselves tell the order. Of registers (puts and deletes) the server's version
numbers do. That is no trust in the server: if there is any order of versions for which all dependencies and the real
time have no cycle, a serial order exists, whoever proposed the order of versions; and witness.py plays it through. A
server that lies about versions can only accuse itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.isolation.anomalies import Anomaly, Kind, told
from tests.isolation.facts import Facts
from tests.isolation.history import How, Write


@dataclass(slots=True)
class Versions:
    """The versions of one object. Position 0 is its absence at first; `writers[0]` is None."""

    writers: list[int | None] = field(default_factory=lambda: [None])
    writes: list[Write | None] = field(default_factory=lambda: [None])
    places: dict[int, int] = field(default_factory=dict)

    def add(self, writer: int, write: Write) -> None:
        self.places[write.id] = len(self.writers)
        self.writers.append(writer)
        self.writes.append(write)

    def is_absent(self, place: int) -> bool:
        write = self.writes[place]
        return write is None or write.how is How.DELETE

    def absences(self) -> list[int]:
        """The first of each: to delete what is not there makes a version, and no difference to whoever reads."""
        places = range(len(self.writers))
        return [place for place in places if self.is_absent(place) and not (place and self.is_absent(place - 1))]

    def end_of(self, place: int) -> int | None:
        """The writer of the next version that a reader can tell from the one at `place`; None if there is none."""
        following = range(place + 1, len(self.writers))
        if self.is_absent(place):
            return next((self.writers[each] for each in following if not self.is_absent(each)), None)
        return self.writers[place + 1] if following else None


def order(facts: Facts, anomalies: list[Anomaly]) -> dict[str, Versions]:
    """The versions of every object; adds what is wrong already here to `anomalies`."""
    orders = {}
    for name in sorted(facts.reads.keys() | facts.writes.keys()):  # so that a history is judged alike every time
        if name in facts.registers:
            orders[name] = _by_number(facts, name, anomalies)
        else:
            orders[name] = _by_lists(facts, name, anomalies)
    return orders


def _by_number(facts: Facts, name: str, anomalies: list[Anomaly]) -> Versions:
    anomalies += _contradictions(facts, name)
    told_by_reads: dict[int, int | None] = {}
    for _, read in facts.reads.get(name, ()):
        if read.seen:
            told_by_reads[read.seen[-1]] = told_by_reads.get(read.seen[-1]) or read.version
    numbered: list[tuple[int, int, int, Write]] = []
    for index, write in facts.writes.get(name, ()):
        number = write.version or told_by_reads.get(write.id)
        if number is not None:
            numbered.append((number, write.id, index, write))
        elif facts.history[index].outcome == "ok" or write.id in told_by_reads:
            raise ValueError(f"T{index}: the write {write.id} of {name} has no version; puts and deletes need one")
    versions = Versions()
    for _, _, index, write in sorted(numbered):
        versions.add(index, write)
    return versions


def _contradictions(facts: Facts, name: str) -> Iterator[Anomaly]:
    """Two writes with one version, or one write with two."""
    by_number: dict[int, int] = {}
    by_write: dict[int, int] = {}
    writes = [(index, write.id, write.version) for index, write in facts.writes.get(name, ())]
    reads = [(index, read.seen[-1], read.version) for index, read in facts.reads.get(name, ()) if read.seen]
    for index, written, number in writes + reads:
        if number is None or written not in facts.wrote:
            continue
        other = by_number.setdefault(number, written)
        if other != written or by_write.setdefault(written, number) != number:
            shown = (index, facts.wrote[other][0], facts.wrote[written][0])
            text = "\n".join(f"  {told(facts.history, each, {name})}" for each in dict.fromkeys(shown))
            yield Anomaly(Kind.VERSIONS, text, shown)
            return


@dataclass(slots=True)
class _Lists:
    """All lists of ids an object is known to have held: read, or written on top of what was read."""

    known: set[tuple[int, ...]]
    holders: dict[tuple[int, ...], int]
    longest: tuple[int, ...]


def _lists(facts: Facts, name: str) -> _Lists:
    holders: dict[tuple[int, ...], int] = {}
    for index, read in facts.reads.get(name, ()):
        holders.setdefault(read.seen, index)
    for index, write in facts.writes.get(name, ()):
        for read in facts.history[index].reads:
            if read.object == name:
                holders.setdefault((*read.seen, write.id), index)
                break
    return _Lists(set(holders), holders, max(holders, key=len, default=()))


def _by_lists(facts: Facts, name: str, anomalies: list[Anomaly]) -> Versions:
    lists = _lists(facts, name)
    anomalies += _forks(facts, name, lists)
    listed = {each for known in lists.known for each in known}
    hidden = [(index, write) for index, write in facts.writes.get(name, ()) if write.id not in listed]
    anomalies += _gone(facts, name, hidden)
    versions = Versions()
    for each in dict.fromkeys(lists.longest):
        if each in facts.wrote:
            versions.add(*facts.wrote[each])
    for index, write in sorted(hidden, key=lambda pair: facts.history[pair[0]].end):
        versions.add(index, write)
    return versions


def _forks(facts: Facts, name: str, lists: _Lists) -> Iterator[Anomaly]:
    """The first list that is no beginning of the longest one."""
    for known in sorted(lists.known, key=len):
        if known != lists.longest[: len(known)]:
            at = next(i for i, (a, b) in enumerate(zip(known, lists.longest, strict=False)) if a != b)
            kind, shown = _name_fork(facts, name, (known[at], lists.longest[at]), known[:at])
            shown += [lists.holders[known], lists.holders[lists.longest]]
            lines = [
                f"  {name} = {[*known[max(0, at - 1) :]]} and {[*lists.longest[max(0, at - 1) :]]} from place {at}"
            ]
            lines += [f"  {told(facts.history, each, {name})}" for each in dict.fromkeys(shown)]
            yield Anomaly(kind, "\n".join(lines), tuple(dict.fromkeys(shown)))
            return


def _name_fork(facts: Facts, name: str, ids: Iterable[int], before: tuple[int, ...]) -> tuple[Kind, list[int]]:
    writers = [facts.wrote[each][0] for each in ids if each in facts.wrote]
    both = [each for each in writers if any(r.object == name and r.seen == before for r in facts.history[each].reads)]
    if len(both) < 2:
        return Kind.INCOMPATIBLE, writers
    first, second = (facts.history[each] for each in both)
    apart = (first.end < second.start and first.outcome == "ok") or (
        second.end < first.start and second.outcome == "ok"
    )
    return (Kind.LOST_WRITE if apart else Kind.LOST_UPDATE), writers


def _gone(facts: Facts, name: str, hidden: Iterable[tuple[int, Write]]) -> Iterator[Anomaly]:
    """The first acknowledged append that no list holds though one was read afterwards."""
    for index, write in hidden:
        writer = facts.history[index]
        later = [reader for reader, _ in facts.reads.get(name, ()) if facts.history[reader].start > writer.end]
        if later and writer.outcome == "ok":
            shown = (index, min(later, key=lambda each: facts.history[each].start))
            lines = [f"  id {write.id} in no list of {name}"]
            lines += [f"  {told(facts.history, each, {name})}" for each in shown]
            yield Anomaly(Kind.LOST_WRITE, "\n".join(lines), shown)
            return
