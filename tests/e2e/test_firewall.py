"""`pbdeploy firewall` on hosts of the tests' own: who reaches what, by connecting from inside and outside."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
NFT, IPTABLES = ("nft",), ("iptables", "ip6tables")


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
        with ThreadPoolExecutor() as pool:
            reached = pool.map(lambda port: host.reaches(address, port), EVERYTHING)
        return {port for port, open_ in zip(EVERYTHING, reached, strict=True) if open_}

    def pbdeploy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploy", "firewall", *arguments, str(self.layout)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=90)

    def nft(self, host: Host) -> str:
        """All rules of a host, those of iptables too: here it writes nftables' rules. Without counters."""
        return re.sub(r"counter packets \d+ bytes \d+ ", "", self.on(host, "nft", "list", "ruleset"))

    def iptables(self, host: Host) -> list[str]:
        """All rules of a host and its chains, of IPv4 and then IPv6, in order."""
        saved = [line for each in IPTABLES for line in self.on(host, f"{each}-save", "-t", "filter").splitlines()]
        return [line.partition(" [")[0] for line in saved if line.startswith((":", "-A"))]

    def on(self, host: Host, *command: str, text: str = "") -> str:
        inside = ["ip", "netns", "exec", host.namespace, *command]
        return subprocess.run(inside, input=text, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    """`request.param`: which of NFT and IPTABLES they have; both, unless a test says otherwise."""
    need_command("nft", ["nftables"], print)
    need_command("iptables", ["iptables"], print)
    hidden = without([each for each in (*NFT, *IPTABLES) if each not in getattr(request, "param", (*NFT, *IPTABLES))])
    with ExitStack() as stack:
        first, second, stranger = stack.enter_context(hosts(3))
        key = tmp_path / "key"
        servers = [
            stack.enter_context(
                Sshd(tmp_path / each.namespace, host=each.address, inside=[*each.inside, *hidden], key=key)
            )
            for each in (first, second)
        ]
        known = tmp_path / "known_hosts"
        known.write_text("".join(server.known_hosts.read_text() for server in servers))
        stack.enter_context(first.listening(CQL, STORAGE, PBSERVER, OTHER))
        reached = Ssh(user="root", port=2222, key=key, known_hosts=known, connect_seconds=3)
        machines = Machines(first, second, stranger, reached, tmp_path / "cluster.toml")
        write_layout(machines, [first.address, second.address])
        yield machines


def without(commands: Sequence[str]) -> list[str]:
    """What to put before a program that is not to find these; on a host they are hidden for that program alone."""
    hiding = "".join(f"mount --bind /dev/null {shutil.which(each)} && " for each in commands)
    return ["sh", "-c", f'{hiding}exec "$@"', "without"]


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


@pytest.mark.parametrize("machines", [IPTABLES], indirect=True, ids=["iptables"])
def test_iptables_does_it_where_nftables_is_missing_and_what_others_put_there_stays(machines: Machines) -> None:
    for command in IPTABLES:
        machines.on(machines.first, command, "-N", "theirs")
        machines.on(machines.first, command, "-A", "INPUT", "-p", "tcp", "-j", "ACCEPT")
    before = machines.iptables(machines.first)
    assert machines.pbdeploy("apply").returncode == 0
    assert machines.reached_from(machines.second) == EVERYTHING
    write_layout(machines, [machines.first.address])
    done = machines.pbdeploy("apply")
    assert (done.stdout, done.returncode) == ("shop: rules are in force on 1 machines\n", 0), done.stderr
    assert machines.reached_from(machines.first) == EVERYTHING
    assert machines.reached_from(machines.second) == {PBSERVER, OTHER}, "it is no member any more"
    assert machines.reached_from(machines.second, ipv6=True) == {PBSERVER, OTHER}
    after = machines.iptables(machines.first)
    assert after.count("-A INPUT -j pbserver_shop") == len(IPTABLES)
    assert [rule for rule in after if "pbserver_shop" not in rule] == before
    assert "inet" not in machines.nft(machines.first)
    assert machines.pbdeploy("remove").returncode == 0
    assert machines.iptables(machines.first) == before
    assert machines.reached_from(machines.second) == EVERYTHING


def test_where_nftables_comes_later_rules_of_iptables_are_not_doubled(machines: Machines) -> None:
    for command in IPTABLES:
        machines.on(machines.first, command, "-N", "pbserver_shop")
        machines.on(machines.first, command, "-A", "pbserver_shop", "-p", "tcp", "-j", "DROP")
    assert machines.pbdeploy("apply").returncode == 0
    assert "inet" not in machines.nft(machines.first)
    assert "-A pbserver_shop -p tcp -j DROP" not in machines.iptables(machines.first)
    assert "inet" in machines.nft(machines.second)
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}


# The connection that loads it ends in peace.
LOCKED_NFT = "tcp flags & (syn | ack) == syn tcp dport 2222 drop"
LOCKED_IPTABLES = "-A pbserver_shop -p tcp -m tcp --dport 2222 --tcp-flags SYN,ACK SYN -j DROP\n"
CHAIN = "type filter hook input priority filter; policy accept;"
LOCKING = {
    "nft": f"table inet pbserver_shop {{\n chain lock {{\n {CHAIN}\n {LOCKED_NFT}\n }}\n}}\n",
    "iptables": LOCKED_IPTABLES,
    "ip6tables": LOCKED_IPTABLES,
}


@pytest.mark.parametrize("machines", [NFT, IPTABLES], indirect=True, ids=["nft", "iptables"])
def test_rules_that_lock_the_operator_out_are_taken_back(machines: Machines) -> None:
    """Our own never do, so these are made up."""
    assert machines.pbdeploy("apply").returncode == 0
    assert guard(machines, {"table": "pbserver_shop", "rules": LOCKING, "seconds": 10}) == ""
    assert "dport 2222" in machines.nft(machines.first)
    assert "no answer" in guard(machines, {"table": "pbserver_shop"})
    end = time.monotonic() + 60
    while "dport 2222" in machines.nft(machines.first):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}, "the rules of before"
    assert "taken back before it was confirmed" in guard(machines, {"table": "pbserver_shop"})


@pytest.mark.parametrize(
    ("machines", "rules", "complaint"),
    [
        (NFT, {"nft": "nonsense\n"}, "syntax error"),
        # IPv4's are in force by the time that IPv6's are refused.
        (IPTABLES, {"iptables": LOCKED_IPTABLES, "ip6tables": "-A pbserver_shop -j NONSENSE\n"}, "NONSENSE"),
    ],
    indirect=["machines"],
    ids=["nft", "iptables"],
)
def test_what_is_refused_changes_nothing_and_leaves_nothing_waiting(
    machines: Machines, rules: dict[str, str], complaint: str
) -> None:
    assert machines.pbdeploy("apply").returncode == 0
    before = machines.nft(machines.first)
    assert complaint in guard(machines, {"table": "pbserver_shop", "rules": rules, "seconds": 5})
    assert machines.nft(machines.first) == before
    assert guard(machines, {"table": "pbserver_shop", "rules": dict.fromkeys(LOCKING, ""), "seconds": 5}) == ""


def test_show_prints_what_a_machine_without_nftables_would_load(machines: Machines) -> None:
    shown = machines.pbdeploy("show", "--iptables").stdout
    loads = shown.split("# ")[1:]
    assert [each.partition("\n")[0] for each in loads] == [
        f"{host.address}, {command}" for host in (machines.first, machines.second) for command in IPTABLES
    ]
    for each, command in zip(loads, IPTABLES * 2, strict=True):
        machines.on(machines.first, f"{command}-restore", "--noflush", text=each.partition("\n")[2])
    assert machines.reached_from(machines.stranger) == {PBSERVER, OTHER}


@pytest.mark.parametrize("machines", [()], indirect=True, ids=["neither"])
def test_a_machine_with_neither_says_so_and_leaves_nothing_waiting(machines: Machines) -> None:
    for _ in range(2):
        found = guard(machines, {"table": "pbserver_shop", "rules": LOCKING, "seconds": 5})
        assert found == "there is neither nft nor iptables; install nftables"


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
