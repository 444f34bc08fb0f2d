"""Next batch of a worker on a device: handed out shortly before the running one ends."""

from dataclasses import replace
from typing import Any

import pytest
from collector_harness import CollectorHarness, eager, fixed

from ringbatch.engine.ipc.messages import ReportKind
from ringbatch.shm import cost_profile, device_pace
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.device_pace import NO_PACE, Pace
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import Reason

LEAD = 300
RUN = 1_000
PACE = Pace(LEAD, 0)


def harness_of(*models: ModelSpec, pace: Pace = PACE, **more: Any) -> CollectorHarness:
    harness = CollectorHarness(*models, **more)
    for worker in harness.workers:
        device_pace.write(harness.segment, worker.number, pace)
    return harness.begin()


def running(harness: CollectorHarness, rows: int = 1, run_ns: int = RUN) -> int:
    """Start a batch of known duration on a worker, and return when it began."""
    for began_ns in (0, run_ns):
        for number in range(rows):
            harness.send(number)
        harness.step(began_ns)
        if not began_ns:
            first = harness.workers[harness.worker_wakes[-1]]
            first.finish(first.task())
            harness.step(run_ns)
            harness.clients[0].collect()
    return run_ns


def test_a_busy_worker_gets_the_next_batch_a_lead_before_its_end() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    first = harness.workers[0].task()
    harness.send(5)
    assert harness.step(began_ns + 1) == began_ns + RUN - LEAD
    assert harness.workers[0].tasks() == []
    harness.send(6)
    harness.step(began_ns + RUN - LEAD)
    second = harness.workers[0].task()
    assert (harness.payloads(second), second.mark.reason) == ([5, 6], Reason.IDLE)
    harness.workers[0].finish(first)
    harness.workers[0].finish(second)
    harness.step(began_ns + 2 * RUN)
    assert harness.collector.in_flight == 0


def test_a_worker_has_two_batches_at_most() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    for number in range(12):
        harness.send(number)
        harness.step(began_ns + RUN - LEAD + number)
    assert len(harness.workers[0].tasks()) == 2


def test_nobody_rings_before_that_instant_and_everybody_after_it() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)

    def rings(now_ns: int) -> bool:
        harness.step(now_ns)
        harness.collector.prepare_to_sleep()
        return bool(harness.segment.words[HeaderWords.RING_COLLECTOR])

    next_ns = began_ns + RUN - LEAD
    assert harness.step(began_ns) == next_ns, "also if nothing waits"
    assert [rings(now_ns) for now_ns in (next_ns - 1, next_ns)] == [False, True]
    harness.send(3)
    harness.step(next_ns + 1)
    assert harness.payloads(harness.workers[0].tasks()[-1]) == [3]
    assert not rings(next_ns + 2), "it has its next one"


def test_the_end_of_a_batch_is_expected_by_its_size() -> None:
    harness = harness_of(eager())
    now_ns = 0
    for rows, run_ns in ((1, 400), (4, 4_000)):
        for number in range(rows):
            harness.send(number)
        harness.step(now_ns)
        now_ns += run_ns
        harness.workers[0].finish(harness.workers[0].task())
        harness.step(now_ns)
    harness.send(0)
    assert harness.step(now_ns) == now_ns + 400 - LEAD
    harness.workers[0].finish(harness.workers[0].task())
    now_ns += 400
    harness.step(now_ns)
    for number in range(3):
        harness.send(number)
    assert harness.step(now_ns) == now_ns + 4_000 - LEAD


def test_the_average_counts_for_a_size_that_has_not_run() -> None:
    harness = harness_of(eager())
    running(harness, rows=1)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(2 * RUN)
    for number in range(4):
        harness.send(number)
    assert harness.step(2 * RUN) == 2 * RUN + RUN - LEAD


def test_a_batch_that_is_shorter_than_the_lead_is_followed_at_once() -> None:
    harness = harness_of(eager())
    began_ns = running(harness, run_ns=LEAD // 2)
    harness.send(9)
    harness.step(began_ns)
    assert [harness.payloads(task) for task in harness.workers[0].tasks()] == [[0], [9]]


def test_fixed_closes_its_next_batch_at_its_latency() -> None:
    harness = harness_of(fixed())
    harness.send(0, accepted_ns=0)
    harness.step(1_000)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(3_000)
    harness.send(1, accepted_ns=2_000)
    harness.step(3_000)
    harness.send(2, accepted_ns=4_600)
    assert harness.step(4_700) == 4_600 + 1_000, "the oldest has waited its latency by then"
    harness.step(5_600)
    assert len(harness.workers[0].tasks()) == 2


def finish(harness: CollectorHarness, number: int, now_ns: int) -> None:
    harness.workers[number].finish(harness.workers[number].task())
    harness.step(now_ns)


def test_of_two_busy_workers_the_one_that_ends_first_gets_it() -> None:
    harness = harness_of(eager(workers=(0, 1)))
    now_ns = 0
    for rows, run_ns in ((4, 4 * RUN), (1, RUN)):
        for number in range(rows):
            harness.send(number)
        harness.step(now_ns)
        now_ns += run_ns
        finish(harness, harness.worker_wakes[-1], now_ns)
    for number in range(4):
        harness.send(number)
    harness.step(now_ns)
    long = harness.worker_wakes[-1]
    harness.send(0)
    harness.step(now_ns + 1)
    harness.send(7)
    assert harness.step(now_ns + 2) == now_ns + 1 + RUN - LEAD
    harness.step(now_ns + 1 + RUN - LEAD)
    assert [len(harness.workers[n].tasks()) for n in (long, 1 - long)] == [1, 2]


def test_retried_requests_go_before_new_ones() -> None:
    harness = harness_of(eager(workers=(0, 1)))
    now_ns = 2 * RUN
    for number in (0, 1):
        harness.send(number)
        harness.step(number * RUN)
        finish(harness, harness.worker_wakes[-1], (number + 1) * RUN)
    for number in (2, 3):
        harness.send(number)
        harness.step(now_ns)
    harness.dies(1, now_ns)
    harness.send(4)
    harness.step(now_ns + 2 * RUN)
    (task,) = harness.workers[0].tasks()
    harness.workers[0].finish(task)
    harness.step(now_ns + 3 * RUN)
    (task,) = harness.workers[0].tasks()
    assert task.mark.reason is Reason.RETRY


def test_a_deadline_that_is_no_longer_there_does_not_close_the_next_batch() -> None:
    harness = harness_of(fixed())
    harness.send(0, accepted_ns=0)
    harness.step(1_000)
    finish(harness, 0, 3_000)
    harness.send(0, accepted_ns=2_000)
    harness.step(3_000)
    hasty = harness.send(1, accepted_ns=4_500, deadline_ns=5_200)
    harness.send(2, accepted_ns=4_550)
    harness.step(4_599)
    harness.clients[0].lane.cancel(hasty)
    harness.clients[0].lane.submit()
    assert harness.step(4_700) == 4_550 + 1_000


def test_a_retried_batch_joins_no_other() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    harness.workers[0].tasks()
    harness.dies(0, began_ns + 1)
    harness.workers[0].ready()
    harness.step(began_ns + 2)
    (again,) = harness.workers[0].tasks()
    assert again.mark.reason is Reason.RETRY
    for number in range(8):
        harness.send(number)
        harness.step(began_ns + 10 * RUN)
    assert harness.workers[0].tasks() == []


def test_a_batch_that_is_run_once_more_gets_no_company() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    harness.workers[0].runs_again(harness.workers[0].task().mark.batch)
    harness.send(5)
    harness.step(began_ns + RUN)
    assert harness.workers[0].tasks() == []


def test_both_batches_of_a_dead_worker_run_again_as_suspects() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    harness.send(5)
    harness.step(began_ns + RUN - LEAD)
    assert len(harness.workers[0].tasks()) == 2

    def dies() -> bool:
        explained = harness.dies(0, began_ns + RUN)
        harness.workers[0].ready()
        harness.step(began_ns + RUN)
        return explained

    assert not dies()
    first = harness.workers[0].task()
    assert len(first.references) == 1, "each runs by itself"
    harness.workers[0].finish(first)
    harness.step(began_ns + RUN)
    assert dies(), "the second death is explained by the other one"
    assert harness.collector.in_flight == 0


def test_a_worker_without_a_device_takes_none_before_its_end() -> None:
    harness = harness_of(eager(), pace=NO_PACE)
    began_ns = running(harness)
    harness.workers[0].tasks()
    harness.send(5)
    harness.step(began_ns + RUN - 1)
    harness.step(began_ns + RUN + 1)
    assert harness.workers[0].tasks() == []


@pytest.mark.parametrize(("sizes", "taken"), [(3, 2), (0, 3), (2, 3)], ids=["all", "none", "some"])
def test_rows_are_left_that_would_not_pay_in_a_graph(sizes: int, taken: int) -> None:
    """Three rows take what four take: two now, and one later, are cheaper."""
    harness = CollectorHarness(eager())
    segment = harness.segment
    cost_profile.write(segment, 0, [Trial(1, 0, 10), Trial(2, 0, 20), Trial(4, 0, 80)])
    device_pace.write(segment, 0, Pace(LEAD, sizes))
    harness.begin()
    for number in range(3):
        harness.send(number)
    harness.step(1)
    assert harness.workers[0].task().mark.rows == taken


def test_learned_sizes_outlive_a_change_of_the_table() -> None:
    harness = CollectorHarness(eager())
    segment = harness.segment
    cost_profile.write(segment, 0, [Trial(1, 0, 10), Trial(2, 0, 20), Trial(4, 0, 80)])
    device_pace.write(segment, 0, Pace(LEAD, 3))
    harness.begin()
    (model,) = harness.collector._models.values()
    model.adjust(model.spec)
    assert model.policy.sizes == (1, 2, 4)


def test_a_new_collector_expects_the_end_of_running_batches() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    harness.workers[0].tasks()
    collector = harness.new_collector()
    harness.send(5)
    collector.step(began_ns + 2 * RUN)
    assert [harness.payloads(task) for task in harness.workers[0].tasks()] == [[5]], (
        "it knows of no time, so that the batch may end at any"
    )


def test_a_failed_run_takes_no_part_in_the_times() -> None:
    harness = harness_of(eager())
    began_ns = running(harness)
    task = harness.workers[0].task()
    harness.workers[0].finish(task, ReportKind.FAILED, run_ns=0)
    harness.step(began_ns + 50)
    harness.send(1)
    assert harness.step(2 * RUN) == 2 * RUN + RUN - LEAD


def test_the_time_of_a_batch_counts_for_the_size_that_it_is_padded_to() -> None:
    harness = CollectorHarness(eager())
    segment = harness.segment
    cost_profile.write(segment, 0, [Trial(1, 0, 70), Trial(2, 0, 75), Trial(4, 0, 80)])
    device_pace.write(segment, 0, Pace(LEAD, 3))
    harness.begin()
    now_ns = 0
    for rows, run_ns in ((1, RUN), (3, 8 * RUN)):
        for number in range(rows):
            harness.send(number)
        harness.step(now_ns)
        now_ns += run_ns
        finish(harness, 0, now_ns)
    for number in range(4):
        harness.send(number)
    assert harness.step(now_ns) == now_ns + 8 * RUN - LEAD


@pytest.mark.parametrize(("returning", "workers", "given"), [(1.0, 1, 1), (0.5, 1, 2), (1.0, 2, 2)])
def test_a_lone_worker_whose_clients_come_back_gets_no_small_batch_early(
    returning: float, workers: int, given: int
) -> None:
    harness = harness_of(eager(workers=tuple(range(workers))))
    began_ns = running(harness)
    for number in range(workers - 1):
        harness.send(number)
        harness.step(began_ns)
    (model,) = harness.collector._models.values()
    model.lingering.watching, model.lingering._returning = True, returning
    harness.send(5)
    harness.step(began_ns + 10 * RUN)
    assert max(len(worker.tasks()) for worker in harness.workers) == given


def test_allowed_sizes_stay_where_no_warm_up_has_tried_them() -> None:
    harness = CollectorHarness(replace(eager(), allowed_batch_sizes=(1, 4))).begin()
    (model,) = harness.collector._models.values()
    assert model.policy.sizes == (1, 4)
