"""Hosts of the tests' own: network namespaces with addresses of their own, on a bridge that this machine is on too."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psutil
import pytest

from controller.engines.tools import need_command

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))"
_SERVE = (
    "import socket, sys\n"
    "open_ = [socket.create_server(('::', int(port)), family=socket.AF_INET6, dualstack_ipv6=True)"
    " for port in sys.argv[1:]]\n"
    "print('ready', flush=True)\n"
    "sys.stdin.read()"
)


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace. `inside`: what to put before a command so that it runs there, with a /run of its own."""

    namespace: str
    address: str
    address6: str
    link: str  #: its cable's other end, on the bridge

    @property
    def inside(self) -> list[str]:
        own_run = 'mount -t tmpfs tmpfs /run && mkdir -p /run/sshd && exec "$@"'
        return ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "sh", "-c", own_run, "inside"]

    def cut(self) -> None:
        """Pulls its cable; it still reaches itself."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        _ip("link", "set", self.link, "up")

    def pids(self) -> list[int]:
        """Of all that runs there."""
        done = subprocess.run(["ip", "netns", "pids", self.namespace], check=True, capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def reaches(self, address: str, port: int, seconds: float = 1) -> bool:
        command = [*self.inside, sys.executable, "-c", _CONNECT, address, str(port), str(seconds)]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    @contextmanager
    def listening(self, *ports: int) -> Iterator[None]:
        """Something listens on every address of the host."""
        command = [*self.inside, sys.executable, "-c", _SERVE, *map(str, ports)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield
            finally:
                end(server)


def end(process: subprocess.Popen[bytes]) -> None:
    """With what it has started."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    process.terminate()
    process.wait(10)


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts, gone at the end with all that runs there. Skips the test where namespaces are not permitted."""
    need_command("ip", ["iproute2"], print)
    name = f"pb{secrets.token_hex(3)}"
    net = secrets.randbelow(250) + 1
    made = [
        Host(f"{name}-{number}", f"10.213.{net}.{number}", f"fd13:{net:x}::{number:x}", f"{name}{number}")
        for number in range(1, count + 1)
    ]
    with ExitStack() as stack:
        try:
            _ip("link", "add", name, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        stack.callback(_ip, "link", "del", name)
        _ip("address", "add", f"10.213.{net}.254/24", "dev", name)
        _ip("address", "add", f"fd13:{net:x}::fe/64", "dev", name, "nodad")
        _ip("link", "set", name, "up")
        for host in made:
            _ip("netns", "add", host.namespace)
            stack.callback(_ip, "netns", "del", host.namespace)
            _attach(host, name)
        yield made


def _attach(host: Host, bridge: str) -> None:
    there = ("-n", host.namespace)
    _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    _ip("link", "set", host.link, "master", bridge, "up")
    _ip(*there, "address", "add", f"{host.address}/24", "dev", "eth0")
    _ip(*there, "address", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
    for device in ("lo", "eth0"):
        _ip(*there, "link", "set", device, "up")


def _ip(*arguments: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces are not permitted here: not root")
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
