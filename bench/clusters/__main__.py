"""`python -m bench.clusters [DATABASE...]`: boots each, measures, and keeps results and plot in bench/results/."""

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.__main__ import RESULTS, measure
from bench.clusters.databases import DATABASES
from bench.clusters.overhead import run
from bench.result import Results
from bench.run import FULL, SMALL, Run

_LEAST_COLUMNS = 140


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(DATABASES)}; none: all of them")] = None,
    small: Annotated[bool, typer.Option("--small", help="fewer operations: a look, no figures to keep")] = False,
    data: Annotated[Path | None, typer.Option("--data", help="directory for clusters; a new temporary one")] = None,
) -> None:
    """Measures pbserver beside the native drivers of real databases, booted on this machine."""
    console = Console()
    console = console if console.width >= _LEAST_COLUMNS else Console(width=_LEAST_COLUMNS)
    chosen = names or [*DATABASES]
    unknown = [each for each in chosen if each not in DATABASES]
    if unknown:
        console.print(f"no database is called {', '.join(unknown)}; there are: {', '.join(DATABASES)}")
        raise typer.Exit(2)
    experiments: dict[str, Callable[[Run], None]] = {
        name: partial(run, name=name, database=DATABASES[name]) for name in chosen
    }
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))  # so that no database is left behind
    results = Results(RESULTS / f"{'-'.join(['clusters', *(names or []), *(['small'] if small else [])])}.jsonl")
    complete = measure(chosen, SMALL if small else FULL, results, console, data, experiments)
    raise typer.Exit(0 if complete else 1)


if __name__ == "__main__":
    typer.run(main)
