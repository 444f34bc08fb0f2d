"""What the collector counts of a model: under which size and time, for whom, and through what."""

from dataclasses import replace

import pytest
from collector_harness import CollectorHarness, eager
from segment_fixture import local_segment, spec

from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.model_counters import SIZES, Accounts, BatchStatistics, Counted, Spent
from ringbatch.shm.slot import Reason
from ringbatch.shm.time_buckets import FINEST_NS


def counted(harness: CollectorHarness) -> Counted:
    return Counted(harness.segment.words, harness.segment.layout, 0)


@pytest.mark.parametrize(
    ("rows", "size"),
    [(1, 1), (64, 64), (65, 128), (128, 128), (129, 256), (1 << 16, 1 << 16), (1 << 30, 1 << 16)],
)
def test_batches_are_counted_under_their_size_or_the_next_power_of_two(
    rows: int, size: int
) -> None:
    segment = local_segment(spec())
    accounts = Accounts(segment.words, segment.layout)
    accounts.of(0).ran(2, rows, Spent(1, 2, 3, 0, 0))
    found = Counted(segment.words, segment.layout, 0)
    assert found.sizes == [BatchStatistics(size, 1, 1, 2, 3)]
    assert size in SIZES


def test_each_request_is_counted_by_its_own_wait() -> None:
    segment = local_segment(spec())
    counters = Accounts(segment.words, segment.layout).of(0)
    now_ns = 100 * FINEST_NS
    counters.dispatched((now_ns - 1, now_ns, now_ns - 3 * FINEST_NS), now_ns, Reason.IDLE, 3)
    counters.dispatched((now_ns, now_ns), now_ns, Reason.IDLE, 2)
    found = Counted(segment.words, segment.layout, 0)
    assert found.waits[:4] == [4, 0, 1, 0]
    assert found[ModelCounter.WAIT_NS] == 3 * FINEST_NS + 1


def test_who_runs_again_has_waited_once() -> None:
    segment = local_segment(spec())
    counters = Accounts(segment.words, segment.layout).of(0)
    counters.dispatched((0, 0), 5, Reason.IDLE, 2)
    counters.dispatched((0,), 50, Reason.RETRY, 1)
    found = Counted(segment.words, segment.layout, 0)
    assert (sum(found.waits), found[ModelCounter.WAIT_NS], found[ModelCounter.RETRIED]) == (
        2,
        10,
        1,
    )


def test_what_a_batch_took_is_counted_for_each_of_its_requests() -> None:
    segment = local_segment(spec())
    Accounts(segment.words, segment.layout).of(0).ran(3, 7, Spent(10, 20, 30, 1, 2))
    found = Counted(segment.words, segment.layout, 0)
    assert [
        found[counter]
        for counter in (
            ModelCounter.EXECUTED,
            ModelCounter.INPUT_NS,
            ModelCounter.INFER_NS,
            ModelCounter.OUTPUT_NS,
            ModelCounter.RUN_NS,
            ModelCounter.PADDED_ROWS,
            ModelCounter.FURTHER_RUNS,
        )
    ] == [3, 30, 60, 90, 20, 1, 2]


def test_the_next_collector_counts_on() -> None:
    segment = local_segment(spec())
    for _ in range(2):
        Accounts(segment.words, segment.layout).of(0).dispatched((0,), 1, Reason.FULL, 1)
    assert Counted(segment.words, segment.layout, 0).batches[Reason.FULL] == 2


def test_what_takes_a_place_inherits_nothing_and_what_comes_late_is_nobodys() -> None:
    segment = local_segment(spec())
    accounts = Accounts(segment.words, segment.layout)
    late = accounts.of(0)
    late.dispatched((0,), 1, Reason.FULL, 1)
    accounts.of(1 << 16).dispatched((0,), 1, Reason.IDLE, 1)
    late.dispatched((0,), 1, Reason.FULL, 1)
    found = Counted(segment.words, segment.layout, 1 << 16)
    assert (sum(found.batches), found.batches[Reason.IDLE]) == (1, 1)
    assert sum(Counted(segment.words, segment.layout, 0).batches) == 0


def test_a_reloaded_model_counts_on() -> None:
    before = eager()
    harness = CollectorHarness(before, spare=1).begin()
    harness.send()
    harness.step(1)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(2)
    after = replace(before, index=1, generation=1, workers=(1,))
    harness.segment.model_table.publish((replace(before, state="retiring"), after))
    harness.step(3)
    assert sum(counted(harness).batches) == 1
    harness.segment.model_table.publish((after,))
    harness.step(4)
    assert sum(counted(harness).batches) == 1


@pytest.mark.parametrize(
    ("hung", "killed", "counter"),
    [
        (False, False, ModelCounter.CRASHED),
        (False, True, ModelCounter.KILLED),
        (True, True, ModelCounter.HUNG),
    ],
)
def test_the_death_of_a_worker_has_one_reason(
    hung: bool, killed: bool, counter: ModelCounter
) -> None:
    segment = local_segment(spec())
    counters = Accounts(segment.words, segment.layout).of(0)
    counters.worker_died(hung=hung, killed=killed)
    deaths = (ModelCounter.CRASHED, ModelCounter.KILLED, ModelCounter.HUNG)
    assert [c for c in deaths if counters[c]] == [counter]
