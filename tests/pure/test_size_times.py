"""Averages of batches by size: by them the end of a batch is expected."""

from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.size_times import FAR, SHARE, SizeTimes

times = st.integers(100, 10**9)
"""Enough that no share of them is rounded to nothing."""
sizes = st.integers(1, 64)


def test_nothing_is_known_before_a_batch_has_run() -> None:
    assert SizeTimes().of(1) == 0


def test_each_size_has_its_own_time() -> None:
    known = SizeTimes()
    known.ran(1, 100)
    known.ran(32, 900)
    assert (known.of(1), known.of(32)) == (100, 900)


def test_a_size_that_has_not_run_takes_the_time_of_the_next_larger() -> None:
    known = SizeTimes()
    known.ran(8, 400)
    known.ran(32, 900)
    assert (known.of(3), known.of(9), known.of(33)) == (400, 900, 0)


def test_a_stalled_batch_moves_an_average_by_little() -> None:
    known = SizeTimes()
    known.ran(8, 800)
    known.ran(8, 10**9)
    assert known.of(8) == 800 + 800 * (FAR - 1) // SHARE


@given(sizes, times, times)
def test_an_average_comes_near_the_times_of_batches(rows: int, before_ns: int, now_ns: int) -> None:
    known = SizeTimes()
    known.ran(rows, before_ns)
    for _ in range(400):
        known.ran(rows, now_ns)
    assert abs(known.of(rows) - now_ns) <= max(SHARE, before_ns * 1e-9)


@given(sizes, st.lists(times, min_size=1))
def test_an_average_stays_between_the_times_of_batches(rows: int, took_ns: list[int]) -> None:
    known = SizeTimes()
    for one_ns in took_ns:
        known.ran(rows, one_ns)
    assert min(took_ns) <= known.of(rows) <= max(took_ns)
