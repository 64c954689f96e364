"""How entity groups are read and committed: one interface, whatever the store promises.

A group's head holds its slot, which grows with every commit; the slot is the version of everything the commit writes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol, TypeVar

from adapters.contract import Reader
from adapters.errors import StoreError
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.mutations import Mutation, Seen

Result = TypeVar("Result")


class Beside(Protocol):
    """How work is done beside the thread that answers a call."""

    def later(self, work: Callable[[], object]) -> bool:
        """Takes over what no client waits for; whether it does. It may fail, or never run all the same."""
        ...

    def at_once(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """Does several things side by side: their results, in order; the first error when all of them have ended."""
        ...


class InTurn:
    """The simplest way: one after the other, in the client's time."""

    def later(self, work: Callable[[], object]) -> bool:
        run_quietly(work)
        return True

    def at_once(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        ended = [carried_out(work) for work in works]
        return [each.result() for each in ended]


def carried_out(work: Callable[[], Result]) -> "Future[Result]":
    """Does the work now, and keeps what comes of it for later."""
    ended: Future[Result] = Future()
    try:
        ended.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
        ended.set_exception(error)
    return ended


def run_quietly(work: Callable[[], object]) -> None:
    """Does what may fail: whoever meets it does it then."""
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

    def get(self, work: Callable[[Reader], Result]) -> Result:
        """What `work` reads of entities: each is of a state of its own, none older than what any call has shown."""
        ...

    def read(self, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float) -> Result:
        """What `work` reads: of one state as far as `groups` go. It may be called several times."""
        ...

    def tend(self, *, deadline: float) -> None:
        """To be called every few seconds by one thread: finishes what this server, or one that died, has left."""
        ...


def slot_of(head: bytes | None) -> int:
    """The slot in a head's value; 0 for a group that was never written."""
    return int.from_bytes(head[:8], "big") if head else 0
