"""`pbdeploy doctor`: from what the head says to what is wrong, as a table."""

from typing import Any

import pytest

from controller.agent.messages import NodeFacts, NodeStatus, ServiceFacts, Status, Trouble
from deploy.diagnosis import findings
from tests.unit.test_layout import made

LAYOUT = made("mysql", "peer", "peer")
VERSION = "1"


def facts(mariadbd: str = "RUNNING", pbserver: str = "RUNNING", **other: Any) -> NodeFacts:
    services = {
        name: ServiceFacts(state=state, pid=1, memory_mib=1)
        for name, state in {"mariadbd": mariadbd, "pbserver": pbserver}.items()
    }
    well = {
        "version": VERSION,
        "engines": {},
        "prepared": "",
        "first_booted": True,
        "services": services,
        "serves": True,
        "cpu_percent": 1,
        "memory_mib": 2000,
        "available_mib": 1000,
        "disk_mib": 2000,
        "free_mib": 1000,
        "processes": 9,
        "ports": [],
    }
    return NodeFacts(**{**well, **other})


def status(second: NodeFacts | None, *troubles: Trouble, **other: Any) -> Status:
    """Of two nodes, the first of which is well."""
    nodes = [
        NodeStatus(
            number=number, name=f"node{number}", address=f"10.0.0.{number}", roles=[], silent_seconds=1, facts=of
        )
        for number, of in ((1, facts()), (2, second))
    ]
    shown = {"layout": LAYOUT, "up": True, "whole": not troubles, "down": False, "awaited": [], **other}
    return Status(version=VERSION, sentences=[], nodes=nodes, troubles=troubles, entry_points=[], **shown)


def trouble(what: str, text: str) -> Trouble:
    return Trouble(node="node2", address="10.0.0.2", what=what, text=text)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (status(facts()), []),
        (status(facts(), layout=None), [("", "", "nothing has been asked for yet: pbdeploy up")]),
        (status(facts(pbserver="STOPPED"), up=False), [("", "", f"{LAYOUT.name} is down, as was asked: pbdeploy up")]),
        (status(None), [("node2", "", "its agent has never answered")]),
        (
            status(facts(), trouble("heartbeat", "silent for 31 s")),
            [("node2", "heartbeat", "heartbeat: silent for 31 s")],
        ),
        (
            status(facts("FATAL"), trouble("mariadbd", "ends again and again: x")),
            [("node2", "mariadbd", "mariadbd: ends again and again: x")],
        ),
        (status(facts("BACKOFF")), [("node2", "mariadbd", "mariadbd is backoff")]),
        (
            status(facts(), awaited=[trouble("mariadbd", "no answer")]),
            [("node2", "mariadbd", "mariadbd: no answer")],
        ),
        (
            status(facts(serves=False)),
            [("node2", "pbserver", "pbserver runs, but has no answers from the database")],
        ),
        (status(facts(pbserver="EXITED", serves=False)), [("node2", "pbserver", "pbserver is exited")]),
        (
            status(facts(version="0")),
            [("node2", "", "its agent is of PBServer 0, the head's of 1: pbdeploy up")],
        ),
        (
            status(facts(free_mib=99, available_mib=99)),
            [
                ("node2", "", "99 of 2000 MiB of its disk are free"),
                ("node2", "", "99 of 2000 MiB of its memory are left"),
            ],
        ),
    ],
)
def test_the_doctor_names_node_service_and_cause(said: Status, wrong: list[tuple[str, str, str]]) -> None:
    assert [(each.node, each.service, each.text) for each in findings(said)] == wrong
