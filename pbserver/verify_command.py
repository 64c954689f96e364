"""`pbserver verify`: the command line. What it does, and all it needs for it, is in verification/admin.py."""

from pathlib import Path
from typing import Annotated

import typer

Store = Annotated[str | None, typer.Option(metavar="URL", help="Where data lives, as for `serve`.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]
Apps = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="ID[/DATABASE]", help="Only this app; may be given several times."),
]
Repair = Annotated[bool, typer.Option("--repair", help="Put right what the entities tell.")]
Most = Annotated[int, typer.Option(metavar="N", min=0, help="Problems shown; the others are counted.")]


def verify(
    *, store: Store = None, config: Config = None, apps: Apps = None, repair: Repair = False, most: Most = 100
) -> None:
    """Checks every entity against its index rows and the reverse, while a server runs or not.

    Ends with status 0 when nothing is wrong, 1 when something is, 2 when it could not look. It sees all apps that ever
    stored an entity, or those that are named.
    """
    from pbserver.verification import admin

    admin.verify(store, config, apps or [], repair=repair, most=most)
