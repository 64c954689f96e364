"""What the head does when the nodes of a cluster that is up change: who joins, who leaves, in which order."""

from dataclasses import replace
from typing import Any

import pytest

from controller.agent.parts import READY, Parts
from controller.head.steps import entry_points, next_steps
from controller.head.view import Action, Kind, Observed, Seen, Steps, Wanted
from tests.unit.test_head_steps import ALL_PASSED, DATABASE, IDLE, NEW, SERVING, node, observed, of, silent
from tests.unit.test_layout import made, nodes

STALE = replace(SERVING, stale=frozenset({"pbserver"}))
OUTDATED = replace(SERVING, prepared=False)


def wanted(*roles: str, leaving: int = 0, database: str = "mysql") -> Wanted:
    """A cluster that has been whole before."""
    machines: list[dict[str, Any]] = nodes(*roles)
    if leaving:
        machines[leaving - 1]["leaving"] = True
    return Wanted(Parts(made(database, *roles, nodes=machines)), True, "1", True)


FOUR = wanted("peer", "peer", "peer", "peer")
LEAVING = wanted("peer", "peer", "peer", "peer", leaving=2)
GATEWAY_LEAVING = wanted("peer+gateway", "peer", "gateway", leaving=3)


@pytest.mark.parametrize(
    ("wants", "seen", "sentence", "actions"),
    [
        pytest.param(
            FOUR,
            observed(OUTDATED, OUTDATED, OUTDATED, NEW, passed=ALL_PASSED, admitted=False),
            "node1 (10.0.0.1), node2 (10.0.0.2), node3 (10.0.0.3), node4 (10.0.0.4): engines and configuration",
            of(Kind.PREPARE, "", 1, 2, 3, 4),
            id="those that serve are told first who joins",
        ),
        pytest.param(
            FOUR,
            observed(SERVING, SERVING, SERVING, IDLE, passed=ALL_PASSED, admitted=False),
            "node1 (10.0.0.1) lets in all nodes",
            of(Kind.ADMIT, "", 1),
            id="one of them lets it in",
        ),
        pytest.param(
            FOUR,
            observed(
                SERVING, SERVING, SERVING, IDLE, passed=ALL_PASSED, admitted=False, failed={(Kind.ADMIT, 1, ""): "full"}
            ),
            "node2 (10.0.0.2) lets in all nodes",
            of(Kind.ADMIT, "", 2),
            id="or another, where one cannot",
        ),
        pytest.param(
            replace(FOUR, founded=False),
            observed(DATABASE, DATABASE, DATABASE, DATABASE, passed=f"mariadbd;{READY}", admitted=False),
            "node1 (10.0.0.1) lets in all nodes",
            of(Kind.ADMIT, "", 1),
            id="a new cluster is not whole before",
        ),
        pytest.param(
            FOUR,
            observed(SERVING, SERVING, SERVING, IDLE, passed=ALL_PASSED),
            "starting mariadbd on node4 (10.0.0.4)",
            of(Kind.START, "mariadbd", 4),
            id="and then it starts, while the others go on",
        ),
        pytest.param(
            FOUR,
            observed(IDLE, SERVING, SERVING, NEW, passed=ALL_PASSED),
            "starting mariadbd on node1 (10.0.0.1)",
            of(Kind.START, "mariadbd", 1),
            id="a node that is not prepared holds up nobody",
        ),
        pytest.param(
            FOUR,
            observed(SERVING, SERVING, SERVING, NEW, passed=ALL_PASSED, failed={(Kind.PREPARE, 4, ""): "no network"}),
            "node4 (10.0.0.4): engines and configuration: no network",
            of(Kind.PREPARE, "", 4),
            id="but is not forgotten",
        ),
        pytest.param(
            FOUR,
            observed(IDLE, IDLE, IDLE, NEW, failed={(Kind.PREPARE, 4, ""): "no network"}),
            "looking at the disks of all nodes for the one that begins",
            of(Kind.CHOOSE, "", 0),
            id="nor does it after a power failure",
        ),
        pytest.param(
            FOUR,
            observed(STALE, STALE, STALE, SERVING, passed=ALL_PASSED),
            "pbserver on node3 (10.0.0.3) gets other nodes",
            of(Kind.STOP, "pbserver", 3),
            id="then the other PBServers hear of it, one at a time",
        ),
        pytest.param(
            FOUR,
            observed(STALE, STALE, replace(SERVING, serves=False), SERVING, passed=ALL_PASSED),
            "pbserver on node3 (10.0.0.3) has no answers from mysql",
            (),
            id="as long as all others serve",
        ),
        pytest.param(
            LEAVING,
            observed(STALE, SERVING, STALE, STALE, passed=ALL_PASSED),
            "node2 (10.0.0.2) leaving: stopping pbserver",
            of(Kind.STOP, "pbserver", 2),
            id="a node that leaves first ends to be an entry point",
        ),
        pytest.param(
            LEAVING,
            observed(STALE, DATABASE, SERVING, SERVING, passed=ALL_PASSED),
            "pbserver on node1 (10.0.0.1) gets other nodes",
            of(Kind.STOP, "pbserver", 1),
            id="no PBServer uses it any more",
        ),
        pytest.param(
            LEAVING,
            observed(SERVING, replace(DATABASE, leaving="7 of 9"), SERVING, SERVING, passed=ALL_PASSED),
            "node2 (10.0.0.2): its data moves to the other nodes, 7 of 9",
            of(Kind.LEAVE, "", 2),
            id="before its data moves",
        ),
        pytest.param(
            LEAVING,
            observed(SERVING, IDLE, SERVING, SERVING, passed=ALL_PASSED),
            "starting mariadbd on node2 (10.0.0.2)",
            of(Kind.START, "mariadbd", 2),
            id="for which it has to run",
        ),
        pytest.param(
            LEAVING,
            observed(SERVING, DATABASE, silent(SERVING), SERVING, passed=ALL_PASSED),
            "node3 (10.0.0.3) silent for 40 s, 2 of 3 entry points",
            (),
            id="and all others have to be there",
        ),
        pytest.param(
            LEAVING,
            observed(SERVING, replace(DATABASE, left=True), SERVING, SERVING, passed=ALL_PASSED),
            "node2 (10.0.0.2) has given up its data: stopping mariadbd",
            of(Kind.STOP, "mariadbd", 2),
            id="only then its services stop",
        ),
        pytest.param(
            LEAVING,
            observed(SERVING, replace(IDLE, left=True), SERVING, SERVING, passed=ALL_PASSED),
            "node2 (10.0.0.2) has left; mysql serves on 3 nodes, 3 of 3 entry points",
            (),
            id="and start no more",
        ),
        pytest.param(
            GATEWAY_LEAVING,
            observed(SERVING, DATABASE, node("pbserver"), passed=ALL_PASSED),
            "node3 (10.0.0.3) leaving: stopping pbserver",
            of(Kind.STOP, "pbserver", 3),
            id="a gateway has no data to give up",
        ),
    ],
)
def test_next_steps(wants: Wanted, seen: Observed, sentence: str, actions: tuple[Action, ...]) -> None:
    found = next_steps(wants, seen)
    assert (found.sentence, found.actions) == (sentence, actions)
    assert found.whole == ("has left; " in sentence)


def test_a_node_that_leaves_is_no_entry_point_from_the_moment_that_is_wanted() -> None:
    seen = observed(SERVING, SERVING, SERVING, SERVING, passed=ALL_PASSED)
    assert entry_points(FOUR, seen) == [1, 2, 3, 4]
    assert entry_points(LEAVING, seen) == [1, 3, 4]


def test_databases_that_let_in_everybody_ask_nobody_to() -> None:
    wants = wanted("peer", "peer", "peer", database="cassandra")
    running = Seen(True, 0.0, "1", True, True, {"cassandra": "RUNNING", "pbserver": "RUNNING"}, True)
    seen = observed(running, running, running, passed=f"cassandra;{READY};pbserver", admitted=False)
    assert next_steps(wants, seen) == Steps("cassandra serves on 3 nodes, 3 of 3 entry points", (), whole=True)


@pytest.mark.parametrize("database", ["cassandra", "hbase", "mysql"])
def test_every_database_gives_up_a_node_in_the_reverse_order_of_its_boot(database: str) -> None:
    """Played through: what is asked for is done."""
    roles = ["master", "slave", "slave", "slave"] if database == "hbase" else ["peer"] * 4
    wants = wanted(*roles, leaving=4, database=database)
    cluster = wants.parts.cluster(running=wants.parts.data_nodes)
    stages = [each.service for each in wants.parts.stages(cluster) if each.service != READY]
    services = {number: wants.parts.services(number, cluster) for number in wants.parts.nodes}
    running = {number: dict.fromkeys([*own, "pbserver"], "RUNNING") for number, own in services.items()}
    seen = Observed(
        {number: Seen(True, 0.0, "1", True, True, each, True) for number, each in running.items()},
        frozenset((number, stage) for number in running for stage in [*stages, READY]),
    )
    done: list[Action] = []
    while (steps := next_steps(wants, seen)).actions:
        done += steps.actions
        for each in steps.actions:
            seen = _done(each, seen)
    assert steps.whole
    assert {each.node for each in done} == {4}
    assert [each.kind for each in done][:2] == [Kind.STOP, Kind.LEAVE]
    stopped = [each.service for each in done if each.kind is Kind.STOP]
    assert stopped == ["pbserver", *reversed([each for each in dict.fromkeys(stages) if each in services[4]])]


def _done(action: Action, seen: Observed) -> Observed:
    old = seen.nodes[action.node]
    if action.kind is Kind.LEAVE:
        new = replace(old, left=True)
    else:
        new = replace(old, services={**old.services, action.service: "STOPPED"}, serves=False)
    return replace(seen, nodes={**seen.nodes, action.node: new})
