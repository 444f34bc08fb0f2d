"""The average of what batches take: moved little by one that stalled, and soon by a slow model."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.batch_time_average import FAR, SHARE, Departures

NEAR = st.lists(st.integers(1000, 2000), min_size=1, max_size=40)
"""Times of batches of a steady model."""
STALL = st.integers(20_000, 10**12)


class Worker:
    """Worker that runs one batch after another, with an average of their times.

    Attributes:
        average_ns: of late.
        now_ns: the time.
    """

    def __init__(self, *took_ns: int, average_ns: int = 0) -> None:
        self.average_ns, self.now_ns = average_ns, 0
        self._departures = Departures()
        self.run(*took_ns)

    def run(self, *took_ns: int) -> int:
        for took in took_ns:
            self.now_ns += took
            self.ended(took)
        return self.average_ns

    def ended(self, took_ns: int) -> None:
        """End a batch now, beside others."""
        began_ns = self.now_ns - took_ns
        follow = self._departures.followed
        self.average_ns = follow(self.average_ns, took_ns, began_ns, self.now_ns)


def plain(average_ns: int, *took_ns: int) -> int:
    """The average that each batch moves by its share."""
    for took in took_ns:
        average_ns = average_ns + (took - average_ns) // SHARE if average_ns else took
    return average_ns


@pytest.mark.parametrize(
    ("took_ns", "expected"),
    [
        ([800], 800),
        ([800, 1600], 900),
        ([800, 6400], 1500),  # as far as is followed plainly
        ([800, 800_000], 1500),  # a departure counts as 8 times the average
        ([800, 800_000, 800], 1412),  # nothing confirms it
        ([800, 800_000, 800_000], 101_312),  # confirmed
        ([800, 800_000, 800, 800_000], 2647),  # not by one that comes later
        ([800, 800, 1], 712),  # a short one counts as an eighth
        ([800, 800, 1, 1], 8),
        ([800, 800, 1, 800_000], 1335),  # the other direction confirms nothing
        ([800_000, 800], 6400),  # the first batch alone may be the one out of the ordinary
        ([800_000, 800, 800], 5700),
    ],
)
def test_a_batch_after_another(took_ns: list[int], expected: int) -> None:
    assert Worker(*took_ns).average_ns == expected


def test_warm_up_times_are_believed_against_one_batch() -> None:
    assert Worker(1, average_ns=800).average_ns == 712


@given(NEAR)
def test_batches_that_do_not_depart_are_followed_plainly(took_ns: list[int]) -> None:
    assert Worker(*took_ns).average_ns == plain(0, *took_ns)


@given(NEAR, STALL, st.integers(1, 16), NEAR)
def test_one_stall_makes_no_slow_model_however_many_batches_it_holds_up(
    before: list[int], stall_ns: int, workers: int, after: list[int]
) -> None:
    """Honest clients wait for twice what batches take, and are not refused."""
    worker = Worker(*before)
    average_ns = worker.average_ns
    worker.now_ns += stall_ns
    for number in range(workers):
        # Each began a little before the stall, and they are reported one after another.
        worker.now_ns += 1
        worker.ended(stall_ns + number * 10)
        assert worker.average_ns <= average_ns * (SHARE + FAR - 1) / SHARE
    for took in after:
        assert worker.run(took) < 2 * max(*before, *after)


@given(NEAR, STALL, st.integers(2, 40))
def test_a_model_that_has_become_slow_looks_slow_one_batch_later_than_plainly(
    before: list[int], slow_ns: int, batches: int
) -> None:
    worker = Worker(*before)
    found = worker.run(*[slow_ns] * batches)
    assert found >= plain(worker_average(before), *[slow_ns] * (batches - 1)) * 0.99 - SHARE


@given(st.integers(10**6, 10**12), NEAR, st.booleans())
def test_a_model_that_is_quick_again_looks_quick_after_two_batches(
    slow_ns: int, quick: list[int], warm: bool
) -> None:
    worker = Worker(average_ns=slow_ns) if warm else Worker(slow_ns)
    found = worker.run(*quick)
    if len(quick) > int(warm):
        assert found <= FAR * max(quick)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=40))
def test_the_average_stays_within_the_measured_times(took_ns: list[int]) -> None:
    worker = Worker()
    averages = [worker.run(took) for took in took_ns]
    # Rounding goes down.
    assert all(min(took_ns) - 2 * SHARE <= average <= max(took_ns) for average in averages)
    assert all(average >= 0 for average in averages)
    for (before, after), took in zip(pairwise(averages), took_ns[1:], strict=True):
        assert (after - before) * (took - before) >= 0 or abs(after - before) <= 1


def worker_average(before: list[int]) -> int:
    return Worker(*before).average_ns
