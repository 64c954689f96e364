"""`pbdeploy engines`: fetches database engines into a private directory, lists them, says where they are."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from controller.engines import private
from controller.engines.catalog import ENGINES
from deploy.watching import watched

app = typer.Typer(help="Database engines in a private directory.", no_args_is_help=True)

Dir = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The private directory.", default_factory=private.default_directory)
]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help=", ".join(ENGINES))]
Name = Annotated[str, typer.Argument(metavar="NAME")]
Use = Annotated[Path | None, typer.Option(metavar="PATH", help="Use the copy there instead of fetching.")]


@app.command()
def fetch(names: Names, directory: Dir, use: Use = None) -> None:
    """Fetches engines of pinned versions with what they need; those that are there already are left alone.

    --use takes one engine: a Java home, a directory with lib/*.jar, the root of a system with MariaDB.
    """
    if use is not None and len(names) != 1:
        raise typer.BadParameter(f"--use is for one engine, not for {len(names)}")
    with watched(f"fetching {', '.join(names)}") as report:
        for name in names:
            typer.echo(private.fetch(name, directory, use=use, report=report))


@app.command("list")
def show(directory: Dir) -> None:
    """Every engine, and where it is if it was fetched."""
    table = Table("engine", "version", "needs", Column("where", overflow="fold"), box=None)
    for name, engine in ENGINES.items():
        where = private.place(name, directory)
        table.add_row(name, engine.version, ", ".join(engine.needs), str(where.resolve()) if where.exists() else "-")
    Console(soft_wrap=True).print(table)


@app.command()
def path(name: Name, directory: Dir) -> None:
    """Where an engine is; fails if it was not fetched."""
    with watched(name):
        typer.echo(private.locate(name, directory))
