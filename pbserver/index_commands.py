"""`pbserver indexes`: the command line. What the commands do, and all they need for it, is in index_admin.py."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Composite indexes of an app: apply index.yaml, list, drop.", no_args_is_help=True)

App = Annotated[str, typer.Option("--app", metavar="ID", help="The app, such as s~myapp.")]
Store = Annotated[str | None, typer.Option(metavar="URL", help="Where data lives, as for `serve`.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]
Wait = Annotated[bool, typer.Option(help="Do the work here and now; else a running server does it.")]


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="INDEX_YAML")],
    app_id: App,
    *,
    store: Store = None,
    config: Config = None,
    wait: Wait = True,
) -> None:
    """Creates the indexes of a file that do not exist yet, and builds them. Never drops one."""
    from pbserver import index_admin

    with index_admin.opened(app_id, store, config) as indexes:
        indexes.apply(file, wait=wait)


@app.command("list")
def show(
    app_id: App,
    *,
    store: Store = None,
    config: Config = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="As an index.yaml.")] = False,
) -> None:
    """Shows an app's indexes and how far they are."""
    from pbserver import index_admin

    with index_admin.opened(app_id, store, config) as indexes:
        if yaml:
            indexes.print_yaml()
        else:
            indexes.print_table()


@app.command()
def drop(
    ids: Annotated[list[int], typer.Argument(metavar="ID...")],
    app_id: App,
    *,
    store: Store = None,
    config: Config = None,
    wait: Wait = True,
) -> None:
    """Drops indexes: no query uses them from then on, and their rows are removed."""
    from pbserver import index_admin

    with index_admin.opened(app_id, store, config) as indexes:
        indexes.drop(ids, wait=wait)
