"""A run's results for people: a table in the terminal, and a plot of every target."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from bench.result import Bound, Results

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

_MET, _MISSED = "#3a7d44", "#b3261e"
_WIDEST = 20.0  #: a margin above is drawn as this, so that the others can be told apart


def show(results: Results, console: Console) -> None:
    """The targets, and below them what could not be measured."""
    table = Table(title="Targets", title_justify="left")
    for heading, justify in (("experiment", "left"), ("target", "left"), ("measured", "right"), ("", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for target in results.of("target"):
        met = "[green]met" if target["met"] else "[red]not met"
        table.add_row(target["experiment"], f"{target['name']}: {limit(target)}", measured(target), met)
    console.print(table)
    for failure in results.of("failure"):
        console.print(f"[red]{failure['experiment']} failed:[/] {failure['reason']}", highlight=False)


def plot(results: Results) -> list[Path]:
    """PNG and SVG beside the results: how many times better than its limit each target came out."""
    targets = [*results.of("target")]
    if not targets:
        return []
    figure, axes = plt.subplots(figsize=(11, 1.4 + 0.5 * len(targets)), layout="constrained")
    _bars(axes, targets)
    machine = next(iter(results.of("machine")))
    axes.set_title(
        f"pbserver {machine['pbserver']} ({machine['revision']}): measured against target\n"
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {machine['time']}",
        fontsize=9,
        loc="left",
    )
    return written(figure, results.path)


def written(figure: Figure, path: Path) -> list[Path]:
    """PNG and SVG of a figure, which is closed: `path` with their suffixes."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    for each in paths:
        figure.savefig(each, dpi=120)
    plt.close(figure)
    return paths


def _bars(axes: Any, targets: Sequence[dict[str, Any]]) -> None:
    margins = [margin(each) for each in targets]
    colors = [_MET if each["met"] else _MISSED for each in targets]
    axes.barh(range(len(targets)), [each - 1 for each in margins], left=1, color=colors, height=0.6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *margins) / 1.5, max(2.0, *margins) * 6)
    axes.set_yticks(range(len(targets)), [each["name"] for each in targets], fontsize=8)
    axes.invert_yaxis()
    for index, (each, end) in enumerate(zip(targets, margins, strict=True)):
        label = f" {measured(each)} ({limit(each)})"
        axes.text(max(end, 1), index, label, va="center", fontsize=8)
    axes.set_xlabel("times better than the target (log scale; left of the line: not met)", fontsize=8)


def margin(target: dict[str, Any]) -> float:
    """1: exactly the limit; above: better by so many times."""
    value, bound = max(target["measured"], 0.01 * target["limit"]), target["limit"]
    better: float = bound / value if target["bound"] == Bound.AT_MOST.value else value / bound
    return min(better, _WIDEST)


def measured(target: dict[str, Any]) -> str:
    return _with_unit(target["measured"], target["unit"])


def limit(target: dict[str, Any]) -> str:
    return f"{target['bound']} {_with_unit(target['limit'], target['unit'])}"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.3g}x" if unit == "x" else f"{value:.3g} {unit}"
