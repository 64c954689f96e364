"""What a process remembers of entity groups it has met, so that the next commit on one needs fewer round trips."""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from adapters.contract import Address
from pbserver.datastore import catalog
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.heads import Head, State

MOST_BYTES = 16 << 20
_LARGEST_BYTES = 16 << 10  # of a head, and of a group's entities; of what is larger only the slot is kept
_ENTRY_BYTES = 500  # what an entry takes beside its values
_INDEXES_SECONDS = 5.0


class _Entry(NamedTuple):
    head: Head
    stored: Mapping[Address, bytes | None]
    size: int


class Remembered:
    """The newest heads this process knows to be written to the end, and entities as its own commits left them.

    Both may be old: a compare-and-set from such a head succeeds only if nothing has changed since, entities included.
    Thread-safe. `most_bytes=0`: nothing is remembered, since somebody else may drop the store's tables.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def add(self, group: bytes, head: Head, stored: Mapping[Address, bytes | None] | None = None) -> None:
        """Remembers a head as the store holds it (`raw`); of one commit, the entities of the first time are kept."""
        with self._lock:
            known = self._entries.get(group)
            if known is not None and _age(head) < _age(known.head):
                return
            if stored is None:
                stored = known.stored if known is not None and known.head.slot == head.slot else {}
            self._forget(group)
            entry = _entry(group, head, stored)
            self._entries[group] = entry
            self._bytes += entry.size
            while self._bytes > self._most_bytes:
                self._forget(next(iter(self._entries)))

    def _forget(self, group: bytes) -> None:
        entry = self._entries.pop(group, None)
        if entry is not None:
            self._bytes -= entry.size

    def has(self, group: bytes, slot: int) -> bool:
        """Whether the commit that took a slot is written to the end."""
        with self._lock:
            entry = self._entries.get(group)
            return entry is not None and entry.head.slot == slot

    def slot(self, group: bytes) -> int | None:
        """The slot of the newest commit that is known to be written to the end; None when none is."""
        with self._lock:
            entry = self._entries.get(group)
            if entry is None:
                return None
            self._entries.move_to_end(group)
            return entry.head.slot

    def head(self, group: bytes) -> Head | None:
        """The head from which a commit may go on without looking; None when it is not known."""
        with self._lock:
            entry = self._entries.get(group)
            if entry is None or entry.head.raw is None:
                return None
            self._entries.move_to_end(group)
            return entry.head

    def stored(self, group: bytes, slot: int, wanted: Sequence[Address]) -> list[bytes | None] | None:
        """What stands at addresses of a group when it is at its slot; None unless all of them are known."""
        with self._lock:
            entry = self._entries.get(group)
            if entry is None or entry.head.slot != slot or not all(each in entry.stored for each in wanted):
                return None
            return [entry.stored[each] for each in wanted]


def _age(head: Head) -> tuple[int, bool]:
    return head.slot, head.state is State.APPLIED


def _entry(group: bytes, head: Head, stored: Mapping[Address, bytes | None]) -> _Entry:
    if len(head.raw or b"") > _LARGEST_BYTES:
        head = Head(slot=head.slot)
    size = sum(len(value or b"") + _ENTRY_BYTES for value in stored.values())
    if size > _LARGEST_BYTES:
        stored, size = {}, 0
    return _Entry(head, stored, size + 2 * len(head.raw or b"") + len(group) + _ENTRY_BYTES)


class RememberedIndexes:
    """The composite indexes of projects, as they were a few seconds ago. Thread-safe."""

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember
        self._known: dict[bytes, tuple[Indexes, float]] = {}

    def of(self, projects: Sequence[bytes]) -> tuple[dict[bytes, Indexes], float]:
        """The indexes of those projects that are known, and the time since when all of it may be old."""
        now = time.monotonic()
        found = {}
        since = now
        for project in projects:
            indexes, read = self._known.get(project, (None, 0.0))
            if indexes is not None and now - read < _INDEXES_SECONDS:
                found[project] = indexes
                since = min(since, read)
        return found, since

    def add(self, rows: Mapping[bytes, bytes | None], since: float) -> dict[bytes, Indexes]:
        """What catalog rows say that were read after `since`."""
        found = {project: catalog.parse(row) for project, row in rows.items()}
        if self._remember:
            self._known.update((project, (indexes, since)) for project, indexes in found.items())
        return found
