"""The buckets that times are counted in: each is twice as wide as the one before it."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

FINEST_NS: Final = 50_000
BUCKETS: Final = 22
"""Number of time buckets: below `FINEST_NS`, below twice that, and so on; the last has no bound."""
BOUNDS_S: Final = tuple(FINEST_NS * (1 << bucket) / 1e9 for bucket in range(BUCKETS - 1))
_LAST_BUCKET: Final = BUCKETS - 1


def time_bucket(took_ns: int) -> int:
    """Return the bucket of a time."""
    return min((took_ns // FINEST_NS).bit_length(), _LAST_BUCKET)


def time_counts(times_ns: Iterable[int]) -> list[tuple[int, int]]:
    """Return the buckets with any times, and how many each has."""
    times = sorted(times_ns)
    found, start, end = [], 0, len(times)
    while start < end:
        bucket = time_bucket(times[start])
        stop = end
        if bucket < _LAST_BUCKET:
            stop = bisect_left(times, FINEST_NS << bucket, start)
        found.append((bucket, stop - start))
        start = stop
    return found


def median_ns(counts: Sequence[int]) -> int:
    """Return the median of times counted in buckets; 0 without any.

    It takes the times of a bucket as spread evenly over it.
    """
    before = sum(counts) / 2
    for bucket, count in enumerate(counts):
        if count and count >= before:
            start = FINEST_NS << bucket - 1 if bucket else 0
            width = start or FINEST_NS
            return int(start + width * before / count)
        before -= count
    return 0
