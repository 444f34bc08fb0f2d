"""Estimates of the time of batches that have not run yet, from the trials of warm-up. Pure.

A trial is its rows, the size of the open dimensions (0 if there are none) and its nanoseconds,
as `ringbatch.shm.cost_profile` has them.
"""

from collections.abc import Iterable, Sequence

_Trials = Iterable[tuple[int, int, int]]


def costs_ns(trials: _Trials, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return how long a batch of each size runs, over all lengths that were tried with every size.

    Args:
        trials: of warm-up.
        sizes: the allowed batch sizes.

    Returns:
        A time for each size, whose ratios are meant rather than the times themselves; none if
        no length was tried with all of them.
    """
    tried = {(rows, length): run_ns for rows, length, run_ns in trials}
    lengths = {length for _, length in tried}
    whole = [length for length in lengths if all((size, length) in tried for size in sizes)]
    if not whole:
        return ()
    return tuple(sum(tried[size, length] for length in whole) for size in sizes)


def full_batch_ns(trials: _Trials) -> int:
    """Return how long the largest batch that was tried runs; 0 if none was."""
    return max(trials, default=(0, 0, 0))[2]
