"""Whether machines will do for a layout, before one of them is touched. Pure: facts in, problems out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.agent.parts import Parts
from controller.databases import recipe as recipe_called
from controller.engines.catalog import ENGINES
from controller.hosts import facts
from controller.hosts.facts import Facts
from controller.layout import Layout, Machine
from controller.recipe import Needs

_PYTHON = (3, 11)
_MOST_SKEW_SECONDS = 1.0  # versions and leases come from clocks
_DISK_MIB = 2048  # engines, logs, an empty database, and some room
_PBSERVER_MIB = 256
_TWO = 2
_LOOPBACK = "127.0.0.1"
#: In a node's directory; the longest of the sockets: MariaDB's has a relative path. supervisord makes it with its pid
#: behind the name.
_SOCKET = "run/supervisor.sock.4194304"
_MOST_SOCKET_BYTES = 107


@dataclass(frozen=True, slots=True)
class Problem:
    """`fatal`: it would not work; otherwise it would, worse than the operator may expect."""

    address: str  #: empty: of the whole cluster
    text: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.address}: {self.text}" if self.address else self.text


def ports(layout: Layout, machine: Machine) -> dict[int, str]:
    """Every port that something of ours will listen on there -> what that is."""
    found = {layout.ports.agent: "the agent", **_needs(layout, machine).ports}
    if machine in layout.gateways:
        found |= {layout.ports.pbserver: "pbserver", layout.ports.admin: "pbserver's admin port"}
    return found


def question(layout: Layout, machine: Machine) -> str:
    """What the machine is to be asked (facts.request)."""
    listens = {port: _LOOPBACK if port == layout.ports.admin else machine.address for port in ports(layout, machine)}
    return facts.request([layout.directory], listens, machine.address)


def of_layout(layout: Layout) -> list[Problem]:
    """What can be said without asking a machine."""
    found = [Problem("", text) for text in (*_of_paths(layout), *_of_versions(layout))]
    for machine in layout.nodes:
        found += [Problem(machine.address, text) for text in _of_doubled_ports(layout, machine)]
    count = len(layout.machines)
    if layout.database == "mysql" and count == _TWO:
        text = "with 2 nodes neither serves when it loses sight of the other; take 1 or 3"
        found.append(Problem("", text, fatal=False))
    if layout.copies == 1 and layout.database != "mongodb":
        text = "every row is kept once: with a node its data is gone"
        found.append(Problem("", text, fatal=False))
    return found


def _of_doubled_ports(layout: Layout, machine: Machine) -> Sequence[str]:
    given = {"agent": layout.ports.agent}
    if machine in layout.gateways:
        given |= {"pbserver": layout.ports.pbserver, "admin": layout.ports.admin}
    theirs = _needs(layout, machine).ports
    texts = [
        f"ports.{name} is {port}, which {layout.database} needs for {theirs[port]}; choose another"
        for name, port in given.items()
        if port in theirs
    ]
    if (what := ports(layout, machine).get(layout.ssh_of(machine).port)) is not None:
        texts.append(f"its SSH port is the one for {what}; choose another for one of them")
    return texts


def _of_paths(layout: Layout) -> Sequence[str]:
    longest = max((str(node.directory / _SOCKET) for node in layout.every_node()), key=len)
    if (over := len(os.fsencode(longest)) - _MOST_SOCKET_BYTES) <= 0:
        return []
    return [
        f"`directory` and `name` are {over} bytes too long: the path of a socket on a node, {longest}, may have "
        f"{_MOST_SOCKET_BYTES}; shorten one of them"
    ]


def _of_versions(layout: Layout) -> Sequence[str]:
    """Engines come in the versions that were tried, and in no others."""
    there = {name: ENGINES[name].version for name in recipe_called(layout.database).ENGINES}
    brings = ", ".join(f"{name} {version}" for name, version in there.items())
    return [
        f"versions.{name} is {version}; this PBServer runs {layout.database} with {brings} and with nothing else: "
        "ask for that, or leave it out"
        for name, version in layout.versions.items()
        if there.get(name) != version
    ]


def of_machine(layout: Layout, machine: Machine, found: Facts) -> list[Problem]:
    """What a machine's facts mean for what it is to do."""
    texts = [*_of_the_system(found), *_of_room(layout, machine, found), *_of_ports(layout, machine, found)]
    return [Problem(machine.address, text) for text in texts]


def of_machines(layout: Layout, answers: Mapping[str, Facts | Exception]) -> list[Problem]:
    """By address: what every machine has answered, or why it has not."""
    problems: list[Problem] = []
    for machine in layout.nodes:
        answer = answers[machine.address]
        if isinstance(answer, Exception):
            problems.append(Problem(machine.address, str(answer)))
        else:
            problems += of_machine(layout, machine, answer)
    return problems + _of_clocks({address: each for address, each in answers.items() if isinstance(each, Facts)})


def _of_the_system(found: Facts) -> Sequence[str]:
    texts = []
    if found.python[:2] < _PYTHON:
        texts.append(f"Python is {'.'.join(map(str, found.python))}; install 3.11 or newer")
    if not found.root:
        texts.append("the user is not root, who is needed for services that come back after a reboot")
    if not found.has_address:
        texts.append("the address is not one of the machine's own, so nothing could listen on it")
    return texts


def _of_room(layout: Layout, machine: Machine, found: Facts) -> Sequence[str]:
    texts = []
    wanted = _needs(layout, machine).memory_mib + _PBSERVER_MIB * (machine in layout.gateways)
    if found.available_mib < wanted:
        texts.append(f"{found.available_mib} MiB of memory are free, {wanted} are needed")
    free = found.free_mib[str(layout.directory)]
    if free < _DISK_MIB:
        texts.append(f"{free} MiB are free for {layout.directory}, {_DISK_MIB} are needed")
    return texts


def _of_ports(layout: Layout, machine: Machine, found: Facts) -> Sequence[str]:
    """A port that a service of this very cluster holds is not in the way."""
    ours = f"{layout.directory / layout.name}/"
    return [
        f"port {port}, for {name}, is taken by {found.taken[port] or 'another user'}"
        for port, name in ports(layout, machine).items()
        if port in found.taken and ours not in found.taken[port]
    ]


def _needs(layout: Layout, machine: Machine) -> Needs:
    """Of the database alone."""
    parts = Parts(layout)
    return parts.recipe.needs(layout.node_of(machine), parts.cluster()) if machine.keeps_data else Needs(0, {})


def _of_clocks(found: Mapping[str, Facts]) -> list[Problem]:
    """Machines are compared with each other, so ours does not matter."""
    if not found:
        return []
    ahead = {address: each.ahead_seconds for address, each in found.items()}
    middle = sorted(ahead.values())[len(ahead) // 2]
    return [
        Problem(
            address, f"its clock is {abs(seconds - middle):.1f} s {'ahead' if seconds > middle else 'behind'}; run NTP"
        )
        for address, seconds in ahead.items()
        if abs(seconds - middle) > _MOST_SKEW_SECONDS
    ]
