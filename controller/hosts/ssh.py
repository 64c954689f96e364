"""Machines over SSH, several at once."""

import asyncio
import shlex
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from controller.layout import Ssh

_ANSWER_SECONDS = 30.0
_NO_SUCH_COMMAND = 127
_SHOWN_CHARACTERS = 300


class Unreachable(Exception):
    """The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program wrote; `asked` and `answered`: our time before and after it, in seconds."""

    text: str
    asked: float
    answered: float


def run(program: str, calls: Mapping[str, tuple[Ssh, str]]) -> dict[str, Answer | Unreachable]:
    """Runs a Python program on machines, all at once. `calls`: by address, how to reach it and the argument."""

    async def everywhere() -> list[Answer | Unreachable]:
        return await asyncio.gather(*(_run(program, address, *call) for address, call in calls.items()))

    return dict(zip(calls, asyncio.run(everywhere()), strict=True))


async def _run(program: str, address: str, ssh: Ssh, argument: str) -> Answer | Unreachable:
    command = f"python3 - {shlex.quote(argument)}"
    try:
        async with await _connect(address, ssh) as connection:
            asked = time.time()
            done = await connection.run(command, input=program, check=False, timeout=_ANSWER_SECONDS)
            answered = time.time()
    except Unreachable as reason:
        return reason
    except (OSError, asyncssh.Error) as error:
        return Unreachable(f"the connection broke off: {error or type(error).__name__}")
    if done.exit_status == _NO_SUCH_COMMAND:
        return Unreachable("there is no python3; install Python 3.11 or newer")
    if done.exit_status:
        said = "".join(map(str, (done.stderr, done.stdout))).strip()
        return Unreachable(f"python3 ended with {done.exit_status}: {said[-_SHOWN_CHARACTERS:]}")
    return Answer(str(done.stdout), asked, answered)


async def _connect(address: str, ssh: Ssh) -> asyncssh.SSHClientConnection:
    where = f"{ssh.user}@{address} port {ssh.port}"
    known = ssh.known_hosts.expanduser()
    keys = [ssh.key.expanduser()] if ssh.key else []
    if not all(key.is_file() for key in keys):
        raise Unreachable(f"there is no private key {ssh.key}")
    try:
        return await asyncssh.connect(
            address,
            ssh.port,
            username=ssh.user,
            client_keys=[*map(str, keys)] or (),
            agent_path=None if ssh.key else (),
            known_hosts=str(known) if known.exists() else ([], [], []),
            connect_timeout=ssh.connect_seconds,
            login_timeout=ssh.connect_seconds,
            config=None,
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise Unreachable(_of_the_host_key(address, ssh, known)) from error
    except asyncssh.PermissionDenied as error:
        tried = f"the key {ssh.key}" if ssh.key else "any key of the SSH agent or ~/.ssh"
        raise Unreachable(f"{where}: not let in with {tried}") from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise Unreachable(f"the private key {ssh.key} cannot be used: {error}") from error
    except socket.gaierror as error:
        raise Unreachable(f"the name cannot be resolved: {error.strerror}") from error
    except TimeoutError as error:
        raise Unreachable(f"{where}: no answer within {ssh.connect_seconds:.0f} s") from error
    except (OSError, asyncssh.Error) as error:
        raise Unreachable(f"{where}: {error}") from error


def _of_the_host_key(address: str, ssh: Ssh, known: Path) -> str:
    """A key that has changed is another matter than one that was never seen."""
    by_ssh = f"ssh -p {ssh.port} {ssh.user}@{address}"
    if known.exists() and any(asyncssh.read_known_hosts(str(known)).match(address, address, ssh.port)):
        return (
            f"its host key is not the one in {ssh.known_hosts}: it was installed anew, or something else answers; if "
            f"you know why, remove the old key by `ssh-keygen -R` and connect once by `{by_ssh}`"
        )
    return f"its host key is not in {ssh.known_hosts}; compare it and accept it once by `{by_ssh}`"
