"""Which of the server's threads waits for the next event: one leads, the others are parked.

Threads that wait side by side are all woken by a burst of requests, and then wait for one another at the interpreter's
lock: with nine of them a short call cost half as much again, and some calls came 20 ms late. So the leader answers
short calls itself, one after another. Before a call that may take long it hands the lead over (`hand_over`), and goes
to the parked threads when it is done. If a call takes long without that, the deputy, the first of those parked, notices
after PATIENCE_SECONDS and takes the lead from it.
"""

import threading
import time

PATIENCE_SECONDS = 0.02


class Duty:
    """One thread's part. `busy_since` is when it began with its present event; 0: it waits for one."""

    __slots__ = ("busy_since", "leads")

    def __init__(self) -> None:
        self.leads = False
        self.busy_since = 0.0


class Watch:
    """The lead, and who has it. Two threads may lead for a moment, which does no harm; never none for long."""

    def __init__(self) -> None:
        self._seat = threading.Lock()  # held on behalf of the leader, whoever that is
        self._deputy = threading.Lock()
        self._change = threading.Lock()
        self._leader: Duty | None = None
        self._local = threading.local()

    def duty(self) -> Duty:
        """The calling thread's part; once per thread."""
        duty: Duty = Duty()
        self._local.duty = duty
        return duty

    def lead(self, duty: Duty) -> None:
        """Returns when the calling thread leads."""
        with self._deputy:
            while not self._seat.acquire(timeout=PATIENCE_SECONDS):
                if self._take_over(duty):
                    return
            with self._change:
                duty.leads = True
                self._leader = duty

    def hand_over(self) -> None:
        """Says that what the calling thread is about to do may take long; the next events are another thread's."""
        duty: Duty | None = getattr(self._local, "duty", None)
        if duty is None or not duty.leads:
            return
        with self._change:
            if duty.leads:
                duty.leads = False
                self._seat.release()

    def _take_over(self, duty: Duty) -> bool:
        leader = self._leader
        if leader is None or not leader.busy_since or time.monotonic() - leader.busy_since < PATIENCE_SECONDS:
            return False
        with self._change:
            if not leader.leads:
                return False
            leader.leads = False
            duty.leads = True
            self._leader = duty
        return True
