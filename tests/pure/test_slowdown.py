"""Slowdown of a model: its batches now, compared with warm-up."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.load.rolling_window import Window
from ringbatch.frontend.load.slowdown import (
    FOLLOW_NS,
    LOOKS,
    UNNOTICED_NS,
    WINDOW_NS,
    Baseline,
    Pace,
    Runs,
    SlowdownFollower,
)
from ringbatch.shm.cost_profile import Trial

MS: Final = 1_000_000
NOTHING: Final[Runs] = {}
TRIED: Final = [Trial(1, 0, 11 * MS), Trial(2, 0, 12 * MS), Trial(8, 0, 18 * MS)]


@pytest.mark.parametrize(
    ("rows", "run_ms", "padded_ms"),
    [(1, 11, 11), (2, 12, 12), (5, 15, 18), (8, 18, 18), (16, 36, 36)],
)
def test_a_batchs_time_lies_between_those_of_its_neighbours(
    rows: int, run_ms: int, padded_ms: int
) -> None:
    assert Baseline([TRIED], padded=False).run_ns(rows) == pytest.approx(run_ms * MS)
    assert Baseline([TRIED], padded=True).run_ns(rows) == pytest.approx(padded_ms * MS)


def test_a_lone_size_bounds_the_times_of_larger_ones() -> None:
    baseline = Baseline([[Trial(4, 0, 10 * MS)]], padded=False)
    assert [baseline.run_ns(rows) / MS for rows in (1, 4, 8)] == [10, 10, 20]


def test_a_line_that_falls_by_chance_does_not_go_on() -> None:
    baseline = Baseline([[Trial(1, 0, 12 * MS), Trial(2, 0, 11 * MS)]], padded=False)
    assert [baseline.run_ns(rows) / MS for rows in (1, 2, 1000)] == [12, 11, 5500]


def test_of_lengths_the_longest_counts_and_of_workers_the_mean() -> None:
    one = [Trial(1, 16, 2 * MS), Trial(1, 256, 9 * MS)]
    other = [Trial(1, 256, 11 * MS), Trial(1, 16, 3 * MS)]
    assert Baseline([one, other, []], padded=False).run_ns(1) == 10 * MS


def test_a_slowdown_is_of_like_beside_like() -> None:
    baseline = Baseline([TRIED], padded=False)
    before = {1: (5, 100 * MS), 8: (2, 40 * MS)}
    # Ten alone at their usual pace, and one of eight at a third of it.
    now = {1: (15, 210 * MS), 8: (3, 94 * MS)}
    free_ms = 11 * UNNOTICED_NS / MS
    slowdown = (110 + 54 + free_ms) / (110 + 18 + free_ms)
    assert baseline.slowdown(before, now) == pytest.approx(slowdown)
    assert baseline.slowdown(NOTHING, {2: (3, 3 * 36_500_000)}) == pytest.approx(3.0)


def test_some_microseconds_more_are_no_slowdown_worth_a_request() -> None:
    baseline = Baseline([[Trial(1, 0, 10_000)]], padded=False)
    assert baseline.slowdown(NOTHING, {1: (1000, 50_000_000)}) < 1.2
    assert baseline.slowdown(NOTHING, {1: (10, 50_000_000)}) > 5


@pytest.mark.parametrize(
    ("before", "now", "slowdown"),
    [
        ({1: (5, 50 * MS)}, {1: (5, 50 * MS)}, 0.0),
        ({1: (5, 50 * MS)}, {1: (6, 51 * MS)}, 1.0),
        ({1: (5, 50 * MS)}, NOTHING, 0.0),
        ({1: (5, 50 * MS)}, {1: (2, 90 * MS)}, 0.0),
    ],
    ids=["no batch ran", "quicker than in warm-up", "counts are gone", "counts began anew"],
)
def test_an_engine_without_measurements_is_not_called_slow(
    before: Runs, now: Runs, slowdown: float
) -> None:
    assert Baseline([TRIED], padded=False).slowdown(before, now) == slowdown


def test_without_a_warm_up_nobody_is_called_slow() -> None:
    baseline = Baseline([[], []], padded=False)
    assert [baseline.run_ns(rows) for rows in (1, 8, 1000)] == [0, 0, 0]
    assert baseline.slowdown(NOTHING, {8: (3, 900 * MS)}) == 0.0


sizes = st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True)


@given(
    sizes,
    st.lists(st.integers(1, 64), min_size=1),
    st.integers(1, 20),
    st.integers(0, 10),
    st.booleans(),
)
def test_the_slowdown_of_a_model_is_found_at_any_sizes(
    tried: list[int], ran: list[int], factor: int, fixed_ms: int, padded: bool
) -> None:
    warm_up = [Trial(rows, 0, (fixed_ms + rows) * MS) for rows in tried]
    baseline = Baseline([warm_up], padded=padded)
    runs: dict[int, tuple[int, int]] = {}
    for rows in ran:
        batches, run_ns = runs.get(rows, (0, 0))
        slow_ns = factor * (baseline.run_ns(rows) + UNNOTICED_NS) - UNNOTICED_NS
        runs[rows] = batches + 1, run_ns + int(slow_ns)
    assert baseline.slowdown(NOTHING, runs) == pytest.approx(factor, rel=1e-6)


def test_a_window_goes_back_once_or_twice_its_span_however_often_somebody_looks() -> None:
    window: Window[int] = Window(10)
    for now_ns in range(100):
        age_ns = now_ns - window.look(now_ns, now_ns)
        assert age_ns == now_ns or 10 <= age_ns < 20
    assert window.look(1000, 7) < 100


def test_a_model_is_slow_once_it_has_shown_so_for_a_while_and_until_it_shows_otherwise() -> None:
    follower, baseline = SlowdownFollower(), Baseline([TRIED], padded=False)
    batches, run_ms = 0, 0.0
    found: list[float] = []
    # Each time a batch, but where it is 0: usual, one that stalls, slow ones, none, quick.
    for took_ms in (11, 110, 11, 11, 33.5, 33.5, 33.5, 33.5, 0, 0, 11):
        batches += bool(took_ms)
        run_ms += took_ms
        at_ns = len(found) * 2 * WINDOW_NS
        runs = {1: (batches, int(run_ms * MS))}
        found.append(round(follower.look(at_ns, baseline, runs, 0.0).slowdown, 6))
    assert LOOKS == 2
    assert found == [1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 1]


def test_a_queue_is_followed_by_the_time_that_passes() -> None:
    def after(steps: int, seconds: float) -> float:
        follower, baseline = SlowdownFollower(), Baseline([], padded=False)
        assert follower.look(0, baseline, NOTHING, 2.0) == Pace(1.0, 2.0)
        for step in range(1, steps + 1):
            at_ns = int(step * seconds / steps * FOLLOW_NS)
            found = follower.look(at_ns, baseline, NOTHING, 10.0)
        return found.batches

    assert after(1, 1.0) == pytest.approx(after(20, 1.0)) == pytest.approx(7.06, abs=0.01)
    assert after(1, 30.0) == pytest.approx(10.0)
