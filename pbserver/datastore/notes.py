"""Notes of what a server may leave unfinished, so that others find it when the server has died.

Before a server moves a group's head, it notes the group under its own name (table `unfinished`). Groups it has not
used for a while it looks at once more, finishes, and takes from its notes. Every server shows that it is alive by a
row of its own, the beat. When a beat has stood still for DEAD_SECONDS, the others finish what that server has noted:
they move each head on, so that nothing on its way to it can happen any more, and then take the note away.

That server may only have been asleep. Before a head is moved, its group is noted, and afterwards, when the head to
start from is known, the last beat is not older than LEASE_SECONDS: so nobody had taken away the note when that head
was read, and whoever does so later moves the head. A server whose beat is older notes everything anew.

Notes carry versions, those of their own server even numbers, so that a delete that arrives late takes no newer note.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from adapters.contract import Address, KeyRange, OrderedStore, Reader, Table, Write
from adapters.errors import Applied, StoreError
from pbserver.datastore.errors import Timeout
from pbserver.datastore.head_store import HeadStore
from pbserver.datastore.heads import State
from pbserver.datastore.scanning import meta_rows
from pbserver.datastore.tables import meta_address, note_address

IDLE_SECONDS = 30.0  #: how long a group is not used before its note is taken away
BEAT_SECONDS = 10.0
LEASE_SECONDS = 30.0
DEAD_SECONDS = 60.0  #: twice the lease: clocks may run differently, but not so much
FORGOTTEN_SECONDS = 7 * 86_400.0  #: after which a server without notes does not come back; above every horizon
_AT_ONCE = 100  # groups looked at, and notes taken away, with one call
_PAUSE_SECONDS = 0.05  # between two such calls
_BEAT = "server"
_VALUE_BYTES = 8


@dataclass(slots=True)
class _Note:
    used: float = 0.0
    holders: int = 0
    written: bool = False
    doubted: bool = False  #: nobody knows whether a commit is still on its way


class Notes:
    """What this server has noted, and its sign of life. Thread-safe."""

    def __init__(self, store: OrderedStore, heads: HeadStore) -> None:
        self._store = store
        self._heads = heads
        self._server = os.urandom(16).hex().encode()
        self._notes: dict[bytes, _Note] = {}
        self._version = 0
        self._beaten = -DEAD_SECONDS  #: when the last beat was sent that was written
        self._distrusted = 0  #: how often the notes were given up
        self._lock = Lock()
        self._others = _Others(store, heads, self._server)

    @contextmanager
    def held(self, groups: Collection[bytes]) -> Iterator[None]:
        """Inside, the groups are in use: what was noted of them stays noted."""
        with self._lock:
            for group in groups:
                self._notes.setdefault(group, _Note()).holders += 1
        try:
            yield
        except (Timeout, StoreError):
            self.doubt(groups)
            raise
        finally:
            now = time.monotonic()
            with self._lock:
                for group in groups:
                    note = self._notes[group]
                    note.used = now
                    note.holders -= 1

    def missing(self, groups: Iterable[bytes]) -> list[bytes]:
        """Which of the groups in use are not noted, as far as is known: their heads must not be moved."""
        with self._lock:
            if time.monotonic() - self._beaten > LEASE_SECONDS:
                self._trust_nothing()
            return [group for group in groups if not self._notes[group].written]

    def write(self, groups: Collection[bytes], deadline: float) -> None:
        """Notes groups in use. Raises Unavailable; nothing of a commit has happened then."""
        try:
            if time.monotonic() - self._beaten > LEASE_SECONDS:
                self._beat(deadline)
            with self._lock:  # after the beat: what others have taken away before it had lower versions
                version = self._next_version()
                distrusted = self._distrusted
            value = version.to_bytes(_VALUE_BYTES, "big")
            self._store.write(
                [Write(note_address(self._server, group), value, version=version) for group in groups],
                deadline=deadline,
            )
        except StoreError as error:
            raise error.restated(Applied.NO) from error
        with self._lock:
            for group in groups:
                self._notes[group].written = distrusted == self._distrusted

    def _trust_nothing(self) -> None:
        self._distrusted += 1
        for note in self._notes.values():
            note.written = False

    def doubt(self, groups: Iterable[bytes]) -> None:
        """A commit of groups in use has ended, and nobody knows how."""
        with self._lock:
            for group in groups:
                self._notes[group].doubted = True

    def tend(self, deadline: float) -> None:
        """To be called every few seconds by one thread."""
        if self._notes and time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beat(deadline)
        for version, idle in self._idle():
            self._tidy(version, idle, deadline)
            time.sleep(_PAUSE_SECONDS)
        self._others.tend(deadline)

    def _beat(self, deadline: float) -> None:
        now = time.monotonic()
        self._store.write([Write(_beat_address(self._server), b"%d" % time.time_ns())], deadline=deadline)
        with self._lock:
            if now - self._beaten > LEASE_SECONDS:
                self._trust_nothing()
            self._beaten = max(now, self._beaten)

    def _next_version(self) -> int:
        """With the lock held: a note that is written later has a higher version."""
        self._version += 2
        return self._version

    def _idle(self) -> Iterator[tuple[int, dict[bytes, _Note]]]:
        """Groups not used for a while, some at a time, no longer taken for noted; and the version of their delete."""
        while True:
            before = time.monotonic() - IDLE_SECONDS
            with self._lock:
                found = (each for each in self._notes.items() if not each[1].holders and each[1].used <= before)
                idle = dict(islice(found, _AT_ONCE))
                for group in idle:
                    del self._notes[group]
                version = self._next_version()
            if not idle:
                return
            yield version, idle

    def _tidy(self, version: int, idle: dict[bytes, _Note], deadline: float) -> None:
        """Finishes idle groups, then takes them from the notes; a group noted again meanwhile keeps its note."""
        try:
            for group, head in self._heads.resolve(idle, deadline, settle=True).items():
                if idle[group].doubted:
                    self._heads.fence(group, head, deadline)
                elif head.state is State.COMMITTED and not self._heads.mark_applied(group, head):
                    self._take_back({group: idle.pop(group)})
            deletes = [Write(note_address(self._server, group), None, version=version) for group in idle]
            if deletes:
                self._store.write(deletes, deadline=deadline)
        except BaseException:
            self._take_back(idle)
            raise

    def _take_back(self, idle: dict[bytes, _Note]) -> None:
        """Groups that could not be finished: it is tried again when they are idle again."""
        with self._lock:
            for group, note in idle.items():
                again = self._notes.setdefault(group, _Note(time.monotonic()))
                again.doubted = again.doubted or note.doubted


class _Others:
    """The other servers, as far as they have died. For one thread."""

    def __init__(self, store: OrderedStore, heads: HeadStore, server: bytes) -> None:
        self._store = store
        self._heads = heads
        self._server = server
        self._seen: dict[bytes, tuple[bytes, float]] = {}  #: the beat of each, and when it was seen first

    def tend(self, deadline: float) -> None:
        """Looks at the beats; finishes what servers that have died have noted, 100 groups at a time.

        The beat is read once more after the notes: so they stem from before the server came back, if it does. Then it
        writes them anew, with versions that a delete of the old ones does not touch.
        """
        beats = servers(self._store, deadline=deadline)
        beats.pop(self._server, None)
        now = time.monotonic()
        self._seen = {
            server: seen if (seen := self._seen.get(server)) is not None and seen[0] == beat else (beat, now)
            for server, beat in beats.items()
        }
        for server, (beat, since) in self._seen.items():
            if now - since < DEAD_SECONDS:
                continue
            while notes := self._noted(server, deadline):
                (now_beat,) = self._store.read([_beat_address(server)], deadline=deadline, settle=True)
                if now_beat != beat:
                    break  # it has come back; what it has noted since then is its own
                self._finish(server, notes, deadline)
                time.sleep(_PAUSE_SECONDS)
            if time.time_ns() - int(beat) > FORGOTTEN_SECONDS * 1e9:
                self._store.write([Write(_beat_address(server), None)], deadline=deadline)

    def _noted(self, server: bytes, deadline: float) -> dict[bytes, int]:
        """Some of a server's notes: groups, and the versions of their notes."""
        page = self._store.scan(
            Table.UNFINISHED, note_address(server, b"").scope, KeyRange(), limit=_AT_ONCE, deadline=deadline
        )
        return {group: int.from_bytes(value, "big") for group, value in page}

    def _finish(self, server: bytes, notes: dict[bytes, int], deadline: float) -> None:
        resolved = self._heads.resolve(notes, deadline)
        for group, head in resolved.items():
            self._heads.fence(group, head, deadline)
        self._store.write(
            [Write(note_address(server, group), None, version=version + 1) for group, version in notes.items()],
            deadline=deadline,
        )


def servers(reader: Reader, *, deadline: float) -> dict[bytes, bytes]:
    """The beats of all servers that may have notes, by the scope of their notes."""
    return dict(meta_rows(reader, _BEAT, deadline=deadline))


def _beat_address(server: bytes) -> Address:
    return meta_address(_BEAT, server)
