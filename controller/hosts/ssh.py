"""Machines over SSH, several at once."""

import asyncio
import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import asyncssh

from controller.causes import cause
from controller.layout import Ssh

_ANSWER_SECONDS = 30.0
_NO_SUCH_COMMAND = 127
_SHOWN_CHARACTERS = 300
_ALIVE_SECONDS = 15  # of a connection that says nothing; one that does not answer four times is given up
_LAST_WORDS_SECONDS = 5.0

_T = TypeVar("_T")


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


def receive(command: Sequence[str], address: str, ssh: Ssh, take: Callable[[BinaryIO], _T], seconds: float) -> _T:
    """Runs a command on a machine; `take` reads its standard output, in a thread, and makes the result of it. Raises
    Unreachable, with the last line of its standard error if it fails, also when its time is over; what `take` raises.
    """
    return asyncio.run(_piped(command, address, ssh, take, seconds, sends=False))


def send(command: Sequence[str], address: str, ssh: Ssh, give: Callable[[BinaryIO], _T], seconds: float) -> _T:
    """As receive(), but that `give` writes the command's standard input."""
    return asyncio.run(_piped(command, address, ssh, give, seconds, sends=True))


async def _piped(
    command: Sequence[str], address: str, ssh: Ssh, work: Callable[[BinaryIO], _T], seconds: float, *, sends: bool
) -> _T:
    reads, writes = os.pipe()
    ours, theirs = (os.fdopen(writes, "wb"), reads) if sends else (os.fdopen(reads, "rb"), writes)
    pipes = {"stdin": theirs} if sends else {"stdin": asyncssh.DEVNULL, "stdout": theirs}

    def worked() -> _T:
        with ours if sends else nullcontext():  # the command waits for the end of its input
            return work(ours)

    working: asyncio.Future[_T] | None = None
    try:
        async with asyncio.timeout(seconds), await _connect(address, ssh) as connection:
            process = await connection.create_process(shlex.join(command), encoding=None, **pipes)
            working = asyncio.ensure_future(asyncio.to_thread(worked))
            ending = asyncio.ensure_future(process.wait())
            await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
            # Whoever of the two fails makes the other fail; then the command's own words say more.
            failed = working.done() and working.exception()
            await asyncio.wait({ending}, timeout=_LAST_WORDS_SECONDS if failed else None)
    except TimeoutError as error:
        raise Unreachable(f"not done within {seconds:.0f} s") from error
    except (OSError, asyncssh.Error) as error:
        raise Unreachable(f"the connection broke off: {cause(error)}") from error
    finally:  # the connection has let go of its end of the pipe, so the thread comes to its own
        if working:
            await asyncio.wait({working})
        ours.close()
    if ending.done() and (done := ending.result()).exit_status != 0:
        said = done.stderr.decode(errors="replace").strip() if isinstance(done.stderr, bytes) else ""
        raise Unreachable(said.rpartition("\n")[2] or "the connection broke off")
    assert working is not None
    return working.result()


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
        return Unreachable(f"the connection broke off: {cause(error)}")
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
            keepalive_interval=_ALIVE_SECONDS,
            keepalive_count_max=4,
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
        raise Unreachable(f"{where}: {cause(error)}") from error


def _of_the_host_key(address: str, ssh: Ssh, known: Path) -> str:
    """A key that has changed is another matter than one that was never seen."""
    by_ssh = f"ssh -p {ssh.port} {ssh.user}@{address}"
    if known.exists() and any(asyncssh.read_known_hosts(str(known)).match(address, address, ssh.port)):
        return (
            f"its host key is not the one in {ssh.known_hosts}: it was installed anew, or something else answers; if "
            f"you know why, remove the old key by `ssh-keygen -R` and connect once by `{by_ssh}`"
        )
    return f"its host key is not in {ssh.known_hosts}; compare it and accept it once by `{by_ssh}`"
