"""Restart now or later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.process.respawn import (
    MOST_DELAY_S,
    MOST_OWN_DELAY_S,
    OWN_STEADY_NS,
    STEADY_NS,
    Restart,
    again,
    next_delay,
)

jitters = st.floats(0, 1, exclude_max=True)
failures = st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("failures_in_a_row", "least_s", "most_s"),
    [
        (0, 0.0, 0.0),
        (1, 0.0, 0.0),
        (2, 0.5, 1.0),
        (3, 1.0, 2.0),
        (4, 2.0, 4.0),
        (5, 4.0, 8.0),
        (6, 8.0, 16.0),
        (7, 15.0, 30.0),
        (8, 15.0, 30.0),
        (10**9, 15.0, 30.0),
    ],
)
def test_delays_double_up_to_half_a_minute(
    failures_in_a_row: int, least_s: float, most_s: float
) -> None:
    assert next_delay(failures_in_a_row, 0.0) == least_s
    assert next_delay(failures_in_a_row, 1.0) == most_s


@given(failures, jitters)
def test_a_process_of_our_own_waits_less_long(failures_in_a_row: int, jitter: float) -> None:
    decision = again(
        failures_in_a_row=failures_in_a_row,
        lived_ns=5,
        jitter=jitter,
        most_s=MOST_OWN_DELAY_S,
    )
    expected_s = min(next_delay(failures_in_a_row + 1, jitter), MOST_OWN_DELAY_S)
    assert decision == Restart(expected_s, failures_in_a_row + 1)


@pytest.mark.parametrize(
    ("failures_in_a_row", "lived_ns", "decision"),
    [
        pytest.param(0, 5, Restart(0.0, 1), id="first-death-is-answered-at-once"),
        pytest.param(1, 5, Restart(0.75, 2), id="second-death-waits"),
        pytest.param(2, 0, Restart(1.5, 3), id="a-restart-that-fails-to-load-waits-longer"),
        pytest.param(9, STEADY_NS - 1, Restart(22.5, 10), id="a-nanosecond-too-short-a-life"),
        pytest.param(9, STEADY_NS, Restart(0.0, 1), id="a-long-life-forgets-the-failures"),
        pytest.param(9, STEADY_NS + 1, Restart(0.0, 1), id="a-longer-life-as-well"),
    ],
)
def test_decision(failures_in_a_row: int, lived_ns: int, decision: Restart) -> None:
    found = again(failures_in_a_row=failures_in_a_row, lived_ns=lived_ns, jitter=0.5)
    assert found == decision


@given(failures, jitters)
def test_a_delay_is_never_negative_and_never_above_the_cap(count: int, jitter: float) -> None:
    assert 0 <= next_delay(count, jitter) <= MOST_DELAY_S


@given(failures, jitters)
def test_one_more_failure_never_shortens_the_delay(count: int, jitter: float) -> None:
    assert next_delay(count, jitter) <= next_delay(count + 1, jitter)


@given(failures, jitters)
def test_a_later_restart_waits_at_least_half_of_the_longest(count: int, jitter: float) -> None:
    assert next_delay(count, jitter) >= next_delay(count, 0.999999) / 2


@given(st.lists(st.tuples(st.integers(0, 2 * STEADY_NS), jitters), min_size=1, max_size=30))
def test_the_count_handed_on_is_that_of_deaths_since_the_last_long_life(
    deaths: list[tuple[int, float]],
) -> None:
    count = expected = 0
    for lived_ns, jitter in deaths:
        decision = again(failures_in_a_row=count, lived_ns=lived_ns, jitter=jitter)
        expected = 1 if lived_ns >= STEADY_NS else expected + 1
        assert decision == Restart(next_delay(expected, jitter), expected)
        count = decision.failures_in_a_row


def test_what_counts_as_a_long_life_is_up_to_the_caller() -> None:
    lived = [
        again(failures_in_a_row=3, lived_ns=lived_ns, jitter=0.0, steady_ns=OWN_STEADY_NS)
        for lived_ns in (OWN_STEADY_NS, OWN_STEADY_NS - 1)
    ]
    assert [restart.failures_in_a_row for restart in lived] == [1, 4]
    assert lived[0].delay_s == 0
