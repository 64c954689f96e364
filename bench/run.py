"""What every experiment gets: where to run, how much, and the one way to measure subjects side by side."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench import stores
from bench.client import Load
from bench.measure import Figures, best, measure
from bench.result import Bound, Results, Target
from bench.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Of `appscale` and `mixed`."""

    entities: int = 1000  #: that are there before
    threads: tuple[int, ...] = (1, 3, 9)
    thread_operations: int = 100  #: of each kind by each thread; a tenth of it whole-table queries
    repeats: int = 3
    mixed_operations: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ycsb:
    records: int = 1000
    seconds: float = 2.0  #: of one measurement
    shares: tuple[float, ...] = (0.25, 0.5, 0.75)  #: target rates, of what a closed loop reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    seconds: float = 9.0  #: a third before the death, at least a third after it, and after the return
    per_second: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is done. Every figure is the best of `rounds`, in which the subjects take turns."""

    name: str
    seconds: float  #: of one measurement
    rounds: int
    large_entities: int  #: what `growth` goes up to
    memory_operations: int
    connections: tuple[int, ...] = (1, 9, 64, 1000)
    query_entities: int = 1000
    table: Table = Table()
    ycsb: Ycsb = Ycsb()
    faults: Faults = Faults()


FULL = Scale(name="full", seconds=0.8, rounds=3, large_entities=1_000_000, memory_operations=500_000)
SMALL = Scale(
    name="small",
    seconds=0.5,
    rounds=2,
    large_entities=100_000,
    memory_operations=100_000,
    table=Table(entities=200, thread_operations=20, repeats=2, mixed_operations=300),
    ycsb=Ycsb(records=200, seconds=0.5, shares=(0.5,)),
    faults=Faults(seconds=4),
)
PAPERS = replace(
    FULL,
    name="papers",
    table=Table(thread_operations=1000, repeats=5, mixed_operations=10_000),
    ycsb=Ycsb(records=100_000, seconds=10, shares=(0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0)),
    faults=Faults(seconds=60),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says beside the experiments and the scale."""

    stores: tuple[str, ...] = (stores.EMBEDDED,)  #: as bench.stores names them
    nodes: int = 1  #: of a cluster that is booted; of any other store, what the results say
    rates: tuple[float, ...] = ()  #: targets of `ycsb`, operations a second, instead of the scale's shares
    machine: str | None = None  #: of bench/prices.toml
    most: int | None = None  #: entities of `growth` and `overhead`, instead of the scale's


#: Names of values that are told wherever there are any.
_ERRORS = ("errors", "errors_by_answer")


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
    client_cores: tuple[int, ...]
    console: Console
    progress: Progress
    asked: Asked = Asked()

    @property
    def client_core(self) -> int:
        return self.client_cores[-1]

    @property
    def stores(self) -> tuple[str, ...]:
        """What the experiments on stores run on, one after the other; bench.stores says how to read them."""
        return self.asked.stores

    def store_url(self, store: str) -> str:
        """What a PBServer is to open for one of `stores` that is neither a cluster nor a server."""
        return stores.url(store, self.directory)

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
        told = {
            key: each
            for key, each in values.items()
            if isinstance(each, int | float | str) or (key in _ERRORS and each)
        }
        shown = ", ".join(f"{key} {value}" for key, value in told.items())
        self.say(f"[dim]{experiment}: {name}: {shown}")

    def once(self, experiment: str, name: str, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Measures and records, unless a run that is resumed has done so; what was found."""
        kept = self.results.kept(experiment, name)
        if kept is not None:
            self.say(f"[dim]{experiment}: {name}: measured before")
            return kept
        values = measure()
        self.record(experiment, name, **values)
        return values

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
