"""`pbdeploy backup | restore`: what a cluster's apps have stored, into a file on this machine and back."""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from adapters.hosts import Host
from controller import gateways
from controller.agent.messages import Status
from controller.hosts import moving, ssh
from controller.hosts.ssh import Unreachable
from controller.layout import Ssh
from controller.progress import Report
from controller.recipe import ClusterError, Node
from deploy import layout_commands, placing, raising
from deploy.layout_commands import AsJson, File
from deploy.machines import Machines, named
from deploy.watching import watched
from pbserver import __version__
from pbserver.moving import dump_file
from pbserver.moving.dump_file import DumpFile
from pbserver.moving.records import CannotMove, Record, Stored
from protos.dump_pb2 import Trailer

_TOLD_SECONDS = 10
_RESTART_SECONDS = 600
_MOST_SECONDS = 6 * 3600

To = Annotated[Path, typer.Option("--to", metavar="PATH", help="Must not exist yet.")]
From = Annotated[Path, typer.Option("--from", metavar="PATH", help="By `pbdeploy backup` or `pbserver dump`.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="For all of the way.")]


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(restore)


def backup(
    file: File = Path("cluster.toml"), *, to: To, timeout: Timeout = _MOST_SECONDS, as_json: AsJson = False
) -> None:
    """Writes all that apps have stored into a new file, only its owner's to read: a dump as of `pbserver dump`.

    The cluster may be in use: what is put or deleted meanwhile may or may not be in it, entity by entity. The file
    appears when it is complete and was read back. Exits with 1, and leaves nothing, when it could not be made.
    """
    machines = Machines(layout_commands.read(file))
    with watched(f"backing up {machines.layout.name}") as report, _told():
        if to.exists() or to.is_symlink():
            raise ClusterError(f"{to} is there already: nothing was touched; remove it or name another file")
        gateway = _gateway(machines)
        report(f"{named(gateway)}: reading")
        trailer = _fetched(machines, gateway, to, timeout, report)
    if as_json:
        typer.echo(json.dumps({"file": str(to), "sha256": trailer.sha256.hex(), **_counts(trailer)}))
    else:
        typer.echo(f"{to}: {trailer.entities} entities of {trailer.projects} apps")


def restore(
    file: File = Path("cluster.toml"), *, from_: From, timeout: Timeout = _MOST_SECONDS, as_json: AsJson = False
) -> None:
    """Puts all that a backup holds into a cluster that is up and empty, whatever its database is.

    Let no app call it meanwhile. The file is checked before anything is written. Broken off, the same command goes on.
    At the end all PBServers are restarted. Exits with 1 when it could not be done.
    """
    machines = Machines(layout_commands.read(file))
    with watched(f"restoring {machines.layout.name}") as report, _told():
        report(f"checking {from_}")
        source = DumpFile(from_)
        gateway = _gateway(machines)
        report(f"{named(gateway)}: writing")

        def give(stream: BinaryIO) -> None:
            moving.write(stream, _counted(source.records(), report))

        _streamed(ssh.send, machines, gateway, ["load", source.trailer.sha256.hex()], give, timeout)
        restarted = _restarted(machines, report)
    if as_json:
        typer.echo(json.dumps({**_counts(source.trailer), "restarted": restarted}))
    else:
        typer.echo(f"restored {source.trailer.entities} entities of {source.trailer.projects} apps")


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (CannotMove, OSError) as error:
        raise ClusterError(str(error)) from error
    except moving.BROKEN as error:
        raise ClusterError(f"the connection broke off: {error}") from error


def _counts(trailer: Trailer) -> dict[str, int]:
    return {"entities": trailer.entities, "apps": trailer.projects}


def _gateway(machines: Machines) -> Node:
    """One that serves; where the head cannot be asked, one of those whose services run. Raises ClusterError."""
    layout = machines.layout
    nodes = [node for node in machines.nodes if layout.machine_of(node) in layout.gateways]
    try:
        serving = machines.status().entry_points
    except ClusterError:
        serving = layout.entry_points
    wrong = []
    for node, look in machines.tried("look", {node: {} for node in nodes}).items():
        if "error" in look or not look["runs"]:
            wrong.append(f"{named(node)}: {look.get('error') or 'nothing of the cluster runs there: pbdeploy up'}")
        elif look["version"] != __version__:
            wrong.append(f"{named(node)}: it has PBServer {look['version']}, this is {__version__}: pbdeploy up")
        elif str(Host(node.host, layout.ports.pbserver)) not in serving:
            wrong.append(f"{named(node)}: its PBServer does not serve: pbdeploy doctor")
        else:
            return node
    raise ClusterError("; ".join(wrong))


def _fetched(machines: Machines, gateway: Node, to: Path, seconds: float, report: Report) -> Trailer:
    """Makes the file, under its name only when it has been read back whole."""
    with tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.parent) as unfinished:
        made = Path(unfinished) / to.name

        def take(stream: BinaryIO) -> None:
            dump_file.write(made, _counted(moving.Received(stream).records(), report))

        _streamed(ssh.receive, machines, gateway, ["dump"], take, seconds)
        report("reading it back")
        trailer = DumpFile(made).trailer
        made.rename(to)
    return trailer


def _streamed(
    way: Callable[[Sequence[str], str, Ssh, Callable[[BinaryIO], None], float], None],
    machines: Machines,
    gateway: Node,
    what: Sequence[str],
    work: Callable[[BinaryIO], None],
    seconds: float,
) -> None:
    """Runs moving.py there, with `work` at this end of it. `way`: ssh.receive or ssh.send. Raises ClusterError."""
    layout = machines.layout
    action, *arguments = what
    program = [str(placing.python_of(layout, gateway)), "-m", moving.__name__, action]
    command = [*program, str(gateways.settings_file(gateway)), *arguments]
    try:
        way(command, gateway.host, layout.ssh_of(layout.machine_of(gateway)), work, seconds)
    except Unreachable as error:
        raise ClusterError(f"{named(gateway)}: {error}") from error


def _restarted(machines: Machines, report: Report) -> list[str]:
    """All at once: a PBServer may hold ids that it took before the restored entities had them. Raises ClusterError."""
    report(f"restarting every {gateways.NAME}")
    try:
        status = machines.status()
        before = _pids(status)
        nodes = [node for node in machines.nodes if node.name in before]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: machines.stop(node, gateways.NAME), nodes))
        after = max((each.number for each in status.sentences), default=0)
        raising.follow(
            machines, after, lambda now: now.whole and not _pids(now).items() & before.items(), _RESTART_SECONDS, report
        )
    except ClusterError as error:
        raise ClusterError(
            f"all is restored, but not every PBServer was restarted: {error}; when the cluster is whole: "
            f"pbdeploy restart --service {gateways.NAME}"
        ) from error
    return sorted(before)


def _pids(status: Status) -> dict[str, int]:
    """Of the PBServers, by node."""
    services = {each.name: each.facts.services for each in status.nodes if each.facts}
    return {name: each[gateways.NAME].pid for name, each in services.items() if gateways.NAME in each}


def _counted(records: Iterable[Record], report: Report) -> Iterator[Record]:
    """Tells now and then how far it is."""
    count, told = 0, time.monotonic()
    for record in records:
        count += isinstance(record, Stored)
        if time.monotonic() > told + _TOLD_SECONDS:
            report(f"{count} entities")
            told = time.monotonic()
        yield record
