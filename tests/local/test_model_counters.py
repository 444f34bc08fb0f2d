"""Counts of a model in the collector: batches by size, times, deaths by reason, and classes."""

from dataclasses import replace

import pytest
from collector_harness import CollectorHarness, eager
from segment_fixture import local_segment, spec

from ringbatch.shm.account import MIXED, PriorityClass, account_word, class_of
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.model_counters import (
    SIZES,
    BatchStatistics,
    ClassStatistics,
    Counted,
    CounterBlocks,
    Spent,
)
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
    accounts = CounterBlocks(segment.words, segment.layout)
    accounts.of(0).ran(2, rows, Spent(1, 2, 3, 0, 0))
    found = Counted(segment.words, segment.layout, 0)
    assert found.sizes == [BatchStatistics(size, 1, 1, 2, 3)]
    assert size in SIZES


def test_each_request_is_counted_by_its_own_wait() -> None:
    segment = local_segment(spec())
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    now_ns = 100 * FINEST_NS
    counters.dispatched((now_ns - 1, now_ns, now_ns - 3 * FINEST_NS), now_ns, Reason.IDLE, 3)
    counters.dispatched((now_ns, now_ns), now_ns, Reason.IDLE, 2)
    found = Counted(segment.words, segment.layout, 0)
    assert found.waits[:4] == [4, 0, 1, 0]
    assert found.wait_ns == 3 * FINEST_NS + 1


def test_a_request_that_runs_again_has_waited_once() -> None:
    segment = local_segment(spec())
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    counters.dispatched((0, 0), 5, Reason.IDLE, 2)
    counters.dispatched((0,), 50, Reason.RETRY, 1)
    found = Counted(segment.words, segment.layout, 0)
    assert (sum(found.waits), found.wait_ns, found[ModelCounter.RETRIED]) == (
        2,
        10,
        1,
    )


def test_the_time_of_a_batch_is_counted_for_each_of_its_requests() -> None:
    segment = local_segment(spec())
    CounterBlocks(segment.words, segment.layout).of(0).ran(3, 7, Spent(10, 20, 30, 1, 2))
    found = Counted(segment.words, segment.layout, 0)
    assert [
        found[counter]
        for counter in (
            ModelCounter.EXECUTED,
            ModelCounter.INPUT_NS,
            ModelCounter.INFER_NS,
            ModelCounter.OUTPUT_NS,
            ModelCounter.PADDED_ROWS,
            ModelCounter.FURTHER_RUNS,
        )
    ] == [3, 30, 60, 90, 1, 2]
    assert found.run_ns == 20


def test_the_next_collector_counts_on() -> None:
    segment = local_segment(spec())
    for _ in range(2):
        CounterBlocks(segment.words, segment.layout).of(0).dispatched((0,), 1, Reason.FULL, 1)
    assert Counted(segment.words, segment.layout, 0).batches[Reason.FULL] == 2


def test_a_reused_place_inherits_nothing_and_late_counts_are_dropped() -> None:
    segment = local_segment(spec())
    accounts = CounterBlocks(segment.words, segment.layout)
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
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    counters.worker_died(hung=hung, killed=killed)
    deaths = (ModelCounter.CRASHED, ModelCounter.KILLED, ModelCounter.HUNG)
    assert [c for c in deaths if counters[c]] == [counter]


NONE = ClassStatistics(0, 0, 0)
INTERACTIVE = account_word(7, PriorityClass.INTERACTIVE)
BULK = account_word(8, PriorityClass.BULK, 3)


def test_the_classes_stand_in_their_order() -> None:
    harness = CollectorHarness(eager())
    assert counted(harness).classes == {"interactive": NONE, "normal": NONE, "bulk": NONE}
    assert [*counted(harness).classes] == ["interactive", "normal", "bulk"]


@pytest.mark.parametrize("account", [0, 7, INTERACTIVE, BULK])
def test_a_batch_of_one_class_is_counted_for_that(account: int) -> None:
    harness = CollectorHarness(eager()).begin(100)
    for accepted_ns in (101, 103):
        harness.send(accepted_ns=accepted_ns, account=account)
    harness.step(110)
    harness.workers[0].finish(harness.workers[0].task(), run_ns=1000)
    harness.step(200)
    own = (class_of(account).name.lower(), ClassStatistics(2, 9 + 7, 1000))
    assert counted(harness).classes == {"interactive": NONE, "normal": NONE, "bulk": NONE} | {
        own[0]: own[1]
    }


def test_the_classes_of_a_batch_share_its_time_by_their_instances() -> None:
    harness = CollectorHarness(eager(max_batch_size=16)).begin(100)
    harness.send(accepted_ns=101, account=INTERACTIVE)
    harness.send(accepted_ns=102, rows=2, account=BULK)
    harness.send(accepted_ns=103, rows=4, account=9)
    harness.step(110)
    harness.workers[0].finish(harness.workers[0].task(), run_ns=1000)
    harness.step(200)
    found = counted(harness)
    assert found.classes == {
        "interactive": ClassStatistics(1, 9, 143),
        "normal": ClassStatistics(1, 7, 571),
        "bulk": ClassStatistics(1, 8, 286),
    }
    assert (found.wait_ns, found.run_ns) == (9 + 7 + 8, 1000)
    assert found.waits[0] == 3


def test_a_batch_that_runs_again_counts_its_time_and_no_wait() -> None:
    segment = local_segment(spec())
    counters = CounterBlocks(segment.words, segment.layout).of(0)
    counters.dispatched((0,), 50, Reason.RETRY, 1, PriorityClass.BULK, (BULK,))
    counters.dispatched((0, 0), 50, Reason.RETRY, 2, MIXED, (BULK, 0))
    counters.ran(1, 1, Spent(0, 20, 0, 0, 0), PriorityClass.BULK)
    found = Counted(segment.words, segment.layout, 0)
    assert found.classes["bulk"] == ClassStatistics(0, 0, 20)
    assert found.classes["normal"] == NONE


def test_a_new_collector_counts_the_classes_of_a_batch_that_it_adopts() -> None:
    harness = CollectorHarness(eager()).begin(100)
    harness.send(accepted_ns=101, account=BULK)
    harness.step(110)
    harness.new_collector()
    harness.workers[0].finish(harness.workers[0].task(), run_ns=30)
    harness.step(3000)
    assert counted(harness).classes["bulk"] == ClassStatistics(1, 9, 30)
