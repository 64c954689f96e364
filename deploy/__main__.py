"""The command `pbdeploy`: database engines, and clusters of them on this machine and on others."""

import typer

from deploy import (
    backup_commands,
    cluster_commands,
    engine_commands,
    firewall_commands,
    layout_commands,
    local_commands,
    member_commands,
)

app = typer.Typer(
    name="pbdeploy",
    help="Database engines, and clusters of them.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
layout_commands.register(app)
cluster_commands.register(app)
backup_commands.register(app)
member_commands.register(app)
app.add_typer(firewall_commands.app, name="firewall")
app.add_typer(engine_commands.app, name="engines")
app.add_typer(local_commands.app, name="local")


def main() -> None:
    """The console script."""
    app(prog_name="pbdeploy")


if __name__ == "__main__":
    main()
