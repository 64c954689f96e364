"""Plays programs to two players until one answer differs."""

from collections.abc import Collection

import pytest

from tests.differential.match import Difference, Match
from tests.differential.players import Player
from tests.differential.programs import FEATURES, generate
from tests.differential.shrinking import attempt, report, shrink

PROGRAM_CALLS = 500
_SEEDS_APART = 1_000_003  # so that the programs of one run are not those of the next


def play(
    players: tuple[Player, Player],
    calls: int,
    *,
    seed: int,
    features: Collection[str] = FEATURES,
    program_calls: int = PROGRAM_CALLS,
) -> None:
    """As many programs of `program_calls` steps as make so many calls; the same ones for the same seed. Each begins
    with nothing, so short ones meet few entities. Fails with the smallest program that shows a difference.
    """
    played = number = 0
    while played < calls:
        played += _play_one(players, seed * _SEEDS_APART + number, features, program_calls)
        number += 1


def _play_one(players: tuple[Player, Player], seed: int, features: Collection[str], program_calls: int) -> int:
    """How many steps of one program were calls."""
    program = generate(seed, program_calls, features)
    try:
        return len(Match(*players).play(program))
    except Difference as found:
        steps, difference = shrink(program, found, attempt(*players))
    pytest.fail(f"program {seed}: {report(steps, difference)}", pytrace=False)
