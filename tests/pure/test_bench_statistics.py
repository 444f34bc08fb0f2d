"""Statistics of measured times: percentiles, steadiness, differences and the knee."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import exhaustive

from ringbatch.bench.statistics.difference import difference, order_doubt, rounds_needed
from ringbatch.bench.statistics.histogram import (
    BINS,
    Histogram,
    bins_of,
    lower_edge_ns,
    upper_edge_ns,
)
from ringbatch.bench.statistics.knee import Knee, Trial, search
from ringbatch.bench.statistics.samples import curve, percentile_ms, percentiles_ms, samples_needed
from ringbatch.bench.statistics.steadiness import steadiness, trend_doubt

TIMES = st.lists(st.integers(0, (1 << 47) - 1), min_size=1, max_size=200)


# Histograms


@given(TIMES)
def test_each_time_lies_in_its_bin(times: list[int]) -> None:
    for time, number in zip(times, bins_of(np.asarray(times)).tolist(), strict=True):
        assert lower_edge_ns(number) <= time <= upper_edge_ns(number)
        assert 0 <= number < BINS


def test_bins_follow_one_another_without_a_gap_and_are_narrow() -> None:
    for number in range(BINS - 1):
        assert upper_edge_ns(number) + 1 == lower_edge_ns(number + 1)
        width = upper_edge_ns(number) - lower_edge_ns(number)
        assert width <= lower_edge_ns(number) / 128


@given(TIMES, st.floats(0.001, 1))
def test_a_quantile_is_that_of_the_times_up_to_the_width_of_a_bin(
    times: list[int], share: float
) -> None:
    exact = sorted(times)[max(math.ceil(share * len(times)), 1) - 1]
    found = Histogram.of(np.asarray(times)).quantile_ns(share)
    assert exact <= found <= exact * (1 + 1 / 128)


@given(TIMES, TIMES)
def test_histograms_of_parts_add_up_to_that_of_all(a: list[int], b: list[int]) -> None:
    merged = Histogram.of(np.asarray(a)) + Histogram.of(np.asarray(b))
    assert (merged.counts == Histogram.of(np.asarray(a + b)).counts).all()
    assert merged.total == len(a) + len(b)
    again = Histogram.from_object(merged.as_object())
    assert (again.counts == merged.counts).all()


def test_no_times_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no times"):
        Histogram().quantile_ns(0.5)


# Percentiles


@pytest.mark.parametrize(
    ("share", "needed"), [(0.5, 11), (0.9, 64), (0.99, 662), (0.999, 6636), (0.9999, 66381)]
)
def test_a_percentile_takes_so_many_samples(share: float, needed: int) -> None:
    assert samples_needed(share) == needed


@pytest.mark.parametrize(("count", "is_given"), [(661, False), (662, True)])
def test_a_p99_is_given_from_662_samples_on(count: int, is_given: bool) -> None:
    times = Histogram.of(np.arange(count) * 1_000_000)
    assert (percentile_ms(times, 0.99) is not None) is is_given
    assert ("p99" in percentiles_ms(times)) is is_given


def test_a_curve_ends_where_samples_do() -> None:
    times = Histogram.of(np.arange(7000) * 1_000)
    shares = [share for share, _ in curve(times)]
    assert shares[0] == 0
    assert shares[-1] == pytest.approx(0.999)
    assert curve(Histogram.of(np.arange(10))) == []


# Steadiness


def test_level_windows_are_steady() -> None:
    assert steadiness([5.0, 5.1, 4.9, 5.0, 5.2, 4.8, 5.0, 5.1, 4.9, 5.0]).steady


def test_one_window_in_which_the_host_did_something_else_is_no_matter() -> None:
    assert steadiness([5.0, 5.1, 4.9, 5.0, 50.0, 4.8, 5.0, 5.1, 4.9, 5.0]).steady


def test_a_drift_that_varies_little_is_no_steady_state() -> None:
    found = steadiness([10 + 0.22 * n for n in range(10)])
    assert found.steady is False
    assert "drift by +18%" in found.why
    assert found.variation < 0.25


def test_wild_swings_without_a_trend_are_no_steady_state() -> None:
    found = steadiness([1, 9, 2, 8, 1, 9, 8, 2, 9, 1])
    assert found.steady is False
    assert "vary" in found.why
    assert "drift" not in found.why


def test_few_windows_have_no_steadiness() -> None:
    assert steadiness([1.0] * 5).steady is None


def test_a_trend_is_as_doubtful_as_the_orders_are_many() -> None:
    """Against all orders of seven windows."""
    values = (1, 2, 3, 4, 5, 6, 7)

    def score(order: tuple[int, ...]) -> int:
        return sum((b > a) - (b < a) for a, b in itertools.combinations(order, 2))

    order = (1, 3, 2, 4, 5, 7, 6)
    orders = [abs(score(found)) for found in itertools.permutations(values)]
    exact = sum(found >= score(order) for found in orders) / len(orders)
    assert trend_doubt(order) == pytest.approx(exact, abs=0.01)


# Differences


def test_rounds_that_can_prove_something() -> None:
    assert rounds_needed(0.05) == 4
    assert rounds_needed(0.05 / 4) == 5


def test_the_doubt_of_an_order_is_its_share_of_all_orders() -> None:
    """Against all ways to divide eight values into three and five."""
    values = range(8)

    def wins(chosen: tuple[int, ...]) -> int:
        rest = [value for value in values if value not in chosen]
        return sum(a < b for a in chosen for b in rest)

    splits = [abs(wins(chosen) - 7.5) for chosen in itertools.combinations(values, 3)]
    for chosen in itertools.combinations(values, 3):
        rest = [value for value in values if value not in chosen]
        exact = sum(found >= abs(wins(chosen) - 7.5) for found in splits) / len(splits)
        assert order_doubt(chosen, rest) == pytest.approx(exact)


def test_equal_rounds_are_no_difference() -> None:
    found = difference([5.0] * 6, [5.0] * 6, 0.05, np.random.default_rng(0))
    assert not found.differs
    assert found.ratio == 1
    assert found.doubt == 1


def test_a_clear_difference_is_one_in_both_directions() -> None:
    slow, quick = [10.0, 10.1, 9.9, 10.2, 9.8], [8.0, 8.1, 7.9, 8.2, 7.8]
    for earlier, later, ratio in ((slow, quick, 0.8), (quick, slow, 1.25)):
        found = difference(earlier, later, 0.05, np.random.default_rng(0))
        assert found.differs
        assert found.low <= found.ratio <= found.high
        assert found.ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("rounds", "spread"),
    [
        (5, 0.02),
        (8, 0.3),
        pytest.param(5, 0.3, marks=exhaustive),
        pytest.param(20, 0.1, marks=exhaustive),
    ],
)
def test_the_same_thing_compares_as_equal_19_times_in_20(rounds: int, spread: float) -> None:
    """Four figures, each of which alone would be enough to call the runs different."""
    figures, seeds, alarms = 4, 200, 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        pairs = np.exp(random.normal(0, spread, (figures, 2, rounds)))
        alarms += any(
            difference(a.tolist(), b.tolist(), 0.05 / figures, random).differs for a, b in pairs
        )
    assert alarms / seeds <= 0.05


def test_a_difference_of_a_tenth_is_found_where_rounds_vary_by_a_fiftieth() -> None:
    found = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        a, b = np.exp(random.normal(0, 0.02, (2, 6)))
        found += difference(a.tolist(), (b * 1.1).tolist(), 0.05 / 4, random).differs
    assert found >= 38


# The knee


def found_knee(limit: float, first: float, steps: int, generator_limit: float = 1e12) -> Knee:
    """The knee of a server that holds up to a rate, as a search finds it."""
    rates = search(first, steps)
    rate = next(rates)
    while True:
        held = Trial.HELD if rate <= limit else Trial.MISSED
        try:
            rate = rates.send(held if rate <= generator_limit else Trial.VOID)
        except StopIteration as end:
            knee: Knee = end.value
            return knee


@given(st.floats(10, 1e5), st.floats(0.2, 5))
def test_the_knee_of_a_server_that_holds_up_to_a_rate_is_that_rate(
    limit: float, off: float
) -> None:
    knee = found_knee(limit, limit * off, 20)
    assert knee.why == ""
    assert knee.missed_per_s is not None
    assert knee.rate_per_s <= limit < knee.missed_per_s
    assert knee.rate_per_s >= 0.94 * limit


def test_a_knee_that_was_not_reached_says_so() -> None:
    assert "may hold more" in found_knee(1e9, 1000, 4).why
    knee = found_knee(1e9, 1000, 12, generator_limit=2000)
    assert "generator cannot" in knee.why
    assert 1900 <= knee.rate_per_s <= 2000
    assert found_knee(0.1, 1000, 30).rate_per_s == 0
    assert "no rate" in found_knee(0.1, 1000, 30).why
