"""`pbdeploy firewall` on hosts of the tests' own: who reaches what, by connecting from inside and outside."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.engines.tools import need_command
from controller.hosts import ssh
from controller.hosts.ssh import Answer
from controller.layout import Ssh
from deploy import firewall_commands
from tests.network import Host, hosts
from tests.sshd import Sshd

ROOT = Path(__file__).parents[2]
CQL, STORAGE, PBSERVER, OTHER = 9042, 7000, 10001, 8888
EVERYTHING = {CQL, STORAGE, PBSERVER, OTHER}


@dataclass(frozen=True, slots=True)
class Machines:
    """Two members of a Cassandra cluster, with an sshd each, and somebody else on the same network."""

    first: Host
    second: Host
    stranger: Host
    ssh: Ssh
    layout: Path

    def reached_from(self, host: Host, *, ipv6: bool = False) -> set[int]:
        """Which of the first member's ports a host reaches."""
        address = self.first.address6 if ipv6 else self.first.address
        return {port for port in EVERYTHING if host.reaches(address, port)}

    def pbdeploy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploy", "firewall", *arguments, str(self.layout)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=90)

    def nft(self, host: Host) -> str:
        """All rules of a host."""
        command = ["ip", "netns", "exec", host.namespace, "nft", "list", "ruleset"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    need_command("nft", ["nftables"], print)
    with ExitStack() as stack:
        first, second, stranger = stack.enter_context(hosts(3))
        key = tmp_path / "key"
        servers = [
            stack.enter_context(Sshd(tmp_path / each.namespace, host=each.address, inside=each.inside, key=key))
            for each in (first, second)
        ]
        known = tmp_path / "known_hosts"
        known.write_text("".join(server.known_hosts.read_text() for server in servers))
        stack.enter_context(first.listening(CQL, STORAGE, PBSERVER, OTHER))
        reached = Ssh(user="root", port=2222, key=key, known_hosts=known, connect_seconds=3)
        machines = Machines(first, second, stranger, reached, tmp_path / "cluster.toml")
        write_layout(machines, [first.address, second.address])
        yield machines


def write_layout(machines: Machines, addresses: Sequence[str], more: str = "") -> None:
    nodes = "".join(f'[[nodes]]\naddress = "{each}"\nroles = ["peer"]\n' for each in addresses)
    reached = machines.ssh
    machines.layout.write_text(
        f'name = "shop"\ndatabase = "cassandra"\n[ssh]\nuser = "root"\nport = {reached.port}\nkey = "{reached.key}"\n'
        f'known_hosts = "{reached.known_hosts}"\nconnect_seconds = {reached.connect_seconds}\n{more}\n{nodes}'
    )


def test_only_members_reach_the_databases_ports_and_all_else_stays_open(machines: Machines) -> None:
    assert machines.reached_from(machines.stranger) == EVERYTHING
    done = machines.pbdeploy("apply")
    assert (done.stdout, done.returncode) == ("shop: rules are in force on 2 machines\n", 0), done.stderr
    assert machines.reached_from(machines.first) == EVERYTHING
    assert machines.reached_from(machines.second) == EVERYTHING
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}
    assert machines.reached_from(machines.stranger, ipv6=True) == {PBSERVER, OTHER}
    assert machines.stranger.reaches(machines.first.address, machines.ssh.port)
    write_layout(machines, [machines.first.address], f'[firewall]\nclients = ["{machines.stranger.address}"]')
    applied = time.monotonic()
    assert machines.pbdeploy("apply", "--seconds", "15").returncode == 0
    time.sleep(max(0.0, applied + 16 - time.monotonic()))
    assert machines.reached_from(machines.second) == {OTHER}, "it is no member any more"
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}
    assert machines.nft(machines.first).count("table inet") == 1, "the new table took the old one's place"
    assert machines.pbdeploy("remove").returncode == 0
    assert machines.nft(machines.first) == ""
    assert machines.reached_from(machines.stranger) == EVERYTHING


def test_rules_that_lock_the_operator_out_are_taken_back(machines: Machines) -> None:
    """Our own never do, so these are made up."""
    assert machines.pbdeploy("apply").returncode == 0
    chain = "type filter hook input priority filter; policy accept;"
    locked = "tcp flags & (syn | ack) == syn tcp dport 2222 drop"  # the connection that loads it ends in peace
    locking = f"table inet pbserver_shop {{\n chain lock {{\n {chain}\n {locked}\n }}\n}}\n"
    assert guard(machines, {"table": "pbserver_shop", "ruleset": locking, "seconds": 10}) == ""
    assert "lock" in machines.nft(machines.first)
    assert "no answer" in guard(machines, {"table": "pbserver_shop"})
    end = time.monotonic() + 60
    while "lock" in machines.nft(machines.first):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}, "the rules of before"
    assert "taken back before it was confirmed" in guard(machines, {"table": "pbserver_shop"})


def test_what_nft_refuses_changes_nothing_and_leaves_nothing_waiting(machines: Machines) -> None:
    assert machines.pbdeploy("apply").returncode == 0
    before = machines.nft(machines.first)
    wrong = {"table": "pbserver_shop", "ruleset": "delete table inet pbserver_shop\nnonsense\n", "seconds": 5}
    assert "syntax error" in guard(machines, wrong)
    assert machines.nft(machines.first) == before
    assert machines.pbdeploy("apply").returncode == 0


def test_a_machine_that_cannot_be_reached_is_named_and_the_others_are_guarded(machines: Machines) -> None:
    write_layout(machines, [machines.first.address, machines.stranger.address])
    done = machines.pbdeploy("apply")
    assert done.returncode == 1
    assert f"pbdeploy: {machines.stranger.address}: root@" in done.stderr
    assert "1 of 2 machines have the new rules, the others the old" in done.stderr
    assert machines.reached_from(machines.second) == {PBSERVER, OTHER}


def guard(machines: Machines, call: dict[str, object]) -> str:
    """What the first member says about it."""
    address = machines.first.address
    (answer,) = ssh.run(firewall_commands.GUARD, {address: (machines.ssh, json.dumps(call))}).values()
    return json.loads(answer.text) if isinstance(answer, Answer) else str(answer)
