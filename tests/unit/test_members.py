"""Other nodes for a cluster that is up: what may change, and how it is written down."""

from pathlib import Path
from typing import Any

import pytest

from controller.agent.parts import Parts
from controller.layout import Layout, Role
from deploy import layout_file, members
from tests.unit.test_layout import made, nodes

EXAMPLES = Path(__file__).parents[2] / "deploy" / "layouts"


def changed(layout: Layout, change: dict[str, dict[str, Any]]) -> Layout:
    """`change`: by address; empty for a node that goes."""
    kept = [each.model_dump() | change.get(each.address, {}) for each in layout.nodes]
    there = [each for each in kept if change.get(each["address"]) != {}]
    new = [each for address, each in change.items() if each and address not in layout.numbers]
    return Layout.model_validate(layout.model_dump() | {"nodes": [*there, *new]})


def peer(address: str, **more: Any) -> dict[str, Any]:
    return {"address": address, "roles": ["peer"], **more}


THREE = made("cassandra", nodes=[{**each, "number": at} for at, each in enumerate(nodes(*["peer"] * 3), 1)])


@pytest.mark.parametrize("database", ["cassandra", "hbase", "mongodb", "mysql"])
def test_a_node_that_came_and_went_leaves_only_numbers_behind(database: str) -> None:
    text = (EXAMPLES / f"{database}.toml").read_text()
    before = layout_file.parsed(text)
    grown = layout_file.with_node(text, before, "10.0.0.9", [Role.GATEWAY])
    more = layout_file.parsed(grown)
    assert more.numbers == {**before.numbers, "10.0.0.9": len(before.nodes) + 1}
    assert {each.address for each in more.gateways} == {*before.numbers, "10.0.0.9"}, "those that were stay gateways"
    marked = layout_file.with_leaving(grown, more, "10.0.0.9")
    assert [each.address for each in layout_file.parsed(marked).nodes if each.leaving] == ["10.0.0.9"]
    after = layout_file.without(marked, layout_file.parsed(marked), ["10.0.0.9"])
    assert layout_file.parsed(after).numbers == before.numbers
    assert {line for line in text.splitlines() if "#" in line} - {*after.splitlines()} == {
        line for line in text.splitlines() if line.startswith("roles = ") and "#" in line
    }


def test_without_a_node_the_others_keep_their_numbers() -> None:
    text = (EXAMPLES / "mysql.toml").read_text()
    shrunk = layout_file.without(text, layout_file.parsed(text), ["10.0.0.2"])
    after = layout_file.parsed(shrunk)
    assert after.numbers == {"10.0.0.1": 1, "10.0.0.3": 3}
    grown = layout_file.with_node(shrunk, after, "10.0.0.9", [Role.PEER])
    assert layout_file.parsed(grown).numbers["10.0.0.9"] == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"10.0.0.4": peer("10.0.0.4")}, []),
        ({"10.0.0.2": {"leaving": True}}, []),
        ({"10.0.0.4": {"address": "10.0.0.4", "roles": ["gateway"]}}, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ({"10.0.0.4": peer("10.0.0.4"), "10.0.0.5": peer("10.0.0.5")}, ["are new; nodes that keep data join one at a"]),
        ({"10.0.0.3": {}}, ["10.0.0.3 is not in the file any more; put it back"]),
        ({"10.0.0.3": {"number": 9}}, ["the number or the roles of 10.0.0.3 changed"]),
    ],
)
def test_what_may_change_while_a_cluster_is_up(change: dict[str, dict[str, Any]], said: list[str]) -> None:
    found = members.not_while_up(THREE, changed(THREE, change))
    assert len(found) == len(said), found
    assert all(any(text in each for each in found) for text in said), found


def test_a_node_that_is_leaving_goes_but_is_not_kept() -> None:
    leaving = changed(THREE, {"10.0.0.2": {"leaving": True}})
    assert members.not_while_up(leaving, changed(leaving, {"10.0.0.2": {}})) == []
    (said,) = members.not_while_up(leaving, THREE)
    assert said == "10.0.0.2 is leaving, and cannot be kept any more: leaving = true"
    assert members.same(THREE, THREE)
    assert not members.same(THREE, leaving)


def test_numbers_written_down_are_no_change() -> None:
    bare = made("cassandra", "peer", "peer", "peer")
    assert members.same(bare, THREE)
    assert members.not_while_up(bare, THREE) == []


def test_one_mariadb_does_not_become_a_galera_while_it_is_up() -> None:
    one = made("mysql", "peer")
    (said,) = members.not_while_up(one, changed(one, {"10.0.0.2": peer("10.0.0.2")}))
    assert "mysql on 1 is not made to grow" in said


def test_a_node_keeps_its_tokens() -> None:
    first, second, third = THREE.nodes
    others = THREE.model_copy(update={"nodes": (first, second, third.model_copy(update={"tokens": (1, 2)}))})
    assert members.not_while_up(THREE, others) == [
        f"the tokens of {third.address} changed; the node keeps those that it has"
    ]


QUORUM = made("hbase", *["slave+zookeeper"] * 2, "master+zookeeper", "slave")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"10.0.0.5": {"address": "10.0.0.5", "roles": ["slave"]}}, ""),
        ({each: {"roles": ["slave"]} for each in ("10.0.0.1", "10.0.0.2")}, "node1, node2, node3 had it, node1 has it"),
        (
            {"10.0.0.1": {"roles": ["slave"]}, "10.0.0.4": {"roles": ["slave", "zookeeper"]}},
            "node1, node2, node3 had it, node1, node3, node4 has it now",
        ),
        (
            {each: {"roles": [role]} for each, role in zip(QUORUM.numbers, ["master", "slave", "slave"], strict=False)},
            "node1, node2, node3 had it, no node has it now; put that back, the quorum of a cluster stays as it was",
        ),
    ],
)
def test_a_cluster_that_is_up_keeps_its_quorum(change: dict[str, dict[str, Any]], said: str) -> None:
    found = "; ".join(members.not_while_up(QUORUM, changed(QUORUM, change)))
    assert (said in found) if said else not found
    assert "the roles of" not in found, "down would not help"


@pytest.mark.parametrize(
    ("layout", "number", "away", "said"),
    [
        (made("mysql", *["peer"] * 3), 3, False, ""),
        (made("mysql", *["peer"] * 3), 3, True, ""),
        (made("mysql", *["peer"] * 3), 1, False, "it is the first node, which has the cluster's head"),
        (made("mysql", *["peer"] * 2), 2, False, "mysql cannot go down to 1 while it is up"),
        (made("cassandra", *["peer"] * 4), 4, False, ""),
        (made("cassandra", *["peer"] * 4), 4, True, "cassandra needs it to move its data off; bring it back first"),
        (made("cassandra", *["peer"] * 3), 3, False, "3 copies of every row are kept, and 2 nodes would be left"),
        (made("cassandra", *["peer"] * 3, replication=2), 3, False, ""),
        (made("hbase", "master", *["slave"] * 3), 1, False, "cluster's head and the masters"),
        (made("hbase", "master", *["slave"] * 3), 4, False, ""),
        (made("hbase", "master", *["slave"] * 3), 4, True, "hbase needs it to move its data off; bring it back first"),
        (made("hbase", "master", "slave", "slave"), 2, False, "3 copies of every row are kept, and 2 nodes would be"),
        (made("hbase", "master", "slave", "slave", replication=2), 2, False, ""),
        (QUORUM, 2, False, "it has the role zookeeper, and the quorum of a cluster stays as it was founded"),
        (QUORUM, 3, True, "down --wipe, up, restore); remove another node"),
        (QUORUM, 4, False, ""),
        (made("mongodb", "peer", "gateway", "gateway"), 3, False, ""),
        (made("mongodb", "peer", "gateway", "gateway"), 3, True, ""),
    ],
)
def test_who_can_leave(layout: Layout, number: int, away: bool, said: str) -> None:
    machine = next(each for each in layout.nodes if layout.numbers[each.address] == number)
    found = "; ".join(members.cannot_leave(layout, machine, away=away))
    assert (said in found) if said else not found


@pytest.mark.parametrize(
    ("layout", "roles"),
    [
        (made("cassandra", "peer", "peer+gateway", "gateway"), [Role.PEER, Role.GATEWAY]),
        (made("hbase", "master"), [Role.SLAVE]),
        (made("hbase", "master+gateway"), [Role.SLAVE, Role.GATEWAY]),
        (made("hbase", "master+zookeeper", "slave+zookeeper", "slave+zookeeper"), [Role.SLAVE]),
    ],
)
def test_a_node_that_joins_is_like_the_last_but_neither_master_nor_zookeeper(layout: Layout, roles: list[Role]) -> None:
    assert members.usual_roles(layout) == roles


def test_galera_lets_in_the_nodes_of_the_layout_and_nobody_else() -> None:
    parts = Parts(made("mysql", "peer", "peer", "peer", "gateway"))
    (command,) = parts.recipe.admission(parts.nodes[2], parts.cluster())
    assert "--socket=data/mariadbd.sock" in command.arguments, "relative to the node's directory"
    for number in (1, 2, 3, 4):
        assert f"CREATE USER IF NOT EXISTS pbserver@'10.0.0.{number}';" in command.text
    assert "host NOT IN ('10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4');" in command.text


def test_hdfs_is_told_who_is_to_store_no_blocks_when_its_regions_have_moved() -> None:
    four = made("hbase", "master", *["slave"] * 3)
    parts, away = Parts(four), Parts(changed(four, {"10.0.0.3": {"leaving": True}}))
    for view, listed in ((parts, ""), (away, "10.0.0.3\n")):
        for node in view.nodes.values():
            found = view.recipe.files(node, view.cluster())
            assert found[node.conf / "excluded"] == listed
            assert f"<value>{node.conf / 'excluded'}</value>" in found[node.conf / "hdfs-site.xml"]
            assert "<name>dfs.replication</name><value>3</value>" in found[node.conf / "hdfs-site.xml"]
    (command,) = away.recipe.departure(away.nodes[3], away.cluster())
    assert command.arguments[-2:] == (str(away.nodes[3].conf / "Departure.java"), "10.0.0.3")
    assert away.recipe.admission(away.nodes[1], away.cluster()) == []
    (command,) = parts.recipe.admission(parts.nodes[1], parts.cluster())
    assert command.arguments[-1] == "-refreshNodes", "it may come back"


def test_no_pbserver_enters_at_a_node_that_leaves() -> None:
    layout = changed(made("cassandra", "peer", "peer", "peer", "peer"), {"10.0.0.2": {"leaving": True}})
    parts = Parts(layout)
    urls = [
        text for number in (1, 3, 4) for text in parts.gateways.files(parts.nodes[number], parts.cluster()).values()
    ]
    assert ["10.0.0.2" in each for each in urls] == [False] * 3
    assert [each.index("10.0.0.3:9042") < each.index("10.0.0.1:9042") for each in urls] == [False, True, False]
    assert not parts.gateways.files(parts.nodes[2], parts.cluster())
