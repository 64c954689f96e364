"""Keeps threads off a memory map while it is replaced.

LMDB forbids changing the map's size while this process has any transaction open. A lock around every read would cost
more than the read, so each thread owns a counter instead: it raises it, then looks whether the gate is shut. Whoever
wants to change the map shuts the gate, then waits until all counters are zero. Python's interpreter lock orders the
two stores and the two loads, so one side always sees the other.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from adapters.errors import StoreError, Unavailable

POLL_SECONDS = 0.0002


class Slot:
    """How many transactions one thread holds open. Only that thread changes it."""

    __slots__ = ("__weakref__", "busy")

    def __init__(self) -> None:
        self.busy = 0


class _Threads(threading.local):
    def __init__(self, register: Callable[[], Slot]) -> None:
        self.slot = register()


class Gate:
    """Use: `slot = gate.threads.slot; slot.busy += 1; if gate.shut: gate.wait(slot, deadline)`, later `busy -= 1`."""

    def __init__(self) -> None:
        self.shut = False
        self._refusal: StoreError | None = None
        self._slots: list[weakref.ref[Slot]] = []
        self._registry = threading.Lock()
        self._changing = threading.Lock()
        self._opened = threading.Event()
        self.threads = _Threads(self._register)

    def wait(self, slot: Slot, deadline: float) -> None:
        """Steps back until the gate opens; returns with `slot.busy` as it was.

        A thread that holds another transaction goes on: the gate's owner is waiting for it, never the reverse.
        """
        if self._refusal is not None:
            raise self._refusal
        if slot.busy > 1:
            return
        while self.shut:
            slot.busy = 0
            opened = self._opened.wait(max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX)))
            slot.busy = 1
            if self._refusal is not None:
                raise self._refusal
            if not opened:
                raise Unavailable("the deadline passed while the database's map was growing")

    @contextmanager
    def alone(self, deadline: float) -> Iterator[None]:
        """No thread of this process is inside a transaction in the body. The caller must hold none itself."""
        if not self._changing.acquire(timeout=max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX))):
            raise Unavailable("the deadline passed while another thread was growing the database's map")
        with self._shut():
            self._wait_for_idle(deadline)
            yield

    @contextmanager
    def entries_stopped(self) -> Iterator[None]:
        """Nobody enters during the body; who is inside goes on. The caller may be inside itself.

        Whoever has shut the gate already waits for the caller to leave, so it stays shut without being asked.
        """
        with self._shut() if self._changing.acquire(blocking=False) else nullcontext():
            yield

    def refuse(self, refusal: StoreError) -> None:
        """From now on every entry raises `refusal`. Takes no lock, so it may be called in a forked child."""
        self._refusal = refusal
        self.shut = True
        self._opened.set()

    @contextmanager
    def _shut(self) -> Iterator[None]:
        """The caller has taken `_changing`, which is free again afterwards."""
        try:
            self._opened.clear()
            self.shut = True
            yield
        finally:
            self.shut = self._refusal is not None
            self._opened.set()
            self._changing.release()

    def _register(self) -> Slot:
        slot = Slot()
        with self._registry:
            self._slots = [ref for ref in self._slots if ref() is not None]
            self._slots.append(weakref.ref(slot))
        return slot

    def _wait_for_idle(self, deadline: float) -> None:
        with self._registry:
            slots = list(self._slots)
        for ref in slots:
            while (slot := ref()) is not None and slot.busy:
                if time.monotonic() > deadline:
                    raise Unavailable("the map must grow, but a snapshot has been held open until the deadline")
                time.sleep(POLL_SECONDS)
