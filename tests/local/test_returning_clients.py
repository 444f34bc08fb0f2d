"""Clients that return right after their answers, on a collector stepped by hand.

A batch waits for some of them, until something ends the wait.
"""

import pytest
from collector_harness import CollectorHarness, eager, fixed

from ringbatch.engine.ipc.messages import BatchTask
from ringbatch.shm.slot import Reason

MS = 1_000_000
FIXED_NS = 10 * MS
BACK_NS = 500_000
LATE_NS = 6 * MS
CLIENTS = 6
CAP = 8


class Loop:
    """Six clients of a model of 10 ms a run and 0.1 ms a row.

    Attributes:
        harness: the engine.
        now_ns: the time.
    """

    def __init__(self, harness: CollectorHarness) -> None:
        self.harness = harness.begin()
        self.now_ns = 100 * MS

    def come(self, number: int, later_ns: int = 0) -> int | None:
        """Send so many requests after that time, and return the instant of the next step."""
        self.now_ns += later_ns
        for _ in range(number):
            self.harness.send(accepted_ns=self.now_ns)
        return self.harness.step(self.now_ns)

    def run(self) -> BatchTask:
        """The worker runs the batch that it has; the collector has read its report."""
        task = self.harness.workers[0].task()
        took_ns = FIXED_NS + MS // 10 * task.mark.rows
        self.now_ns += took_ns
        self.harness.workers[0].finish(task, run_ns=took_ns)
        self.harness.step(self.now_ns)
        self.harness.clients[0].collect()
        return task

    def learn(self) -> None:
        """Half of the clients wait while the others are answered, again and again."""
        self.come(1)
        self.run()
        self.come(1)
        self.come(CLIENTS - 1, BACK_NS)
        for _ in range(30):
            self.come(self.run().mark.rows, BACK_NS)

    @property
    def waits(self) -> bool:
        """True if the worker has been given no task."""
        return not self.harness.workers[0].tasks()


@pytest.fixture
def loop() -> Loop:
    found = Loop(CollectorHarness(eager(max_batch_size=CAP)))
    found.learn()
    return found


def test_a_batch_waits_until_as_many_are_back_as_usual(loop: Loop) -> None:
    assert loop.run().mark.rows == CLIENTS
    until_ns = loop.come(CLIENTS - 1, BACK_NS)
    assert until_ns == loop.now_ns - BACK_NS + 5 * MS
    assert loop.waits
    loop.come(1, 1)
    task = loop.harness.workers[0].task()
    assert (task.mark.rows, task.mark.reason) == (CLIENTS, Reason.IDLE)


def test_it_waits_no_longer_than_announced(loop: Loop) -> None:
    loop.run()
    until_ns = loop.come(2, BACK_NS)
    assert until_ns is not None
    loop.harness.step(until_ns - 1)
    assert loop.waits
    loop.harness.step(until_ns)
    assert loop.harness.workers[0].task().mark.rows == 2


def test_a_full_batch_waits_for_nobody(loop: Loop) -> None:
    loop.run()
    loop.come(CAP, 1)
    assert loop.harness.workers[0].task().mark.reason is Reason.FULL


def test_nobody_waits_for_clients_that_come_late(loop: Loop) -> None:
    for _ in range(6):
        loop.run()
        loop.come(1, LATE_NS)
    loop.run()
    loop.come(1, BACK_NS)
    assert not loop.waits


def test_a_second_worker_serves_clients_that_come_back() -> None:
    loop = Loop(CollectorHarness(eager(max_batch_size=CAP, workers=(0, 1))))
    loop.come(1)
    assert loop.waits, "the other one has it, for as long as this takes"
    loop.learn()
    loop.run()
    loop.come(1, BACK_NS)
    assert not loop.waits


def test_fixed_has_a_wait_of_its_own() -> None:
    loop = Loop(CollectorHarness(fixed(max_batch_size=CAP)))
    loop.come(1)
    loop.harness.step(loop.now_ns + 1_000)
    assert not loop.waits
