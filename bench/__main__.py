"""`python -m bench [NAME...]`: measures, prints, and keeps results and plot in bench/results/."""

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import report
from bench.experiments import EXPERIMENTS
from bench.experiments.query import StubFailed
from bench.measure import LoadFailed
from bench.result import Results, filesystem
from bench.run import FULL, SMALL, Experiment, Run, Scale, progress_on
from bench.server import ServerFailed

RESULTS = Path(__file__).parent / "results"
EXPECTED = (LoadFailed, ServerFailed, StubFailed, OSError)  # their text says all; anything else is a bug of the bench


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(EXPERIMENTS)}; none: all of them")] = None,
    small: Annotated[bool, typer.Option("--small", help="less of everything, under two minutes")] = False,
    name: Annotated[str | None, typer.Option("--name", help="of the files in bench/results")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="directory for stores; a new temporary one")] = None,
) -> None:
    """Measures pbserver on this machine and says which targets are met."""
    console = Console()
    chosen = names or [*EXPERIMENTS]
    unknown = [each for each in chosen if each not in EXPERIMENTS]
    if unknown:
        console.print(f"no experiment is called {', '.join(unknown)}; there are: {', '.join(EXPERIMENTS)}")
        raise typer.Exit(2)
    scale = SMALL if small else FULL
    place = RESULTS / f"{name or '-'.join([*(names or []), scale.name])}.jsonl"
    try:
        results = Results(place)
        complete = measure(chosen, scale, results, console, data)
    except OSError as error:
        console.print(f"cannot keep results or stores: {error}; choose another place with --name or --data")
        raise typer.Exit(1) from None
    raise typer.Exit(0 if complete else 1)


def measure(
    names: list[str],
    scale: Scale,
    results: Results,
    console: Console,
    data: Path | None,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
) -> bool:
    """Runs the experiments one after another; whether all of them came to their end. Each leaves what it measured."""
    began = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    parent = Path(tempfile.gettempdir()) if data is None else data
    results.machine({"scale": scale.name, "experiments": names, "stores_on": filesystem(parent), "workers": 1})
    if len(cores) < 2:
        console.print("[yellow]one core only: server and load generator disturb each other; trust CPU figures alone")
    failed = False
    try:
        with progress_on(console) as progress:
            everything = progress.add_task("all experiments", total=len(names))
            for name in names:
                with tempfile.TemporaryDirectory(prefix="pbserver-bench-", dir=data) as directory:
                    bench = Run(
                        results=results,
                        scale=scale,
                        directory=Path(directory),
                        server_core=cores[0],
                        client_core=cores[-1],
                        console=console,
                        progress=progress,
                    )
                    failed |= not attempt(name, experiments[name], bench)
                progress.advance(everything)
    finally:
        results.finished(time.monotonic() - began)
        report.show(results, console)
        for path in [results.path, *report.plot(results)]:
            console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return not failed


def attempt(name: str, experiment: Experiment, bench: Run) -> bool:
    """One experiment; its failure is recorded, and the next one gets its turn."""
    try:
        experiment(bench)
    except Exception as error:  # noqa: BLE001 - whatever it is, what was measured so far is kept
        bench.results.failure(name, f"{type(error).__name__}: {error}")
        if not isinstance(error, EXPECTED):
            bench.console.print_exception()
        return False
    return True


if __name__ == "__main__":
    typer.run(main)
