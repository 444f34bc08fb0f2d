"""Estimated cost, from warm-up, of batches that have not run yet."""

import pytest

from ringbatch.engine.collector.cost_estimate import costs_ns, full_batch_ns

Trials = list[tuple[int, int, int]]


@pytest.mark.parametrize(
    ("trials", "sizes", "costs"),
    [
        ([(1, 0, 10), (4, 0, 20)], (1, 4), (10, 20)),
        ([(4, 0, 20), (1, 0, 10)], (1, 4), (10, 20)),
        ([(1, 32, 10), (4, 32, 20), (1, 64, 30), (4, 64, 90)], (1, 4), (40, 110)),
        ([(1, 32, 10), (4, 32, 20), (1, 64, 30)], (1, 4), (10, 20)),  # 4 x 64 was left out
        ([(1, 32, 10), (4, 64, 20)], (1, 4), ()),
        ([], (1, 4), ()),
        ([(1, 0, 10)], (), ()),
    ],
)
def test_a_size_costs_its_time_over_the_lengths_that_all_sizes_have(
    trials: Trials, sizes: tuple[int, ...], costs: tuple[int, ...]
) -> None:
    assert costs_ns(trials, sizes) == costs


@pytest.mark.parametrize(
    ("trials", "run_ns"),
    [([], 0), ([(1, 0, 90), (32, 0, 7)], 7), ([(8, 64, 70), (8, 32, 40)], 70)],
)
def test_a_full_batch_takes_as_long_as_the_largest_that_was_tried(
    trials: Trials, run_ns: int
) -> None:
    assert full_batch_ns(trials) == run_ns
