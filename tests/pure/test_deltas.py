"""Differences between two samples."""

import pytest
from samples import FIRST, SECOND, WORKER, times

from ringbatch.shm.snapshot.deltas import (
    bucket_deltas,
    bucket_of,
    bucket_upper_s,
    busy,
    counter_deltas,
    interval_s,
    mean_batch,
    rate,
    same_worker,
)
from ringbatch.shm.time_buckets import BOUNDS_S, BUCKETS


def test_without_an_earlier_sample_nothing_is_known() -> None:
    assert interval_s(None, SECOND) == 0
    assert rate(5, None, 1.0) is None
    assert rate(5, 3, 0.0) is None
    assert busy(None, WORKER, 1.0) is None
    assert same_worker(None, WORKER) is None


def test_with_one_it_is() -> None:
    assert interval_s(FIRST, SECOND) == pytest.approx(2.0)
    assert rate(5, 3, 2.0) == 1.0
    assert rate(3, 5, 2.0) == 0.0, "counters that began anew"
    assert mean_batch(FIRST, SECOND.workers) == 50.0
    assert mean_batch(FIRST, FIRST.workers) is None


def test_counters_that_have_not_grown_are_left_out() -> None:
    assert counter_deltas({"a": 3, "b": 2, "c": 1}, {"a": 1, "b": 2, "c": 9}) == {"a": 2}
    assert bucket_deltas([3, 1], [1, 2]) == [2, 0]
    assert bucket_deltas([3, 1], None) == [3, 1]


def test_a_percentile_is_the_bucket_that_reaches_it() -> None:
    assert bucket_of(times(), 0.5) is None
    assert bucket_of(times(b3=9, b6=1), 0.9) == 3
    assert bucket_of(times(b3=9, b6=1), 0.91) == 6
    assert bucket_upper_s(0) == BOUNDS_S[0]
    assert bucket_upper_s(BUCKETS - 1) is None
