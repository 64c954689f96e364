"""What can be wrong with a history (names after Adya, and Elle where he has none), and how it is told to people."""

from dataclasses import dataclass
from enum import StrEnum

from tests.isolation.history import How, Read, Transaction, Write


class Kind(StrEnum):
    ABORTED_READ = "G1a: a read of what was never committed"
    INTERMEDIATE_READ = "G1b: a read of what its transaction replaced before it committed"
    PHANTOM = "phantom: a read of what nobody wrote there"
    DUPLICATE = "duplicate: one write is there twice"
    WRONG_VALUE = "wrong value: not what the write of this id stored"
    INCOMPATIBLE = "incompatible order: two reads of one object that cannot follow each other"
    LOST_UPDATE = "lost update: two transactions changed the same state of an object"
    LOST_WRITE = "lost write: acknowledged, and gone"
    VERSIONS = "versions: the server's own numbers contradict each other"
    DIRTY_WRITE = "G0: a cycle of writes"
    CIRCULAR_FLOW = "G1c: a cycle of writes and reads"
    READ_SKEW = "G-single: a cycle with one read of what was already overwritten"
    WRITE_SKEW = "G2: a cycle with several reads of what was already overwritten"
    READ_ONLY = "read-only anomaly: G2, seen by a transaction that writes nothing"
    STALE_READ = "stale read: of what was overwritten, and that acknowledged, before the read began"
    REAL_TIME = "real time: a cycle with transactions that ended before others began"
    ABSENCE = "absence: no delete explains why an object was not there"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`transactions`: their places in the history, those of a cycle in its order."""

    kind: Kind
    text: str
    transactions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind}\n{self.text}"


def told(history: list[Transaction], index: int, objects: set[str]) -> str:
    """A transaction in one line, with what it did to `objects` only."""
    it = history[index]
    did = [_read(read) for read in it.reads if read.object in objects]
    did += [_write(write) for write in it.writes if write.object in objects]
    rest = "" if it.outcome == "ok" else f", {it.outcome} {it.error}"
    return f"T{index} ({it.name}, client {it.client}, {it.start}..{it.end}{rest}): {', '.join(did) or 'nothing here'}"


def _read(read: Read) -> str:
    last = "absent" if not read.seen else f"..{read.seen[-1]} ({len(read.seen)} ids)"
    return f"read {read.object} = {last if len(read.seen) > 3 or not read.seen else [*read.seen]}"


def _write(write: Write) -> str:
    version = "" if write.version is None else f" as version {write.version}"
    return f"{'deleted' if write.how is How.DELETE else write.how} {write.object} by {write.id}{version}"
