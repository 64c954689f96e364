"""Random programs are played to this server and to Google's own implementation; every answer must be equal.

DIFFERENTIAL_SEED and DIFFERENTIAL_CALLS make longer or other runs, DIFFERENTIAL_WITHOUT leaves features of programs.py
out ("distinct,metadata"), DIFFERENTIAL_REFEREE=java plays against Google's Java implementation.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.differential.accepted import NOT_WITH_JAVA
from tests.differential.match import Difference, Match
from tests.differential.players import OurServer, Player, open_referee
from tests.differential.programs import FEATURES, generate
from tests.differential.shrinking import attempt, report, shrink

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))
CALLS = int(os.environ.get("DIFFERENTIAL_CALLS", "5000"))
WITHOUT = frozenset(filter(None, os.environ.get("DIFFERENTIAL_WITHOUT", "").split(",")))
REFEREE = os.environ.get("DIFFERENTIAL_REFEREE", "python")

_PROGRAM_CALLS = 500
_TIMEOUT_SECONDS = 600 + CALLS // 5  # for the shrinking of a failure as well, and for Maven
_SEEDS_APART = 1_000_003  # so that the programs of one run are not those of the next


@pytest.fixture
def players(tmp_path: Path) -> Iterator[tuple[Player, Player]]:
    with ExitStack() as running:
        referee = open_referee(REFEREE, running, tmp_path)
        yield running.enter_context(OurServer(tmp_path)), referee


@pytest.mark.timeout(_TIMEOUT_SECONDS)
def test_every_answer_is_googles(players: tuple[Player, Player]) -> None:
    unknown = WITHOUT - FEATURES
    assert not unknown, f"DIFFERENTIAL_WITHOUT names {sorted(unknown)}; there are {sorted(FEATURES)}"
    features = FEATURES - WITHOUT - (NOT_WITH_JAVA.keys() if REFEREE == "java" else set())
    played = number = 0
    while played < CALLS:
        played += _play_one(players, SEED * _SEEDS_APART + number, features)
        number += 1


def _play_one(players: tuple[Player, Player], seed: int, features: Collection[str]) -> int:
    """Plays one program: how many of its steps were calls. Fails with the smallest program that shows a difference."""
    program = generate(seed, _PROGRAM_CALLS, features)
    try:
        return len(Match(*players).play(program))
    except Difference as found:
        steps, difference = shrink(program, found, attempt(*players))
    pytest.fail(f"program {seed}: {report(steps, difference)}", pytrace=False)
