"""No request takes notably more instructions than the figures that are kept."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.guard.counting import Counted, count, faster, kept, slower

BEFORE = Counted(python="3.11.7", packages={}, calibration_instructions=250_000, times={"get": 1.0, "put": 4.0})


@pytest.mark.timeout(900)
def test_no_request_takes_more_instructions_than_are_kept(tmp_path: Path) -> None:
    counted, before = count(tmp_path), kept()
    assert counted.times.keys() == before.times.keys()
    for sentence in faster(counted, before):
        warnings.warn(f"better than what is kept: {sentence}", stacklevel=1)
    assert slower(counted, before) == []


@pytest.mark.parametrize(
    ("get", "is_slower", "is_faster"), [(1.09, 0, 0), (1.11, 1, 0), (0.91, 0, 0), (0.89, 0, 1), (1.0, 0, 0)]
)
def test_a_tenth_more_or_less_is_told(get: float, is_slower: int, is_faster: int) -> None:
    counted = replace(BEFORE, times={**BEFORE.times, "get": get})
    assert (len(slower(counted, BEFORE)), len(faster(counted, BEFORE))) == (is_slower, is_faster)


def test_a_request_that_got_slower_is_told_with_both_figures() -> None:
    (sentence,) = slower(replace(BEFORE, python="3.12.1", times={"get": 1.0, "put": 4.6}), BEFORE)
    assert "put: 4.600" in sentence
    assert "Python 3.12.1" in sentence
    assert "4.000 are kept (Python 3.11.7): +15.0%" in sentence
    assert "make guard RENEW=1" in sentence
