"""Reports of a worker in steps: its batches as they end, and its answers before them.

Tests engine/worker/steps_worker.py.
"""

from steps_harness import StepsHarness

from ringbatch.shm.counters import Counters, WorkerCounter
from ringbatch.shm.slot import Status


def test_batches_that_end_together_wake_the_collector_once() -> None:
    harness = StepsHarness()
    slots = []
    for count in (4, 3, 2, 1):
        # Those before are live by now, each in a batch of its own.
        slots.append(harness.send(count))
        rings = harness.rings
        harness.step()
    assert {harness.status(slot) for slot in slots} == {Status.OK}
    assert harness.rings == rings + 1
    counters = Counters(harness.segment.words, harness.segment.layout.worker_counters(0))
    assert counters[WorkerCounter.BATCHES] == counters[WorkerCounter.ROWS] == 4


def test_a_row_that_never_joins_is_answered_before_its_batch_is_reported() -> None:
    harness = StepsHarness(most_cost=5)
    slot = harness.send(9)
    harness.step()
    assert harness.status(slot) is Status.INVALID
