"""The time that batches leave for a run: that of nearly all, while workers have time to spare."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.collector.run_reserve import BLOCK, RunReserve

AVERAGE = 3
TIMES = st.lists(st.integers(1, 10**12), max_size=4 * BLOCK)
QUICK = [5] * BLOCK
FIRST = 700
"""Time of the first batch, which does one-time work."""


class Workers:
    """Workers of one model, whose batches end one after another.

    Args:
        idle: pause before each batch, in times of the batch.
        workers: number of workers.
    """

    def __init__(self, idle: float = 1, workers: int = 1) -> None:
        self._idle, self._workers = idle, workers
        self._now_ns = 1_000
        self._reserve = RunReserve()
        self.ran(FIRST)

    def ran(self, *took_ns: int) -> int:
        left_ns = 0
        for took in took_ns:
            self._now_ns += took + round(took * self._idle)
            left_ns = self._reserve.ran(took, AVERAGE, self._now_ns, self._workers)
        return left_ns


@pytest.mark.parametrize(
    ("took_ns", "left_ns"),
    [
        ([], 5),
        ([900], 5),  # one stalled
        ([900, 800], 800),  # two are slow
        ([900, *[5] * 20, 800], 800),
        ([*[5] * (BLOCK - 1), 900, 800], 5),  # two in a row, of two blocks
        ([*[5] * (BLOCK - 1), 900, 800, 700], 700),
        ([90] * BLOCK + [5] * (BLOCK - 1), 90),
        ([90] * BLOCK + [5] * BLOCK, 5),  # a block later a faster model counts
        ([1, 90, 90] + [5] * (2 * BLOCK - 4), 90),
        ([1, 90, 90] + [5] * (2 * BLOCK - 3), 5),
    ],
)
def test_nearly_all_batches(took_ns: list[int], left_ns: int) -> None:
    assert Workers().ran(*QUICK, *took_ns) == left_ns


def test_the_average_counts_until_the_load_is_known() -> None:
    assert Workers().ran(*QUICK[1:]) == AVERAGE


@pytest.mark.parametrize(
    ("idle", "workers", "left_ns"),
    [(1, 1, 5), (0.8, 1, AVERAGE), (0, 1, AVERAGE), (0, 2, 5), (0.8, 4, 5), (-0.4, 2, AVERAGE)],
)
def test_the_average_counts_while_workers_have_little_time_to_spare(
    idle: float, workers: int, left_ns: int
) -> None:
    assert Workers(idle, workers).ran(*QUICK) == left_ns


def test_the_load_of_the_last_block_counts() -> None:
    workers = Workers()
    workers.ran(*QUICK)
    workers._idle = 0
    assert workers.ran(*QUICK[1:]) == 5
    assert workers.ran(5) == AVERAGE
    workers._idle = 1
    assert workers.ran(*QUICK) == 5


@given(TIMES)
def test_it_is_the_second_longest_of_a_block(took_ns: list[int]) -> None:
    whole = len(took_ns) // BLOCK * BLOCK
    last, current = (QUICK + took_ns)[whole : whole + BLOCK], [0, 0, *took_ns[whole:]]
    expected = max(sorted(last)[-2], sorted(current)[-2])
    assert Workers().ran(*QUICK, *took_ns) == expected


@given(TIMES, st.integers(1, 10**15))
def test_one_stalled_batch_does_not_count(took_ns: list[int], stall_ns: int) -> None:
    most_ns = max([*QUICK, *took_ns])
    assert Workers().ran(*QUICK, *took_ns, most_ns, stall_ns) <= most_ns
