"""`pbserver copy`, `pbserver dump`, `pbserver load`: the command lines. What they do is in moving/admin.py."""

from pathlib import Path
from typing import Annotated

import typer

Store = Annotated[str | None, typer.Option(metavar="URL", help="Where data lives, as for `serve`.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]
File = Annotated[Path, typer.Argument(metavar="FILE")]


def register(app: typer.Typer) -> None:
    app.command()(copy)
    app.command()(dump)
    app.command()(load)


def copy(
    *,
    from_: Annotated[str, typer.Option("--from", metavar="URL", help="The store to copy; it may be in use.")],
    to: Annotated[str, typer.Option("--to", metavar="URL", help="An empty store, which nobody serves meanwhile.")],
    apps: Annotated[
        list[str] | None,
        typer.Option("--app", metavar="ID[/DATABASE]", help="Only this app; may be given several times."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare both afterwards, entity by entity.")] = False,
) -> None:
    """Copies entities, composite indexes and id counters to another store, of another kind or the same.

    What is put or deleted meanwhile may or may not be copied. After an interruption the same command goes on where it
    stood. Ends with status 0 when all is copied, 1 when --verify found a difference, 2 when it could not copy.
    """
    from pbserver.moving import admin

    admin.copy(from_, to, apps or [], verify=verify)


def dump(
    file: File,
    *,
    store: Store = None,
    config: Config = None,
    plain: Annotated[bool, typer.Option("--plain", help="Do not compress.")] = False,
) -> None:
    """Writes everything a store holds into a new file, only its owner's to read.

    The store may be in use: what is put or deleted meanwhile may or may not be in the file.
    """
    from pbserver.moving import admin

    admin.dump(store, config, file, packed=not plain)


def load(file: File, *, store: Store = None, config: Config = None) -> None:
    """Puts everything a dump holds into an empty store, which nobody serves meanwhile.

    The file is checked before anything is written. After an interruption the same command goes on where it stood.
    """
    from pbserver.moving import admin

    admin.load(store, config, file)
