"""What results look like: one function for each sort, from the lines of type `measurement` to a figure.

Every function takes the measurements of its experiment, as bench/README.md describes them, each with `file`, the name
of the file it is from; and returns None where there is nothing to draw. What was published is drawn in grey.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl

from bench.published import APP_ENGINE, APPSCALE, MIDDLEWARE

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

Row = Mapping[str, Any]
_GREY, _RED = "#8a8a8a", "#b3261e"
_PUBLISHED_GREYS = ("#6d6d6d", "#969696", "#bdbdbd")
_WIDTH, _HEIGHT = 4.0, 3.2  # of one of several axes, in inches


def appscale(rows: Sequence[Row]) -> Figure | None:
    """Mean time of an operation against threads: figures 3 to 5 of the paper."""
    drawn = [row for row in rows if "mean_ms" in row]
    operations = _in_order(row["operation"] for row in drawn)
    if not operations:
        return None
    figure, axes = _grid(len(operations))
    for place, operation in zip(axes, operations, strict=True):
        for name, line in _series(row for row in drawn if row["operation"] == operation).items():
            line.sort(key=lambda row: row["threads"])
            threads, means = _column(line, "threads"), _column(line, "mean_ms")
            place.errorbar(threads, means, yerr=_column(line, "deviation_ms"), marker="o", capsize=3, label=name)
        for system, style in ((APPSCALE, "-"), (APP_ENGINE, "--")):
            if (found := system.seconds.get(operation)) is not None:
                place.axhspan(found.low * 1e3, found.high * 1e3, color=_GREY, alpha=0.3)
                place.axhline(found.low * 1e3, color=_GREY, linestyle=style, label=system.name)
        place.set_xticks(sorted({row["threads"] for row in drawn}))
        place.set(title=operation, xlabel="threads", ylabel="mean ms")
        _logarithmic(place, "y")
    return _with_legend(figure, axes)


def ycsb(rows: Sequence[Row]) -> Figure | None:
    """Latency against throughput, of each workload: medians drawn through, 99th percentiles dashed."""
    drawn = [row for row in rows if "achieved_per_second" in row and row["workload"] != "load"]
    workloads = sorted({row["workload"] for row in drawn})
    if not workloads:
        return None
    figure, axes = _grid(len(workloads))
    for place, workload in zip(axes, workloads, strict=True):
        for name, line in _series(row for row in drawn if row["workload"] == workload).items():
            line.sort(key=lambda row: row["achieved_per_second"])
            rate = _column(line, "achieved_per_second")
            (median,) = place.plot(rate, _column(line, "p50_ms"), marker="o", label=f"{name}, p50")
            place.plot(
                rate, _column(line, "p99_ms"), marker=".", ls="--", color=median.get_color(), label=f"{name}, p99"
            )
        place.set(title=f"workload {workload}", xlabel="operations a second", ylabel="ms")
        _logarithmic(place, "y")
    return _with_legend(figure, axes)


def growth(rows: Sequence[Row]) -> Figure | None:
    """CPU against entities, both logarithmic; the legend has the exponents."""
    files = _grouped((row for row in rows if "exponent" in row), lambda row: row["file"])
    if not files:
        return None
    figure, axes = _grid(len(files), width=6.5, height=4.2)
    for place, (name, of_file) in zip(axes, files.items(), strict=True):
        for row in of_file:
            label = f"{row['operation']}: {row['exponent']:+.2f}"
            place.plot(row["entities"], row["cpu_us"], marker="o", label=label)
        place.set(title=name, xlabel="entities", ylabel="CPU us")
        _logarithmic(place, "xy")
        place.legend(fontsize=7, title="exponent", title_fontsize=7)
    return figure


def limits(rows: Sequence[Row]) -> Figure | None:
    """CPU of a request by operation, beside the yardsticks."""
    drawn = [row for row in rows if "subject" in row]
    operations = _in_order(row["operation"] for row in drawn)
    if not operations:
        return None
    figure, axes = _grid(len(operations))
    for place, operation in zip(axes, operations, strict=True):
        bars = [row for row in drawn if row["operation"] == operation]
        several = len({row["file"] for row in bars}) > 1
        names = [f"{row['subject']}, {row['at']}" + (f" ({row['file']})" if several else "") for row in bars]
        colors = ["C0" if row["subject"] == "pbserver" else _GREY for row in bars]
        place.bar_label(place.barh(names, _column(bars, "cpu_us"), color=colors), fmt="%.0f", fontsize=7, padding=2)
        place.invert_yaxis()
        place.tick_params(axis="y", labelsize=7)
        place.set(title=operation, xlabel="CPU us a request")
        place.margins(x=0.2)
    return figure


def overhead(rows: Sequence[Row]) -> Figure | None:
    """Percent above both native sides at the most entries, beside published middleware, whose work is that of (a)."""
    series = _series((row for row in rows if "over_native_percent" in row), of=lambda row: row["acknowledge"])
    if not series:
        return None
    figure, axes = _grid(2, columns=1, width=11, height=3.8)
    sides = {"over_native_percent": "(a), one bare row", "over_indexed_percent": "(b), the same rows and guarantees"}
    for place, (field, side) in zip(axes, sides.items(), strict=True):
        bars = {name: _at_most_entries(line, field) for name, line in series.items()}
        published = _in_order(system for systems in MIDDLEWARE.values() for system in systems)
        greys = dict(zip(published, _PUBLISHED_GREYS, strict=True))
        for system in published:
            bars[system] = {operation: float(systems[system]) for operation, systems in MIDDLEWARE.items()}
        width = 0.85 / len(bars)
        for number, (name, found) in enumerate(bars.items()):
            at = [index + (number + 0.5) * width - 0.425 for index in range(len(MIDDLEWARE))]
            heights = [found.get(operation, 0.0) for operation in MIDDLEWARE]
            place.bar(at, heights, width, label=name, color=greys.get(name))
        place.set_xticks(range(len(MIDDLEWARE)), [*MIDDLEWARE])
        place.axhline(0, color="black", linewidth=0.8)
        place.set_yscale("symlog", linthresh=100)
        place.set_ylabel(f"% above native\n{side}", fontsize=8)
    return _with_legend(figure, axes)


def _at_most_entries(line: Sequence[Row], field: str) -> dict[str, float]:
    """By operation; of several numbers of entries, the largest."""
    return {row["operation"]: row[field] for row in sorted(line, key=lambda row: row.get("entries", 0))}


def overhead_by_entries(rows: Sequence[Row]) -> Figure | None:
    """Times of PBServer and of both native sides against the number of entries."""
    drawn = [row for row in rows if "entries" in row]
    operations = _in_order(row["operation"] for row in drawn)
    if not operations:
        return None
    figure, axes = _grid(len(operations))
    for place, operation in zip(axes, operations, strict=True):
        of_operation = (row for row in drawn if row["operation"] == operation)
        for name, line in _series(of_operation, of=lambda row: row["acknowledge"]).items():
            line.sort(key=lambda row: row["entries"])
            entries = _column(line, "entries")
            (ours,) = place.plot(entries, _column(line, "pbserver_ms"), marker="o", label=f"{name}: PBServer")
            color = ours.get_color()
            place.plot(entries, _column(line, "indexed_ms"), ls="--", color=color, label=f"{name}: native (b)")
            place.plot(entries, _column(line, "native_ms"), ls=":", color=color, label=f"{name}: native (a)")
        place.set(title=operation, xlabel="entries", ylabel="median ms")
        _logarithmic(place, "xy")
    return _with_legend(figure, axes)


def faults(rows: Sequence[Row]) -> Figure | None:
    """Operations and errors of each second, and what was done to the servers."""
    series = _series(row for row in rows if "second" in row)
    if not series:
        return None
    figure, axes = _grid(len(series), columns=1, width=9)
    for place, (name, line) in zip(axes, series.items(), strict=True):
        seconds = _column(line, "second")
        place.bar(seconds, _column(line, "operations"), color="C0", label="operations")
        place.bar(seconds, _column(line, "errors"), color=_RED, label="errors")
        latency = place.twinx()
        latency.plot(seconds, [row["p99_ms"] or float("nan") for row in line], color="black", marker=".", label="p99")
        latency.set(ylabel="p99 ms")
        _logarithmic(latency, "y")
        for row in line:
            if row["event"]:
                place.axvline(row["second"], color=_RED, linewidth=1)
                side = "right" if row["second"] > max(seconds) / 2 else "left"
                at = (row["second"], 1.01)
                place.annotate(row["event"], at, xycoords=("data", "axes fraction"), ha=side, fontsize=7)
        place.set_title(name, pad=14)
        place.set(xlabel="second", ylabel="a second")
        place.xaxis.set_major_locator(MaxNLocator(integer=True))
        place.legend(fontsize=7, loc="lower left")
    return figure


#: By the experiment whose measurements they draw, in the order of the page: title, function.
PLOTS: Mapping[str, Sequence[tuple[str, Callable[[Sequence[Row]], Figure | None]]]] = {
    "appscale": [("Time of an operation against threads", appscale)],
    "ycsb": [("YCSB: latency against throughput", ycsb)],
    "growth": [("CPU of an operation against the number of entities", growth)],
    "limits": [("CPU of a request beside yardsticks", limits)],
    "overhead": [
        ("Above the native driver, beside published middleware", overhead),
        ("Time against the number of entries", overhead_by_entries),
    ],
    "faults": [("Service while something is killed", faults)],
}


def _series(rows: Iterable[Row], of: Callable[[Row], str] = lambda row: "") -> dict[str, list[Row]]:
    """By store, nodes and `of`; by file too where several have the same."""
    drawn = [*rows]
    several = len({row["file"] for row in drawn}) > 1

    def name(row: Row) -> str:
        nodes = f", {row['nodes']} node{'s' if row['nodes'] > 1 else ''}"
        more = f", {of(row)}" if of(row) else ""
        return f"{row['store']}{nodes}{more}" + (f" ({row['file']})" if several else "")

    return _grouped(drawn, name)


def _grouped(rows: Iterable[Row], name: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[name(row)].append(row)
    return dict(groups)


def _column(rows: Iterable[Row], field: str) -> list[float]:
    return [row[field] for row in rows]


def _in_order(values: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(values)]


def _grid(count: int, *, columns: int = 3, width: float = _WIDTH, height: float = _HEIGHT) -> tuple[Figure, list[Axes]]:
    """So many axes, in rows of `columns`."""
    across = min(count, columns)
    down = -(-count // across)
    figure = plt.figure(figsize=(width * across, height * down), layout="constrained")
    return figure, [figure.add_subplot(down, across, number + 1) for number in range(count)]


def _logarithmic(place: Axes, axes: str) -> None:
    """With plain numbers at the marks, at those between powers of ten too where there is room."""
    for name in axes:
        place.set(**{f"{name}scale": "log"})
        axis = place.xaxis if name == "x" else place.yaxis
        axis.set_major_formatter("{x:,.7g}")
        axis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
        axis.set_tick_params(which="minor", labelsize=7)


def _with_legend(figure: Figure, axes: Sequence[Axes]) -> Figure:
    """One for all axes, below them."""
    found = {label: handle for place in axes for handle, label in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=2, fontsize=7)
    return figure
