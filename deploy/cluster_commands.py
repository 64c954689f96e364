"""`pbdeploy up | status | plan | doctor | logs | entrypoints | restart | down | version`: clusters on machines."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from controller.agent.messages import Status
from controller.layout import Layout
from controller.recipe import ClusterError, Node
from deploy import layout_commands, leaving, raising
from deploy.diagnosis import Finding, findings
from deploy.haproxy import configuration
from deploy.layout_commands import AsJson, File
from deploy.machines import Machines, named
from deploy.watching import FAILED, watched
from pbserver import __version__

Timeout = Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="For the whole of it.")]
Wipe = Annotated[bool, typer.Option("--wipe", help="Removes the nodes' directories, too, with all data.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before --wipe.")]
Haproxy = Annotated[bool, typer.Option("--haproxy", help="As the file of an HAProxy on an app server.")]
Lines = Annotated[int, typer.Option(min=1, help="Of each log.")]
OfNode = Annotated[str, typer.Option("--node", metavar="NAME", help="node2, or its address; without: all.")]
Service = Annotated[str, typer.Option("--service", metavar="NAME", help="Without: all.")]
FILE = Path("cluster.toml")
_SENTENCES = 20  # of the head's last, for programs
_TABLE_WIDTH = 160  # also where there is no terminal


def register(app: typer.Typer) -> None:
    for command in (up, status, plan, doctor, logs, entrypoints, restart, down, version):
        app.command()(command)


def up(file: File = FILE, *, timeout: Timeout = 1800, as_json: AsJson = False) -> None:
    """Makes the cluster be as the layout says, and returns when it serves. What is there already is left alone.

    Exits with 1 when a node, a service or a check is not there in time, and shows the end of its log; what was
    started stays, and `up` may be run again.
    """
    machines = Machines(layout_commands.read(file))
    with watched(f"raising {machines.layout.name}") as report:
        found = raising.look(machines, raising.keys(file, machines.layout))
        nothing = leaving.is_ending(machines.layout, found.status) or raising.as_wanted(machines, found)
        if not nothing:
            raised, by_hand = raising.raise_(machines, found, timeout, report)
        else:
            assert found.status is not None
            by_hand, raised = [], found.status
        if any(each.leaving for each in machines.layout.nodes):
            nothing, raised = False, leaving.end(file, machines, timeout, report)
    if as_json:
        typer.echo(json.dumps({"changed": not nothing, **as_data(raised)}, indent=2))
        return
    typer.echo(f"{machines.layout.name}: {'nothing to do' if nothing else 'up'}")
    tell_entry_points(machines.layout, raised, by_hand)


def tell_entry_points(layout: Layout, raised: Status, by_hand: Sequence[Node]) -> None:
    """`by_hand`: nodes that have nothing that would start them at boot."""
    if layout.tls:
        typer.echo("\n".join(layout_commands.reached(layout, raised.entry_points)))
        typer.echo("App Engine's SDK speaks plain HTTP: put an HAProxy beside the app, pbdeploy entrypoints --haproxy")
    else:
        for place in raised.entry_points:
            host, _, port = place.rpartition(":")
            typer.echo(f"point an app at it: API_HOST={host} API_PORT={port}")
    if by_hand:
        typer.echo(
            f"no systemd on {', '.join(map(named, by_hand))}: have {by_hand[0].directory.parent}/NODE/boot run at boot"
        )


def status(file: File = FILE, *, as_json: AsJson = False) -> None:
    """Every node with what runs there, and the entry points. Exits with 1 unless all is as it was asked for."""
    machines = Machines(layout_commands.read(file))
    with watched("asking the head"):
        found = machines.status()
    if as_json:
        typer.echo(json.dumps(as_data(found), indent=2))
    else:
        _show(found)
    if not (found.whole or (found.down and not found.up)):
        raise typer.Exit(FAILED)


def plan(file: File = FILE, *, as_json: AsJson = False) -> None:
    """What `up` would do, as a list; nothing is changed."""
    machines = Machines(layout_commands.read(file))
    with watched("looking at every node"):
        steps = raising.plan(machines, raising.look(machines, raising.keys(file, machines.layout)))
    if as_json:
        typer.echo(json.dumps(steps, indent=2))
    else:
        typer.echo("\n".join(steps) if steps else "nothing to do")


def doctor(file: File = FILE, *, lines: Lines = 10, as_json: AsJson = False) -> None:
    """What is wrong, with the last lines of the log that may say more. Exits with 1 if anything is."""
    machines = Machines(layout_commands.read(file))
    with watched("looking at every node"):
        wrong = _wrong(machines)
        ends = {each: _end_of_log(machines, each, lines) for each in wrong if each.service}
    if as_json:
        typer.echo(json.dumps([{**asdict(each), "log": ends.get(each, "")} for each in wrong], indent=2))
    for each in [] if as_json else wrong:
        typer.echo(f"{each.node} ({each.address}): {each.text}" if each.node else each.text)
        if ends.get(each):
            typer.echo(f"--- the end of {each.service}.log\n{ends[each]}")
    if wrong:
        raise typer.Exit(FAILED)
    if not as_json:
        typer.echo("nothing is wrong")


def entrypoints(file: File = FILE, *, haproxy: Haproxy = False, as_json: AsJson = False) -> None:
    """Where apps may call now, or the configuration of an HAProxy for all gateways of the layout.

    Exits with 1 if there is no entry point now.
    """
    layout = layout_commands.read(file)
    if haproxy:
        typer.echo(configuration(layout.name, layout.entry_points, tls=layout.tls is not None), nl=False)
        return
    with watched("asking the head"):
        found = layout_commands.reached(layout, Machines(layout).status().entry_points)
    typer.echo(json.dumps(found) if as_json else "\n".join(found) or "none")
    if not found:
        raise typer.Exit(FAILED)


def logs(
    file: File = FILE, *, node: OfNode = "", service: Service = "", lines: Lines = 20, as_json: AsJson = False
) -> None:
    """The last lines that services, agents and supervisord have written."""
    machines = Machines(layout_commands.read(file))
    with watched("reading logs"):
        chosen = machines.chosen(node)
        said = machines.do("logs", {each: {"service": service, "lines": lines} for each in chosen})
    found = {each.name: answer["logs"] for each, answer in said.items()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for each in chosen:
        for name, text in found[each.name].items():
            typer.echo(f"--- {named(each)} {each.directory}/log/{name}.log\n{text}")


def restart(
    file: File = FILE, *, node: OfNode = "", service: Service = "", timeout: Timeout = 600, as_json: AsJson = False
) -> None:
    """Restarts services one at a time, the next when the cluster is whole again; the first node's last.

    --timeout is for each. Exits with 1 when one is not back in time; the others are left alone then.
    """
    machines = Machines(layout_commands.read(file))
    with watched(f"restarting {machines.layout.name}") as report:
        done = raising.restart(machines, machines.chosen(node), service, timeout, report)
        if not done:
            raise ClusterError(f"no node has a service {service}; pbdeploy status names them")
    typer.echo(json.dumps({"restarted": done}) if as_json else f"restarted: {', '.join(done)}")


def down(file: File = FILE, *, wipe: Wipe = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stops every service and agent, the last started first. The data stays, unless --wipe is given and confirmed."""
    machines = Machines(layout_commands.read(file))
    if wipe and not yes:
        typer.confirm(
            f"Remove all data of {machines.layout.name} on {len(machines.nodes)} nodes?", abort=True, err=True
        )
    with watched(f"stopping {machines.layout.name}") as report:
        looks = machines.everywhere("look")
        running = [node for node in machines.nodes if looks[node]["runs"]]
        if running:
            raising.lower(machines, running, report)
        if wipe:
            machines.everywhere("wipe", unit=machines.unit)
    if as_json:
        typer.echo(json.dumps({"stopped": [node.name for node in running], "wiped": wipe}))
    else:
        typer.echo(f"{machines.layout.name}: down, {'all data removed' if wipe else 'the data stays'}")


def version(*, as_json: AsJson = False) -> None:
    """Of this program; `status` says those of the nodes."""
    typer.echo(json.dumps({"pbdeploy": __version__}) if as_json else f"pbdeploy {__version__}")


def _wrong(machines: Machines) -> list[Finding]:
    """What the head says; where it does not answer, that, and what is known of each node."""
    try:
        return findings(machines.status())
    except ClusterError as error:
        wrong = [Finding("", "", "", f"the head does not answer: {error}")]
        for node, said in machines.tried("look", {node: {} for node in machines.nodes}).items():
            if "error" in said or not said["runs"]:
                text = said.get("error") or "nothing of the cluster runs there: pbdeploy up"
                wrong.append(Finding(node.name, node.host, "", text))
        return wrong


def _end_of_log(machines: Machines, found: Finding, lines: int) -> str:
    """Empty where there is none, or its node cannot be asked."""
    nodes = [node for node in machines.nodes if node.name == found.node]
    said = machines.tried("logs", {node: {"service": found.service, "lines": lines} for node in nodes})
    return "\n".join(text for answer in said.values() for text in answer.get("logs", {}).values())


def _show(found: Status) -> None:
    columns = ("node", "address", "roles", "version", "cpu %", "memory MiB", "disk free MiB", "heard")
    table = Table(*columns, Column("services", overflow="fold"), box=None)
    for each in found.nodes:
        facts, heard = each.facts, f"{each.silent_seconds:.0f} s ago"
        if facts is None:
            table.add_row(each.name, each.address, ", ".join(each.roles), "-", "-", "-", "-", "never", "-")
            continue
        services = ", ".join(f"{name} {service.state.lower()}" for name, service in facts.services.items())
        used = f"{facts.memory_mib - facts.available_mib} of {facts.memory_mib}"
        figures = (f"{facts.cpu_percent:.0f}", used, str(facts.free_mib), heard, services or "-")
        table.add_row(each.name, each.address, ", ".join(each.roles), facts.version, *figures)
    Console(width=max(Console().width, _TABLE_WIDTH)).print(table)
    for trouble in found.troubles:
        typer.echo(f"trouble: {trouble.node} ({trouble.address}): {trouble.what}: {trouble.text}")
    typer.echo(f"entry points: {', '.join(found.entry_points) or 'none'}")
    typer.echo(found.sentences[-1].text if found.sentences else "nothing has been asked for yet")


def as_data(found: Status) -> dict[str, Any]:
    last = found.model_copy(update={"sentences": found.sentences[-_SENTENCES:]})
    return last.model_dump(mode="json", exclude={"layout"})
