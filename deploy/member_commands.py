"""`pbdeploy add-node | remove-node`: other nodes for a cluster that is up."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from controller.agent.messages import Status
from controller.hosts import ssh
from controller.hosts.ssh import Unreachable
from controller.layout import Layout, Machine, Role
from controller.recipe import ClusterError, Node
from deploy import layout_commands, layout_file, leaving, members, raising
from deploy.cluster_commands import FILE, Timeout, as_data, tell_entry_points
from deploy.layout_commands import AsJson, File
from deploy.machines import Machines, named
from deploy.watching import watched
from pbserver.settings import complaints

Address = Annotated[str, typer.Option("--address", metavar="A", help="Of the new node, in the cluster's network.")]
Roles = Annotated[list[Role] | None, typer.Option("--role", help="More than once for several; without: it keeps data.")]
WhichNode = Annotated[str, typer.Argument(metavar="NODE", help="node4, or its address.")]
Wipe = Annotated[bool, typer.Option("--wipe", help="Removes its directory, too, with what it knew.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_FIREWALL = "are firewall rules applied? they name the nodes: pbdeploy firewall apply"
_HAPROXY = "is there an HAProxy? it names the entry points: pbdeploy entrypoints --haproxy"
_REACHES = (
    "import socket, sys\n"
    "host, port = sys.argv[1].split()\n"
    "try:\n"
    "    socket.create_connection((host, int(port)), 5).close()\n"
    "except OSError as error:\n"
    "    sys.exit(str(error))\n"
)


def register(app: typer.Typer) -> None:
    app.command()(add_node)
    app.command()(remove_node)


def add_node(
    file: File = FILE, *, address: Address, role: Roles = None, timeout: Timeout = 1800, as_json: AsJson = False
) -> None:
    """Checks one more machine, writes it into the layout, and returns when it serves. The others go on meanwhile.

    Run again after it was broken off, it goes on. Exits with 1 when something does not work or is not there in time.
    """
    before = layout_commands.read(file)
    with watched(f"adding {address} to {before.name}") as report:
        address = _address(address)
        text, layout = _with(file, before, address, role or [])
        machines = Machines(layout)
        (node,) = machines.chosen(address)
        found = raising.look(machines, raising.keys(file, layout))
        done = raising.as_wanted(machines, found)
        raised, by_hand = found.status, list[Node]()
        if raised is None or not raised.up:
            raise ClusterError(f"{layout.name} is not up; write the node into {file}, then pbdeploy up")
        if not done:
            if not (raised.whole or _known(raised, address)):
                raise ClusterError(f"{layout.name} is not whole, so no node is added; pbdeploy doctor")
            raising.check(machines, found)
            leaving.write(file, text)
            _reaches(machines, node)
            raised, by_hand = raising.raise_(machines, found, timeout, report)
    if as_json:
        typer.echo(json.dumps({"changed": not done, "node": node.name, **as_data(raised)}, indent=2))
        return
    typer.echo(f"{named(node)}: {'nothing to do' if done else f'is one of the nodes of {layout.name}'}")
    tell_entry_points(layout, raised, by_hand)
    if not done:
        _tell_of_others(raised, _also(layout, node))


def remove_node(
    node: WhichNode,
    file: File = FILE,
    *,
    wipe: Wipe = False,
    yes: Yes = False,
    timeout: Timeout = 21600,
    as_json: AsJson = False,
) -> None:
    """Moves a node's data to the others, stops it, and takes it out of the layout. The others go on meanwhile.

    Its directory stays, unless --wipe is given. Run again after it was broken off, it goes on. Exits with 1 when the
    cluster cannot do without the node, or something does not work or is not there in time.
    """
    layout = layout_commands.read(file)
    machines = Machines(layout)
    with watched("looking at every node"):
        (chosen,) = machines.chosen(node)
        away, left = _away(machines, chosen)
        machine = layout.machine_of(chosen)
        text, marked = _marked(file, layout, machine, away=away and not left)
    if not yes:
        how = "does not answer; go on without it" if away else "gives up its data and leaves the cluster"
        typer.confirm(f"{named(chosen)} {how}?", abort=True, err=True)
    machines = Machines(marked)
    with watched(f"removing {named(chosen)}") as report:
        if not machine.leaving:
            leaving.write(file, text)
        if not away and _known(machines.status(), chosen.host):
            found = raising.look(machines, raising.keys(file, marked))
            raising.raise_(machines, found, timeout, report)
        status = leaving.end(file, machines, timeout, report, wipe=wipe)
    if as_json:
        typer.echo(json.dumps({"removed": chosen.name, "wiped": wipe and not away, **as_data(status)}, indent=2))
        return
    kept = "its directory is removed" if wipe and not away else f"its directory stays: {chosen.directory}"
    typer.echo(f"{named(chosen)}: removed from {layout.name}; {kept}")
    _tell_of_others(status, [])


def _with(file: Path, layout: Layout, address: str, roles: Sequence[Role]) -> tuple[str, Layout]:
    """The file's text and the layout with that node; as they are if it is there already. Raises ClusterError."""
    text = file.read_text(encoding="utf-8")
    there = [each for each in layout.nodes if each.address == address]
    if there and there[0].leaving:
        raise ClusterError(f"{address} is leaving {layout.name}; pbdeploy remove-node ends that")
    if there:
        return text, layout
    if gone := [each.address for each in layout.nodes if each.leaving]:
        raise ClusterError(f"{gone[0]} is leaving {layout.name}; pbdeploy remove-node ends that")
    return _parsed(layout_file.with_node(text, layout, address, roles or members.usual_roles(layout)))


def _marked(file: Path, layout: Layout, machine: Machine, *, away: bool) -> tuple[str, Layout]:
    """The file's text and the layout with the mark that the node leaves. Raises ClusterError where it cannot."""
    text = file.read_text(encoding="utf-8")
    if wrong := members.cannot_leave(layout, machine, away=away):
        raise ClusterError(f"{machine.address} cannot be removed: {'; '.join(wrong)}")
    if machine.leaving:
        return text, layout
    if others := [each.address for each in layout.nodes if each.leaving]:
        raise ClusterError(f"{others[0]} is leaving; pbdeploy remove-node {others[0]} ends that")
    return _parsed(layout_file.with_leaving(text, layout, machine.address))


def _address(given: str) -> str:
    """As layouts compare them. Raises ClusterError."""
    try:
        return Machine(address=given, roles=(Role.GATEWAY,)).address  # type: ignore[call-arg]
    except ValidationError as wrong:
        raise ClusterError("; ".join(complaints(wrong))) from wrong


def _parsed(text: str) -> tuple[str, Layout]:
    try:
        return text, layout_file.parsed(text)
    except ValidationError as wrong:
        raise ClusterError("; ".join(complaints(wrong))) from wrong


def _away(machines: Machines, chosen: Node) -> tuple[bool, bool]:
    """Whether the node cannot be reached, and whether it has no part of the data any more, or yet. Raises ClusterError
    unless all else is as it should be.
    """
    others = [node for node in machines.nodes if node != chosen]
    machines.do("look", {node: {} for node in others})
    reached = "error" not in machines.tried("look", {chosen: {}})[chosen]
    status = machines.status()
    if not status.up:
        raise ClusterError(f"{machines.layout.name} is down; it has to be up to do without a node")
    seen = [each for each in status.nodes if each.address == chosen.host]
    left = all(each.joins or (each.facts is not None and each.facts.left) for each in seen)
    own = [each for each in status.troubles if each.address == chosen.host]
    elsewhere = any(each.address != chosen.host for each in [*status.troubles, *status.awaited])
    alone = not elsewhere and bool(status.entry_points) and (reached or bool(own))
    if not (status.whole or alone or machines.layout.machine_of(chosen).leaving):
        raise ClusterError(f"{machines.layout.name} is not whole, so no node is removed; pbdeploy doctor")
    if not reached and status.whole and not left:
        raise ClusterError(f"{named(chosen)} cannot be reached from here, but the cluster has it; see to that first")
    return not reached, left


def _known(status: Status, address: str) -> bool:
    """Whether the head has that node among its own."""
    return any(each.address == address for each in status.nodes)


def _reaches(machines: Machines, node: Node) -> None:
    """That the new machine gets through to the head's. Raises ClusterError."""
    reached = machines.layout.ssh_of(machines.layout.machine_of(node))
    place = f"{machines.head.host} {machines.layout.ports.agent}"
    answer = ssh.run(_REACHES, {node.host: (reached, place)})[node.host]
    if isinstance(answer, Unreachable):
        raise ClusterError(
            f"{named(node)} does not reach {place.replace(' ', ':')} ({answer}); {_FIREWALL}, then again"
        )


def _also(layout: Layout, node: Node) -> list[str]:
    """What is left to the operator."""
    if layout.database == "cassandra" and layout.machine_of(node).keeps_data:
        return [
            "the other nodes still have the rows that are the new one's now; they only take room (nodetool cleanup)"
        ]
    return []


def _tell_of_others(status: Status, more: Sequence[str]) -> None:
    for line in [*more, _FIREWALL, *([_HAPROXY] if status.entry_points else [])]:
        typer.echo(line)
