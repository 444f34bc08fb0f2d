"""Requests of accounts with limits, in the collector: refused, counted, let in again."""

import pytest
from collector_harness import CollectorHarness, eager

from ringbatch.engine.collector.account_gate import AccountGate
from ringbatch.engine.collector.account_limits import SECOND_NS, LimitTable
from ringbatch.engine.collector.queues import Queues
from ringbatch.frontend.codec.outcome import error_of
from ringbatch.shm.account import account_word
from ringbatch.shm.account_limits import AccountLimits
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.errors import LimitReached
from ringbatch.shm.slot import Status

ONE, OTHER = 7, account_word(8, weight=3)
NOW = 50 * SECOND_NS


def limited(limits: AccountLimits) -> CollectorHarness:
    harness = CollectorHarness(eager(max_batch_size=4))
    harness.collector.gate.set(LimitTable(limits))
    harness.begin(NOW)
    return harness


def send(harness: CollectorHarness, number: int, account: int, *, lane: int = 0) -> None:
    for _ in range(number):
        harness.send(lane=lane, accepted_ns=NOW, account=account)


def refused(harness: CollectorHarness, lane: int = 0) -> list[LimitReached]:
    """The refusals among the answers of a lane; its other answers are taken too."""
    found = []
    for answer, data in harness.clients[lane].collect().values():
        if answer.status is Status.LIMITED:
            error = error_of(answer.status, data.decode())
            assert isinstance(error, LimitReached)
            found.append(error)
    return found


def finish(harness: CollectorHarness, now_ns: int, run_ns: int = 1) -> int:
    """The worker runs all batches; how many requests were in them."""
    worker, count = harness.workers[0], 0
    while tasks := worker.tasks():
        for task in tasks:
            count += len(task.references)
            worker.finish(task, run_ns=run_ns)
        harness.step(now_ns)
    return count


def test_requests_in_flight_are_counted_over_all_lanes() -> None:
    harness = limited(AccountLimits(in_flight=3))
    send(harness, 2, ONE)
    send(harness, 5, ONE, lane=1)
    send(harness, 1, OTHER, lane=1)
    harness.step(NOW)
    assert len(refused(harness, 0)) + len(refused(harness, 1)) == 4
    assert harness.status().collector["limited_in_flight"] == 4
    assert finish(harness, NOW) == 4
    # Answered, they are in flight no longer.
    send(harness, 4, ONE)
    harness.step(NOW + 1)
    assert finish(harness, NOW + 1) == 3


def test_a_refusal_says_the_limit_and_the_wait() -> None:
    harness = limited(AccountLimits(requests_per_s=0.22))
    send(harness, 2, ONE)
    harness.step(NOW)
    (error,) = refused(harness)
    assert error.retry_after_s == 5
    assert str(error) == (
        "the limit of 0.22 requests a second for one client is reached; try again in 5 s"
    )
    assert harness.model().requests == 2, "a refused one is an arrival too"
    send(harness, 1, ONE)
    harness.step(NOW + 4 * SECOND_NS)
    assert [one.retry_after_s for one in refused(harness)] == [1]
    send(harness, 1, ONE)
    harness.step(NOW + 5 * SECOND_NS)
    assert not refused(harness)
    assert harness.status().collector["limited_requests"] == 2


def test_the_wait_for_requests_in_flight_is_that_of_their_model() -> None:
    harness = limited(AccountLimits(in_flight=4)).measure(NOW + 3 * SECOND_NS)
    send(harness, 5, ONE)
    harness.step(NOW)
    (error,) = refused(harness)
    assert error.retry_after_s > 1


def test_model_seconds_are_charged_by_rows() -> None:
    harness = limited(AccountLimits(model_s_per_s=1.0))
    # Together in the second batch; the first is of one request alone.
    send(harness, 1, OTHER)
    harness.step(NOW)
    harness.send(rows=3, accepted_ns=NOW, account=ONE)
    harness.send(rows=1, accepted_ns=NOW, account=OTHER)
    harness.step(NOW)
    worker = harness.workers[0]
    worker.finish(worker.task())
    harness.step(NOW)
    worker.finish(worker.task(), run_ns=2 * SECOND_NS)
    harness.step(NOW)
    send(harness, 1, ONE)
    send(harness, 1, OTHER, lane=1)
    harness.step(NOW)
    assert [error.retry_after_s for error in refused(harness)] == [1]
    assert not refused(harness, 1)
    assert harness.status().collector["limited_model_s"] == 1
    send(harness, 1, ONE)
    harness.step(NOW + SECOND_NS // 2 + 1)
    assert not refused(harness)


def test_requests_with_a_cost_are_charged_by_it() -> None:
    request = Request(1, 0, 3, 0, 0, 0, 0, 0, 0, 0)
    assert Queues(share=lambda request: request.rows / 12).costs([request, request]) == [0.25] * 2
    assert Queues().costs([request]) is None, "by rows"


def test_requests_are_in_flight_until_they_are_dropped() -> None:
    harness = limited(AccountLimits(in_flight=2))
    harness.send(accepted_ns=NOW, account=OTHER)
    harness.step(NOW)
    harness.send(accepted_ns=NOW, account=ONE, deadline_ns=NOW + 5)
    slot = harness.send(accepted_ns=NOW, account=ONE)
    harness.step(NOW)
    harness.clients[0].lane.cancel(slot)
    harness.clients[0].lane.submit()
    harness.step(NOW + 9)
    send(harness, 3, ONE, lane=1)
    harness.step(NOW + 10)
    assert len(refused(harness, 1)) == 1


def test_requests_of_a_dead_worker_are_in_flight_until_they_are_answered() -> None:
    harness = limited(AccountLimits(in_flight=1))
    send(harness, 1, ONE)
    harness.step(NOW)
    worker = harness.workers[0]
    worker.write(worker.task())
    harness.dies(0, NOW)
    send(harness, 2, ONE, lane=1)
    harness.step(NOW)
    assert len(refused(harness, 1)) == 1


def test_another_collector_counts_requests_in_flight() -> None:
    harness = limited(AccountLimits(in_flight=2))
    send(harness, 1, OTHER)
    harness.step(NOW)
    send(harness, 1, ONE)
    harness.step(NOW)
    harness.collectors = NOW // 1000
    later = harness.new_collector(LimitTable(AccountLimits(in_flight=1)))
    later.step(NOW)
    send(harness, 1, ONE, lane=1)
    send(harness, 1, OTHER, lane=1)
    later.step(NOW)
    assert len(refused(harness, 1)) == 2


def test_further_parts_of_a_request_count_with_the_first() -> None:
    harness = limited(AccountLimits(in_flight=1, requests_per_s=1))
    lane = harness.clients[0].lane
    for number in range(3):
        slot = lane.claim(1, 1024, 0)
        assert slot is not None
        lane.publish(slot, 0, 1, NOW, NOW + SECOND_NS, 1, 0, ONE)
        if number:
            lane.count_no_more(slot)
    lane.submit()
    harness.step(NOW)
    assert finish(harness, NOW) == 3
    assert not refused(harness)
    send(harness, 1, ONE)
    harness.step(NOW)
    assert len(refused(harness)) == 1


def test_without_limits_the_gate_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("admit", "leave", "charge"):
        monkeypatch.setattr(AccountGate, name, None)
    harness = limited(AccountLimits())
    send(harness, 6, ONE)
    send(harness, 6, OTHER, lane=1)
    harness.step(NOW)
    assert finish(harness, NOW) == 12
    monkeypatch.undo()
    assert not refused(harness)


def test_a_text_that_is_no_refusal_is_read_as_one_without_details() -> None:
    for text in ("", "7", "slow down", "7s slow"):
        error = error_of(Status.LIMITED, text)
        assert isinstance(error, LimitReached)
        assert (str(error), error.retry_after_s) == (text, 1)
