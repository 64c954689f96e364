"""What machines' facts mean for a layout."""

from dataclasses import replace

import pytest

from controller import preflight
from controller.hosts.facts import Facts
from controller.layout import Layout
from tests.unit.test_layout import made

GOOD = Facts(
    python=(3, 11, 2),
    root=True,
    memory_mib=8000,
    available_mib=6000,
    free_mib={"/var/lib/pbserver": 50_000},
    java=None,
    taken={},
    has_address=True,
    ahead_seconds=0.0,
)


def said(layout: Layout, *answers: Facts | Exception) -> list[str]:
    found = {machine.address: answer for machine, answer in zip(layout.nodes, answers, strict=True)}
    return [*map(str, preflight.of_machines(layout, found))]


def test_nothing_is_said_of_machines_that_will_do() -> None:
    layout = made("cassandra", "peer", "peer", "peer")
    assert preflight.of_layout(layout) == []
    assert said(layout, GOOD, GOOD, GOOD) == []


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (replace(GOOD, python=(3, 9, 2)), "Python is 3.9.2; install 3.11 or newer"),
        (replace(GOOD, root=False), "the user is not root"),
        (replace(GOOD, has_address=False), "the address is not one of the machine's own"),
        (replace(GOOD, available_mib=900), "900 MiB of memory are free, 1280 are needed"),
        (replace(GOOD, free_mib={"/var/lib/pbserver": 10}), "10 MiB are free for /var/lib/pbserver, 2048 are needed"),
        (replace(GOOD, taken={9042: "java (pid 7)"}), "port 9042, for CQL, is taken by java (pid 7)"),
        (replace(GOOD, taken={10001: ""}), "port 10001, for pbserver, is taken by another user"),
    ],
)
def test_each_fact_that_is_in_the_way_is_said(facts: Facts, text: str) -> None:
    (problem,) = said(made("cassandra", "peer"), facts)
    assert problem.startswith(f"10.0.0.1: {text}")


def test_a_port_that_this_cluster_holds_already_is_free_to_it() -> None:
    ours = replace(GOOD, taken={9042: "java -Dconfig=/var/lib/pbserver/shop/node1/conf Daemon (pid 7)"})
    other = replace(GOOD, taken={9042: "java -Dconfig=/var/lib/pbserver/shop2/node1/conf Daemon (pid 7)"})
    assert said(made("cassandra", "peer"), ours) == []
    assert len(said(made("cassandra", "peer"), other)) == 1


def test_a_machine_needs_what_its_roles_need() -> None:
    small = replace(GOOD, available_mib=300, taken={2181: "zookeeper", 9091: "something"})
    layout = made("hbase", "slave", "master+gateway", "gateway")
    assert [line.partition(":")[0] for line in said(layout, small, small, small)] == [
        *["10.0.0.1"] * 2,  # memory, Thrift
        *["10.0.0.2"] * 3,  # memory, ZooKeeper, Thrift
    ]


def test_a_machine_that_votes_needs_the_ports_of_a_quorum() -> None:
    taken = replace(GOOD, taken={2181: "zookeeper", 2888: "something", 3888: "java"})
    layout = made("hbase", "master+zookeeper", "slave+zookeeper", "slave+zookeeper", "slave")
    assert said(layout, GOOD, taken, GOOD, taken) == [
        "10.0.0.2: port 2181, for ZooKeeper, is taken by zookeeper",
        "10.0.0.2: port 2888, for ZooKeeper's leader, is taken by something",
        "10.0.0.2: port 3888, for ZooKeeper's elections, is taken by java",
    ]


def test_clocks_are_compared_with_each_other_and_not_with_ours() -> None:
    layout = made("cassandra", "peer", "peer", "peer")
    all_ahead = [replace(GOOD, ahead_seconds=100.0 + number / 10) for number in range(3)]
    assert said(layout, *all_ahead) == []
    all_ahead[1] = replace(GOOD, ahead_seconds=60.0)
    assert said(layout, *all_ahead) == ["10.0.0.2: its clock is 40.0 s behind; run NTP"]


def test_a_machine_that_has_not_answered_does_not_hide_the_others() -> None:
    layout = made("cassandra", "peer", "peer")
    assert said(layout, OSError("no route"), replace(GOOD, root=False))[0] == "10.0.0.1: no route"
    assert len(said(layout, OSError("no route"), replace(GOOD, root=False))) == 2


def test_what_works_worse_than_expected_is_no_error() -> None:
    (warning,) = preflight.of_layout(made("mysql", "peer", "peer"))
    assert not warning.fatal
    assert "take 1 or 3" in warning.text
    (warning,) = preflight.of_layout(made("cassandra", "peer", "peer", replication=1))
    assert not warning.fatal
    assert preflight.of_layout(made("mongodb", "peer")) == []


def test_a_pbserver_does_not_take_the_databases_port() -> None:
    problem, other = preflight.of_layout(made("cassandra", "peer", "peer", ports={"pbserver": 9042}))
    assert other.address == "10.0.0.2"
    assert str(problem) == "10.0.0.1: ports.pbserver is 9042, which cassandra needs for CQL; choose another"
    assert preflight.of_layout(made("cassandra", "peer", "peer", "gateway", ports={"pbserver": 9042})) == []


def test_an_agent_has_a_port_of_its_own_on_every_machine() -> None:
    layout = made("cassandra", "peer", "gateway", ports={"agent": 9042})
    assert [*map(str, preflight.of_layout(layout))][:1] == [
        "10.0.0.1: ports.agent is 9042, which cassandra needs for CQL; choose another"
    ]
    taken = replace(GOOD, taken={10003: "nginx (pid 7)"})
    layout = made("mongodb", "peer", "gateway")
    assert said(layout, taken, taken) == [
        f"10.0.0.{number}: port 10003, for the agent, is taken by nginx (pid 7)" for number in (1, 2)
    ]
    assert '"10003": "10.0.0.2"' in preflight.question(layout, layout.nodes[1])


def test_a_directory_in_which_a_sockets_path_is_too_long_is_refused() -> None:
    fits, over = "/d" + "é" * 33, "/d" + "é" * 34 + "ab"
    assert preflight.of_layout(made("mysql", "peer", "peer", "peer", directory=fits)) == []
    (problem,) = preflight.of_layout(made("mysql", "peer", "peer", "peer", directory=over))
    assert problem.fatal
    assert problem.text.startswith("`directory` and `name` are 4 bytes too long: the path of a socket on a node, /dé")


@pytest.mark.parametrize(
    ("database", "versions", "said_of"),
    [
        ("cassandra", {"cassandra": "5.0.9", "java": "17"}, []),
        ("cassandra", {"cassandra": "4.1.3"}, ["versions.cassandra is 4.1.3; this PBServer runs cassandra with java"]),
        ("mysql", {"cassandra": "5.0.9"}, ["versions.cassandra is 5.0.9; this PBServer runs mysql with mariadb 10.11"]),
    ],
)
def test_a_version_that_was_never_tried_is_refused(database: str, versions: dict[str, str], said_of: list[str]) -> None:
    found = preflight.of_layout(made(database, "peer", "peer", "peer", versions=versions))
    assert [each.text[: len(text)] for each, text in zip(found, said_of, strict=True)] == said_of


@pytest.mark.parametrize(("theirs", "ahead"), [(10.0, 0.0), (12.0, 0.0), (12.5, 0.5), (9.0, -1.0)])
def test_a_clock_is_known_as_well_as_the_network_lets_it(theirs: float, ahead: float) -> None:
    text = (
        f'{{"time": {theirs}, "python": [3, 11, 2], "root": true, "memory_mib": 1, "available_mib": 1,'
        ' "free_mib": {}, "java": null, "taken": {"80": "x"}, "has_address": true}'
    )
    found = Facts.parsed(text, asked=10.0, answered=12.0)
    assert found.ahead_seconds == ahead
    assert found.taken == {80: "x"}


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"time": 1}', "Welcome!\n{}"])
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Facts.parsed(text, asked=0, answered=1)
