"""`python -m bench.page [FILE...]`: one HTML page of all results, with everything in it: it loads nothing."""

import base64
import html
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import published
from bench.clusters.databases import DATABASES
from bench.plots import PLOTS, Row
from bench.report import limit, measured, written

RESULTS = Path(__file__).parent / "results"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222 }
h2 { margin-top: 2.5rem } table { border-collapse: collapse; font-size: 13px } .wide { overflow-x: auto }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; vertical-align: top; border-bottom: 1px solid #ddd }
td.number { text-align: right } .met { color: #2c6b36 } .missed { color: #b3261e; font-weight: 600 }
img { max-width: 100% } .source { font-size: 12px; color: #555 }
"""
_SOURCES = {"appscale": published.APPSCALE_SOURCE, "overhead": published.MIDDLEWARE_SOURCE}
_MIXED = ("file", "store", "nodes", "keys", "operation", "p50_ms", "p95_ms", "p99_ms", "per_second", "operations")


class NotResults(Exception):
    """A file cannot be read as results."""


@dataclass(frozen=True, slots=True)
class File:
    name: str
    lines: Sequence[dict[str, Any]]

    def of(self, what: str) -> list[dict[str, Any]]:
        return [{**line, "file": self.name} for line in self.lines if line["type"] == what]


def read(path: Path) -> File:
    """Raises NotResults, saying what is wrong with which file."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise NotResults(f"{path} cannot be read as results of the bench, JSON in lines: {error}") from error
    if not lines or any(not isinstance(line, dict) or "type" not in line for line in lines):
        raise NotResults(f"{path} has no results of the bench: each line should be an object with a type")
    return File(path.stem, lines)


def page(files: Sequence[File], plots_to: Path | None = None) -> str:
    """The whole page; in `plots_to`, a directory, every plot as PNG and SVG besides."""
    rows = measurements(files)
    parts = [
        "<h1>PBServer: what it costs, measured</h1>",
        "<h2>Runs</h2>",
        _table(("file", *_FACTS), [_run(file) for file in files]),
        *_plots(rows, plots_to),
        *_mixed([row for row in rows if row["experiment"] == "mixed"]),
        "<h2>Targets</h2>",
        _targets([line for file in files for line in file.of("target")]),
        *_failures([line for file in files for line in file.of("failure")]),
    ]
    body = "\n".join(parts)
    title = "<title>PBServer: benchmarks</title>"
    return f'<!doctype html>\n<html lang="en"><meta charset="utf-8">{title}<style>{_STYLE}</style>\n{body}\n</html>\n'


def measurements(files: Iterable[File]) -> list[Row]:
    """Of all files; those of bench.clusters in the form of the experiment `overhead`."""
    return [_as_overhead(row) if "bare_ms" in row else row for file in files for row in file.of("measurement")]


def _as_overhead(row: Row) -> Row:
    operation, _, rest = row["name"].partition(", ")
    return {
        "file": row["file"],
        "experiment": "overhead",
        "name": row["name"],
        "store": row["experiment"],
        "nodes": DATABASES[row["experiment"]].nodes,
        "operation": operation,
        "acknowledge": rest.partition(":")[0],
        "over_native_percent": (row["pbserver_ms"] / row["bare_ms"] - 1) * 100,
        "over_indexed_percent": (row["pbserver_ms"] / row["indexed_ms"] - 1) * 100,
    }


_FACTS = ("time", "machine", "pbserver", "revision", "Python", "versions", "settings", "seconds", "load")


def _run(file: File) -> list[str]:
    machine = next(iter(file.of("machine")), {})
    finished = next(iter(file.of("finished")), {})
    return [
        file.name,
        machine.get("time", ""),
        f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores, {machine.get('memory_mib', 0) / 1024:.0f} GiB, "
        f"Linux {machine.get('kernel', '?')}",
        machine.get("pbserver", ""),
        str(machine.get("revision", "")),
        machine.get("python", ""),
        ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items()),
        ", ".join(f"{name}: {value}" for name, value in machine.get("settings", {}).items()),
        str(finished.get("seconds", "not finished")),
        ", ".join(f"{each:.1f}" for each in machine.get("load_average", ())),
    ]


def _plots(rows: Sequence[Row], plots_to: Path | None) -> Iterable[str]:
    for experiment, plots in PLOTS.items():
        of_experiment = [row for row in rows if row["experiment"] == experiment]
        for title, draw in plots:
            figure = draw(of_experiment)
            if figure is None:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                paths = written(figure, (plots_to or Path(scratch)) / draw.__name__)
                image = base64.b64encode(paths[-1].read_bytes()).decode()
            yield f"<h2>{html.escape(title)}</h2>"
            yield f'<img alt="{html.escape(title)}" src="data:image/svg+xml;base64,{image}">'
            if experiment in _SOURCES:
                yield f'<p class="source">In grey: {html.escape(_SOURCES[experiment])}.</p>'


def _mixed(rows: Sequence[Row]) -> Iterable[str]:
    if rows:
        yield "<h2>50 gets, 30 puts, 20 queries by nine threads</h2>"
        yield _table(_MIXED, [[row.get(field, "") for field in _MIXED] for row in rows])


def _targets(targets: Sequence[Row]) -> str:
    met = sum(target["met"] for target in targets)
    missed = [*(each for each in targets if not each["met"]), *(each for each in targets if each["met"])]
    rows = [
        [each["file"], each["experiment"], each["name"], measured(dict(each)), limit(dict(each)), each["met"]]
        for each in missed
    ]
    count = f"<p>{met} of {len(targets)} are met; those that are not come first.</p>"
    return count + _table(("file", "experiment", "target", "measured", "limit", ""), rows)


def _failures(failures: Sequence[Row]) -> Iterable[str]:
    if failures:
        yield "<h2>What could not be measured</h2>"
        fields = ("file", "experiment", "reason")
        yield _table(fields, [[each[field] for field in fields] for each in failures])


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>'


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return '<td class="met">met</td>' if value else '<td class="missed">not met</td>'
    if isinstance(value, int | float):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="results of the bench; none: all in bench/results")] = None,
    to: Annotated[Path, typer.Option("--to", help="the page that is written")] = RESULTS / "index.html",
    plots: Annotated[Path | None, typer.Option("--plots", help="directory for the plots, as PNG and SVG")] = None,
) -> None:
    """One self-contained page of results."""
    try:
        found = [read(path) for path in files or sorted(RESULTS.glob("*.jsonl"))]
        if plots is not None:
            plots.mkdir(parents=True, exist_ok=True)
        to.write_text(page(found, plots), encoding="utf-8")
    except (NotResults, OSError) as error:
        typer.echo(f"no page is written: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"written: {to}, of {len(found)} files")


if __name__ == "__main__":
    typer.run(main)
