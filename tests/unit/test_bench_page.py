"""The page of results: everything that was measured is in it, and it loads nothing from anywhere."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench import published
from bench.page import File, NotResults, measurements, page, read
from bench.plots import PLOTS
from bench.result import Bound, Results, Target

ON = {"store": "lmdb", "nodes": 1}
GROWN = {"operation": "get", "exponent": 0.012, "entities": [1000, 10_000], "cpu_us": [80.0, 82.0]}
OVER = {"over_native_percent": 200.0, "over_indexed_percent": 20.0}
COST = {"pbserver_ms": 3.0, "bare_ms": 1.0, "indexed_ms": 2.0}
MEASURED: dict[str, list[dict[str, Any]]] = {
    "appscale": [
        {**ON, "threads": threads, "operation": operation, "mean_ms": 2.0 * threads, "deviation_ms": 0.1}
        for threads in (1, 3, 9)
        for operation in ("put", "get", "delete", "no-op", "query")
    ],
    "ycsb": [
        {**ON, "workload": workload, "achieved_per_second": rate, "p50_ms": 1.0, "p99_ms": rate / 100}
        for workload in ("load", "A", "B")
        for rate in (100.0, 400.0)
    ],
    "mixed": [{**ON, "keys": 1, "operation": "all", "p50_ms": 1.25, "per_second": 4321.5}],
    "growth": [GROWN],
    "limits": [{"operation": "no-op", "subject": who, "at": 9, "cpu_us": 20.0} for who in ("pbserver", "tornado")],
    "overhead": [
        {
            **ON,
            "entries": entries,
            "operation": operation,
            "acknowledge": "applied",
            "pbserver_ms": 3.0,
            "native_ms": 1.0,
            "indexed_ms": 2.5,
            **OVER,
        }
        for entries in (10_000, 20_000)
        for operation in published.MIDDLEWARE
    ],
    "faults": [
        {**ON, "second": 0, "operations": 100, "errors": 0, "p50_ms": 1.0, "p99_ms": 2.0, "event": None},
        {**ON, "second": 1, "operations": 0, "errors": 3, "p50_ms": None, "p99_ms": None, "event": "node-3 killed"},
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A file with something of every experiment that is drawn."""
    results = Results(tmp_path_factory.mktemp("results") / "everything.jsonl")
    results.machine({"scale": "full"})
    for experiment, rows in MEASURED.items():
        for number, row in enumerate(rows):
            results.measurement(experiment, f"row {number}", row)
    results.target("growth", Target(name="get <grows>", measured=0.5, bound=Bound.AT_MOST, limit=0.06, unit=""))
    results.target("limits", Target(name="no-op", measured=12, bound=Bound.AT_LEAST, limit=10))
    results.failure("faults", "ServerFailed: the node did not come back")
    results.finished(1.5)
    return results


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plots")


@pytest.fixture(scope="module")
def text(results: Results, plots: Path) -> str:
    return page([read(results.path)], plots)


class Loaded(HTMLParser):
    """What a browser would fetch, run, or show as an image."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset")]


def test_every_plot_is_in_the_page_and_nothing_is_loaded(text: str) -> None:
    loaded = Loaded()
    loaded.feed(text)
    titles = [title for drawn in PLOTS.values() for title, _ in drawn]
    assert len(loaded.sources) == len(titles) == loaded.tags.count("img")
    assert all(source.startswith("data:image/svg+xml;base64,") for source in loaded.sources)
    assert not {"script", "link", "iframe", "object"} & {*loaded.tags}
    assert "@import" not in text
    assert not re.search(r"url\(", text)
    for title in titles:
        assert f"<h2>{title}</h2>" in text


def test_machine_revision_targets_and_failures_are_told(results: Results, text: str) -> None:
    machine = results.lines[0]
    for fact in (machine["cpu"], machine["revision"], machine["python"], f"protobuf {machine['versions']['protobuf']}"):
        assert str(fact) in text
    assert "1 of 2 are met" in text
    assert text.index("get &lt;grows&gt;") < text.index("12x")
    assert "the node did not come back" in text
    assert "4,321.5" in text
    for source in (published.APPSCALE_SOURCE, published.MIDDLEWARE_SOURCE):
        assert source in text


@pytest.mark.usefixtures("text")
def test_plots_are_written_as_files_too(plots: Path) -> None:
    for name in ("appscale", "ycsb", "growth", "limits", "overhead", "overhead_by_entries", "faults"):
        for suffix in (".png", ".svg"):
            assert (plots / f"{name}{suffix}").stat().st_size > 5_000


@pytest.mark.parametrize("experiment", PLOTS)
def test_an_experiment_without_measurements_draws_nothing(experiment: str) -> None:
    assert [draw([]) for _, draw in PLOTS[experiment]] == [None] * len(PLOTS[experiment])


def test_several_files_with_the_same_store_are_told_apart(results: Results) -> None:
    files = [File(name, read(results.path).lines) for name in ("before", "after")]
    rows = [row for row in measurements(files) if row["experiment"] == "overhead"]
    ((_, draw), *_) = PLOTS["overhead"]
    figure = draw(rows)
    assert figure is not None
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["lmdb, 1 node, applied (before)", "lmdb, 1 node, applied (after)"]
    assert labels[2:] == ["Kundera", "Playorm", "Spring Data"]


def test_results_of_bench_clusters_are_drawn_as_overhead() -> None:
    line = {"type": "measurement", "experiment": "galera", "name": "insert, applied: what it costs", **COST}
    (row,) = measurements([File("clusters-galera", [line])])
    assert (row["experiment"], row["store"], row["nodes"]) == ("overhead", "galera", 3)
    assert (row["operation"], row["acknowledge"]) == ("insert", "applied")
    assert (row["over_native_percent"], row["over_indexed_percent"]) == (200.0, 50.0)


@pytest.mark.parametrize("content", ["", "not json\n", "[1]\n", '{"no": "type"}\n'])
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(NotResults, match=r"other\.jsonl"):
        read(path)


def test_the_command_writes_a_page_and_says_where(results: Results, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    to = tmp_path / "page.html"
    given = tmp_path / "growth.jsonl"
    given.write_text("\n".join(line for line in results.path.read_text().splitlines() if '"growth"' in line))
    command = [sys.executable, "-m", "bench.page", "--to", str(to)]
    done = subprocess.run([*command, str(given)], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(to) in done.stdout
    assert to.read_text().count("<img") == 1
    missing = [*command, str(tmp_path / "missing.jsonl")]
    done = subprocess.run(missing, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "missing.jsonl" in done.stderr


def test_published_figures_have_every_system_for_every_operation() -> None:
    assert len({frozenset(systems) for systems in published.MIDDLEWARE.values()}) == 1
    assert published.APPSCALE.seconds.keys() == published.APP_ENGINE.seconds.keys()
    assert json.dumps(published.MIDDLEWARE)
