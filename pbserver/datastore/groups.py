"""How entity groups are read and committed: one interface, whatever the store promises.

A group's head holds its slot, which grows with every commit; the slot is the version of everything the commit writes.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from adapters.contract import Reader
from adapters.errors import StoreError
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.mutations import Mutation, Seen

Result = TypeVar("Result")

#: Runs a piece of work that no client waits for; it may fail, or never run: whoever comes next does it then.
Later = Callable[[Callable[[], object]], None]


def run_now(work: Callable[[], object]) -> None:
    """The simplest Later: at once, in the client's time."""
    with suppress(StoreError, DatastoreError):
        work()


class Groups(Protocol):
    """Thread-safe; one per process. `steady`: all that read() and view() show is of one state, index rows as well."""

    steady: bool

    def commit(self, mutations: Iterable[Mutation], seen: Seen, *, deadline: float) -> int:
        """All of the mutations or none, if no group in `seen` has moved; returns the highest slot given to a group.

        Raises ConcurrentTransaction (nothing was applied), IdInUse, BadRequest, and Timeout when the outcome is not
        known.
        """
        ...

    def put(self, mutations: Iterable[Mutation], *, deadline: float) -> int:
        """The mutations of each group, independent of those of the others. Raises like commit()."""
        ...

    def view(
        self, seen: Seen, joined: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float
    ) -> tuple[Result, dict[bytes, int]]:
        """What `work` reads of groups, all of it of one state, and the slots of the groups `joined` in that state.

        Raises ConcurrentTransaction when a group in `seen` is no longer at its slot.
        """
        ...

    def read(self, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float) -> Result:
        """What `work` reads: of one state as far as `groups` go. It may be called several times."""
        ...


def slot_of(head: bytes | None) -> int:
    """The slot in a head's value; 0 for a group that was never written."""
    return int.from_bytes(head[:8], "big") if head else 0
