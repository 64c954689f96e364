"""Real processes: workers that die, parents that die, stops, and starts that fail."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
READY = re.compile(r"^pbserver \S+ serves http://([\d.]+):(\d+) \(store (\S+), (.*)\); admin http://([\d.]+):(\d+)\n$")

#: A server whose application takes as many seconds as its path says: shows draining without a slow store.
SLOW_SERVER = """
import functools, sys, time
from pbserver import dispatch, supervisor
from pbserver.frontends.http import Answer
from pbserver.settings import load
ordinary = dispatch.Application.answer
def answer(self, request):
    if not request.path.startswith(b"/sleep/"):
        return ordinary(self, request)
    time.sleep(float(request.path[7:]))
    return Answer(200, b"slept")
dispatch.Application.answer = answer
flags = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "store": sys.argv[1], "workers": 2}
sys.exit(supervisor.serve(load(None, flags)))
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.01)


def lives(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def listening(pid: int) -> set[int]:
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections()
        return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return set()


class Serving:
    """A pbserver and its family, all stopped at the end by pid."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.family: set[int] = {process.pid}
        assert process.stdout is not None
        self.line = process.stdout.readline()
        ready = READY.match(self.line)
        assert ready, f"{self.line!r} is not the line of a server that is ready"
        self.port, self.admin_port = int(ready[2]), int(ready[6])
        self.children()

    def children(self) -> list[int]:
        """Workers and the admin process."""
        pids = [child.pid for child in psutil.Process(self.process.pid).children() if lives(child.pid)]
        self.family.update(pids)
        return pids

    def workers(self) -> list[int]:
        """Those that listen on the port for calls."""
        return [pid for pid in self.children() if self.port in listening(pid)]

    def get(self, path: str = "/", *, port: int = 0) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pbserver", "serve", "--listen", "127.0.0.1:0", *arguments]


@contextmanager
def serving(arguments: list[str], **environment: str) -> Iterator[Serving]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=clean | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    family = {process.pid}
    try:
        server = Serving(process)
        family = server.family
        yield server
    finally:
        for pid in family:
            if lives(pid) and (pid != process.pid or process.poll() is None):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def lmdb_arguments(tmp_path: Path) -> list[str]:
    return command("--admin", "127.0.0.1:0", "--store", f"lmdb:{tmp_path}/data", "--workers", "2", "--threads", "3")


def failed(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_port_0_picks_one_that_answers_when_the_line_says_so(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        assert ", 2 workers x 3 threads)" in server.line
        assert server.port > 0
        for _ in range(20):  # both workers, most likely
            assert server.get()[0] == 200
        assert server.get("/healthz", port=server.admin_port) == (200, b"alive\n")
        assert server.get("/readyz", port=server.admin_port) == (200, b"ready\n")
        assert server.stop() == 0
        assert not any(lives(pid) for pid in server.family)


def test_a_worker_killed_under_load_is_replaced_and_clients_reconnect(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        stop = threading.Event()
        answered = [0] * 4

        def load(client: int) -> None:
            while not stop.is_set():
                with suppress(OSError, http.client.HTTPException):
                    server.get()
                    answered[client] += 1

        clients = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for client in clients:
            client.start()
        try:
            for _ in range(3):
                wait_until(lambda: len(server.workers()) == 2, "two workers")
                before = server.workers()
                wait_until(lambda: min(answered) > 20, "answers to every client")
                os.kill(before[0], signal.SIGKILL)
                wait_until(lambda before=before: set(server.workers()) - set(before), "a new worker")
                wait_until(lambda: server.get("/readyz", port=server.admin_port)[0] == 200, "readiness")
                answered[:] = [0] * 4
            wait_until(lambda: min(answered) > 20, "answers to every client after the last kill")
        finally:
            stop.set()
            for client in clients:
                client.join(PATIENCE)
        wait_until(
            lambda: b"pbserver_worker_restarts_total 3.0" in server.get("/metrics", port=server.admin_port)[1],
            "three restarts in the metrics",
        )


def test_the_admin_process_is_replaced_too(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        (admin,) = set(server.children()) - set(server.workers())
        os.kill(admin, signal.SIGKILL)
        wait_until(lambda: len(server.children()) == 3 and admin not in server.children(), "a new admin process")
        assert server.get("/healthz", port=server.admin_port)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_answers_the_call_under_way_and_takes_no_new_one(tmp_path: Path, number: signal.Signals) -> None:
    with serving([sys.executable, "-c", SLOW_SERVER, f"lmdb:{tmp_path}/data"], PYTHONPATH=str(ROOT)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
            client.sendall(b"GET /sleep/1 HTTP/1.1\r\nHost: test\r\n\r\n")
            connected = [psutil.Process(pid) for pid in server.children()]
            wait_until(lambda: sum(len(each.net_connections()) for each in connected) >= 4, "the call's arrival")
            os.kill(server.process.pid, number)
            assert client.recv(1000).endswith(b"slept")
        assert server.process.wait(PATIENCE) == 0
        with pytest.raises(ConnectionRefusedError):
            server.get()


def test_a_call_that_outlasts_the_drain_is_cut_off(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", SLOW_SERVER, f"lmdb:{tmp_path}/data"]
    with serving(arguments, PYTHONPATH=str(ROOT), PBSERVER_HTTP__DRAIN_SECONDS="0.5") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
            client.sendall(b"GET /sleep/60 HTTP/1.1\r\nHost: test\r\n\r\n")
            connected = [psutil.Process(pid) for pid in server.children()]
            wait_until(lambda: sum(len(each.net_connections()) for each in connected) >= 4, "the call's arrival")
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 10
        assert not any(lives(pid) for pid in server.family)


def test_hanging_up_is_ignored(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        before = server.children()
        for pid in (server.process.pid, *before):
            os.kill(pid, signal.SIGHUP)
        assert server.get()[0] == 200
        assert server.children() == before


def test_kill_9_of_the_parent_leaves_nothing_behind(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        children = server.children()
        assert len(children) == 3
        server.process.kill()
        server.process.wait(PATIENCE)
        wait_until(lambda: not any(lives(pid) for pid in children), "the end of all children")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--store", "lmdb:/proc/nowhere/data"], "cannot open the store lmdb:/proc/nowhere/data: "),
        (["--store", "nosuch:x"], "cannot open the store nosuch:x: unknown store 'nosuch'"),
        (["--store", "memory:", "--workers", "2"], "memory: lives in one process; use --workers 1"),
        (["--store", "memory:", "--tls-cert", "/no/cert", "--tls-key", "/no/key"], "cannot use tls_cert /no/cert "),
        (["--store", "memory:", "--listen", "203.0.113.1:1"], "cannot listen on 203.0.113.1:1: "),
    ],
)
def test_a_start_that_fails_is_one_clear_line(arguments: list[str], reason: str) -> None:
    code, errors = failed("--admin", "none", *arguments)
    assert code == 1
    assert errors.startswith(f"pbserver: {reason}")
    assert len(errors.splitlines()) == 1


def test_a_port_that_another_pbserver_has_is_not_shared_with_it(lmdb_arguments: list[str]) -> None:
    with serving(lmdb_arguments) as server:
        code, errors = failed("--admin", "none", "--store", "memory:", "--listen", f"127.0.0.1:{server.port}")
        assert code == 1
        assert errors == f"pbserver: cannot listen on 127.0.0.1:{server.port}: Address already in use\n"


def test_a_store_of_one_process_gets_one_worker_by_itself() -> None:
    with serving(command("--admin", "127.0.0.1:0", "--store", "memory:")) as server:
        assert "1 worker x 9 threads" in server.line
        assert server.get()[0] == 200
