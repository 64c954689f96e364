"""The commit protocol of stores that write one row at a time, under everything that can go wrong, by seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation.history import Outcome
from tests.simulation.planted import PLANTED
from tests.simulation.run import simulate

ROOT = Path(__file__).parents[2]
SEEDS = 500
MOST_SEEDS_PER_PLANT = 1000


@pytest.mark.timeout(300)
def test_nothing_is_lost_torn_or_seen_too_early() -> None:
    committed = unknown = refused = 0
    for seed in range(SEEDS):
        report = simulate(seed)
        assert report.problems == [], f"seed {seed}: {report.problems[0]}"
        outcomes = [each.outcome for each in report.history if each.writes]
        committed += outcomes.count(Outcome.OK)
        unknown += outcomes.count(Outcome.UNKNOWN)
        refused += outcomes.count(Outcome.FAIL)
    assert committed > 10 * SEEDS
    assert unknown > SEEDS // 10
    assert refused > SEEDS


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seeds"), [("versioned", 100), ("ordered", 40)])
def test_so_it_is_over_layers_that_make_up_for_what_a_store_lacks(kind: str, seeds: int) -> None:
    for seed in range(seeds):
        report = simulate(seed, kind=kind)
        assert report.problems == [], f"seed {seed}: {report.problems[0]}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    with PLANTED[name]():
        assert any(_fails(seed) for seed in range(MOST_SEEDS_PER_PLANT))


def _fails(seed: int) -> bool:
    try:
        return bool(simulate(seed).problems)
    except AssertionError:  # it never came to an end, or the history cannot be explained at all
        return True


def test_a_seed_plays_the_same_in_every_process() -> None:
    program = "from tests.simulation.run import simulate; print(*(simulate(seed).fingerprint for seed in range(8)))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in (1, 2)
    }
    assert len(outputs) == 1
