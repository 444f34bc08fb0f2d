"""Phases of a connection, and their time limits."""

import pytest

from ringbatch.frontend.http.phases import LEAST_TAKEN_BYTES, LIMITS, WRITE_TIMEOUT_S, Clock, Phase

IDLE_S = 75


def over_after(phase: Phase, *moved_bytes: int) -> int | None:
    """The second in which a connection that stays in a phase is at its end."""
    clock = Clock(IDLE_S)
    seconds = (s for s, moved in enumerate(moved_bytes) if clock.is_over(phase, moved))
    return next(seconds, None)


def test_every_phase_has_a_limit() -> None:
    assert {*LIMITS, Phase.IDLE} == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_where_nothing_moves_a_phase_ends_with_its_limit(phase: Phase) -> None:
    limit_s = IDLE_S if phase is Phase.IDLE else LIMITS[phase].time_s
    expected = None if phase is Phase.ANSWER else limit_s
    assert over_after(phase, *[0] * 1000) == expected


def test_another_phase_has_its_own_time_and_so_has_another_request() -> None:
    clock = Clock(IDLE_S)
    for again in (False, True, False):
        for phase in (Phase.HEAD, Phase.BODY, Phase.ANSWER, Phase.IDLE):
            for _ in range(9):
                assert not clock.is_over(phase, 0)
            if again:
                clock.age_s = 0
            for _ in range(9 * again):
                assert not clock.is_over(phase, 0)


def test_a_client_that_moves_less_than_the_least_is_given_up() -> None:
    assert over_after(Phase.TAKING, *range(200)) == WRITE_TIMEOUT_S


def test_a_client_that_moves_enough_is_waited_for() -> None:
    a_second = LEAST_TAKEN_BYTES // WRITE_TIMEOUT_S + 1
    assert over_after(Phase.TAKING, *(a_second * s for s in range(1000))) is None


def test_a_client_that_moves_enough_in_a_phase_that_must_end_is_not_waited_for() -> None:
    moved = [1 << 30 << s for s in range(100)]
    assert over_after(Phase.UNWANTED, *moved) == LIMITS[Phase.UNWANTED].time_s


def test_a_client_that_stops_later_is_given_up_later() -> None:
    begun = [2 * LEAST_TAKEN_BYTES * (s > 5) for s in range(WRITE_TIMEOUT_S + 1)]
    found = over_after(Phase.TAKING, *begun, *[begun[-1]] * 500)
    assert found == 2 * WRITE_TIMEOUT_S
