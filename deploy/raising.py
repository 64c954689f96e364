"""`pbdeploy up`, `restart` and `down`: what is to be done on the machines, and following the head until it is done."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from controller import preflight
from controller.agent.messages import Since, Status, Trouble, Want
from controller.agent.parts import READY, Parts
from controller.agent.services import RUNNING
from controller.hosts import facts
from controller.layout import Layout
from controller.progress import Report
from controller.recipe import ClusterError, Node
from deploy import members, placing
from deploy.certificates import Keys
from deploy.machines import Machines, named
from deploy.placing import Placed
from pbserver import __version__

_INSTALL_SECONDS = 900
_AGENT_SECONDS = 30
_STOP_SECONDS = 300
_WAIT_SECONDS = 5.0
_SHOWN_LINES = 15
_MOST_PATH_BYTES = 78  # of a node's directory: with the name of supervisord's socket in it, 107


@dataclass(frozen=True, slots=True)
class Found:
    """How the machines stand before anything is done. `status` is None where no head answers."""

    looks: Mapping[Node, Mapping[str, Any]]
    placed: Mapping[Node, Placed]
    status: Status | None

    def stale(self) -> list[Node]:
        """The nodes on which something else, or nothing, was placed."""
        return [node for node, look in self.looks.items() if look["placed"] != self.placed[node].digest]

    def fresh(self) -> list[Node]:
        return [node for node, look in self.looks.items() if not look["placed"]]

    def halted(self) -> list[Node]:
        return [node for node, look in self.looks.items() if not look["runs"]]


def keys(file: Path, layout: Layout) -> Keys:
    """Beside the layout. Raises ClusterError."""
    directory = file.absolute().with_name(f"{layout.name}.pbdeploy")
    try:
        return Keys(directory)
    except OSError as error:
        raise ClusterError(f"cannot make {directory}, for the cluster's keys: {error.strerror}") from error


def look(machines: Machines, kept: Keys) -> Found:
    """Raises ClusterError where a node cannot be reached, or runs what the layout does not say."""
    looks = machines.everywhere("look")
    status = None
    if looks[machines.head]["runs"]:
        try:
            status = machines.status()
        except ClusterError:
            status = None  # its agent is on its way, or another version's; `up` sees to it
    if status and status.up and status.layout and (changed := _changed(status.layout, machines.layout)):
        raise ClusterError(f"{', '.join(changed)} changed, while {machines.layout.name} is up; pbdeploy down first")
    if status and status.up and status.layout and (wrong := members.not_while_up(status.layout, machines.layout)):
        raise ClusterError(f"{machines.layout.name} is up: {'; '.join(wrong)}")
    return Found(looks, placing.wanted(machines.layout, kept), status)


def _changed(before: Layout, after: Layout) -> list[str]:
    """What makes another cluster of it; how the nodes are reached, and by whom, does not."""
    kept = ("database", "replication", "directory", "engines", "python", "ports")
    return [name for name in kept if getattr(before, name) != getattr(after, name)]


def raise_(machines: Machines, found: Found, seconds: float, report: Report) -> tuple[Status, list[Node]]:
    """From whatever is there to what the layout says; and the nodes that do not boot by themselves. Raises
    ClusterError.
    """
    check(machines, found)
    by_hand = start(machines, found, report)
    after = want(machines, up=True)
    return follow(machines, after, lambda each: each.whole, seconds, report), by_hand


def as_wanted(machines: Machines, found: Found) -> bool:
    """Whether nothing is to be done: the head wants these nodes and has them, and each has what was placed."""
    status = found.status
    same = status is not None and status.layout is not None and members.same(status.layout, machines.layout)
    leave = any(each.leaving for each in machines.layout.nodes)
    return bool(same and status and status.whole) and (leave or not plan(machines, found))


def plan(machines: Machines, found: Found) -> list[str]:
    """What `up` would do, in its order; empty: nothing."""
    layout, steps = machines.layout, []
    for node in found.stale():
        version = found.looks[node]["version"]
        what = f"put PBServer {__version__} in the place of {version}" if version else f"install PBServer {__version__}"
        how = f"use {layout.python} for PBServer {__version__}" if layout.python else what
        steps += [f"{named(node)}: {how}", f"{named(node)}: write certificate and secret to {node.directory}/agent"]
    for node in machines.nodes:
        if not found.looks[node]["runs"]:
            steps.append(f"{named(node)}: start its agent")
        elif node in found.stale():
            steps.append(f"{named(node)}: restart its agent")
    return steps + _services(Parts(layout), found.status)


def _services(parts: Parts, status: Status | None) -> list[str]:
    known = {each.number: each.facts.services for each in status.nodes if each.facts} if status else {}
    running = [
        number for number in parts.data_nodes if any(each.state in RUNNING for each in known.get(number, {}).values())
    ]
    gone = [each.number for each in status.nodes if each.facts and each.facts.left] if status else []
    steps = []
    if not running:
        steps.append(f"all nodes: fetch {', '.join(parts.recipe.ENGINES)} where missing; write configuration")
        if not (status and any(each.facts and each.facts.first_booted for each in status.nodes)):
            steps.append(f"{named(parts.nodes[1])}: first boot, if there is no data yet")
    for stage in parts.stages(parts.cluster(running=running)):
        if stage.service == READY:
            continue
        for node in stage.nodes:
            service = known.get(node.number, {}).get(stage.service)
            if node.number not in gone and (service is None or service.state not in RUNNING):
                steps.append(f"{named(node)}: start {stage.service}")
    return steps + [
        f"{named(parts.nodes[number])}: give up its data, stop, be no node any more" for number in parts.leaving
    ]


def check(machines: Machines, found: Found) -> None:
    """Whether the layout can work, and whether machines that are new will do. Raises ClusterError naming all."""
    layout = machines.layout
    if removed := [node for node, seen in found.looks.items() if seen["placed"] == placing.REMOVED]:
        kept = ", ".join(f"{named(node)}: {node.directory}" for node in removed)
        raise ClusterError(f"{kept} is of a node that was removed from the cluster; move it away, or remove it")
    for node in machines.nodes:
        if len(os.fsencode(node.directory)) > _MOST_PATH_BYTES:
            raise ClusterError(f"{node.directory} is longer than {_MOST_PATH_BYTES} bytes; shorten `directory`")
    problems = preflight.of_layout(layout)
    fresh = {node.host for node in found.fresh()}
    if fresh:
        questions = {each.address: (layout.ssh_of(each), preflight.question(layout, each)) for each in layout.nodes}
        answers = facts.survey(questions)
        problems += [each for each in preflight.of_machines(layout, answers) if each.address in fresh]
    if fatal := [str(each) for each in problems if each.fatal]:
        raise ClusterError("; ".join(fatal))


def start(machines: Machines, found: Found, report: Report) -> list[Node]:
    """Places what is missing and starts every agent; the nodes that do not boot by themselves. Raises ClusterError."""
    stale, halted = found.stale(), found.halted()
    if machines.layout.python is None:
        placing.install(machines, stale, _INSTALL_SECONDS, report)
    for node in stale:
        old = found.looks[node]["version"]
        news = f", in the place of {old}" if old not in ("", __version__) else ""
        report(f"{named(node)}: certificate, secret and agent {__version__}{news}")
    calls = {node: {"texts": dict(found.placed[node].texts), "placed": found.placed[node].digest} for node in stale}
    machines.do("place", calls)
    if halted:
        report(f"{', '.join(map(named, halted))}: starting the agent")
    booted = machines.do("boot", {node: {"unit": machines.unit} for node in halted})
    machines.do("restart", {node: {} for node in stale if node not in halted})
    return [node for node, said in booted.items() if not said["by_itself"]]


def want(machines: Machines, *, up: bool) -> int:
    """Tells the head; the number of the last sentence it has said before. Raises ClusterError, with the agent's log if
    there is no answer.
    """
    wanted = Want(layout=machines.layout, up=up)
    deadline = time.monotonic() + _AGENT_SECONDS
    while True:
        try:
            before = machines.status()
            if not (refusal := machines.refusal(wanted) if up else ""):
                machines.ask("want", wanted)
        except ClusterError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"{error}{shown(machines, machines.head, 'agent')}") from error
            time.sleep(1)
        else:
            if refusal:
                raise ClusterError(refusal)
            return max((each.number for each in before.sentences), default=0)


def follow(machines: Machines, after: int, ends: Callable[[Status], bool], seconds: float, report: Report) -> Status:
    """Tells the head's sentences until it `ends`. Raises ClusterError, with the end of the log that tells most, when
    there is trouble or the time is over; all is left as it is.
    """
    deadline = time.monotonic() + seconds
    while True:
        status = machines.status(Since(after=after, wait_seconds=_WAIT_SECONDS))
        for sentence in status.sentences:
            report(sentence.text)
            after = sentence.number
        if ends(status):
            return status
        if status.troubles:
            raise ClusterError("\n".join(_told(machines, each) for each in status.troubles))
        if time.monotonic() > deadline:
            late = [_told(machines, each) for each in status.awaited]
            raise ClusterError("\n".join([f"not within {seconds:.0f} s", *(late or ["the head waits for nodes"])]))


def _told(machines: Machines, trouble: Trouble) -> str:
    node = next(each for each in machines.nodes if each.name == trouble.node)
    service = trouble.what.rpartition(" ")[2]
    return f"{named(node)}: {trouble.what}: {trouble.text or 'no answer yet'}{shown(machines, node, service)}"


def shown(machines: Machines, node: Node, service: str) -> str:
    """The end of a service's log, or of the agent's where it has none."""
    for name in (service, "agent"):
        said = machines.tried("logs", {node: {"service": name, "lines": _SHOWN_LINES}})[node]
        if text := said.get("logs", {}).get(name):
            return f"\n--- {node.directory}/log/{name}.log\n{text}"
    return ""


def halt(machines: Machines, nodes: Sequence[Node], report: Report) -> None:
    """Ends supervisord and whatever it runs on these nodes. Raises ClusterError."""
    left, deadline = list(nodes), time.monotonic() + _STOP_SECONDS
    report(f"{', '.join(map(named, nodes))}: stopping the agent")
    while left:
        said = machines.do("halt", {node: {"unit": machines.unit} for node in left})
        left = [node for node in left if said[node]["runs"]]
        if left and time.monotonic() > deadline:
            raise ClusterError(f"{', '.join(map(named, left))}: still running after {_STOP_SECONDS} s")


def lower(machines: Machines, running: Sequence[Node], report: Report) -> None:
    """Stops all services in the head's order, if it answers, and then the agents. Raises ClusterError."""
    if machines.head in running:
        after = want(machines, up=False)
        follow(machines, after, lambda each: each.down, _STOP_SECONDS, report)
    else:
        report(f"{named(machines.head)}, the head, does not run: services are stopped in no order")
    halt(machines, running, report)


def restart(machines: Machines, nodes: Sequence[Node], service: str, seconds: float, report: Report) -> list[str]:
    """Ends one service after the other, the head's node last; the head starts it again, and the next one follows when
    the cluster is whole. `service`: empty for all. Raises ClusterError, also for a cluster that is not whole.
    """
    if not (status := machines.status()).whole:
        raise ClusterError(f"{machines.layout.name} is not whole, so nothing is restarted; pbdeploy doctor")
    parts, done = Parts(machines.layout), []
    for node in sorted(nodes, key=lambda node: node == machines.head):
        names = [*parts.services(node.number, parts.cluster(running=parts.data_nodes))]
        for name in (each for each in reversed(names) if service in ("", each)):
            report(f"{named(node)}: restarting {name}")
            before = _pid(status, node, name)
            after = max((each.number for each in status.sentences), default=0)
            machines.stop(node, name)
            again = partial(_is_another, node=node, service=name, before=before)
            status = follow(machines, after, again, seconds, report)
            done.append(f"{node.name}: {name}")
    return done


def _pid(status: Status, node: Node, service: str) -> int:
    seen = next(each.facts for each in status.nodes if each.name == node.name)
    return seen.services[service].pid if seen and service in seen.services else 0


def _is_another(status: Status, *, node: Node, service: str, before: int) -> bool:
    """Whether the cluster is whole with another process for the service."""
    return status.whole and _pid(status, node, service) not in (0, before)
