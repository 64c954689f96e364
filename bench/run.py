"""What every experiment gets: where to run, how much, and the one way to measure subjects side by side."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.client import Load
from bench.measure import Figures, best, measure
from bench.result import Bound, Results, Target
from bench.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is done. Every figure is the best of `rounds`, in which the subjects take turns."""

    name: str
    seconds: float  #: of one measurement
    rounds: int
    large_entities: int  #: what `limit` calls large
    memory_operations: int
    connections: tuple[int, ...] = (1, 9, 64, 1000)
    query_entities: int = 1000


FULL = Scale(name="full", seconds=1.5, rounds=3, large_entities=1_000_000, memory_operations=1_000_000)
SMALL = Scale(name="small", seconds=0.5, rounds=2, large_entities=100_000, memory_operations=100_000)


class Measurable(Protocol):
    """What takes turns with others in being measured."""

    @property
    def connections(self) -> int:
        """How many operations are under way at a time."""

    @property
    def extent(self) -> float:
        """Of one measurement: what `on_progress` counts up to."""

    def measure(self, core: int, on_progress: Callable[[float], None]) -> Figures:
        """One measurement. `core`: where a load generator may run."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A load on a server, to be measured beside others."""

    server: Server
    load: Load

    @property
    def connections(self) -> int:
        return self.load.connections

    @property
    def extent(self) -> float:
        return self.load.operations or self.load.seconds

    def measure(self, core: int, on_progress: Callable[[float], None]) -> Figures:
        began = time.monotonic()

        def progress(operations: int) -> None:
            on_progress(operations if self.load.operations else time.monotonic() - began)

        return measure(self.server, self.load, core, progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    results: Results
    scale: Scale
    directory: Path  #: for stores; emptied after each experiment
    server_core: int
    client_core: int
    console: Console
    progress: Progress

    def compare(self, experiment: str, subjects: Mapping[str, Measurable], by: str = "cpu_us") -> dict[str, Figures]:
        """Measures the subjects in turns, so that what else the machine does meets all of them alike.

        Records and returns of each the round with the best value of `by`.
        """
        rounds: dict[str, list[Figures]] = {name: [] for name in subjects}
        for number in range(self.scale.rounds):
            for name, subject in subjects.items():
                title = f"{experiment}: {name}, round {number + 1} of {self.scale.rounds}"
                rounds[name].append(self.measure(title, subject))
        found = {name: best(each, by) for name, each in rounds.items()}
        for name, each in found.items():
            all_rounds = [round(getattr(one, by), 2) for one in rounds[name]]
            facts = {"connections": subjects[name].connections, **each.as_dict(), f"rounds_{by}": all_rounds}
            self.results.measurement(experiment, name, facts)
            self.say(f"[dim]{experiment}: {name}: {each}")
        return found

    def measure(self, title: str, subject: Measurable) -> Figures:
        """One measurement with its progress shown; nothing is recorded."""
        with self.step(title, subject.extent) as step:
            return subject.measure(self.client_core, step)

    @contextmanager
    def step(self, title: str, total: float) -> Iterator["Step"]:
        """Something that takes a moment, shown as a bar."""
        task = self.progress.add_task(title, total=total)
        try:
            yield Step(self.progress, task)
        finally:
            self.progress.remove_task(task)

    def record(self, experiment: str, name: str, **values: Any) -> None:
        """A fact that is no target."""
        self.results.measurement(experiment, name, values)
        shown = ", ".join(f"{key} {value}" for key, value in values.items() if isinstance(value, int | float | str))
        self.say(f"[dim]{experiment}: {name}: {shown}")

    def at_most(self, experiment: str, name: str, measured: float, limit: float, *, unit: str = "x") -> None:
        """Records a target that `measured` should not pass. `unit` x: a ratio inside this run."""
        self._target(experiment, Target(name=name, measured=measured, bound=Bound.AT_MOST, limit=limit, unit=unit))

    def at_least(self, experiment: str, name: str, measured: float, limit: float, *, unit: str = "x") -> None:
        """Records a target that `measured` should reach."""
        self._target(experiment, Target(name=name, measured=measured, bound=Bound.AT_LEAST, limit=limit, unit=unit))

    def _target(self, experiment: str, target: Target) -> None:
        self.results.target(experiment, target)
        met = "[green]met" if target.met else "[red]not met"
        wanted = f"{target.bound.value} {target.limit:g} {target.unit}"
        self.say(f"{experiment}: {target.name}: {target.measured:.2f} {target.unit} ({wanted}) {met}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


class Step:
    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, done: float) -> None:
        self._progress.update(self._task, completed=done)


def progress_on(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


#: Measures, records and states its targets.
Experiment = Callable[[Run], None]
