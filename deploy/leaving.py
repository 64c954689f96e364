"""The end of a node's leaving: its agent is stopped, the others forget it, and it leaves the layout's file."""

from pathlib import Path

from controller.agent.messages import Status
from controller.layout import Layout
from controller.progress import Report
from controller.recipe import ClusterError, Node
from deploy import layout_file, placing, raising
from deploy.machines import Machines, named


def end(file: Path, machines: Machines, seconds: float, report: Report, *, wipe: bool = False) -> Status:
    """For all nodes marked as leaving, when they have given up their data, or are away for good. May be repeated after
    it was broken off, for the file is changed last. Raises ClusterError.
    """
    text = file.read_text(encoding="utf-8")
    gone = [node for node in machines.nodes if machines.layout.machine_of(node).leaving]
    changed = layout_file.without(text, machines.layout, [node.host for node in gone])
    rest = Machines(layout_file.parsed(changed))
    _halt(machines, gone, report, wipe=wipe)
    after = raising.want(rest, up=True)
    status = raising.follow(rest, after, lambda each: each.whole, seconds, report)
    write(file, changed)
    return status


def is_ending(layout: Layout, status: Status | None) -> bool:
    """Whether the head has forgotten already all that are marked as leaving."""
    gone = {each.address for each in layout.nodes if each.leaving}
    known = {each.address for each in status.nodes} if status and status.up else gone
    return bool(gone) and gone.isdisjoint(known)


def write(file: Path, text: str) -> None:
    """As a whole or not at all. Raises ClusterError."""
    made = file.with_name(f".{file.name}.new")
    try:
        made.write_text(text, encoding="utf-8")
        made.chmod(file.stat().st_mode & 0o777)
        made.replace(file)
    except OSError as error:
        raise ClusterError(f"cannot write {file}: {error.strerror}") from error


def _halt(machines: Machines, gone: list[Node], report: Report, *, wipe: bool) -> None:
    looks = machines.tried("look", {node: {} for node in gone})
    away = [node for node, seen in looks.items() if "error" in seen]
    if away:
        report(f"{', '.join(map(named, away))} cannot be reached: what is there stays, with the cluster's secret")
    reached = [node for node in gone if node not in away]
    if reached:
        raising.halt(machines, reached, report)
    if wipe:
        machines.do("wipe", {node: {"unit": machines.unit} for node in reached})
    else:
        machines.do("place", {node: placing.of_removed() for node in reached if looks[node]["placed"]})
