"""Results of the bench: resumed, refused, and kept when there is no space."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.prices import UnknownPrice, of
from bench.result import OtherRun, Results
from bench.stores import UnknownStore, check

SETTINGS = {"scale": "tiny", "stores": ["lmdb"], "experiments": ["a", "b"]}


def begun(path: Path) -> Results:
    results = Results(path)
    results.machine(SETTINGS)
    results.measurement("a", "first", {"p50_ms": 1})
    results.done("a", 1.0)
    results.measurement("b", "second", {"p50_ms": 2})
    results.failure("b", "interrupted")
    results.finished(1)
    return results


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_resumed_run_keeps_what_was_measured_and_forgets_how_it_ended(tmp_path: Path) -> None:
    path = begun(tmp_path / "run.jsonl").path
    with path.open("a") as file:
        file.write('{"type": "measurement", "exper')  # interrupted here
    results = Results(path, resume=True)
    results.machine(SETTINGS)
    assert results.is_done("a")
    assert not results.is_done("b")
    assert (results.kept("b", "second") or {})["p50_ms"] == 2
    assert results.kept("b", "third") is None
    assert [line["type"] for line in read(path)] == ["machine", "measurement", "done", "measurement", "resumed"]


def test_what_is_measured_again_takes_the_place_of_what_was(tmp_path: Path) -> None:
    path = begun(tmp_path / "run.jsonl").path
    results = Results(path, resume=True)
    results.machine(SETTINGS)
    results.measurement("b", "second", {"p50_ms": 3})
    assert [line.get("p50_ms") for line in read(path) if line["type"] == "measurement"] == [1, 3]


def test_other_settings_cannot_be_resumed_and_lose_nothing(tmp_path: Path) -> None:
    path = begun(tmp_path / "run.jsonl").path
    before = path.read_text()
    with pytest.raises(OtherRun, match="scale tiny then, full now"):
        Results(path, resume=True).machine({**SETTINGS, "scale": "full"})
    assert path.read_text() == before


def test_other_experiments_of_the_same_settings_can_be_added(tmp_path: Path) -> None:
    path = begun(tmp_path / "run.jsonl").path
    Results(path, resume=True).machine({**SETTINGS, "experiments": ["c"]})


def test_resuming_what_was_never_begun_begins(tmp_path: Path) -> None:
    Results(tmp_path / "new.jsonl", resume=True).machine(SETTINGS)
    assert [line["type"] for line in read(tmp_path / "new.jsonl")] == ["machine"]


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_space_a_line_is_refused_and_those_before_it_stay_whole(tmp_path: Path) -> None:
    results = begun(tmp_path / "run.jsonl")
    before = results.path.read_text()
    with room_for(len(before) + 10), pytest.raises(OSError, match="too large"):
        results.measurement("b", "third", {"p50_ms": 3})
    assert results.path.read_text() == before


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("nope:", "unknown store 'nope'"),
        ("nope", "is not NAME:PLACE"),
        ("cluster:nope", "known databases: cassandra"),
        ("server:10001", "is not HOST:PORT"),
        ("server:localhost:http", "is not HOST:PORT"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused(store: str, said: str) -> None:
    with pytest.raises(UnknownStore, match=said):
        check(store)


@pytest.mark.parametrize("store", ["lmdb", "lmdb:/somewhere?durability=none", "memory:", "cluster:mysql", "server:h:1"])
def test_stores_that_can_be_meant(store: str) -> None:
    check(store)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[other]\nper_hour = 1\ncurrency = 'EUR'", "no price of 'mine'; there are: other"),
        ("[mine]\nper_hour = 0\ncurrency = 'EUR'", "a number above 0"),
        ("[mine]\nper_hour = 1", "currency, a text"),
        ("[mine", "prices.toml"),
    ],
)
def test_a_price_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(UnknownPrice, match=said):
        of("mine", file)


def test_the_price_table_can_be_read() -> None:
    assert of("m7g.large").per_hour > 0
