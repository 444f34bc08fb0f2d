"""Blocks of counters, and the buckets that batches are counted in."""

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.account import PriorityClass
from ringbatch.shm.counters import (
    ROWS_BUCKETS,
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    WorkerCounter,
    bucket_label,
    rows_bucket,
)
from ringbatch.shm.descriptors import CounterWords, ModelCounterWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.model_counters import SIZES
from ringbatch.shm.slot import Reason
from ringbatch.shm.time_buckets import BUCKETS


def blocks(count: int) -> memoryview:
    return memoryview(bytearray(count * ModelCounterWords.SIZE * WORD)).cast("Q")


@pytest.mark.parametrize("counters", [LaneCounter, CollectorCounter, ModelCounter, WorkerCounter])
def test_counters_are_numbered_from_0_and_fit_a_block(counters: type[IntEnum]) -> None:
    assert [member.value for member in counters] == list(range(len(counters)))
    size = ModelCounterWords.BY_CLASS if counters is ModelCounter else CounterWords.SIZE
    assert len(counters) <= size


def test_a_models_counters_and_its_histograms_share_no_word() -> None:
    words = [
        *ModelCounter,
        *(
            ModelCounterWords.BY_CLASS + word
            for word in range(len(PriorityClass) * ModelCounterWords.CLASS_RECORD)
        ),
        ModelCounterWords.TAG,
        *(ModelCounterWords.BATCHES_BY_REASON + reason for reason in Reason),
        *(ModelCounterWords.BATCHES_BY_ROWS + bucket for bucket in range(ROWS_BUCKETS)),
        *(ModelCounterWords.REQUESTS_BY_WAIT + bucket for bucket in range(BUCKETS)),
        *(ModelCounterWords.BATCHES_BY_RUN + bucket for bucket in range(BUCKETS)),
        *(
            ModelCounterWords.BATCHES_BY_SIZE + word
            for word in range(len(SIZES) * ModelCounterWords.SIZE_RECORD)
        ),
    ]
    assert len(words) == len(set(words))
    assert max(words) < ModelCounterWords.SIZE


@given(st.lists(st.tuples(st.integers(0, CounterWords.SIZE - 1), st.integers(0, 1 << 40))))
def test_a_counter_is_the_sum_of_the_added_amounts(additions: list[tuple[int, int]]) -> None:
    words = blocks(3)
    counters = Counters(words, CounterWords.SIZE)
    for counter, amount in additions:
        counters.add(counter, amount)
    for counter in range(CounterWords.SIZE):
        assert counters[counter] == sum(amount for c, amount in additions if c == counter)
    first = CounterWords.SIZE
    assert not any(words[:first])
    assert not any(words[2 * first :])


def test_a_reader_sees_the_writers_counts() -> None:
    words = blocks(1)
    Counters(words, 0).add(LaneCounter.ANSWERS)
    assert Counters(words, 0)[LaneCounter.ANSWERS] == 1


@pytest.mark.parametrize(
    ("rows", "bucket", "label"),
    [
        (1, 0, "1"),
        (2, 1, "2"),
        (3, 2, "3-4"),
        (4, 2, "3-4"),
        (5, 3, "5-8"),
        (8, 3, "5-8"),
        (9, 4, "9-16"),
        (32, 5, "17-32"),
        (33, 6, "33-64"),
        (1 << 15, 15, "16385-32768"),
        ((1 << 15) + 1, 16, "32769 and more"),
        (1 << 40, 16, "32769 and more"),
    ],
)
def test_a_batch_is_counted_in_the_bucket_of_its_rows(rows: int, bucket: int, label: str) -> None:
    assert rows_bucket(rows) == bucket
    assert bucket_label(bucket) == label


@given(st.integers(1, 1 << 20))
def test_a_bucket_says_which_sizes_it_covers(rows: int) -> None:
    label = bucket_label(rows_bucket(rows))
    if label.endswith(" and more"):
        assert rows >= int(label.split()[0])
    else:
        low, _, high = label.partition("-")
        assert int(low) <= rows <= int(high or low)
