"""A real sshd, on a loopback address of its own or on a host of tests/network.py, which lets one key in."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncssh

from controller import subnets
from controller.engines.tools import install_packages
from tests.network import end

_START_SECONDS = 20
_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
_PRIVILEGES = Path("/run/sshd")  # must be there when root runs it


def program() -> str:
    """Where sshd is; as root it is installed when it is missing."""
    if shutil.which("sshd", path=_PLACES) is None:
        install_packages("the command sshd is missing", ["openssh-server"], print)
    found = shutil.which("sshd", path=_PLACES)
    assert found
    return found


class Sshd:
    """Listens on `host`:`port`. `key`: the private key it lets in; `known_hosts`: names its host key. `inside`: what
    to put before the command.
    """

    def __init__(self, directory: Path, *, host: str = "", inside: Sequence[str] = (), key: Path | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.host = host or subnets.hosts(subnets.free(), 1)[0]
        self.port = 2222
        self.key = key or directory / "key"
        self.known_hosts = directory / "known_hosts"
        self._directory = directory
        self._inside = inside
        self._host_key = directory / "host_key"
        for path in {self.key, self._host_key}:
            if not path.exists():
                write_key(path)
        (directory / "authorized_keys").write_text(public(self.key))
        self.known_hosts.write_text(f"[{self.host}]:{self.port} {public(self._host_key)}")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            _PRIVILEGES.mkdir(exist_ok=True)
        config = self._directory / "sshd_config"
        config.write_text(
            f"ListenAddress {self.host}\nPort {self.port}\nHostKey {self._host_key}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self._directory / 'authorized_keys'}\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f'SetEnv "PATH={Path(sys.executable).parent}:{os.environ["PATH"]}:/usr/sbin"\n'
        )
        with (self._directory / "sshd.log").open("wb") as log:
            command = [*self._inside, program(), "-D", "-e", "-f", str(config)]
            self._process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, (self._directory / "sshd.log").read_text()
            assert self._process.poll() is None, (self._directory / "sshd.log").read_text()
            time.sleep(0.02)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def reap(self) -> None:
        """After somebody has killed it."""
        if self._process is not None:
            self._process.poll()

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host, self.port), 1):
            return True
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process is not None
        end(self._process)


def write_key(path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(path))
    path.chmod(0o600)


def public(path: Path) -> str:
    """The public key of a private one, as a line."""
    return asyncssh.read_private_key(str(path)).export_public_key().decode()
