"""The rules that a layout makes of itself."""

from ipaddress import IPv4Address, ip_address

from controller import firewall
from controller.layout import Layout
from tests.unit.test_layout import made

NOTHING_ELSE = "        type filter hook input priority filter; policy accept;"


def rules(layout: Layout, number: int) -> list[str]:
    machine = layout.nodes[number]
    addresses = {each.address: [ip_address(each.address)] for each in layout.nodes}
    text = firewall.ruleset(layout, machine, addresses)
    assert text.startswith("table inet pbserver_shop\ndelete table inet pbserver_shop\ntable inet pbserver_shop {")
    lines = text.splitlines()
    return [line.strip() for line in lines[lines.index(NOTHING_ELSE) + 1 : -2]]


def test_a_peer_lets_its_like_in_and_everybody_to_its_pbserver() -> None:
    assert rules(made("cassandra", "peer", "peer"), 0) == [
        'iifname "lo" accept comment "shop"',
        "ip saddr { 10.0.0.1/32, 10.0.0.2/32 } tcp dport { 7000, 9042 } accept",
        "tcp dport { 7000, 9042 } drop",
        "ip saddr { 0.0.0.0/0 } tcp dport { 10001 } accept",
        "ip6 saddr { ::/0 } tcp dport { 10001 } accept",
        "tcp dport { 10001 } drop",
    ]


def test_a_gateway_without_data_has_its_own_port_alone_and_members_may_call_it() -> None:
    layout = made("cassandra", "peer", "gateway", firewall={"clients": ["10.1.0.0/16", "fd00::/8"]})
    assert rules(layout, 1) == [
        'iifname "lo" accept comment "shop"',
        "ip saddr { 10.0.0.1/32, 10.0.0.2/32, 10.1.0.0/16 } tcp dport { 10001 } accept",
        "ip6 saddr { fd00::/8 } tcp dport { 10001 } accept",
        "tcp dport { 10001 } drop",
    ]


def test_who_is_no_gateway_says_nothing_of_its_port() -> None:
    assert not any("10001" in rule for rule in rules(made("cassandra", "peer", "peer+gateway"), 0))


def test_a_slave_closes_what_a_slave_has() -> None:
    layout = made("hbase", "master", "slave")
    assert any("2181" in rule for rule in rules(layout, 0))
    assert not any("2181" in rule for rule in rules(layout, 1))


def test_a_name_with_several_addresses_is_all_of_them() -> None:
    layout = made("mysql", "peer")
    both = {"10.0.0.1": [IPv4Address("10.0.0.1"), ip_address("fd00::1")]}
    text = firewall.ruleset(layout, layout.nodes[0], both)
    assert "ip saddr { 10.0.0.1/32 } tcp dport { 3306, 4444, 4567, 4568 } accept" in text
    assert "ip6 saddr { fd00::1/128 } tcp dport { 3306, 4444, 4567, 4568 } accept" in text
