"""Who may connect to a cluster's nodes, as one nftables table for each machine. Pure.

Only ports of ours are ever closed: whatever else runs on a machine, SSH first of all, is not the table's concern. The
table is loaded by one transaction, so there is no moment without it, and none with half of it.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from controller import preflight
from controller.layout import Layout, Machine

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def table(layout: Layout) -> str:
    """The name of the table, in family inet."""
    return f"pbserver_{layout.name.replace('-', '_')}"


def ruleset(layout: Layout, machine: Machine, addresses: Mapping[str, Sequence[Address]]) -> str:
    """What `nft -f` loads; it takes the place of an older one. `addresses`: of every node, by what the layout calls it.

    The cluster's own ports are for its members alone, those of a gateway for `firewall.clients` and the members.
    """
    members = sorted({each for found in addresses.values() for each in found}, key=lambda each: (each.version, each))
    inner = {*preflight.ports(layout, machine)} - {layout.ports.pbserver, layout.ports.admin}
    rules = [f'iifname "lo" accept comment "{layout.name}"']
    if inner:
        rules += [*_accepted(members, inner), _dropped(inner)]
    if machine in layout.gateways:
        outer = {layout.ports.pbserver}
        rules += [*_accepted([*members, *layout.firewall.clients], outer), _dropped(outer)]
    body = "".join(f"        {rule}\n" for rule in rules)
    name = table(layout)
    return (
        f"table inet {name}\ndelete table inet {name}\n"  # made if it is not there, so that it can be deleted
        f"table inet {name} {{\n"
        "    chain input {\n"
        "        type filter hook input priority filter; policy accept;\n"
        f"{body}    }}\n}}\n"
    )


def empty(layout: Layout) -> str:
    """What takes the table away."""
    return f"table inet {table(layout)}\ndelete table inet {table(layout)}\n"


def _accepted(sources: Sequence[Address | Network], ports: set[int]) -> list[str]:
    rules = []
    for version, family in ((4, "ip"), (6, "ip6")):
        networks = [ipaddress.ip_network(str(each)) for each in sources if each.version == version]
        merged = ipaddress.collapse_addresses(networks)  # type: ignore[type-var]
        if listed := ", ".join(map(str, merged)):
            rules.append(f"{family} saddr {{ {listed} }} {_tcp(ports)} accept")
    return rules


def _dropped(ports: set[int]) -> str:
    return f"{_tcp(ports)} drop"


def _tcp(ports: set[int]) -> str:
    return f"tcp dport {{ {', '.join(map(str, sorted(ports)))} }}"
