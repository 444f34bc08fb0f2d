"""Fairness: no request starves behind a flooding lane or account, another shape or model."""

import pytest
from bytecodes import SLACK, bytecodes, no_bytecodes
from collector_harness import CollectorHarness, eager, fixed

from ringbatch.shm.account import PriorityClass, account_word

SLOTS = 64
CAP = 4
CROWD = 1_000_000


def test_a_flooding_lane_delays_another_by_its_share_in_flight_and_no_more() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = harness.clients
    for _ in range(SLOTS):
        flooder.send(b"%d" % CROWD)
    harness.step(1_000)
    other.send(b"7")
    worker, batches = harness.workers[0], 0
    while True:
        task = worker.task()
        if 7 in harness.payloads(task):
            break
        batches += 1
        # What comes in the same turn may be taken in first.
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"%d" % CROWD)
        harness.step(1_000 + batches)


def test_a_shape_that_floods_does_not_keep_another_waiting() -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    flooder, other = harness.clients
    for _ in range(SLOTS):
        flooder.send(b"11111111", key_bytes=8)
    harness.step(1_000)
    other.send(b"22222222", key_bytes=8, accepted_ns=1_000)
    worker, batches = harness.workers[0], 0
    while 22222222 not in harness.payloads(task := worker.task()):
        batches += 1
        assert batches <= SLOTS // CAP + 1, "whoever came later was served before"
        worker.finish(task)
        for _ in flooder.collect():
            flooder.send(b"11111111", key_bytes=8, accepted_ns=1_000 + batches)
        harness.step(1_000 + batches)


def test_a_model_that_is_flooded_and_stuck_costs_another_nothing() -> None:
    flooded = eager(max_batch_size=CAP, name="flooded", workers=(0,))
    other = eager(max_batch_size=CAP, index=1, name="other", workers=(1,))
    harness = CollectorHarness(flooded, other, slots=SLOTS).begin()
    for _ in range(SLOTS):
        harness.clients[0].send(b"%d" % CROWD, model=0)
    harness.step(1_000)
    assert len(harness.workers[0].task().references) == CAP
    for number in range(10):
        harness.clients[1].send(b"%d" % number, model=1)
        harness.step(2_000 + number)
        task = harness.workers[1].task()
        assert harness.payloads(task) == [number]
        harness.workers[1].finish(task)
        harness.step(2_000 + number)
        harness.clients[1].collect()
    assert harness.workers[0].tasks() == []


FLOODER, POLITE = 7, 8


def flooded(account: int, *, together: bool = False) -> CollectorHarness:
    """An account floods, and another sends a request."""
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    for number in range(4 * CAP):
        harness.send(number, account=FLOODER)
        if not together:
            harness.step(1_000)
    if together:
        harness.send(CROWD, account=account)
        harness.step(1_000)
    else:
        harness.send(CROWD, lane=1, account=account)
        harness.step(1_000)
    return harness


def batches(harness: CollectorHarness, count: int) -> list[list[int]]:
    found = []
    worker = harness.workers[0]
    for turn in range(count):
        task = worker.task()
        found.append(harness.payloads(task))
        worker.finish(task)
        harness.step(2_000 + turn)
    return found


def test_an_account_that_floods_does_not_keep_another_waiting() -> None:
    assert batches(flooded(POLITE), 3) == [[0], [1, CROWD, 2, 3], [4, 5, 6, 7]]


def test_requests_that_come_in_one_turn_take_turns_too() -> None:
    assert batches(flooded(POLITE, together=True), 2) == [[0, CROWD, 1, 2], [3, 4, 5, 6]]


def test_within_an_account_nobody_overtakes() -> None:
    first, *others = batches(flooded(FLOODER), 5)
    assert first == [0]
    assert others[-1] == [13, 14, 15, CROWD]


def test_interactive_requests_go_first() -> None:
    account = account_word(FLOODER, PriorityClass.INTERACTIVE)
    harness = flooded(FLOODER)
    for number in range(100, 106):
        harness.send(number, lane=1, account=account)
    harness.step(1_500)
    assert batches(harness, 3) == [[0], [100, 101, 102, 103], [104, 105, 1, 2]]


def test_a_run_that_is_repeated_is_charged_once() -> None:
    """A worker dies with the batch of an account; another account gains nothing by that."""
    harness = flooded(POLITE, together=True)
    assert harness.payloads(harness.workers[0].task()) == [0, CROWD, 1, 2]
    for number in range(100, 108):
        harness.send(number, lane=1, account=POLITE)
    harness.step(1_100)
    harness.dies(0, 1_200, killed=True)
    harness.workers[0].ready()
    harness.step(1_300)
    again = [[0], [CROWD], [1], [2]]
    assert batches(harness, 6) == [*again, [3, 100, 4, 101], [5, 102, 6, 103]]


def test_a_batch_that_waits_for_company_counts_from_the_request_that_came_first() -> None:
    """Under `fixed`, though another account's request goes first."""
    harness = CollectorHarness(fixed(max_batch_size=CAP), slots=SLOTS).begin()
    for number in range(CAP + 2):
        harness.send(number, account=FLOODER, accepted_ns=1_000)
    harness.send(CROWD, account=POLITE, accepted_ns=1_500)
    harness.step(1_500)
    worker = harness.workers[0]
    task = worker.task()
    assert harness.payloads(task) == [0, CROWD, 1, 2]
    worker.finish(task)
    assert harness.step(1_600) == 2_000, "request 3 came at 1000"
    harness.step(2_000)
    assert harness.payloads(worker.task()) == [3, 4, 5]


def step_of_many(accounts: int) -> int:
    """Return the bytecodes of the collector's step while requests of so many accounts wait."""
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=2 * MANY).begin()
    for number in range(accounts):
        for _ in range(2 * MANY // accounts):
            harness.send(number, account=1 + number, result_bytes=64)
    harness.step(1_000)
    worker = harness.workers[0]
    for turn in range(3):
        worker.finish(worker.task())
        harness.step(2_000 + turn)
    worker.finish(worker.task())
    for number in range(CAP):
        harness.send(number, lane=1, account=1 + number, result_bytes=64)
    return bytecodes(lambda: harness.step(3_000))


MANY = 128


@no_bytecodes
def test_a_batch_costs_the_same_however_many_accounts_wait() -> None:
    assert step_of_many(MANY) < 1.5 * step_of_many(2) + SLACK


@pytest.mark.parametrize("key_bytes", [0, 8])
def test_accounts_that_come_and_go_leave_nothing_behind(key_bytes: int) -> None:
    harness = CollectorHarness(eager(max_batch_size=CAP), slots=SLOTS).begin()
    queues = next(iter(harness.collector._models.values())).queues
    worker, turn = harness.workers[0], 0
    for turn in range(200):
        for number in range(CAP + 1 + turn % 2):
            payload = b"%08d" % (number % 2)
            account = 1 + turn * CAP + number
            harness.clients[turn % 2].send(payload, account=account, key_bytes=key_bytes)
        harness.step(1_000 + 2 * turn)
        worker.finish(worker.task())
        harness.step(1_001 + 2 * turn)
        for client in harness.clients:
            client.collect()
        assert queues._usage is None or queues._usage.accounts <= SLOTS
        if turn % 50 == 49:
            while queues.rows:
                worker.finish(worker.task())
                harness.step(1_001 + 2 * turn)
            assert queues._usage is None
            assert not queues._keys
            worker.finish(worker.task())
            harness.step(1_001 + 2 * turn)
