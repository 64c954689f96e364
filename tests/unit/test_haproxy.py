"""What HAProxy is told about a cluster's entry points, and that HAProxy does it."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from controller.engines.tools import need_command
from deploy import haproxy
from tests.e2e.server import Server, wait_until

EXPECTED = """\
# The entry points of shop. Point apps at 127.0.0.1:10001.
listen pbserver-shop
    bind 127.0.0.1:10001
    mode http
    balance leastconn
    option http-keep-alive
    option redispatch 1
    retries 2
    retry-on conn-failure
    timeout connect 3s
    timeout client 610s
    timeout server 610s
    timeout http-keep-alive 590s
    timeout check 2s
    option httpchk GET /
    http-check expect status 200
    server gateway1 10.0.0.1:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions
    server gateway2 [fd00::2]:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions
"""
PLACES = ["10.0.0.1:10001", "[fd00::2]:10001"]


def test_apps_have_one_address_on_loopback_and_every_gateway_behind_it() -> None:
    assert haproxy.configuration("shop", PLACES) == EXPECTED


@pytest.mark.parametrize(
    ("listen", "admin_port", "changed"),
    [
        (
            "[::1]:9000",
            None,
            {
                "# The entry points of shop. Point apps at 127.0.0.1:10001.": (
                    "# The entry points of shop. Point apps at [::1]:9000."
                ),
                "    bind 127.0.0.1:10001": "    bind [::1]:9000",
            },
        ),
        (
            "127.0.0.1:10001",
            10002,
            {
                "    option httpchk GET /": "    option httpchk GET /readyz",
                "    server gateway1 10.0.0.1:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions": (
                    "    server gateway1 10.0.0.1:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions"
                    " port 10002"
                ),
                "    server gateway2 [fd00::2]:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions": (
                    "    server gateway2 [fd00::2]:10001 check inter 2s fall 3 rise 2 on-marked-down shutdown-sessions"
                    " port 10002"
                ),
            },
        ),
    ],
)
def test_what_is_asked_for_is_all_that_changes(listen: str, admin_port: int | None, changed: dict[str, str]) -> None:
    found = haproxy.configuration("shop", PLACES, listen=listen, admin_port=admin_port).splitlines()
    assert found == [changed.get(line, line) for line in EXPECTED.splitlines()]


@pytest.mark.parametrize(
    ("places", "complaint"),
    [
        ([], "shop has no entry points; give a node the role gateway"),
        (["10.0.0.1"], "'10.0.0.1' is no HOST:PORT; an IPv6 address stands in []"),
        (["fd00::2:10001"], "'fd00::2:10001' is no HOST:PORT; an IPv6 address stands in []"),
        (["10.0.0.1:10001", "a b:10001"], "'a b:10001' is no HOST:PORT; an IPv6 address stands in []"),
        (["10.0.0.1:x"], "'10.0.0.1:x' has no port from 1 to 65535"),
        (["10.0.0.1:65536"], "'10.0.0.1:65536' has no port from 1 to 65535"),
    ],
)
def test_what_is_no_entry_point_is_named(places: list[str], complaint: str) -> None:
    with pytest.raises(ValueError) as wrong:
        haproxy.configuration("shop", places)
    assert str(wrong.value) == complaint


def test_gateways_that_speak_https_are_checked_by_it_and_must_prove_who_they_are() -> None:
    found = haproxy.configuration("shop", PLACES, tls=True)
    assert found == EXPECTED.replace("sessions\n", "sessions ssl verify required ca-file @system-ca\n")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("admin_port", [None, 10002])
def test_haproxy_takes_it_without_a_warning(admin_port: int | None, tls: bool, tmp_path: Path) -> None:
    need_command("haproxy", ["haproxy"], print)
    file = tmp_path / "haproxy.cfg"
    file.write_text(haproxy.configuration("shop", PLACES, admin_port=admin_port, tls=tls))
    done = subprocess.run(["haproxy", "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_a_connections_calls_go_to_all_gateways_and_go_on_when_one_is_gone(tmp_path: Path) -> None:
    need_command("haproxy", ["haproxy"], print)
    with ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            servers.append(stack.enter_context(Server(tmp_path / name, "memory:", workers=1, testing=True)))
        ports = [each.port for each in servers]
        proxy = stack.enter_context(running(ports, tmp_path))
        with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as client:
            assert calls(client) == {200}
            assert {*ports} <= proxy.servers_ports()
        kill(servers[0])
        with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as client:
            assert calls(client) == {200}
        kill(servers[1])
        with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as client:
            assert calls(client, 1) == {503}


@dataclass(frozen=True, slots=True)
class Running:
    """An HAProxy on loopback."""

    port: int
    process: psutil.Process

    def servers_ports(self) -> set[int]:
        """Those that it has connections to."""
        return {
            each.raddr.port for each in self.process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED
        }


@contextmanager
def running(ports: list[int], directory: Path) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = directory / "haproxy.cfg"
    places = [f"127.0.0.1:{each}" for each in ports]
    file.write_text(haproxy.configuration("shop", places, listen=f"127.0.0.1:{port}"))
    with subprocess.Popen(["haproxy", "-db", "-f", str(file)]) as process:
        try:
            wait_until(lambda: listens(port), "HAProxy listens")
            yield Running(port, psutil.Process(process.pid))
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def kill(server: Server) -> None:
    """Returns when its connections are closed: a call that is sent into a dying process is nobody's to repeat."""
    server.kill()
    wait_until(lambda: not listens(server.port), "the end of the workers")


def calls(client: HTTPConnection, count: int = 20) -> set[int]:
    """The statuses of so many calls that carry something."""
    statuses = set()
    for _ in range(count):
        client.request("POST", "/reset", body=b"x" * 100)
        answer = client.getresponse()
        answer.read()
        statuses.add(answer.status)
    return statuses
