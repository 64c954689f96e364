"""The bench measures something on every path, keeps what it measured, and refuses what it does not know."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from bench import data, server
from bench.__main__ import Misused, check, measure
from bench.calls import Cycle, is_error
from bench.client import Load
from bench.experiments import EXPERIMENTS
from bench.measure import LoadFailed
from bench.measure import measure as measure_one
from bench.prices import UnknownPrice
from bench.report import margin
from bench.result import Bound, Results, Target
from bench.run import Asked, Faults, Run, Scale, Table, Ycsb
from bench.server import ROOT, ServerFailed
from bench.stores import UnknownStore
from protos.remote_api_pb2 import ApplicationError, Response, RpcError

TINY = Scale(
    name="tiny",
    seconds=0.1,
    rounds=1,
    connections=(9, 12, 16),
    large_entities=2000,
    memory_operations=300,
    query_entities=350,
    table=Table(entities=20, threads=(1, 2), thread_operations=4, repeats=2, mixed_operations=40),
    ycsb=Ycsb(records=30, seconds=0.1, shares=(0.5,)),
    faults=Faults(seconds=2, per_second=50),
)


def run(path: Path, names: list[str], *stores: str, resume: bool = False) -> tuple[bool, list[dict[str, object]]]:
    results = Results(path, resume=resume)
    asked = Asked(stores=stores) if stores else Asked()
    complete = measure(names, TINY, results, Console(quiet=True), path.parent, asked=asked)
    return complete, [json.loads(line) for line in path.read_text().splitlines()]


def measured(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [line for line in lines if line["type"] == "measurement"]


@pytest.mark.timeout(300)
def test_every_experiment_gives_its_targets(tmp_path: Path) -> None:
    complete, lines = run(tmp_path / "tiny.jsonl", [*EXPERIMENTS])
    assert [line["reason"] for line in lines if line["type"] == "failure"] == []
    assert complete
    assert {line["experiment"] for line in lines if line["type"] == "target"} == EXPERIMENTS.keys()
    assert lines[0]["type"] == "machine"
    assert lines[-1]["type"] == "finished"
    assert (tmp_path / "tiny.png").stat().st_size > 10_000
    assert (tmp_path / "tiny.svg").stat().st_size > 10_000


def test_what_was_measured_is_kept_when_a_later_part_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(bench: Run) -> None:
        bench.at_most("fails", "something", 1, 2)
        raise ServerFailed("the store died")

    def works(bench: Run) -> None:
        bench.at_least("works", "something else", 1, 2)

    monkeypatch.setitem(EXPERIMENTS, "fails", fails)
    monkeypatch.setitem(EXPERIMENTS, "works", works)
    complete, lines = run(tmp_path / "broken.jsonl", ["fails", "works"])
    assert not complete
    assert [line["type"] for line in lines] == ["machine", "target", "failure", "target", "done", "finished"]
    assert "the store died" in str(lines[2]["reason"])
    assert [line.get("met") for line in lines if line["type"] == "target"] == [True, False]


def test_a_resumed_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "resumed.jsonl"
    complete, first = run(path, ["mixed", "calls"], "lmdb", "server:127.0.0.1:1")
    assert not complete
    assert {line.get("store") for line in measured(first)} == {"lmdb", None}
    complete, second = run(path, ["mixed", "calls"], "lmdb", "server:127.0.0.1:1", resume=True)
    assert not complete  # there is still no such server
    assert measured(second) == measured(first)
    assert [line["experiment"] for line in second if line["type"] == "done"] == ["calls"]
    (failure,) = (line for line in second if line["type"] == "failure")
    assert "server:127.0.0.1:1" in str(failure["reason"])
    assert "Connection refused" in str(failure["reason"])


def test_when_a_store_dies_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "died.jsonl"
    with server.pbserver("memory:", core=min(os.sched_getaffinity(0))) as ours:

        def stop_after_the_first_measurement() -> None:
            while not path.exists() or "achieved_per_second" not in path.read_text():
                time.sleep(0.01)
            ours.stop()

        thread = threading.Thread(target=stop_after_the_first_measurement)
        thread.start()
        complete, lines = run(path, ["ycsb"], f"server:127.0.0.1:{ours.port}")
        thread.join()
    assert not complete
    assert measured(lines)[0]["workload"] == "load"
    assert len(measured(lines)) < 13
    assert [line["type"] for line in lines[-2:]] == ["failure", "finished"]


@pytest.mark.parametrize(
    ("names", "given", "machine", "said"),
    [
        (["mixed"], ["nope:"], None, "unknown store 'nope'; known stores: "),
        (["rows"], ["memory:"], None, "rows: measured on the embedded store only; on a given one run: "),
        (["mixed"], ["cluster:nope"], None, "no cluster of 'nope' can be booted; known databases: "),
        (["mixed"], ["server:nope"], None, "'nope' is not HOST:PORT"),
        (["ycsb"], [], "nope", "no price of 'nope'; there are: "),
    ],
)
def test_what_cannot_be_meant_is_answered_by_what_can(
    names: list[str], given: list[str], machine: str | None, said: str
) -> None:
    with pytest.raises((Misused, UnknownStore, UnknownPrice), match=said):
        check(names, given, machine)


def test_an_unknown_name_is_answered_by_the_known_ones() -> None:
    command = [sys.executable, "-m", "bench", "rows", "nope"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nope" in done.stdout
    assert all(name in done.stdout for name in EXPERIMENTS)


def test_an_answer_that_lacks_something_fails_the_measurement() -> None:
    with server.tornado(core=min(os.sched_getaffinity(0))) as tornado:
        load = Load(port=tornado.port, connections=2, calls=Cycle([data.touch()], least_bytes=3), operations=10)
        with pytest.raises(LoadFailed, match="an answer of 2 bytes, at least 3 were expected"):
            measure_one(tornado, load, core=min(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(response=b""), False),
        (Response(response=b"x" * 300_000), False),
        (Response(response=b"", rpc_error=RpcError(code=1)), True),
        (Response(response=b"x" * 200, application_error=ApplicationError(code=1, detail="no")), True),
        (Response(), True),
    ],
)
def test_errors_are_told_from_answers(response: Response, error: bool) -> None:
    assert is_error(response.SerializeToString()) is error


@pytest.mark.parametrize(
    ("bound", "measured", "met", "times_better"),
    [
        (Bound.AT_MOST, 2.0, True, 1.0),
        (Bound.AT_MOST, 4.0, False, 0.5),
        (Bound.AT_MOST, -1.0, True, 20.0),
        (Bound.AT_LEAST, 4.0, True, 2.0),
        (Bound.AT_LEAST, 1.0, False, 0.5),
    ],
)
def test_target_and_its_margin(bound: Bound, measured: float, met: bool, times_better: float) -> None:
    target = Target(name="x", measured=measured, bound=bound, limit=2.0)
    assert target.met is met
    assert margin({"measured": measured, "bound": bound.value, "limit": 2.0}) == pytest.approx(times_better)
