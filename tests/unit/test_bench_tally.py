"""The bench's histogram against a sorted list, and what is counted second by second."""

from hypothesis import given
from hypothesis import strategies as st

from bench.tally import Histogram, Tallies

SECONDS = st.lists(st.floats(min_value=0, max_value=4000), min_size=1, max_size=200)


@given(SECONDS, st.floats(min_value=0, max_value=1))
def test_percentiles_are_those_of_the_sorted_values_to_a_thousandth(seconds: list[float], share: float) -> None:
    wanted = sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]
    found = Histogram.of(seconds).at(share)
    assert wanted - 1e-7 <= found <= wanted * 1.001 + 1e-7


@given(SECONDS, SECONDS)
def test_histograms_add_up(some: list[float], others: list[float]) -> None:
    together = Histogram.of(some)
    together.add(Histogram.of(others))
    at_once = Histogram.of([*some, *others])
    assert (together.counts, together.count, together.most) == (at_once.counts, at_once.count, at_once.most)


@given(SECONDS)
def test_the_compact_form_loses_no_value_and_keeps_their_order(seconds: list[float]) -> None:
    compact = Histogram.of(seconds).compact()
    assert sum(count for _, count in compact) == len(seconds)
    assert compact == sorted(compact)
    highest = compact[-1][0] / 1e3
    assert max(seconds) - 1e-6 <= highest <= max(seconds) * 1.07 + 1e-6


def test_nothing_recorded_is_nothing() -> None:
    empty = Histogram()
    assert (empty.at(0.5), empty.mean, empty.compact()) == (0.0, 0.0, [])


def test_errors_are_counted_apart_from_latencies() -> None:
    tallies: Tallies[str] = Tallies()
    tallies.of("get").latencies.record(0.25)
    tallies.of("put").errors["TIMEOUT"] += 2
    every = tallies.together()
    assert (every.latencies.count, every.failed, every.latencies.mean) == (1, 2, 0.25)
