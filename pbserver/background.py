"""What a worker does beside answering calls.

Every worker finishes what commits leave for later; one of them forgets old sessions, and builds and removes composite
indexes.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from adapters.errors import StoreError
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.groups import run_now

_SWEEP_SECONDS = 60.0
_LOOK_SECONDS = 0.5  # between two looks for indexes to build
_STEP_SECONDS = 60.0
_PAUSE_SECONDS = 0.002  # between two batches, so that calls are not kept waiting
_MOST_WAITING = 10_000

log = structlog.get_logger()


class Later:
    """Does on a thread of its own what no client waits for (pbserver.datastore.groups.Later).

    What does not fit any more, or is left at the end, is dropped: whoever meets it does it then.
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="later", daemon=True)

    def __call__(self, work: Callable[[], object]) -> None:
        if not self._thread.is_alive():
            with suppress(RuntimeError):  # another call has started it
                self._thread.start()
        with suppress(queue.Full):
            self._waiting.put_nowait(work)

    def close(self) -> None:
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            run_now(work)


def background_threads(datastore: Datastore, closing: threading.Event) -> list[threading.Thread]:
    """The threads, not started yet. They end soon after `closing` is set."""
    return [
        threading.Thread(target=_sweep, args=(datastore, closing), name="sweeper", daemon=True),
        threading.Thread(target=_build, args=(datastore, closing), name="builder", daemon=True),
    ]


def _sweep(datastore: Datastore, closing: threading.Event) -> None:
    """Deletes forgotten transactions and query continuations, once a minute."""
    while not closing.wait(_SWEEP_SECONDS):
        try:
            deleted = datastore.sessions.sweep(deadline=time.monotonic() + _SWEEP_SECONDS)
        except StoreError as error:
            log.warning("sweeping sessions failed; it is tried again", error=str(error))
        else:
            log.debug("sessions swept", rows=deleted)


def _build(datastore: Datastore, closing: threading.Event) -> None:
    """Builds and removes indexes as soon as there are any to be built or removed."""
    builder = datastore.builder()
    while not closing.wait(_LOOK_SECONDS):
        try:
            for work in builder.unfinished(deadline=time.monotonic() + _STEP_SECONDS):
                log.info("working on a composite index", index=work.composite.id, state=work.composite.state.name)
                while builder.step(work, deadline=time.monotonic() + _STEP_SECONDS):
                    if closing.wait(_PAUSE_SECONDS):
                        return
        except (StoreError, DatastoreError) as error:
            log.warning("working on indexes failed; it is tried again", error=str(error))
