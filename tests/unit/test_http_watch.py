"""One thread leads; what takes long, announced or not, does not keep the others from being served."""

import threading
import time

import pytest

from pbserver.frontends.exchange import Answer, Request
from pbserver.frontends.watch import PATIENCE_SECONDS, Duty, Watch
from tests.unit.http_port import Client, HotPort, post, wait_until

CALLS = 200


def call_many(client: Client) -> float:
    """Seconds that CALLS calls took, one after another."""
    began = time.monotonic()
    for _ in range(CALLS):
        assert client.call(post(b"x")).status == 200
    return time.monotonic() - began


@pytest.mark.parametrize("announced", [True, False])
def test_short_calls_are_served_beside_one_that_blocks(announced: bool) -> None:
    with HotPort(threads=2) as port, port.client() as slow, port.client() as quick:
        answer = port.application.answer

        def announcing(request: Request) -> Answer:
            if announced and request.path == b"/block":
                request.hand_over()
            return answer(request)

        port.application.answer = announcing  # type: ignore[method-assign]
        slow.send(post(path=b"/block"))
        assert port.application.entered.wait(10)
        call_many(quick)
        port.application.release.set()
        assert slow.reply().status == 200


def test_a_server_of_one_thread_survives_handing_over() -> None:
    with HotPort(threads=1) as port, port.client() as client:
        answer = port.application.answer

        def announcing(request: Request) -> Answer:
            request.hand_over()
            request.hand_over()
            return answer(request)

        port.application.answer = announcing  # type: ignore[method-assign]
        call_many(client)


def test_handing_over_outside_a_server_does_nothing() -> None:
    Watch().hand_over()
    Request(b"POST", b"/", {}, b"", 0.0).hand_over()


class Thread:
    """A thread that wants the lead, and keeps it until told otherwise."""

    def __init__(self, watch: Watch) -> None:
        self.leads = threading.Event()
        self.go_on = threading.Event()
        self.duty: Duty | None = None
        self._watch = watch
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.duty = self._watch.duty()
        self._watch.lead(self.duty)
        self.leads.set()
        assert self.go_on.wait(10)
        self._watch.hand_over()

    def end(self) -> None:
        self.go_on.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


def test_the_lead_passes_on_when_handed_over_and_when_its_holder_is_stuck() -> None:
    watch = Watch()
    first = Thread(watch)
    assert first.leads.wait(10)
    second, third = Thread(watch), Thread(watch)
    time.sleep(3 * PATIENCE_SECONDS)
    assert not (second.leads.is_set() or third.leads.is_set()), "an idle leader keeps the lead"
    assert first.duty is not None
    first.duty.busy_since = time.monotonic() - 1
    wait_until(lambda: second.leads.is_set() or third.leads.is_set(), "the deputy's taking over")
    assert not first.duty.leads
    leader, parked = (second, third) if second.leads.is_set() else (third, second)
    first.end()  # no longer the leader: its handing over changes nothing
    assert not parked.leads.is_set()
    leader.end()
    assert parked.leads.wait(10)
    parked.end()
