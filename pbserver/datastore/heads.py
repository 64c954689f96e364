"""The head of an entity group, and how it moves: the commit protocol's data for stores without multi-row transactions.

A head is 8 bytes of slot and, in such stores, a heads.Head. (slot, state) only ever moves forward, P -> C -> A or
P -> A, and no head is ever deleted: so no head comes back, and a compare-and-set that arrives late finds another one.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from google.protobuf.message import DecodeError

from adapters.contract import Address, Table, Write
from pbserver.datastore.errors import Internal
from protos.heads_pb2 import Head as Message

KEPT_COMMITS = 16  #: how many of its last commits a head remembers
_SLOT_BYTES = 8


class State(IntEnum):
    """COMMITTED: the rows of this slot may not be written yet. PREPARED: another group's head decides about them."""

    COMMITTED = 1
    APPLIED = 2
    PREPARED = 3


@dataclass(frozen=True, slots=True)
class Part:
    """Another group of the same commit, and the slot it has there."""

    group: bytes
    slot: int


@dataclass(frozen=True, slots=True)
class Primary:
    """Where a prepared commit is decided: in the head of this group, when it moves from `base` to `slot`."""

    group: bytes
    slot: int
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`rows` are the writes of this slot, `recent` the last commits as (slot, uid), the newest last; `dropped` is the
    highest slot that is no longer among them. `raw` is what the store holds (None: nothing).
    """

    slot: int = 0
    state: State = State.APPLIED
    uid: bytes = b""
    rows: tuple[Write, ...] = ()
    parts: tuple[Part, ...] = ()
    primary: Primary | None = None
    recent: tuple[tuple[int, bytes], ...] = ()
    dropped: int = 0
    raw: bytes | None = None

    def committed(self, slot: int, uid: bytes, rows: tuple[Write, ...], parts: tuple[Part, ...] = ()) -> "Head":
        """The head that makes a commit happen."""
        recent = (*self.recent, (slot, uid))
        kept, gone = recent[-KEPT_COMMITS:], recent[:-KEPT_COMMITS]
        return Head(
            slot=slot,
            state=State.COMMITTED,
            uid=uid,
            rows=rows,
            parts=parts,
            recent=kept,
            dropped=max([self.dropped, *(each for each, _ in gone)]),
        )

    def prepared(self, slot: int, uid: bytes, rows: tuple[Write, ...], primary: Primary) -> "Head":
        """The head of a commit that another head decides about."""
        return Head(
            slot=slot,
            state=State.PREPARED,
            uid=uid,
            rows=rows,
            primary=primary,
            recent=self.recent,
            dropped=self.dropped,
        )

    def decided(self) -> "Head":
        """A prepared head whose commit happened and whose rows are written."""
        return self.committed(self.slot, self.uid, ()).applied()

    def applied(self) -> "Head":
        """The same, all rows written."""
        return replace(self, state=State.APPLIED, rows=(), parts=(), primary=None, raw=None)

    def emptied(self, slot: int) -> "Head":
        """A slot used up by nothing: what was prepared for it, or is on its way to it, can never happen."""
        return Head(slot=slot, recent=self.recent, dropped=self.dropped)

    def has_committed(self, uid: bytes) -> bool:
        return any(each == uid for _, each in self.recent)


def encode(head: Head) -> bytes:
    message = Message(state=int(head.state), dropped=head.dropped)  # type: ignore[arg-type]
    if head.uid:
        message.uid = head.uid
    for write in head.rows:
        address = write.address
        row = message.row.add(table=address.table.value, scope=address.scope, place=address.place, key=address.key)
        if write.value is not None:
            row.value = write.value
    for part in head.parts:
        message.part.add(group=part.group, slot=part.slot)
    if head.primary is not None:
        message.primary.group = head.primary.group
        message.primary.slot = head.primary.slot
        message.primary.base = head.primary.base
    for slot, uid in head.recent:
        message.recent.add(slot=slot, uid=uid)
    return head.slot.to_bytes(_SLOT_BYTES, "big") + message.SerializeToString()


def decode(raw: bytes | None) -> Head:
    """Raises Internal for what is no head."""
    if raw is None:
        return Head()
    try:
        return _decoded(raw)
    except (DecodeError, ValueError) as error:
        raise Internal("the head of an entity group cannot be read; run a verification of the store") from error


def _decoded(raw: bytes) -> Head:
    if len(raw) < _SLOT_BYTES:
        raise ValueError(f"{len(raw)} bytes are no slot")
    slot = int.from_bytes(raw[:_SLOT_BYTES], "big")
    message = Message.FromString(raw[_SLOT_BYTES:])
    rows = tuple(
        Write(
            Address(Table(row.table), row.scope, row.place, row.key),
            row.value if row.HasField("value") else None,
            version=slot,
        )
        for row in message.row
    )
    primary = message.primary
    return Head(
        slot=slot,
        state=State(message.state),
        uid=message.uid,
        rows=rows,
        parts=tuple(Part(each.group, each.slot) for each in message.part),
        primary=Primary(primary.group, primary.slot, primary.base) if message.HasField("primary") else None,
        recent=tuple((each.slot, each.uid) for each in message.recent),
        dropped=message.dropped,
        raw=raw,
    )


def as_stored(head: Head) -> Head:
    """The head as it is read back after it was written."""
    return replace(head, raw=encode(head))


class Outcome(IntEnum):
    """What became of an attempt to move a head."""

    OPEN = 0  #: nothing is decided: the same attempt may be made again
    WON = 1
    LOST = 2  #: and it can never happen any more
    UNKNOWN = 3  #: too many commits went by to tell


def outcome(old: Head, new: Head, found: Head) -> Outcome:
    """What became of the move from `old` to `new`, when the head is `found` afterwards."""
    if new.uid and found.slot == new.slot and found.uid == new.uid and _has_reached(found.state, new.state):
        return Outcome.WON
    if found.slot < old.slot or _still_stands(old, found):
        return Outcome.OPEN
    if not new.uid:
        return Outcome.WON  # only that `old` is gone was wanted
    if found.has_committed(new.uid):
        return Outcome.WON
    return Outcome.LOST if new.slot > found.dropped else Outcome.UNKNOWN


_ORDER = {State.PREPARED: 0, State.COMMITTED: 1, State.APPLIED: 2}


def _has_reached(found: State, wanted: State) -> bool:
    return _ORDER[found] >= _ORDER[wanted]


def _still_stands(old: Head, found: Head) -> bool:
    """Whether the head is the old one, or the old commit marked as applied, from which one may go on alike."""
    if found.slot != old.slot or found.uid != old.uid:
        return False
    return found.state is old.state or (old.state is State.COMMITTED and found.state is State.APPLIED)
