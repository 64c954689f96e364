"""`pbdeploy local`: real clusters on this machine, started, watched and stopped."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from controller.databases import NAMES
from controller.databases import recipe as recipe_called
from controller.engines import private
from controller.gateways import PORT
from controller.local import LocalCluster
from deploy.watching import watched

_MOST_NODES_BY_DEFAULT = 3

app = typer.Typer(help="Clusters on this machine.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help=", ".join(NAMES))]
Dir = Annotated[Path, typer.Option("--dir", metavar="DIR", help="What the cluster is, its data and its logs.")]
Nodes = Annotated[int | None, typer.Option(metavar="N", help="3 by default, or as many as the database can have.")]
PBServer = Annotated[bool, typer.Option("--pbserver/--no-pbserver", help="With a PBServer at every entry point.")]
Engines = Annotated[Path, typer.Option(metavar="DIR", default_factory=private.default_directory)]


@app.command()
def up(name: Name, directory: Dir, engines: Engines, nodes: Nodes = None, pbserver: PBServer = True) -> None:
    """Boots a cluster and waits until every node has served a write, a read and a scan; prints its store URLs.

    At every entry point a PBServer serves apps, if it can use the database. With data from an
    earlier run it goes on from there, also after kill -9 of everything.
    """
    with watched(f"booting {name}") as report:
        count = nodes or min(recipe_called(name).MOST_NODES, _MOST_NODES_BY_DEFAULT)
        cluster = LocalCluster.up(name, count, directory, pbserver=pbserver, engines=engines, report=report)
    for url in cluster.store_urls():
        typer.echo(url)
    for node in cluster.pbserver_urls():
        typer.echo(f"point an app at it: API_HOST={node.host} API_PORT={PORT}")
    if pbserver and (refusal := cluster.pbserver_refusal()):
        typer.echo(f"no PBServer: {refusal}", err=True)


@app.command()
def down(directory: Dir) -> None:
    """Stops every process of a cluster; its data stays."""
    with watched("stopping") as report:
        LocalCluster(directory, report=report).down()


@app.command()
def status(directory: Dir) -> None:
    """Every node: what runs, and whether it serves. Exits with 1 if one does not."""
    with watched("asking every node"):
        cluster = LocalCluster(directory)
        nodes = cluster.status()
    urls = cluster.pbserver_urls()
    places = [Column("pbserver", no_wrap=True)] if urls else []
    table = Table("node", "address", "running", "stopped", *places, Column("serves", overflow="fold"), box=None)
    for found in nodes:
        running, stopped = ", ".join(found.running) or "-", ", ".join(found.stopped) or "-"
        place = [urls.get(found.node, "-")] if urls else []
        table.add_row(found.node.name, found.node.host, running, stopped, *place, found.trouble or "yes")
    Console(soft_wrap=True).print(table)
    if any(found.trouble for found in nodes):
        raise typer.Exit(1)
