"""The rules that a layout makes of itself."""

from ipaddress import IPv4Address, ip_address

import pytest

from controller import firewall
from controller.hosts import guard
from controller.layout import Layout, Machine
from tests.unit.test_layout import made

NOTHING_ELSE = "        type filter hook input priority filter; policy accept;"
PEERS = made("cassandra", "peer", "peer")
WITH_CLIENTS = made("cassandra", "peer", "gateway", firewall={"clients": ["10.1.0.0/16", "fd00::/8"]})


def rules(layout: Layout, machine: Machine) -> dict[str, str]:
    return firewall.rules(layout, machine, {each.address: [ip_address(each.address)] for each in layout.nodes})


def of_nftables(layout: Layout, number: int) -> list[str]:
    """Beside those of the agent's port."""
    text = rules(layout, layout.nodes[number])["nft"]
    assert text.startswith("table inet pbserver_shop {")
    lines = text.splitlines()
    return [line.strip() for line in lines[lines.index(NOTHING_ELSE) + 1 : -2]]


def test_a_peer_lets_its_like_in_and_everybody_to_its_pbserver() -> None:
    assert of_nftables(PEERS, 0) == [
        'iifname "lo" accept comment "shop"',
        "ip saddr { 10.0.0.1/32, 10.0.0.2/32 } tcp dport { 7000, 9042 } accept",
        "tcp dport { 7000, 9042 } drop",
        "ip saddr { 0.0.0.0/0 } tcp dport { 10001 } accept",
        "ip6 saddr { ::/0 } tcp dport { 10001 } accept",
        "tcp dport { 10001 } drop",
    ]


def test_a_gateway_without_data_has_its_own_port_alone_and_members_may_call_it() -> None:
    assert of_nftables(WITH_CLIENTS, 1) == [
        'iifname "lo" accept comment "shop"',
        "ip saddr { 10.0.0.1/32, 10.0.0.2/32, 10.1.0.0/16 } tcp dport { 10001 } accept",
        "ip6 saddr { fd00::/8 } tcp dport { 10001 } accept",
        "tcp dport { 10001 } drop",
    ]


@pytest.mark.parametrize(
    ("layout", "number", "command", "expected"),
    [
        (
            PEERS,
            0,
            "iptables",
            [
                "-i lo -j RETURN",
                "-s 10.0.0.1/32 -p tcp -m multiport --dports 10003 -j RETURN",
                "-s 10.0.0.2/32 -p tcp -m multiport --dports 10003 -j RETURN",
                "-p tcp -m multiport --dports 10003 -j DROP",
                "-s 10.0.0.1/32 -p tcp -m multiport --dports 7000,9042 -j RETURN",
                "-s 10.0.0.2/32 -p tcp -m multiport --dports 7000,9042 -j RETURN",
                "-p tcp -m multiport --dports 7000,9042 -j DROP",
                "-s 0.0.0.0/0 -p tcp -m multiport --dports 10001 -j RETURN",
                "-p tcp -m multiport --dports 10001 -j DROP",
            ],
        ),
        (
            PEERS,
            0,
            "ip6tables",
            [
                "-i lo -j RETURN",
                "-p tcp -m multiport --dports 10003 -j DROP",
                "-p tcp -m multiport --dports 7000,9042 -j DROP",
                "-s ::/0 -p tcp -m multiport --dports 10001 -j RETURN",
                "-p tcp -m multiport --dports 10001 -j DROP",
            ],
        ),
        (
            WITH_CLIENTS,
            1,
            "ip6tables",
            [
                "-i lo -j RETURN",
                "-p tcp -m multiport --dports 10003 -j DROP",
                "-s fd00::/8 -p tcp -m multiport --dports 10001 -j RETURN",
                "-p tcp -m multiport --dports 10001 -j DROP",
            ],
        ),
    ],
)
def test_iptables_has_the_same_rules_once_for_each_family(
    layout: Layout, number: int, command: str, expected: list[str]
) -> None:
    lines = rules(layout, layout.nodes[number])[command].splitlines()
    assert lines == [f"-A pbserver_shop {rule}" for rule in expected]


@pytest.mark.parametrize(
    "database",
    [
        ("cassandra", "peer"),
        ("hbase", "master+zookeeper", "slave+zookeeper", "slave+zookeeper"),
        ("mongodb", "peer"),
        ("mysql", "peer"),
    ],
)
def test_no_rule_names_more_ports_than_iptables_takes(database: tuple[str, ...]) -> None:
    layout = made(*database)
    agent, others = firewall.closed(layout, layout.nodes[0], {})
    assert max(len(each.ports) for each in (agent, *others)) <= 15


def test_who_is_no_gateway_says_nothing_of_its_port() -> None:
    layout = made("cassandra", "peer", "peer+gateway")
    assert not any("10001" in text for text in rules(layout, layout.nodes[0]).values())


def test_a_slave_closes_what_a_slave_has() -> None:
    layout = made("hbase", "master", "slave")
    assert any("2181" in rule for rule in of_nftables(layout, 0))
    assert not any("2181" in rule for rule in of_nftables(layout, 1))


def test_only_members_reach_the_ports_of_a_quorum() -> None:
    layout = made("hbase", "master+zookeeper", *["slave+zookeeper"] * 2, "slave")
    voter = of_nftables(layout, 1)
    inner = "tcp dport { 2181, 2888, 3888, 9091, 9864, 9867, 9966, 16020 }"
    assert voter[1:3] == [f"ip saddr {{ 10.0.0.1/32, 10.0.0.2/31, 10.0.0.4/32 }} {inner} accept", f"{inner} drop"]
    assert not any(port in rule for rule in of_nftables(layout, 3) for port in ("2181", "2888", "3888"))


def test_a_name_with_several_addresses_is_all_of_them() -> None:
    layout = made("mysql", "peer")
    both = {"10.0.0.1": [IPv4Address("10.0.0.1"), ip_address("fd00::1")]}
    found = firewall.rules(layout, layout.nodes[0], both)
    assert "ip saddr { 10.0.0.1/32 } tcp dport { 3306, 4444, 4567, 4568 } accept" in found["nft"]
    assert "ip6 saddr { fd00::1/128 } tcp dport { 3306, 4444, 4567, 4568 } accept" in found["nft"]
    assert "-s 10.0.0.1/32 -p tcp -m multiport --dports 3306,4444,4567,4568 -j RETURN" in found["iptables"]
    assert "-s fd00::1/128 -p tcp -m multiport --dports 3306,4444,4567,4568 -j RETURN" in found["ip6tables"]


def test_a_long_name_fits_a_chain_and_remains_a_name_of_its_own() -> None:
    first, second = (firewall.table(made("mysql", "peer", name=f"a-very-long-name-of-a-shop-{end}")) for end in "ab")
    assert first[:19] == second[:19] == "pbserver_a_very_lon"
    assert first != second
    assert len(first) == len(second) == 28
    assert firewall.table(made("mysql", "peer", name="a-shop")) == "pbserver_a_shop"


@pytest.mark.parametrize(
    ("command", "loaded", "jumps", "expected"),
    [
        ("nft", "table inet t {\n}\n", 0, "table inet t\ndelete table inet t\ntable inet t {\n}\n"),
        ("nft", "", 0, "table inet t\ndelete table inet t\n"),
        ("iptables", "-A t -j X\n", 0, "*filter\n:t - [0:0]\n-A t -j X\n-I INPUT -j t\nCOMMIT\n"),
        ("iptables", "-A t -j X\n", 1, "*filter\n:t - [0:0]\n-D INPUT -j t\n-A t -j X\n-I INPUT -j t\nCOMMIT\n"),
        ("ip6tables", "", 2, "*filter\n:t - [0:0]\n-D INPUT -j t\n-D INPUT -j t\n-X t\nCOMMIT\n"),
        ("ip6tables", "", 0, "*filter\n:t - [0:0]\n-X t\nCOMMIT\n"),
    ],
)
def test_a_swap_is_one_transaction(command: str, loaded: str, jumps: int, expected: str) -> None:
    assert guard.transaction(command, "t", loaded, jumps) == expected
