"""`pbdeploy firewall`: who may connect to a cluster's nodes."""

import json
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from controller import firewall
from controller.firewall import Address
from controller.hosts import guard, ssh
from controller.hosts.ssh import Unreachable
from controller.layout import Layout
from deploy import layout_commands
from deploy.layout_commands import File
from deploy.machines import Machines, named
from deploy.watching import fail, watched

#: Runs on the machines.
GUARD = Path(guard.__file__).read_text(encoding="utf-8")

app = typer.Typer(help="Who may connect to a cluster's nodes.", no_args_is_help=True)

Seconds = Annotated[float, typer.Option(min=1, help="Without an answer by then a machine takes the rules back.")]
Iptables = Annotated[bool, typer.Option("--iptables", help="As a machine without nftables takes them.")]


@app.command()
def show(file: File = Path("cluster.toml"), *, iptables: Iptables = False) -> None:
    """Prints the rules of every machine, as `nft -f` or `iptables-restore --noflush` takes them."""
    wanted = layout_commands.read(file)
    for address, rules in _rules(wanted).items():
        for command, text in rules.items():
            if iptables == (command != "nft"):
                loaded = guard.transaction(command, firewall.table(wanted), text)
                typer.echo(f"# {address}, {command}\n{loaded}")


@app.command()
def apply(file: File = Path("cluster.toml"), seconds: Seconds = 30) -> None:
    """Loads the rules on every machine, each at once as a whole, and confirms them through a second connection.

    A machine that cannot be reached any more goes back to what it had. Only our own ports are ever closed, never SSH.
    """
    wanted = layout_commands.read(file)
    _load(wanted, _rules(wanted), seconds)
    typer.echo(f"{wanted.name}: rules are in force on {len(wanted.nodes)} machines")


@app.command()
def remove(file: File = Path("cluster.toml"), seconds: Seconds = 30) -> None:
    """Takes the rules away from every machine."""
    wanted = layout_commands.read(file)
    _load(wanted, {each.address: firewall.none() for each in wanted.nodes}, seconds)
    typer.echo(f"{wanted.name}: no rules are in force")


def _load(wanted: Layout, rules: Mapping[str, Mapping[str, str]], seconds: float) -> None:
    """`rules`: by address and command."""
    table = firewall.table(wanted)
    with watched("loading the rules"):
        loading = {address: {"table": table, "rules": each, "seconds": seconds} for address, each in rules.items()}
        troubles = _guarded(wanted, loading)
        loaded = [address for address, trouble in troubles.items() if not trouble]
        troubles |= _guarded(wanted, {address: {"table": table} for address in loaded})
        _keep(wanted, {address: rules[address] for address in loaded if not troubles[address]})
    lines = [f"{address}: {trouble}" for address, trouble in troubles.items() if trouble]
    if lines:
        fail(*lines, f"{len(rules) - len(lines)} of {len(rules)} machines have the new rules, the others the old")


def _keep(wanted: Layout, rules: Mapping[str, Mapping[str, str]]) -> None:
    """Has nodes load rules at boot, or none: `rules` by address."""
    machines, table = Machines(wanted), firewall.table(wanted)
    nodes = {node: {"table": table, "rules": rules[node.host]} for node in machines.nodes if node.host in rules}
    for node, said in machines.tried("keep_rules", nodes).items():
        if "error" in said:
            fail(f"{named(node)}: the rules are in force, but not written down for its next boot: {said['error']}")
        if not said["kept"] and any(rules[node.host].values()):
            typer.echo(f"{named(node)} forgets rules with a reboot: pbdeploy up first, and then this again", err=True)


def _guarded(wanted: Layout, calls: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """What is wrong, by address; empty: nothing."""
    reached = {each.address: wanted.ssh_of(each) for each in wanted.nodes}
    answers = ssh.run(GUARD, {address: (reached[address], json.dumps(call)) for address, call in calls.items()})
    return {
        address: str(answer) if isinstance(answer, Unreachable) else str(json.loads(answer.text)).strip()
        for address, answer in answers.items()
    }


def _rules(wanted: Layout) -> dict[str, dict[str, str]]:
    addresses = {each.address: _addresses(each.address) for each in wanted.nodes}
    return {each.address: firewall.rules(wanted, each, addresses) for each in wanted.nodes}


def _addresses(name: str) -> list[Address]:
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        fail(f"{name}: the name cannot be resolved: {error.strerror}")
    return sorted({ip_address(str(place[0])) for *_, place in found}, key=str)
