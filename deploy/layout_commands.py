"""`pbdeploy init` and `pbdeploy check`: a cluster as the operator writes it down, and whether its machines will do."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from controller import layout, preflight
from controller.hosts import facts
from controller.layout import Layout
from controller.preflight import Problem
from controller.recipe import ClusterError
from deploy import placing
from deploy.watching import fail, watched
from pbserver.settings import complaints

_EXAMPLES = Path(__file__).with_name("layouts")
_DATABASES = tuple(sorted(example.stem for example in _EXAMPLES.glob("*.toml")))
_WRONG_LAYOUT = 2

File = Annotated[Path, typer.Argument(metavar="FILE", help="The layout.")]
Output = Annotated[Path, typer.Option("--output", metavar="FILE", help="Must not exist yet.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Offline = Annotated[bool, typer.Option("--offline", help="Only what the file itself says.")]


def register(app: typer.Typer) -> None:
    app.command()(init)
    app.command()(check)


def init(
    database: Annotated[str, typer.Argument(metavar="DATABASE", help=", ".join(_DATABASES))],
    output: Output = Path("cluster.toml"),
) -> None:
    """Writes a layout with comments, to be filled in."""
    if database not in _DATABASES:
        _refuse(f"unknown database {database!r}; there are layouts for {', '.join(_DATABASES)}")
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write((_EXAMPLES / f"{database}.toml").read_text(encoding="utf-8"))
    except FileExistsError:
        _refuse(f"{output} exists already; move it away, or name another by --output")
    except OSError as error:
        _refuse(f"cannot write {output}: {error.strerror}")
    typer.echo(f"{output}: fill in the addresses, then `pbdeploy check {output}`")


def check(file: File = Path("cluster.toml"), *, as_json: AsJson = False, offline: Offline = False) -> None:
    """Whether the layout can work, and whether its machines will do: asked over SSH, nothing is changed there.

    Exits with 1 if something would not work, with 2 if the file is no layout.
    """
    wanted = read(file)
    problems = [*preflight.of_layout(wanted), *_of_tls(wanted)]
    if not offline:
        with watched("asking every node"):
            answers = facts.survey(
                {each.address: (wanted.ssh_of(each), preflight.question(wanted, each)) for each in wanted.nodes}
            )
        problems += preflight.of_machines(wanted, answers)
    if as_json:
        typer.echo(json.dumps(_as_data(wanted, problems), indent=2))
    else:
        for problem in problems:
            typer.echo(f"{'error' if problem.fatal else 'warning'}: {problem}")
        typer.echo(_summary(wanted, problems))
    if any(problem.fatal for problem in problems):
        raise typer.Exit(1)


def read(file: Path) -> Layout:
    """The layout in a file; ends the program, with a line for each wrong key, if it is none."""
    try:
        return layout.read(file)
    except ValidationError as wrong:
        _refuse(*(f"{file}: {line}" for line in complaints(wrong)))
    except tomllib.TOMLDecodeError as error:
        _refuse(f"{file} is not TOML: {error}")
    except OSError as error:
        _refuse(f"cannot read {file}: {error.strerror}")


def reached(layout: Layout, places: Sequence[str]) -> list[str]:
    """Entry points, HOST:PORT each, as whoever calls them writes it: those that speak HTTPS as URLs."""
    return [f"https://{place}" if layout.tls else place for place in places]


def _refuse(*lines: str) -> NoReturn:
    fail(*lines, code=_WRONG_LAYOUT)


def _of_tls(wanted: Layout) -> list[Problem]:
    try:
        placing.gateway_keys(wanted)
    except ClusterError as error:
        return [Problem("", str(error))]
    return []


def _summary(wanted: Layout, problems: list[Problem]) -> str:
    errors = sum(problem.fatal for problem in problems)
    what = f"{wanted.database} on {_counted(len(wanted.machines), 'node')}, {_counted(wanted.copies, 'copy', 'copies')}"
    entries = ", ".join(reached(wanted, wanted.entry_points))
    verdict = _counted(errors, "error") if errors else "fine"
    return f"{wanted.name}: {what} of every row, entry points {entries}: {verdict}"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _as_data(wanted: Layout, problems: list[Problem]) -> dict[str, object]:
    return {
        "name": wanted.name,
        "database": wanted.database,
        "copies": wanted.copies,
        "entry_points": reached(wanted, wanted.entry_points),
        "problems": [{"address": each.address, "text": each.text, "fatal": each.fatal} for each in problems],
    }
