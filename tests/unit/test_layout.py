"""cluster.toml: what is a layout, and what is said about what is none."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from controller import layout
from controller.layout import Layout
from pbserver.settings import complaints

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy" / "layouts").glob("*.toml"))


def nodes(*roles: str) -> list[dict[str, Any]]:
    return [{"address": f"10.0.0.{number}", "roles": role.split("+")} for number, role in enumerate(roles, 1)]


def made(database: str, *roles: str, **more: Any) -> Layout:
    return Layout.model_validate({"name": "shop", "database": database, "nodes": nodes(*roles), **more})


def refused(database: str, *roles: str, **more: Any) -> str:
    with pytest.raises(ValidationError) as wrong:
        made(database, *roles, **more)
    return "\n".join(complaints(wrong.value))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_layouts_of_their_databases(example: Path) -> None:
    found = layout.read(example)
    assert found.database == example.stem
    assert found.gateways == found.machines
    assert [node.host for node in found.database_nodes()] == [machine.address for machine in found.machines]


def test_there_is_an_example_for_every_database() -> None:
    schema = Layout.model_json_schema()["properties"]["database"]["enum"]
    assert [example.stem for example in EXAMPLES] == sorted(schema)


def test_the_master_is_the_first_node_wherever_it_stands() -> None:
    found = made("hbase", "slave", "master", "slave")
    assert [machine.address for machine in found.machines] == ["10.0.0.2", "10.0.0.1", "10.0.0.3"]
    assert [node.number for node in found.database_nodes()] == [1, 2, 3]
    assert found.database_nodes()[0].data == Path("/var/lib/pbserver/shop/node1/data")


def test_every_node_has_a_number_and_a_directory_those_that_keep_data_first() -> None:
    found = made("cassandra", "gateway", "peer", "gateway", "peer")
    numbered = [(node.number, node.host[-1]) for node in found.every_node()]
    assert numbered == [(1, "2"), (2, "4"), (3, "1"), (4, "3")]
    assert len({node.directory for node in found.every_node()}) == 4
    assert [found.machine_of(node).address for node in found.every_node()] == [n.host for n in found.every_node()]


def test_engines_are_where_the_layout_says() -> None:
    assert made("mysql", "peer").engines_directory == Path("/var/lib/pbserver/engines")
    assert made("mysql", "peer", engines="/opt/e").engines_directory == Path("/opt/e")


def test_numbers_that_are_written_down_stay_whoever_comes_or_goes() -> None:
    given = nodes("peer", "peer", "gateway", "peer")
    for node, number in zip(given, (1, 3, 4, 7), strict=True):
        node["number"] = number
    found = made("cassandra", nodes=given)
    assert [(node.number, node.host[-1]) for node in found.every_node()] == [(1, "1"), (3, "2"), (7, "4"), (4, "3")]
    del given[3]["number"]
    assert made("cassandra", nodes=given).numbers["10.0.0.4"] == 2


def test_a_node_that_leaves_keeps_data_still_but_counts_neither_as_a_copy_nor_as_an_entry_point() -> None:
    given = nodes("peer", "peer", "peer")
    given[2]["leaving"] = True
    found = made("cassandra", nodes=given)
    assert (len(found.machines), found.copies) == (3, 2)
    assert [each.address for each in found.gateways] == ["10.0.0.1", "10.0.0.2"]


def test_gateways_are_those_that_are_named_and_may_keep_no_data() -> None:
    found = made("cassandra", "peer", "peer+gateway", "gateway")
    assert [machine.address for machine in found.gateways] == ["10.0.0.2", "10.0.0.3"]
    assert [machine.address for machine in found.machines] == ["10.0.0.1", "10.0.0.2"]


def test_keepers_are_those_that_are_named_beside_what_else_they_do() -> None:
    found = made("hbase", "slave+zookeeper", "master+gateway+zookeeper", "slave", "slave+zookeeper", "gateway")
    assert [machine.address for machine in found.keepers] == ["10.0.0.2", "10.0.0.1", "10.0.0.4"]
    assert [machine.address for machine in found.gateways] == ["10.0.0.2", "10.0.0.5"]
    assert len(found.machines) == 4
    assert made("hbase", "master", "slave").keepers == ()


@pytest.mark.parametrize(
    ("database", "count", "asked", "copies"),
    [
        ("cassandra", 1, None, 1),
        ("cassandra", 5, None, 3),
        ("cassandra", 5, 2, 2),
        ("mysql", 5, None, 5),
        ("mongodb", 1, None, 1),
    ],
)
def test_copies_of_every_row(database: str, count: int, asked: int | None, copies: int) -> None:
    assert made(database, *["peer"] * count, replication=asked).copies == copies


def test_a_node_differs_in_what_it_says_and_in_nothing_else() -> None:
    found = made("cassandra", "peer", "peer", ssh={"user": "root", "port": 22, "key": "/k"})
    other = found.nodes[1].model_copy(update={"ssh": layout.NodeSsh(port=2222)})  # type: ignore[call-arg]
    assert found.ssh_of(found.nodes[0]) == found.ssh
    assert found.ssh_of(other) == found.ssh.model_copy(update={"port": 2222})


def test_addresses_are_compared_as_addresses() -> None:
    same = nodes("peer", "peer")
    same[0]["address"], same[1]["address"] = "fd00::1", "fd00:0:0::0001"
    assert "fd00::1 is given 2 times" in refused("cassandra", nodes=same)


@pytest.mark.parametrize(
    ("database", "roles", "more", "said"),
    [
        ("cassandra", ["peer", "chief"], {}, "should be 'master', 'slave', 'peer', 'gateway' or 'zookeeper'"),
        ("cassandra", ["master", "peer"], {}, "10.0.0.1: cassandra has no role 'master', only peer and gateway"),
        ("hbase", ["peer"], {}, "10.0.0.1: hbase has no role 'peer', only master, slave, zookeeper and gateway"),
        ("hbase", ["slave", "slave"], {}, "0 nodes are master; hbase has exactly one"),
        ("hbase", ["master", "master"], {}, "2 nodes are master"),
        ("hbase", ["master+slave"], {}, "10.0.0.1: one role, and beside it zookeeper and gateway if"),
        ("hbase", ["master", "slave+zookeeper+zookeeper"], {}, "10.0.0.2: one role, and beside it"),
        ("hbase", ["master", "zookeeper"], {}, "10.0.0.2: zookeeper is a role beside master or slave, and never a"),
        ("hbase", ["master", "zookeeper+gateway"], {}, "10.0.0.2: zookeeper is a role beside master or slave"),
        ("hbase", ["master+zookeeper", "slave+zookeeper"], {}, "2 nodes are zookeeper; take 1, 3 or 5: more than half"),
        ("hbase", ["master", *["slave+zookeeper"] * 7], {}, "7 nodes are zookeeper; take 1, 3 or 5"),
        ("cassandra", ["peer+zookeeper"], {}, "10.0.0.1: cassandra has no role 'zookeeper', only peer and gateway"),
        (
            "hbase",
            [],
            {
                "nodes": [
                    {"address": "a", "roles": ["master"]},
                    {"address": "b", "roles": ["slave", "zookeeper"], "leaving": True},
                ]
            },
            "b: it has the role zookeeper and cannot leave: the quorum of a cluster stays as it was founded",
        ),
        ("cassandra", ["peer+peer"], {}, "10.0.0.1: one role"),
        ("cassandra", ["gateway"], {}, "no node keeps data: give one the role peer"),
        ("cassandra", [], {}, "nodes: tuple should have at least 1 item"),
        ("cassandra", ["peer", "peer"], {"replication": 3}, "replication is 3, but 2 nodes keep data"),
        ("cassandra", ["peer"], {"replication": 0}, "replication: input should be greater than or equal to 1"),
        ("mysql", ["peer"] * 3, {"replication": 2}, "Galera keeps every row on all 3 nodes; leave it out"),
        ("mongodb", ["peer", "peer"], {}, "2 nodes keep data; mongodb is run on up to 1"),
        ("cassandra", [], {"nodes": [{"address": "a", "roles": ["peer"], "number": 2}]}, "has number 1 and keeps it"),
        (
            "cassandra",
            [],
            {"nodes": [{"address": each, "roles": ["peer"], "number": 1} for each in ("a", "b")]},
            "number 1 is given 2 times",
        ),
        (
            "cassandra",
            [],
            {"nodes": [{"address": "a", "roles": ["peer"], "leaving": True}, {"address": "b", "roles": ["gateway"]}]},
            "a: the first node has the cluster's head and cannot leave",
        ),
        (
            "cassandra",
            [],
            {"nodes": [{"address": "a", "roles": ["peer"]}, {"address": "b", "roles": ["gateway"], "leaving": True}]},
            "no gateway stays",
        ),
        (
            "cassandra",
            [],
            {"nodes": [{"address": each, "roles": ["peer"], "tokens": [5]} for each in ("a", "b")]},
            "token 5 is given 2 times",
        ),
        (
            "cassandra",
            [],
            {"nodes": [{"address": "a", "roles": ["peer"], "tokens": [1 << 63]}]},
            "nodes.0.tokens.0: input should be less than 9223372036854775808",
        ),
        (
            "mongodb",
            [],
            {"nodes": [{"address": "a", "roles": ["peer"], "tokens": [1]}]},
            "a: tokens are for nodes that keep data of Cassandra",
        ),
        ("oracle", ["peer"], {}, "database: input should be 'cassandra', 'hbase', 'mongodb' or 'mysql'"),
        ("cassandra", ["peer"], {"name": "My Shop"}, "name: a small letter"),
        ("cassandra", ["peer"], {"directory": "data"}, "directory: not an absolute path"),
        ("cassandra", ["peer"], {"directory": "/"}, "directory: not an absolute path of a directory of its own"),
        ("cassandra", ["peer"], {"colour": "red"}, "colour: there is no such setting"),
        ("cassandra", ["peer"], {"ports": {"pbserver": 80, "admin": 80}}, "both 80; give each a port of its own"),
        ("cassandra", ["peer"], {"ports": {"agent": 10001}}, "pbserver and agent are both 10001"),
        ("cassandra", ["peer"], {"python": "python3"}, "python: not an absolute path"),
        ("mysql", [], {"nodes": [{"address": "db1", "roles": ["peer"]}]}, "db1: MariaDB asks no resolver who comes"),
        ("cassandra", ["peer"], {"ports": {"pbserver": 70000}}, "ports.pbserver: input should be less than 65536"),
        (
            "cassandra",
            ["peer"],
            {"nodes": [{"address": "10.0.0", "roles": ["peer"]}]},
            "nodes.0.address: neither an IP",
        ),
        ("cassandra", ["peer"], {"nodes": [{"address": "a b", "roles": ["peer"]}]}, "neither an IP address nor a host"),
        (
            "cassandra",
            ["peer"],
            {"nodes": [{"address": "a", "roles": ["peer"], "ssh": {"usr": "x"}}]},
            "ssh.usr: there is",
        ),
    ],
)
def test_what_does_not_fit_is_said(database: str, roles: list[str], more: dict[str, Any], said: str) -> None:
    assert said in refused(database, *roles, **more)


def test_everything_wrong_with_the_nodes_is_said_at_once() -> None:
    both = nodes("peer", "slave")
    both[1]["address"] = both[0]["address"]
    text = refused("cassandra", nodes=both, replication=9)
    assert "is given 2 times" in text
    assert "no role 'slave'" in text
    assert "replication is 9" in text


def test_a_file_that_is_no_toml_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("name = ")
    with pytest.raises(tomllib.TOMLDecodeError):
        layout.read(file)
