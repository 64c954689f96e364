"""A history looked through once: who wrote what, which unknown outcomes turned out to be commits, and what single reads
already prove wrong.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.isolation.anomalies import Anomaly, Kind, told
from tests.isolation.history import History, How, Outcome, Read, Write


@dataclass(frozen=True, slots=True)
class Facts:
    """`wrote`: by id, the transaction and the write. `applied`: the transactions known to be committed.

    `reads` and `writes`: by object, (transaction, read or write); only writes that count, of applied transactions.
    `registers`: objects with puts and deletes. `doubtful`: by object, the starts of deletes whose outcome is unknown.
    """

    history: History
    wrote: dict[int, tuple[int, Write]]
    applied: frozenset[int]
    reads: dict[str, list[tuple[int, Read]]]
    writes: dict[str, list[tuple[int, Write]]]
    registers: frozenset[str]
    doubtful: dict[str, list[int]]


def collect(history: History) -> Facts:
    """Raises ValueError for a history that is none: an id used twice, an object with appends and puts."""
    wrote: dict[int, tuple[int, Write]] = {}
    hows: dict[str, set[bool]] = defaultdict(set)
    reads: dict[str, list[tuple[int, Read]]] = defaultdict(list)
    for index, transaction in enumerate(history):
        for write in transaction.writes:
            if write.id in wrote:
                raise ValueError(f"the id {write.id} is used twice: by T{wrote[write.id][0]} and T{index}")
            wrote[write.id] = (index, write)
            hows[write.object].add(write.how is How.APPEND)
        for read in transaction.reads:
            reads[read.object].append((index, read))
    mixed = [name for name, kinds in hows.items() if len(kinds) > 1]
    if mixed:
        raise ValueError(f"objects with appends and also puts or deletes: {mixed}")
    applied = _applied(history, wrote)
    writes: dict[str, list[tuple[int, Write]]] = defaultdict(list)
    for index in sorted(applied):
        for write in history[index].last_writes():
            writes[write.object].append((index, write))
    registers = frozenset(name for name, kinds in hows.items() if kinds == {False})
    return Facts(history, wrote, applied, reads, writes, registers, _doubtful(history))


def _applied(history: History, wrote: dict[int, tuple[int, Write]]) -> frozenset[int]:
    seen = {each for transaction in history for read in transaction.reads for each in read.seen}
    observed = {wrote[each][0] for each in seen if each in wrote}
    return frozenset(
        index
        for index, transaction in enumerate(history)
        if transaction.outcome is Outcome.OK or (transaction.outcome is Outcome.UNKNOWN and index in observed)
    )


def _doubtful(history: History) -> dict[str, list[int]]:
    starts: dict[str, list[int]] = defaultdict(list)
    for transaction in history:
        if transaction.outcome is Outcome.UNKNOWN:
            for write in transaction.writes:
                if write.how is How.DELETE:
                    starts[write.object].append(transaction.start)
    return starts


def is_doubtful(facts: Facts, index: int, read: Read) -> bool:
    """Whether a delete of unknown outcome may explain that a read found nothing."""
    end = facts.history[index].end
    return not read.seen and any(start <= end for start in facts.doubtful.get(read.object, ()))


def wrong_reads(facts: Facts) -> Iterator[Anomaly]:
    """G1a, G1b, phantoms, duplicates and wrong values: each once per object."""
    for name, reads in facts.reads.items():
        found: set[Kind] = set()
        for index, read in reads:
            for kind, culprit in _faults(facts, read):
                if kind not in found:
                    found.add(kind)
                    shown = [index, *([facts.wrote[culprit][0]] if culprit in facts.wrote else [])]
                    lines = [f"  id {culprit} in {name}", *(f"  {told(facts.history, each, {name})}" for each in shown)]
                    yield Anomaly(kind, "\n".join(lines), tuple(shown))


def _faults(facts: Facts, read: Read) -> Iterator[tuple[Kind, int]]:
    for each in read.seen:
        index, write = facts.wrote.get(each, (-1, None))
        if write is None or write.object != read.object or write.how is How.DELETE:
            yield Kind.PHANTOM, each
        elif facts.history[index].outcome is Outcome.FAIL:
            yield Kind.ABORTED_READ, each
        elif write not in facts.history[index].last_writes():
            yield Kind.INTERMEDIATE_READ, each
    if len(set(read.seen)) < len(read.seen):
        yield Kind.DUPLICATE, next(each for each in read.seen if read.seen.count(each) > 1)
    if read.seen and read.seen[-1] in facts.wrote:
        written = facts.wrote[read.seen[-1]][1].value
        if written is not None and written != read.value:
            yield Kind.WRONG_VALUE, read.seen[-1]
