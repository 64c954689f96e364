"""Ids for new entities: sequential or scattered, never the same one twice.

Each project has a counter for each kind of id, a row of table `ids` changed only by compare-and-set. A process takes
a block of counter values at a time; what it has not used when it ends is skipped. Scattered ids are the counter's
bits reversed, so that neighbours in time lie far apart in the key space. Source of the two ranges: the SDK's stub.
"""

import random
import threading
import time

from adapters.contract import ABSENT, OrderedStore, Write
from adapters.errors import Conflict
from pbserver.datastore.errors import BadRequest, Timeout
from pbserver.datastore.keys import project_of
from pbserver.datastore.tables import counter_address

MAX_SEQUENTIAL_ID = (1 << 52) - 1
MAX_SCATTERED_COUNTER = (1 << 51) - 1

SEQUENTIAL = b"sequential"
SCATTERED = b"scattered"


def scatter(counter: int) -> int:
    """The scattered id of a counter value: 2**52 and above, still exact in a double. Raises BadRequest at the end."""
    if counter >= MAX_SCATTERED_COUNTER:
        raise BadRequest(f"all {MAX_SCATTERED_COUNTER} scattered ids are used up")
    return MAX_SEQUENTIAL_ID + 1 + int(f"{counter:051b}"[::-1], 2)


def unscatter(identifier: int) -> int | None:
    """The counter value a scattered id came from; None for an id of the other range."""
    if not MAX_SEQUENTIAL_ID < identifier <= MAX_SEQUENTIAL_ID + 1 + MAX_SCATTERED_COUNTER:
        return None
    return int(f"{identifier - MAX_SEQUENTIAL_ID - 1:051b}"[::-1], 2)


class Ids:
    """Thread-safe; one per process. `block`: how many ids a process takes at once (1: strictly in sequence)."""

    def __init__(self, store: OrderedStore, *, block: int) -> None:
        self._store = store
        self._block = block
        self._lock = threading.Lock()
        self._blocks: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    def next(self, part: bytes, policy: bytes, *, deadline: float) -> int:
        """A fresh id for an entity of partition `part`."""
        name = (project_of(part), policy)
        with self._lock:
            start, stop = self._blocks.get(name, (0, 0))
            if start == stop:
                start, stop = self._advance(*name, self._block, 0, deadline)
            self._blocks[name] = (start + 1, stop)
        return start if policy == SEQUENTIAL else scatter(start)

    def allocate(self, part: bytes, size: int, *, deadline: float) -> tuple[int, int]:
        """A range of `size` sequential ids nobody else gets: first and last."""
        if size <= 0:
            raise BadRequest("Size must be greater than 0.")
        start, stop = self._advance(project_of(part), SEQUENTIAL, size, 0, deadline)
        return start, stop - 1

    def allocate_up_to(self, part: bytes, maximum: int, *, deadline: float) -> tuple[int, int]:
        """All sequential ids up to `maximum` that are still free: first and last (last < first: none were)."""
        if maximum < 0:
            raise BadRequest("Max must be greater than or equal to 0.")
        start, stop = self._advance(project_of(part), SEQUENTIAL, 0, maximum + 1, deadline)
        return start, stop - 1

    def reserve(self, part: bytes, identifier: int, *, deadline: float) -> None:
        """Makes sure that `identifier` is never given out."""
        counter = unscatter(identifier)
        if counter is not None:
            self._advance(project_of(part), SCATTERED, 0, counter + 1, deadline)
        elif 0 < identifier <= MAX_SEQUENTIAL_ID:
            self._advance(project_of(part), SEQUENTIAL, 0, identifier + 1, deadline)

    def forget(self) -> None:
        """Drops the blocks taken: after the store was emptied they would skip ids."""
        with self._lock:
            self._blocks.clear()

    def _advance(self, project: bytes, policy: bytes, size: int, at_least: int, deadline: float) -> tuple[int, int]:
        """Moves a counter on by `size`, or to `at_least` if it is not there yet: the values taken, half-open."""
        address = counter_address(project, policy)
        while True:
            current = self._store.read([address], deadline=deadline)[0]
            start = int.from_bytes(current, "big") if current else 1
            stop = max(start + size, at_least)
            if policy == SEQUENTIAL and stop > MAX_SEQUENTIAL_ID + 1:
                raise BadRequest(f"ids end at {MAX_SEQUENTIAL_ID}; {stop - start} more are asked for at {start}")
            if stop == start:
                return start, stop
            try:
                self._store.write(
                    [Write(address, stop.to_bytes(8, "big"), ABSENT if current is None else current)],
                    deadline=deadline,
                )
            except Conflict:
                if time.monotonic() > deadline:
                    raise Timeout("the id counter is contended; try again") from None
                time.sleep(random.uniform(0, 0.002))  # noqa: S311 - a back-off, not a secret
            else:
                return start, stop
