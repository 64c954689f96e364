"""`python -m tests.simulation`: many seeds of the commit protocol's simulation; one that fails plays the same again."""

import sys
import time
from collections.abc import Iterable
from functools import partial
from multiprocessing import Pool, cpu_count
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from tests.simulation.planted import PLANTED
from tests.simulation.run import KINDS, LAYERED, simulate

_AT_ONCE = 20
_SHOWN = 3
_NAMES = ", ".join([*KINDS, *LAYERED])


def failure(seed: int, kind: str = "") -> tuple[int, str] | None:
    """The first thing wrong with a seed."""
    try:
        found = simulate(seed, kind=kind).problems
    except Exception as error:  # noqa: BLE001 - whatever happens in a run is that seed's result
        found = [f"{type(error).__name__}: {error}"]
    return (seed, found[0]) if found else None


def main(
    first: Annotated[int, typer.Option("--from", help="first seed")] = 0,
    seeds: Annotated[int, typer.Option(help="how many")] = 2000,
    store: Annotated[str, typer.Option(help=f"{_NAMES}; without, the first four in turn")] = "",
    planted: Annotated[bool, typer.Option("--planted", help="instead: how soon each planted bug is found")] = False,
) -> None:
    console = Console()
    if store and store not in {*KINDS, *LAYERED}:
        raise typer.BadParameter(f"there is no store {store!r}, only {_NAMES}")
    if planted:
        sys.exit(find_planted(range(first, first + seeds), console))
    began = time.monotonic()
    failures = run(range(first, first + seeds), store, console)
    console.print(f"{seeds:,} seeds from {first}: {len(failures)} failed; {time.monotonic() - began:.0f} s")
    for seed, problem in failures[:_SHOWN]:
        console.print(f"seed {seed}: {problem}", highlight=False, markup=False)
        console.print(
            f"again: make simulate FROM={seed} SEEDS=1" + (f" STORE={store}" if store else ""), highlight=False
        )
    sys.exit(1 if failures else 0)


def run(seeds: range, store: str, console: Console) -> list[tuple[int, str]]:
    """The failures among the seeds, on all cores."""
    play = partial(failure, kind=store)
    if len(seeds) == 1:
        return [each for each in map(play, seeds) if each]
    with Pool(min(cpu_count(), len(seeds))) as pool:
        results = pool.imap(play, seeds, chunksize=_AT_ONCE)
        return [each for each in track(results, "simulating", total=len(seeds), console=console) if each]


def find_planted(seeds: Iterable[int], console: Console) -> int:
    """Says for each planted bug which seed finds it; 1 when one is not found."""
    missed = 0
    for name, plant in PLANTED.items():
        with plant():
            found = next((each for seed in seeds if (each := failure(seed))), None)
        missed += found is None
        shown = f"seed {found[0]}: {found[1].splitlines()[0]}" if found else "NOT FOUND"
        console.print(f"{name.replace('_', ' ')}: {shown}", highlight=False, markup=False)
    return 1 if missed else 0


if __name__ == "__main__":
    typer.run(main)
