"""Who may connect to a cluster's nodes, as rules for each machine: of nftables, or of iptables and ip6tables. Pure.

Only ports of ours are ever closed: whatever else runs on a machine, SSH first of all, is not the rules' concern. They
are swapped in one transaction (hosts/guard.py), so there is no moment without them, and none with half of them.
"""

import ipaddress
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from controller import preflight
from controller.layout import Layout, Machine

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MOST_CHARACTERS = 28  # of the name of a chain of iptables
_VERSIONS = {"iptables": 4, "ip6tables": 6}


@dataclass(frozen=True, slots=True)
class Closed:
    """Ports for these sources alone, both in order and without doubles."""

    ports: tuple[int, ...]
    sources: tuple[Network, ...]


def table(layout: Layout) -> str:
    """The name of nftables' table, in family inet, or of the chains of iptables."""
    name = f"pbserver_{layout.name.replace('-', '_')}"
    if len(name) <= _MOST_CHARACTERS:
        return name
    mark = f"_{zlib.crc32(name.encode()):08x}"
    return name[: _MOST_CHARACTERS - len(mark)] + mark


def rules(layout: Layout, machine: Machine, addresses: Mapping[str, Sequence[Address]]) -> dict[str, str]:
    """By command, what it is to load: guard.transaction() swaps it in. `addresses`: of every node, by what the layout
    calls it.

    The cluster's own ports are for its members alone, those of a gateway for `firewall.clients` and the members.
    """
    agent, others = closed(layout, machine, addresses)
    return {
        "nft": _of_nftables(layout, agent, others),
        **{command: _of_iptables(table(layout), version, [agent, *others]) for command, version in _VERSIONS.items()},
    }


def none() -> dict[str, str]:
    """The rules of a machine that is to have none."""
    return dict.fromkeys(["nft", *_VERSIONS], "")


def closed(
    layout: Layout, machine: Machine, addresses: Mapping[str, Sequence[Address]]
) -> tuple[Closed, Sequence[Closed]]:
    """The agent's port, which every machine has, and what else is closed on this one."""
    members = [each for found in addresses.values() for each in found]
    inner = {*preflight.ports(layout, machine)} - {layout.ports.pbserver, layout.ports.admin, layout.ports.agent}
    others = []
    if inner:
        others.append(_closed(inner, members))
    if machine in layout.gateways:
        others.append(_closed({layout.ports.pbserver}, [*members, *layout.firewall.clients]))
    return _closed({layout.ports.agent}, members), others


def _closed(ports: set[int], sources: Sequence[Address | Network]) -> Closed:
    networks: list[Network] = []
    for version in (4, 6):
        found = [ipaddress.ip_network(str(each)) for each in sources if each.version == version]
        networks += ipaddress.collapse_addresses(found)  # type: ignore[type-var]
    return Closed(tuple(sorted(ports)), tuple(networks))


def _of_nftables(layout: Layout, agent: Closed, others: Sequence[Closed]) -> str:
    """The agent's port has a chain of its own: it is the one that every machine has."""
    first = ['iifname "lo" accept', *_nft_rules(agent)]
    second = [f'iifname "lo" accept comment "{layout.name}"', *(rule for each in others for rule in _nft_rules(each))]
    return (
        f"table inet {table(layout)} {{\n"
        "    chain agent {\n"
        "        type filter hook input priority filter - 1; policy accept;\n"
        f"{_indented(first)}    }}\n"
        "    chain input {\n"
        "        type filter hook input priority filter; policy accept;\n"
        f"{_indented(second)}    }}\n}}\n"
    )


def _nft_rules(closed: Closed) -> list[str]:
    ports = f"tcp dport {{ {', '.join(map(str, closed.ports))} }}"
    accepted = []
    for version, family in ((4, "ip"), (6, "ip6")):
        if listed := ", ".join(str(each) for each in closed.sources if each.version == version):
            accepted.append(f"{family} saddr {{ {listed} }} {ports} accept")
    return [*accepted, f"{ports} drop"]


def _indented(rules: Sequence[str]) -> str:
    return "".join(f"        {rule}\n" for rule in rules)


def _of_iptables(chain: str, version: int, closed: Sequence[Closed]) -> str:
    """RETURN, not ACCEPT: what others have put into the tables still has its say, as it has beside nftables' table."""
    rules = ["-i lo -j RETURN"]
    for each in closed:
        ports = f"-p tcp -m multiport --dports {','.join(map(str, each.ports))}"
        rules += [f"-s {source} {ports} -j RETURN" for source in each.sources if source.version == version]
        rules.append(f"{ports} -j DROP")
    return "".join(f"-A {chain} {rule}\n" for rule in rules)
