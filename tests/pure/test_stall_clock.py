"""The clock of a client that takes nothing, against a count of seconds without it."""

from hypothesis import given
from hypothesis import strategies as st

from ringbatch.frontend.http.stall_clock import StallClock

second = st.tuples(st.sampled_from([0, 0, 1, 70_000]), st.sampled_from([0, 1, 70_000]))
"""Bytes that a client takes in a second, and bytes that then wait for it."""


@given(st.lists(second))
def test_seconds_count_while_nothing_moves_and_something_waits(
    seconds: list[tuple[int, int]],
) -> None:
    taken_bytes = waiting_bytes = 0
    clock = StallClock()
    expected = 0

    def look() -> tuple[int, bool]:
        return taken_bytes, waiting_bytes > 0

    for moved_bytes, now_bytes in seconds:
        waited, waiting_bytes = waiting_bytes > 0, now_bytes
        taken_bytes += moved_bytes
        # What has begun to wait amid a second has not waited for a second.
        expected = expected + 1 if waited and waiting_bytes and not moved_bytes else 0
        clock.tick(*look())
        assert clock.seconds(look) == expected


def test_bytes_taken_since_the_last_tick_count() -> None:
    clock = StallClock()
    for _ in range(6):
        clock.tick(0, True)
    assert clock.seconds(lambda: (0, True)) == 5
    assert clock.seconds(lambda: (1, True)) == 0
    assert clock.seconds(lambda: (0, False)) == 0


def test_nothing_is_looked_at_before_a_second_has_counted() -> None:
    clock = StallClock()
    clock.tick(0, True)
    assert clock.seconds(_must_not_look) == 0


def _must_not_look() -> tuple[int, bool]:
    raise AssertionError
