"""What PBServer adds to a database, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table as Columns

from bench.published import MIDDLEWARE

_HEADINGS = (
    "",
    "PBServer",
    "core",
    "store",
    "calls",
    "(a)",
    "(b)",
    "over (a)",
    "over (b)",
    "published",
    "goal",
    "",
    "CPU",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one operation; medians."""

    pbserver_ms: float
    core_ms: float  #: without socket and messages
    store_ms: float  #: of that, in calls of the store
    store_calls: float
    bare_ms: float  #: the native driver's, (a)
    indexed_ms: float  #: (b)
    cpu_ms: float  #: of PBServer's worker
    indexed_cpu_ms: float  #: of the native program, (b)


def of(title: str, costs: Mapping[str, Cost], limits: Mapping[str, float | None]) -> Columns:
    """`limits`: of PBServer's ms, by operation."""
    columns = Columns(title=title, title_justify="left", box=None)
    for heading in _HEADINGS:
        columns.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for operation, cost in costs.items():
        columns.add_row(operation, *_cells(operation, cost, limits[operation]))
    return columns


def _cells(operation: str, cost: Cost, limit: float | None) -> list[str]:
    published = MIDDLEWARE.get(operation, {}).values()
    return [
        *(f"{ms:.2f}" for ms in (cost.pbserver_ms, cost.core_ms, cost.store_ms)),
        f"{cost.store_calls:g}",
        f"{cost.bare_ms:.2f}",
        f"{cost.indexed_ms:.2f}",
        _percent(cost.pbserver_ms / cost.bare_ms),
        _percent(cost.pbserver_ms / cost.indexed_ms),
        "/".join(f"+{each}" for each in published) + " %" if published else "",
        "" if limit is None else f"{limit:.2f}",
        "" if limit is None else "[green]met" if cost.pbserver_ms <= limit else "[red]not met",
        f"{cost.cpu_ms:.2f}/{cost.indexed_cpu_ms:.2f}",
    ]


def _percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.0f} %"
