"""How the experiments `growth` and `overhead` choose sizes, and what they make of times."""

import pytest

from bench.experiments import growth, overhead


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (2000, [1000, 2000]),
        (10_000, [1000, 10_000]),
        (50_000, [1000, 10_000, 50_000]),
        (1_000_000, [1000, 10_000, 100_000, 1_000_000]),
        (2, [1000, 2000]),
    ],
)
def test_growth_goes_up_in_tens_and_ends_at_the_most(most: int, sizes: list[int]) -> None:
    assert growth.sizes(most) == sizes


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(40, [20, 40]), (15_000, [7500, 15_000]), (50_000, [10_000, 20_000, 40_000]), (2, [1, 2])],
)
def test_overhead_doubles_from_ten_thousand(most: int, sizes: list[int]) -> None:
    assert overhead.sizes(most) == sizes


def test_overhead_ends_at_the_papers_last_number() -> None:
    assert overhead.sizes(1_280_000)[-1] == 1_280_000


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.13])
def test_the_exponent_is_that_of_the_power_behind_the_times(power: float) -> None:
    assert growth.exponent({count: 80 * count**power for count in growth.sizes(1_000_000)}) == pytest.approx(power)


def test_one_disturbed_size_moves_the_exponent_but_little() -> None:
    times = dict.fromkeys(growth.sizes(1_000_000), 80.0) | {100_000: 88.0}
    assert abs(growth.exponent(times)) < 0.01
