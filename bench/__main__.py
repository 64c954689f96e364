"""`python -m bench [NAME...]`: measures, prints, and keeps results and plot in bench/results/."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench import prices, report, stores
from bench.experiments import EXPERIMENTS, ON_STORES
from bench.experiments.limits import StubFailed
from bench.measure import LoadFailed
from bench.prices import UnknownPrice
from bench.result import OtherRun, Results, filesystem
from bench.run import FULL, PAPERS, SMALL, Asked, Experiment, Run, Scale, progress_on
from bench.server import ServerFailed
from bench.stores import CLUSTER, SERVER, UnknownStore

RESULTS = Path(__file__).parent / "results"
EXPECTED = (LoadFailed, ServerFailed, StubFailed, OSError)  # their text says all; anything else is a bug of the bench


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(EXPERIMENTS)}; none: all of them")] = None,
    small: Annotated[bool, typer.Option("--small", help="less of everything, under two minutes")] = False,
    papers: Annotated[bool, typer.Option("--papers", help="the papers' sizes, for the experiments on stores")] = False,
    name: Annotated[str | None, typer.Option("--name", help="of the files in bench/results")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="directory for stores; a new temporary one")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="store URL, any number; an embedded one")] = None,
    server: Annotated[list[str] | None, typer.Option("--server", help="HOST:PORT of a PBServer that runs")] = None,
    cluster: Annotated[list[str] | None, typer.Option("--cluster", help="database to boot, with PBServers")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="of the cluster to boot; or of what is given")] = 1,
    rate: Annotated[list[float] | None, typer.Option("--rate", min=1, help="ycsb's targets, calls a second")] = None,
    machine: Annotated[str | None, typer.Option("--machine", help="ycsb: of bench/prices.toml, what this is")] = None,
    most: Annotated[int | None, typer.Option("--max", min=2, help="entities of growth and overhead")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="goes on with what an interrupted run has kept")] = False,
) -> None:
    """Measures pbserver on this machine and says which targets are met."""
    console = Console()
    given = [
        *(store or []),
        *(f"{SERVER}{each}" for each in server or []),
        *(f"{CLUSTER}{each}" for each in cluster or []),
    ]
    chosen = names or [*(each for each in EXPERIMENTS if each in ON_STORES or not given)]
    scale = PAPERS if papers else SMALL if small else FULL
    asked = Asked(
        stores=tuple(given) or Asked().stores, nodes=nodes, rates=tuple(rate or ()), machine=machine, most=most
    )
    try:
        check(chosen, given, machine)
        results = Results(RESULTS / f"{name or file_name(names or [], given, scale)}.jsonl", resume=resume)
        signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))  # so that no database is left behind
        complete = measure(chosen, scale, results, console, data, asked=asked)
    except (UnknownStore, UnknownPrice, Misused, OtherRun) as error:
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except OSError as error:
        console.print(f"cannot keep results or stores: {error}; choose another place with --name or --data")
        raise typer.Exit(1) from None
    raise typer.Exit(0 if complete else 1)


class Misused(Exception):
    """The command line asks for what there is not."""


def check(names: Sequence[str], given: Sequence[str], machine: str | None) -> None:
    """Raises Misused, UnknownStore or UnknownPrice."""
    unknown = [each for each in names if each not in EXPERIMENTS]
    if unknown:
        raise Misused(f"no experiment is called {', '.join(unknown)}; there are: {', '.join(EXPERIMENTS)}")
    own = [each for each in names if each not in ON_STORES]
    if given and own:
        fit = ", ".join(name for name in EXPERIMENTS if name in ON_STORES)
        raise Misused(f"{', '.join(own)}: measured on the embedded store only; on a given one run: {fit}")
    for each in given:
        stores.check(each)
    if machine is not None:
        prices.of(machine)


def file_name(names: Sequence[str], given: Sequence[str], scale: Scale) -> str:
    """Of the results; says what was asked for, but of stores only which databases they are."""
    kinds = [each.removeprefix(CLUSTER).partition(":")[0] for each in given]
    return "-".join([*names, *dict.fromkeys(kinds), scale.name])


def measure(
    names: list[str],
    scale: Scale,
    results: Results,
    console: Console,
    data: Path | None,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
    asked: Asked | None = None,
) -> bool:
    """Runs the experiments one after another; whether all of them came to their end. Each leaves what it measured.

    Raises OtherRun if what is to be resumed was measured otherwise, OSError if nothing can be kept.
    """
    began = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    asked = asked or Asked()
    results.machine({**settings(scale, asked, data), "experiments": names})
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
                        client_cores=tuple(cores[1:] or cores),
                        console=console,
                        progress=progress,
                        asked=asked,
                    )
                    failed |= not attempt(name, experiments[name], bench)
                progress.advance(everything)
    finally:
        results.finished(time.monotonic() - began)
        report.show(results, console)
        for path in [results.path, *report.plot(results)]:
            console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return not failed


def settings(scale: Scale, asked: Asked, data: Path | None) -> dict[str, object]:
    """What results depend on, beside the machine and the code."""
    parent = Path(tempfile.gettempdir()) if data is None else data
    shown = {**asdict(asked), "stores": [stores.label(each) for each in asked.stores]}
    return {"scale": scale.name, "sizes": asdict(scale), **shown, "stores_on": filesystem(parent), "workers": 1}


def attempt(name: str, experiment: Experiment, bench: Run) -> bool:
    """One experiment; its failure is recorded, and the next one gets its turn."""
    if bench.results.is_done(name):
        bench.say(f"[dim]{name}: measured before")
        return True
    began = time.monotonic()
    try:
        experiment(bench)
    except Exception as error:  # noqa: BLE001 - whatever it is, what was measured so far is kept
        bench.results.failure(name, f"{type(error).__name__}: {error}")
        if not isinstance(error, EXPECTED):
            bench.console.print_exception()
        return False
    bench.results.done(name, time.monotonic() - began)
    return True


if __name__ == "__main__":
    typer.run(main)
