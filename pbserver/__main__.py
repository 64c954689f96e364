"""The command `pbserver`: reads the settings, and serves with them or prints them."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from pbserver import __version__, index_commands, moving_commands, stores_command, verify_command
from pbserver.settings import Settings, complaints, load

_WRONG_SETTINGS = 2

app = typer.Typer(
    name="pbserver",
    help="Serves App Engine's Datastore calls from a database of yours.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]
Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="What app servers call; port 0 picks one.")]
Admin = Annotated[str | None, typer.Option(metavar="HOST:PORT|none", help="Health and metrics.")]
Store = Annotated[str | None, typer.Option(metavar="URL", help="Where data lives: NAME:PLACE?option=value.")]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Processes; one per core if not given.")]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Threads per worker.")]
Testing = Annotated[bool | None, typer.Option("--testing", help="POST /reset, ids from 1. Never in production.")]
TlsFile = Annotated[Path | None, typer.Option(metavar="FILE")]


app.add_typer(index_commands.app, name="indexes")
app.command()(verify_command.verify)
moving_commands.register(app)
stores_command.register(app)


def main() -> None:
    """The console script."""
    app(prog_name="pbserver")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pbserver {__version__}")
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False) -> None:
    del version


@app.command()
def serve(
    *,
    config: Config = None,
    listen: Listen = None,
    admin: Admin = None,
    store: Store = None,
    workers: Workers = None,
    threads: Threads = None,
    testing: Testing = None,
    tls_cert: TlsFile = None,
    tls_key: TlsFile = None,
) -> None:
    """Serves until SIGTERM, which lets calls under way finish. Flags beat PBSERVER_* variables, which beat the file."""
    settings = _settings(config, _flags(locals()))
    from pbserver import logs, supervisor
    from pbserver.worker import StartFailed

    logs.configure(settings.log)
    try:
        code = supervisor.serve(settings)
    except StartFailed as failure:
        sys.stderr.write(f"pbserver: {failure}\n")
        code = 1
    sys.exit(code)


@app.command(name="config")
def show_config(
    *,
    print_: Annotated[bool, typer.Option("--print", help="As TOML that --config can read back.")] = False,
    config: Config = None,
    listen: Listen = None,
    admin: Admin = None,
    store: Store = None,
    workers: Workers = None,
    threads: Threads = None,
    testing: Testing = None,
    tls_cert: TlsFile = None,
    tls_key: TlsFile = None,
) -> None:
    """Checks the settings that `serve` would use with the same flags; --print shows them all."""
    settings = _settings(config, _flags(locals()))
    sys.stdout.write(as_toml(settings) if print_ else "the settings are right\n")


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in Settings.model_fields}


def _settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """Exits with status 2 and one line for each wrong setting."""
    try:
        return load(config, flags)
    except ValidationError as wrong:
        for line in complaints(wrong):
            sys.stderr.write(f"pbserver: {line}\n")
    except (OSError, ValueError) as unreadable:
        sys.stderr.write(f"pbserver: cannot read the settings: {unreadable}\n")
    sys.exit(_WRONG_SETTINGS)


def as_toml(settings: BaseModel, section: str = "") -> str:
    """The settings as TOML, each with its description; load() makes the same settings of it."""
    lines: list[str] = []
    sections: list[str] = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            sections.append(as_toml(value, f"{section}{name}."))
            continue
        comment = f"  # {field.description}" if field.description else ""
        lines.append(_assignment(name, value) + comment)
    header = [f"\n[{section.removesuffix('.')}]"] if section else []
    return "\n".join([*header, *lines, ""]) + "".join(sections)


def _assignment(name: str, value: object) -> str:
    if value is None:
        return f'{name} = "none"' if name == "admin" else f'# {name} = ""'
    if isinstance(value, bool | int | float):
        return f"{name} = {str(value).lower()}"
    return f"{name} = {json.dumps(str(value), ensure_ascii=False)}"


if __name__ == "__main__":
    main()
