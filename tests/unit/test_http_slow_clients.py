"""Slow, silent and greedy clients hold a connection, never a thread; and they are cut off in time."""

import gc
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pbserver.frontends.connection import Connection
from pbserver.frontends.reader import RequestReader
from tests.unit.http_port import PATIENCE, HotPort, post, wait_until


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def trickling(port: HotPort, data: bytes) -> Iterator[threading.Event]:
    """A client that sends one byte at a time, as slowly as it is told to; the event is set when it was cut off."""
    stop, cut_off = threading.Event(), threading.Event()

    def trickle() -> None:
        with port.client() as client:
            try:
                for index in range(len(data)):
                    client.send(data[index : index + 1])
                    if stop.wait(0.2):
                        return
                client.reply()
            except OSError:
                cut_off.set()

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield cut_off
    finally:
        stop.set()
        thread.join(PATIENCE)


def test_one_slow_sender_does_not_slow_the_others_on_a_single_thread() -> None:
    with HotPort(threads=1) as port, trickling(port, post(b"x")), port.client() as client:
        began = time.monotonic()
        for _ in range(500):
            assert client.call(post(b"y")).status == 200
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("limit", ["header_timeout_seconds", "body_timeout_seconds"])
def test_a_request_that_does_not_come_whole_in_time_is_answered_by_408(limit: str) -> None:
    part = post(b"body")[: -2 if limit.startswith("body") else 20]
    with HotPort(**{limit: 0.2}) as port, port.client() as client:
        assert client.call(post(b"x")).status == 200
        assert client.call(part).status == 408
        assert client.is_closed()


def test_bytes_that_keep_coming_do_not_put_the_header_timeout_off() -> None:
    with HotPort(header_timeout_seconds=1) as port, trickling(port, post(b"x" * 1000)) as cut_off:
        assert cut_off.wait(PATIENCE)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with HotPort(idle_timeout_seconds=0.2) as port, port.client() as new, port.client() as used:
        assert used.call(post(b"x")).status == 200
        assert used.is_closed()
        assert new.is_closed()


def test_a_client_that_never_reads_costs_no_thread_and_is_cut_off() -> None:
    with HotPort(threads=1, write_timeout_seconds=1) as port, port.client() as greedy, port.client() as client:
        before = resident_bytes()
        greedy.send(post(path=b"/large") * 20)
        wait_until(lambda: port.application.seen, "the large request")
        for _ in range(200):
            assert client.call(post(b"y")).status == 200
        assert resident_bytes() - before < 40 * 1024 * 1024
        assert sum(request.path == b"/large" for request in port.application.seen) == 1
        wait_until(lambda: port.server.connection_count() == 1, "the cut")
        assert client.call(post(b"z")).status == 200


def test_a_client_that_reads_slowly_but_steadily_is_not_cut_off() -> None:
    with HotPort(threads=1, write_timeout_seconds=1) as port, port.client() as slow:
        slow.send(post(path=b"/large"))
        received = 0
        began = time.monotonic()
        while received < 50 * 1024 * 1024:
            data = slow.sock.recv(1 << 20)
            assert data
            received += len(data)
            if time.monotonic() - began < 3:
                threading.Event().wait(0.1)  # the slowness that is tested


def test_a_thousand_idle_connections_cost_the_busy_ones_nothing() -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    try:
        with HotPort(threads=2) as port, ExitStack() as stack:
            idle = [stack.enter_context(port.client()) for _ in range(1000)]
            wait_until(lambda: port.server.connection_count() == 1000, "1,000 connections")
            with port.client() as client:
                for _ in range(200):
                    assert client.call(post(b"y")).status == 200
            for each in idle:
                assert each.call(post(b"awake")).status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))


def test_running_out_of_descriptors_does_not_spin_and_passes() -> None:
    with HotPort(threads=1) as port, port.client() as client:
        assert client.call(post(b"x")).status == 200
        waiting = socket.socket()
        files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, most))
        try:
            waiting.settimeout(PATIENCE)
            waiting.connect(("127.0.0.1", port.port))
            waiting.sendall(post(b"late"))
            wait_until(lambda: port.server._paused, "the pause")
            before = time.process_time()
            assert client.call(post(b"y")).status == 200
            threading.Event().wait(0.5)  # an interval to measure, not something to wait for
            assert time.process_time() - before < 0.25
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        with waiting:
            assert waiting.recv(100).startswith(b"HTTP/1.1 200")


def test_closed_connections_leave_nothing_behind() -> None:
    with HotPort(threads=2) as port:
        for _ in range(50):
            with port.client() as client:
                client.send(post(b"half")[:-2])
            with port.client() as client:
                assert client.call(post(b"x") + post(b"y")).status == 200
        wait_until(lambda: port.server.connection_count() == 0, "all closed")
        gc.collect()
        left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, Connection | RequestReader)]
        assert left.count("Connection") <= 2  # each thread still knows the last one it had
        assert left.count("RequestReader") <= 2
