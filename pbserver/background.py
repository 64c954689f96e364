"""What a worker does beside answering calls.

Every worker finishes what commits leave for later, and what workers that died have left; one of them forgets old
sessions, and builds and removes composite indexes.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

import structlog

from adapters.errors import StoreError
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.groups import Result, carried_out, run_quietly

_SWEEP_SECONDS = 60.0
_LOOK_SECONDS = 0.5  # between two looks for indexes to build
_STEP_SECONDS = 60.0
_PAUSE_SECONDS = 0.002  # between two batches, so that calls are not kept waiting
_TEND_SECONDS = 5.0
_CLEAR_SECONDS = 3600.0
_CLEAR_PAUSE_SECONDS = 0.01  # between two scopes
_MOST_WAITING = 10_000
_CLOSE_SECONDS = 5.0
_THREADS = 8

log = structlog.get_logger()


class Hands:
    """Threads for what is done beside answering calls (pbserver.datastore.groups.Beside).

    Work for later has one thread and a queue. What does not fit there is refused; what is left at the end is dropped:
    whoever meets it does it then.
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="later", daemon=True)
        self._pool: ThreadPoolExecutor | None = None  # made when it is needed, which is never on most stores
        self._lock = threading.Lock()

    def later(self, work: Callable[[], object]) -> bool:
        if self._thread.ident is None:
            with self._lock:
                if self._thread.ident is None:
                    self._thread.start()
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            return False
        return True

    def at_once(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """The caller takes part: what no other thread has begun when he is done with the first, he does himself."""
        if len(works) < 2:
            return [work() for work in works]
        first, *others = works
        pool = self._threads()
        others_ended = [pool.submit(work) for work in others]
        ended = [carried_out(first)]
        for work, other in zip(others, others_ended, strict=True):
            ended.append(carried_out(work) if other.cancel() else other)
        wait(ended)
        return [each.result() for each in ended]

    def close(self) -> None:
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_CLOSE_SECONDS)
            self._thread.join(_CLOSE_SECONDS)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="beside")
            return self._pool

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            run_quietly(work)


def background_threads(datastore: Datastore, closing: threading.Event, *, first: bool) -> list[threading.Thread]:
    """The threads, not started yet; more of them in the first worker. They end soon after `closing` is set."""
    tender = threading.Thread(target=_tend, args=(datastore, closing), name="tender", daemon=True)
    of_each = [] if datastore.steady else [tender]
    if not first:
        return of_each
    return [
        *of_each,
        threading.Thread(target=_sweep, args=(datastore, closing), name="sweeper", daemon=True),
        *(
            [threading.Thread(target=_clear, args=(datastore, closing), name="clearer", daemon=True)]
            * datastore.is_swept
        ),
        threading.Thread(target=_build, args=(datastore, closing), name="builder", daemon=True),
    ]


def _tend(datastore: Datastore, closing: threading.Event) -> None:
    """Finishes commits that were left unfinished."""
    while not closing.wait(_TEND_SECONDS):
        try:
            datastore.tend(deadline=time.monotonic() + _STEP_SECONDS)
        except (StoreError, DatastoreError) as error:
            log.warning("finishing what was left of commits failed; it is tried again", error=str(error))


def _sweep(datastore: Datastore, closing: threading.Event) -> None:
    """Deletes forgotten transactions and query continuations, once a minute."""
    while not closing.wait(_SWEEP_SECONDS):
        try:
            deleted = datastore.sessions.sweep(deadline=time.monotonic() + _SWEEP_SECONDS)
        except StoreError as error:
            log.warning("sweeping sessions failed; it is tried again", error=str(error))
        else:
            log.debug("sessions swept", rows=deleted)


def _clear(datastore: Datastore, closing: threading.Event) -> None:
    """Removes what layers have left behind, once an hour, scope by scope."""
    while not closing.wait(_CLEAR_SECONDS):
        try:
            removed = datastore.sweep_layers(_STEP_SECONDS, lambda: closing.wait(_CLEAR_PAUSE_SECONDS))
        except (StoreError, DatastoreError) as error:
            log.warning("clearing what layers left behind failed; it is tried again", error=str(error))
        else:
            log.debug("what layers left behind is cleared", rows=removed)


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
