"""Several machines of the tests' own with an sshd each, a layout for them, and pbdeploy outside of them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from controller.databases import recipe as recipe_called
from controller.engines import private
from controller.recipe import ClusterError
from deploy import layout_commands
from deploy.cluster_commands import as_data
from deploy.machines import Machines
from tests.network import Host, hosts
from tests.sshd import Sshd

ROOT = Path(__file__).parents[2]
_UP_SECONDS = 800


#: Of one node: one role, or several.
Roles = str | Sequence[str]

#: A process that every node has, or at least those after the first.
_SERVICES = {"mongodb": "ferretdb", "mysql": "mariadbd", "cassandra": "cassandra", "hbase": "regionserver"}


class Site:
    """The machines of one cluster, which is called shop. Machines that have no role are `spare`: no nodes yet."""

    def __init__(
        self, directory: Path, machines: Sequence[Host], database: str, roles: Sequence[Roles], engines: Path
    ) -> None:
        self.machines = machines
        self.hosts = [*machines[: len(roles)]]
        self.numbers = [*range(1, len(roles) + 1)]  #: of the nodes on these hosts
        self.voters = [number for number, own in enumerate(roles, 1) if "zookeeper" in own]  #: cannot be removed
        self.spare = [*machines[len(roles) :]]
        self.database_service = _SERVICES[database]
        self.directory = directory
        self.layout = directory / "cluster.toml"
        key = directory / "key"
        self._sshd = [
            Sshd(directory / f"ssh{n}", host=each.address, inside=each.inside, key=key)
            for n, each in enumerate(machines, 1)
        ]
        known = directory / "known_hosts"
        known.write_text("".join(each.known_hosts.read_text() for each in self._sshd))
        nodes = "".join(
            f'[[nodes]]\naddress = "{each.address}"\nroles = {json.dumps([own] if isinstance(own, str) else own)}\n'
            for each, own in zip(self.hosts, roles, strict=True)
        )
        self.layout.write_text(
            f'name = "shop"\ndatabase = "{database}"\ndirectory = "{directory}/d"\npython = "{sys.executable}"\n'
            f'engines = "{engines}"\n'
            f'[ssh]\nport = 2222\nkey = "{key}"\nknown_hosts = "{known}"\nconnect_seconds = 5\n{nodes}'
        )

    def raise_(self) -> None:
        done = self.pbdeploy("up", str(self.layout), seconds=600)
        assert done.returncode == 0, done.stderr

    def service(self, number: int, name: str) -> dict[str, Any]:
        """What status says of a node's service."""
        nodes = {each["number"]: each for each in self.status()["nodes"]}
        found: dict[str, Any] = nodes[number]["facts"]["services"][name]
        return found

    def agent_pid(self, number: int) -> int:
        """Of a node's pbcontroller."""
        directory = str(self.home(number))
        commands = {pid: psutil.Process(pid).cmdline() for pid in self.hosts[number - 1].pids()}
        (pid,) = (pid for pid, command in commands.items() if "controller.agent" in command and directory in command)
        return pid

    def idle_agents(self, seconds: float) -> tuple[list[float], list[float]]:
        """What every node's agent takes in so many seconds: shares of a core, and MiB that are resident at the end."""
        agents = [psutil.Process(self.agent_pid(number)) for number in range(1, len(self.hosts) + 1)]
        before = [sum(each.cpu_times()[:2]) for each in agents]
        begun = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begun
        shares = [(sum(each.cpu_times()[:2]) - old) / passed for each, old in zip(agents, before, strict=True)]
        return shares, [each.memory_info().rss / (1 << 20) for each in agents]

    def home(self, number: int) -> Path:
        """The directory of a node, from 1."""
        return self.directory / "d" / "shop" / f"node{number}"

    def pbdeploy(self, *arguments: str, seconds: float = _UP_SECONDS) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploy", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=seconds)

    def told(self, *arguments: str) -> Any:
        """The JSON that a command prints; it must succeed."""
        done = self.pbdeploy(*arguments, str(self.layout), "--json")
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def status(self) -> dict[str, Any]:
        """What the command says; empty where the head cannot be asked. The command itself would take a second of a
        core every time.
        """
        with suppress(ClusterError):
            return as_data(Machines(layout_commands.read(self.layout)).status())
        return {}

    def wait_for(self, fits: Callable[[dict[str, Any]], object], what: str, seconds: float = 240) -> dict[str, Any]:
        """The status, once it fits."""
        deadline = time.monotonic() + seconds
        while not fits(found := self.status()):
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s: {found}"
            time.sleep(1)
        return found

    def pids(self) -> list[int]:
        """Of all that runs on the machines but the sshds."""
        known = {each.pid for each in self._sshd}
        return [pid for host in self.machines for pid in host.pids() if pid not in known]

    def reboot(self) -> None:
        """The power goes on all machines at once and comes back: all their processes are killed, and then each does
        what it does at boot.
        """
        self.lose_power()
        self.start()
        for host, number in zip(self.hosts, self.numbers, strict=True):
            subprocess.run([*host.inside, str(self.home(number) / "boot")], check=True, timeout=60)

    def lose_power(self) -> None:
        while left := [pid for host in self.machines for pid in host.pids()]:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for sshd in self._sshd:
                sshd.reap()
            time.sleep(0.05)

    def start(self) -> None:
        for sshd in self._sshd:
            sshd.__enter__()


@contextmanager
def site(database: str, roles: Sequence[Roles], engines: Path | None = None, spare: int = 0) -> Iterator[Site]:
    """Machines with nothing on them but engines, by default those of this machine; gone at the end, with all that
    runs there.
    """
    if engines is None:  # the machines have no way out to fetch them
        for name in recipe_called(database).ENGINES:
            private.fetch(name)
    with ExitStack() as stack:
        machines = stack.enter_context(hosts(len(roles) + spare))
        directory = Path(tempfile.mkdtemp(prefix="pb"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        made = Site(directory, machines, database, roles, engines or private.default_directory())
        stack.callback(made.lose_power)
        made.start()
        yield made
