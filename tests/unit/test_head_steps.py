"""What the head does next: tables of what is wanted and observed, and the sentence and actions that follow."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.agent.parts import READY, Parts
from controller.head.steps import ALL_DOWN, entry_points, next_steps
from controller.head.view import Action, Kind, Observed, Seen, Steps, Wanted
from tests.unit.test_layout import made

VERSION = "1"
LIVE, LATE, GONE = 0.0, 12.0, 40.0


ROLES = {"hbase": ["master", "slave", "slave"]}
QUORUM = ["master+zookeeper", "slave+zookeeper", "slave+zookeeper"]


def wanted(
    database: str = "mysql", *, up: bool = True, founded: bool = False, roles: Sequence[str] | None = None
) -> Wanted:
    return Wanted(Parts(made(database, *(roles or ROLES.get(database, ["peer"] * 3)))), up, VERSION, founded)


def node(*running: str, prepared: bool = True, booted: bool = True, state: str = "RUNNING") -> Seen:
    """One that answers. A node that was never prepared has no services."""
    services = (
        {name: (state if name in running else "STOPPED") for name in ("mariadbd", "pbserver")} if prepared else {}
    )
    return Seen(True, LIVE, VERSION, prepared, booted, services, "pbserver" in running if prepared else None)


def silent(seen: Seen, seconds: float = GONE) -> Seen:
    return replace(seen, answers=False, silent_seconds=seconds)


def observed(*nodes: Seen, passed: str = "", **more: object) -> Observed:
    """`passed`: the stages whose check has passed on every node."""
    pairs = frozenset((number, stage) for stage in passed.split(";") for number in range(1, len(nodes) + 1) if stage)
    return Observed(dict(enumerate(nodes, 1)), pairs, **more)  # type: ignore[arg-type]


def of(kind: Kind, service: str, *numbers: int, begins: bool = False) -> tuple[Action, ...]:
    return tuple(Action(kind, number, service, begins) for number in numbers)


NEW = node(prepared=False, booted=False)
IDLE = node()
DATABASE = node("mariadbd")
SERVING = node("mariadbd", "pbserver")
ALL_PASSED = f"mariadbd;{READY};pbserver"


@pytest.mark.parametrize(
    ("wants", "seen", "sentence", "actions"),
    [
        pytest.param(
            wanted(),
            observed(NEW, NEW, silent(NEW, LATE)),
            "waiting for node3 (10.0.0.3), silent for 12 s",
            (),
            id="a new cluster begins with all of its nodes",
        ),
        pytest.param(
            wanted(),
            observed(NEW, NEW, silent(NEW)),
            "waiting for node3 (10.0.0.3), silent for 40 s",
            (),
            id="however long that takes",
        ),
        pytest.param(
            wanted(),
            observed(NEW, replace(NEW, version="2"), NEW),
            "node2 (10.0.0.2) runs 2, the head 1: pbdeploy up",
            (),
            id="another version",
        ),
        pytest.param(
            wanted(),
            observed(NEW, IDLE, NEW),
            "node1 (10.0.0.1), node3 (10.0.0.3): engines and configuration",
            of(Kind.PREPARE, "", 1, 3),
            id="all that are not prepared",
        ),
        pytest.param(
            wanted(),
            observed(NEW, IDLE, NEW, failed={(Kind.PREPARE, 3, ""): "mvn is missing\nmore"}),
            "node1 (10.0.0.1), node3 (10.0.0.3): engines and configuration: mvn is missing",
            of(Kind.PREPARE, "", 1, 3),
            id="what has failed is said, and tried again",
        ),
        pytest.param(
            wanted(),
            observed(node(booted=False), IDLE, IDLE),
            "node1 (10.0.0.1): first boot",
            of(Kind.FIRST_BOOT, "", 1),
            id="first boot",
        ),
        pytest.param(
            wanted(),
            observed(node(booted=False), DATABASE, DATABASE),
            "starting mariadbd on node1 (10.0.0.1)",
            of(Kind.START, "mariadbd", 1),
            id="none where others serve: the node has lost its disk and joins them",
        ),
        pytest.param(
            wanted(founded=True),
            observed(IDLE, IDLE, silent(IDLE, LATE)),
            "waiting for node3 (10.0.0.3), silent for 12 s",
            (),
            id="after a reboot of all those that are late are waited for",
        ),
        pytest.param(
            wanted(founded=True),
            observed(IDLE, IDLE, silent(IDLE)),
            "looking at the disks of all nodes for the one that begins",
            of(Kind.CHOOSE, "", 0),
            id="but not those that are missing: the recipe decides whether it needs them",
        ),
        pytest.param(
            wanted(),
            observed(IDLE, IDLE, IDLE, primary=2),
            "starting mariadbd on node2 (10.0.0.2)",
            of(Kind.START, "mariadbd", 2, begins=True),
            id="the chosen one begins alone",
        ),
        pytest.param(
            wanted(),
            observed(IDLE, DATABASE, IDLE, primary=2),
            "node2 (10.0.0.2): mariadbd",
            of(Kind.CHECK, "mariadbd", 2),
            id="the others wait for it",
        ),
        pytest.param(
            wanted(),
            observed(IDLE, DATABASE, IDLE, primary=2, passed="mariadbd"),
            "starting mariadbd on node1 (10.0.0.1), node3 (10.0.0.3)",
            of(Kind.START, "mariadbd", 1, 3),
            id="and then join",
        ),
        pytest.param(
            wanted(),
            observed(DATABASE, DATABASE, DATABASE, passed="mariadbd"),
            f"node1 (10.0.0.1), node2 (10.0.0.2), node3 (10.0.0.3): {READY}",
            of(Kind.CHECK, READY, 1, 2, 3),
            id="PBServers only when the database serves",
        ),
        pytest.param(
            wanted(),
            observed(DATABASE, DATABASE, SERVING, passed=f"mariadbd;{READY}"),
            "starting pbserver on node1 (10.0.0.1)",
            of(Kind.START, "pbserver", 1),
            id="PBServers last",
        ),
        pytest.param(
            wanted(),
            observed(SERVING, DATABASE, DATABASE, passed=ALL_PASSED),
            "starting pbserver on node2 (10.0.0.2), node3 (10.0.0.3)",
            of(Kind.START, "pbserver", 2, 3),
            id="the first has made the tables",
        ),
        pytest.param(
            wanted(),
            observed(SERVING, SERVING, SERVING, passed=ALL_PASSED),
            "mysql serves on 3 nodes, 3 of 3 entry points",
            (),
            id="whole",
        ),
        pytest.param(
            wanted(founded=True),
            observed(SERVING, SERVING, silent(SERVING, LATE), passed=ALL_PASSED),
            "node3 (10.0.0.3) silent for 12 s, 3 of 3 entry points",
            (),
            id="a node that is late is an entry point still",
        ),
        pytest.param(
            wanted(founded=True),
            observed(SERVING, SERVING, silent(SERVING), passed=ALL_PASSED),
            "node3 (10.0.0.3) silent for 40 s, 2 of 3 entry points",
            (),
            id="one that is missing is none",
        ),
        pytest.param(
            wanted(founded=True),
            observed(SERVING, SERVING, IDLE, passed=ALL_PASSED),
            "starting mariadbd on node3 (10.0.0.3)",
            of(Kind.START, "mariadbd", 3),
            id="a node that is back joins, and nobody else is touched",
        ),
        pytest.param(
            wanted(founded=True),
            observed(SERVING, SERVING, replace(SERVING, serves=False), passed=ALL_PASSED),
            "pbserver on node3 (10.0.0.3) has no answers from mysql",
            (),
            id="a PBServer without its database",
        ),
        pytest.param(
            wanted(founded=True),
            observed(DATABASE, DATABASE, DATABASE, late=frozenset((each, "mariadbd") for each in (1, 2, 3))),
            "no node serves: stopping mariadbd on node1 (10.0.0.1), node2 (10.0.0.2), node3 (10.0.0.3) to begin anew",
            of(Kind.STOP, "mariadbd", 1, 2, 3),
            id="nodes that have lost each other begin anew",
        ),
        pytest.param(
            wanted(founded=True),
            observed(
                SERVING,
                SERVING,
                silent(SERVING),
                passed="pbserver",
                late=frozenset((each, "mariadbd") for each in (1, 2, 3)),
            ),
            "node1 (10.0.0.1): mariadbd; node2 (10.0.0.2): mariadbd",
            of(Kind.CHECK, "mariadbd", 1, 2),
            id="never without one of them: it may serve where we do not see it",
        ),
        pytest.param(
            wanted(founded=True),
            observed(SERVING, SERVING, SERVING, passed="pbserver", late=frozenset({(1, "mariadbd"), (3, "mariadbd")})),
            "node2 (10.0.0.2): mariadbd",
            of(Kind.CHECK, "mariadbd", 2, 1, 3),
            id="nor as long as one may still get ready",
        ),
        pytest.param(
            wanted(up=False),
            observed(SERVING, SERVING, DATABASE, passed=ALL_PASSED),
            "stopping pbserver on node1 (10.0.0.1), node2 (10.0.0.2)",
            of(Kind.STOP, "pbserver", 1, 2),
            id="down: last started, first stopped",
        ),
        pytest.param(
            wanted(up=False),
            observed(DATABASE, IDLE, silent(SERVING)),
            "stopping mariadbd on node1 (10.0.0.1)",
            of(Kind.STOP, "mariadbd", 1),
            id="down without a node that does not answer",
        ),
        pytest.param(wanted(up=False), observed(IDLE, IDLE, IDLE), ALL_DOWN, (), id="down"),
    ],
)
def test_next_steps(wants: Wanted, seen: Observed, sentence: str, actions: tuple[Action, ...]) -> None:
    steps = next_steps(wants, seen)
    assert steps == Steps(sentence, actions, whole=sentence.endswith("3 of 3 entry points") and " serves " in sentence)


def test_a_node_that_does_not_get_ready_holds_nobody_up_once_its_time_is_over() -> None:
    nodes = (DATABASE, DATABASE, DATABASE)
    passed = frozenset({(1, "mariadbd"), (2, "mariadbd"), (1, READY), (2, READY)})
    seen = replace(observed(*nodes), passed=passed, failed={(Kind.CHECK, 3, "mariadbd"): "not Synced"})
    assert next_steps(wanted(), seen).actions == of(Kind.CHECK, "mariadbd", 3)
    steps = next_steps(wanted(), replace(seen, late=frozenset({(3, "mariadbd")})))
    assert steps.sentence.startswith("starting pbserver on node1")
    assert all(each.service == "pbserver" for each in steps.actions)


def test_a_service_that_cannot_be_started_is_tried_again_and_holds_nobody_up() -> None:
    seen = observed(SERVING, SERVING, IDLE, passed=ALL_PASSED, failed={(Kind.START, 3, "mariadbd"): "spawn error"})
    seen = replace(seen, passed=seen.passed - {(3, "pbserver")})
    steps = next_steps(wanted(founded=True), seen)
    assert of(Kind.START, "pbserver", 3)[0] in steps.actions
    seen = replace(seen, failed={**seen.failed, (Kind.START, 3, "pbserver"): "spawn error"})
    steps = next_steps(wanted(founded=True), seen)
    assert steps.actions == (*of(Kind.START, "mariadbd", 3), *of(Kind.START, "pbserver", 3))
    assert "node3 (10.0.0.3): mariadbd: spawn error" in steps.sentence


@pytest.mark.parametrize(
    ("database", "roles"),
    [("cassandra", None), ("hbase", None), ("hbase", QUORUM), ("mysql", None)],
    ids=["cassandra", "hbase", "hbase with a quorum", "mysql"],
)
def test_every_database_boots_in_the_order_of_its_recipe_and_then_is_whole(
    database: str, roles: Sequence[str] | None
) -> None:
    """Played through: what is started runs, what is checked passes."""
    wants = wanted(database, roles=roles)
    names = {number: wants.parts.services(number, wants.parts.cluster()) for number in wants.parts.nodes}
    nodes = {number: replace(NEW, services={}) for number in names}
    seen, started = Observed(nodes), []
    for _ in range(100):
        steps = next_steps(wants, seen)
        for action in steps.actions:
            seen = _done(action, seen, started)
        if steps.whole:
            break
    else:
        pytest.fail(f"not whole: {steps}")
    order = [stage.service for stage in wants.parts.stages(wants.parts.cluster()) if stage.service != READY]
    assert [service for service, _ in started] == sorted((each for each, _ in started), key=order.index)
    assert sorted(started) == sorted((name, number) for number, own in names.items() for name in own)
    assert entry_points(wants, seen) == [1, 2, 3]
    steps = next_steps(replace(wants, up=False), seen)
    assert {each.service for each in steps.actions} == {"pbserver"}


def test_all_that_are_there_of_a_quorum_start_at_once_and_nobody_waits_for_one_that_is_missing() -> None:
    wants = wanted("hbase", founded=True, roles=QUORUM)
    services = dict.fromkeys(("zookeeper", "namenode", "datanode", "master", "regionserver", "thrift"), "STOPPED")
    there = Seen(True, LIVE, VERSION, True, True, services, False)
    seen = observed(there, there, silent(there), primary=1)
    steps = next_steps(wants, seen)
    assert steps.sentence == "starting zookeeper on node1 (10.0.0.1), node2 (10.0.0.2)"
    assert steps.actions == of(Kind.START, "zookeeper", 1, 2, begins=True)
    for action in steps.actions:
        seen = _done(action, seen, [])
    seen = replace(seen, passed=frozenset({(1, "zookeeper")}))
    assert next_steps(wants, seen).actions == of(Kind.CHECK, "zookeeper", 2)
    seen = replace(seen, passed=frozenset({(1, "zookeeper"), (2, "zookeeper")}))
    assert next_steps(wants, seen).sentence == "starting namenode on node1 (10.0.0.1)"


def _done(action: Action, seen: Observed, started: list[tuple[str, int]]) -> Observed:
    old = seen.nodes.get(action.node, NEW)
    match action.kind:
        case Kind.PREPARE:
            new = replace(old, prepared=True)
        case Kind.FIRST_BOOT:
            new = replace(old, first_booted=True)
        case Kind.CHOOSE:
            return replace(seen, primary=1)
        case Kind.START:
            started.append((action.service, action.node))
            new = replace(old, services={**old.services, action.service: "RUNNING"})
            new = replace(new, serves=True if action.service == "pbserver" else old.serves)
        case _:
            return replace(seen, passed=seen.passed | {(action.node, action.service)})
    return replace(seen, nodes={**seen.nodes, action.node: new})
