"""The request distributions: against the formula, and the same in every run."""

import random
from collections import Counter

import pytest

from bench.distributions import THETA, Scrambled, Zipfian, scattered, zeta

DRAWN = 100_000


def test_zeta_of_ten_billion_is_the_published_constant() -> None:
    assert zeta(10**10) == pytest.approx(26.46902820178302, rel=1e-9)


def test_long_sums_continue_the_short_ones() -> None:
    assert zeta(20_000) == pytest.approx(sum(rank**-THETA for rank in range(1, 20_001)), rel=1e-8)


@pytest.mark.parametrize("rank", [0, 1, 9, 99])
def test_ranks_come_as_often_as_the_formula_says(rank: int) -> None:
    zipfian = Zipfian(1000, random.Random(1))
    found = Counter(zipfian.draw() for _ in range(DRAWN))
    wanted = DRAWN * (rank + 1) ** -THETA / zeta(1000)
    assert found[rank] == pytest.approx(wanted, rel=0.15)
    assert found.keys() <= set(range(1000))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_ranks_are_all_drawn_and_no_others(count: int) -> None:
    zipfian = Zipfian(count, random.Random(1))
    assert {zipfian.draw() for _ in range(1000)} == set(range(count))


def test_one_that_has_grown_draws_as_one_that_began_so() -> None:
    grown = Zipfian(10, random.Random(1))
    for _ in range(990):
        grown.grow()
    began = Zipfian(1000, random.Random(1))
    assert [grown.draw() for _ in range(1000)] == [began.draw() for _ in range(1000)]


def test_scrambled_popularity_is_that_of_ranks_and_lies_anywhere() -> None:
    scrambled = Scrambled(1000, random.Random(1))
    (popular, times), *_ = Counter(scrambled.draw() for _ in range(DRAWN)).most_common(1)
    assert popular == scattered(0) % 1000
    assert times / DRAWN == pytest.approx(1 / zeta(10**10), rel=0.15)


def test_the_same_seed_gives_the_same_records() -> None:
    first, second = (Scrambled(1000, random.Random(7)) for _ in range(2))
    assert [first.draw() for _ in range(100)] == [second.draw() for _ in range(100)]
