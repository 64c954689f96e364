"""Stopping: calls under way are answered, idle connections end, and no longer than drain_seconds."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.http_port import PATIENCE, HotPort, post, wait_until


@contextmanager
def draining(port: HotPort) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=port.server.drain)
    thread.start()
    try:
        yield thread
    finally:
        port.application.release.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_drain_lets_the_call_under_way_finish_and_ends_idle_connections() -> None:
    with HotPort() as port, port.client() as idle, port.client() as busy:
        assert idle.call(post(b"x")).status == 200
        busy.send(post(path=b"/block"))
        assert port.application.entered.wait(PATIENCE)
        with draining(port) as thread:
            assert idle.is_closed()
            assert thread.is_alive()
            port.application.release.set()
            reply = busy.reply()
            assert (reply.body, reply.headers[b"connection"]) == (b"POST /block ", b"close")
            assert busy.is_closed()


def test_drain_lets_a_request_that_is_half_sent_come_whole() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(b"body")[:-2])
        wait_until(lambda: any(each.state.name == "RECEIVING" for each in port.server._connections.values()), "half")
        with draining(port):
            wait_until(lambda: port.server._port.draining, "the drain")
            reply = client.call(b"dy")
            assert (reply.body, reply.headers[b"connection"]) == (b"POST /echo body", b"close")
            assert client.is_closed()


def test_drain_sends_a_large_answer_to_its_end() -> None:
    with HotPort() as port, port.client() as client:
        client.send(post(path=b"/large"))
        wait_until(lambda: port.application.seen, "the request")
        with draining(port):
            assert len(client.reply().body) == 50 * 1024 * 1024


def test_a_client_in_the_queue_of_the_listening_socket_is_still_answered() -> None:
    with HotPort(threads=1) as port, port.client() as busy:
        busy.send(post(path=b"/block"))
        assert port.application.entered.wait(PATIENCE)
        with port.client() as queued:
            queued.send(post(b"queued"))
            with draining(port):
                wait_until(lambda: port.server.connection_count() == 2, "the queued one")
                port.application.release.set()
                assert queued.reply().body == b"POST /echo queued"


def test_drain_gives_up_on_a_call_that_takes_too_long() -> None:
    with HotPort(drain_seconds=0.2) as port, port.client() as client:
        client.send(post(path=b"/block"))
        assert port.application.entered.wait(PATIENCE)
        began = time.monotonic()
        port.server.drain()
        assert time.monotonic() - began < 5
        assert port.server.connection_count() == 1


def test_drain_without_connections_returns_at_once() -> None:
    with HotPort(drain_seconds=60) as port:
        port.server.drain()
