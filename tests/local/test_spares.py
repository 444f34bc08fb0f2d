"""Workers that wait, loaded, for the death of another."""

from dataclasses import replace

from collector_harness import CollectorHarness, eager

from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.slot import Reason


def harness(**more: int) -> CollectorHarness:
    """Return a collector with a worker that runs, number 0, and a spare, number 1."""
    found = CollectorHarness(eager(workers=(0, 1), spares=1, **more))
    for worker in found.workers:
        worker.ready()
        found.step(0)
    return found


def ready(found: CollectorHarness) -> int:
    """Return the published number of ready workers."""
    return int(found.segment.words[found.segment.layout.model(0) + ModelWords.READY])


def test_a_spare_gets_no_batch_while_the_worker_lives() -> None:
    found = harness()
    for number in range(3):
        found.send(number)
        found.step(number)
    assert found.running(0) == [0]
    assert found.workers[1].tasks() == []
    assert ready(found) == 1


def test_a_spare_goes_on_at_once_with_a_dead_workers_batch() -> None:
    found = harness()
    found.send(7)
    found.step(1)
    assert found.running(0) == [7]
    found.collector.worker_died(0, 2)
    found.step(2)
    task = found.workers[1].task()
    assert (found.payloads(task), task.mark.reason) == ([7], Reason.RETRY)
    assert ready(found) == 1


def test_a_worker_that_comes_after_a_death_is_the_next_spare() -> None:
    found = harness()
    for dead, goes_on in ((0, 1), (1, 0), (0, 1)):
        found.collector.worker_died(dead, 1)
        found.send(goes_on)
        found.step(2)
        assert found.workers[dead].tasks() == []
        found.workers[goes_on].finish(found.workers[goes_on].task())
        found.workers[dead].ready()
        found.step(3)
        assert ready(found) == 1


def test_the_death_of_a_spare_changes_nothing_for_the_others() -> None:
    found = harness()
    found.collector.worker_died(1, 1)
    assert ready(found) == 1
    found.send(5)
    found.step(2)
    assert found.running(0) == [5]


def test_a_spare_goes_on_for_a_worker_that_hangs() -> None:
    found = harness(batch_timeout_ns=100)
    found.send(1)
    found.step(0)
    found.send(2)
    found.step(100)
    assert found.ended == [0]
    assert found.running(1) == [2], "before the death of the other is proved"


def test_a_model_without_enough_workers_has_no_spare() -> None:
    found = CollectorHarness(eager(workers=(0, 1, 2), spares=1))
    for count, worker in enumerate(found.workers, 1):
        worker.ready()
        found.step(0)
        assert ready(found) == min(count, 2)


def test_spares_become_workers_and_workers_spares_as_the_table_says() -> None:
    found = harness()
    (spec,) = found.segment.models
    for spares in (0, 1, 0):
        found.segment.model_table.publish((replace(spec, spares=spares),))
        found.step(1)
        assert ready(found) == 2 - spares


def test_a_worker_that_is_busy_becomes_a_spare_once_it_is_done() -> None:
    found = harness()
    (spec,) = found.segment.models
    found.segment.model_table.publish((replace(spec, spares=0),))
    found.step(1)
    for number in range(2):
        found.send(number)
        found.step(2)
    found.segment.model_table.publish((spec,))
    found.step(3)
    assert ready(found) == 2
    tasks = [worker.task() for worker in found.workers]
    for worker, task in zip(found.workers, tasks, strict=True):
        worker.finish(task)
        found.step(4)
    assert ready(found) == 1
    found.send(3)
    found.step(5)
    assert sum(len(worker.tasks()) for worker in found.workers) == 1
