"""The backlog that the collector publishes, and the requests that it drops or puts off by it."""

from dataclasses import replace
from typing import Any

from collector_harness import CollectorHarness, eager

from ringbatch.engine.collector.backlog import STANDING_NS
from ringbatch.shm.account import EVERY_BIT
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.lateness import read_overload
from ringbatch.shm.slot import Status

CYCLE = 100


def backlog(harness: CollectorHarness) -> tuple[int, int]:
    """The published time to an answer, and what each further instance adds."""
    first = harness.segment.layout.model(0)
    words = harness.segment.words
    return words[first + ModelWords.ANSWER_NS], words[first + ModelWords.ROW_NS]


def busy_harness(requests: int, **limits: Any) -> CollectorHarness:
    """A model whose batches take `CYCLE`, with a batch of one under way since the instant 1000 and
    more requests waiting."""
    harness = CollectorHarness(eager(max_batch_size=2)).begin()
    harness.send(100)
    harness.step(0)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(CYCLE)
    harness.send(101)
    harness.step(1000)
    for number in range(requests):
        harness.send(number, **limits)
    harness.step(1001)
    harness.clients[0].collect()
    return harness


def test_the_backlog_is_published_and_withdrawn() -> None:
    harness = CollectorHarness(eager(max_batch_size=2)).begin()
    assert backlog(harness) == (0, 0)
    for waiting, answer in ((0, 2), (1, 2), (2, 3), (5, 4)):
        assert backlog(busy_harness(waiting)) == (answer * CYCLE, CYCLE // 2)
    harness = busy_harness(1)
    for now_ns in (1100, 1200):
        harness.workers[0].finish(harness.workers[0].task())
        harness.step(now_ns)
    assert backlog(harness) == (0, CYCLE // 2)


def test_a_batch_of_which_nothing_was_run_says_nothing_of_how_long_batches_take() -> None:
    harness = busy_harness(0)
    batch = harness.workers[0].task().mark.batch
    before = backlog(harness)
    harness.workers[0].say_dropped(batch, expired=0, cancelled=1)
    harness.workers[0].say_done(batch)
    harness.step(1001)
    assert backlog(harness) == (0, before[1])


def test_one_stalled_batch_refuses_nobody_and_a_slow_model_does() -> None:
    """Frontends refuse by the published backlog."""
    harness, now_ns = busy_harness(0), 1000
    stall_ns = 1000 * CYCLE
    for took_ns, most in ((stall_ns, 2), (CYCLE, 2), (CYCLE, 2)):
        harness.workers[0].finish(harness.workers[0].task())
        now_ns += took_ns
        harness.step(now_ns)
        harness.send(1)
        harness.step(now_ns)
        assert backlog(harness)[0] <= 2 * most * CYCLE
    for _ in range(2):
        harness.workers[0].finish(harness.workers[0].task())
        now_ns += stall_ns
        harness.step(now_ns)
        harness.send(1)
        harness.step(now_ns)
    assert backlog(harness)[0] >= 2 * stall_ns // 8


def test_under_load_a_request_that_would_be_late_gets_no_place() -> None:
    harness = busy_harness(0)
    late = [harness.send(n, deadline_ns=1150) for n in (0, 1)]
    for number in (7, 8):
        harness.send(number)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(1100)
    assert harness.running() == [7, 8]
    replies = harness.clients[0].collect()
    assert [replies[slot].answer.status for slot in late] == [Status.EXPIRED] * 2
    assert harness.model().dropped == 2


def test_an_idle_worker_would_be_in_time_where_a_busy_one_would_not() -> None:
    harness = busy_harness(0)
    harness.workers[0].finish(harness.workers[0].task())
    for number in range(4):
        harness.send(number, deadline_ns=1150)
    harness.step(1040)
    assert harness.running() == [0, 1]


def test_with_little_load_even_a_request_that_may_be_late_runs() -> None:
    harness = busy_harness(2, deadline_ns=1150)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(1100)
    assert harness.running() == [0, 1]


def test_a_first_slow_batch_does_not_keep_everything_after_it_from_running() -> None:
    harness = CollectorHarness(eager(max_batch_size=2)).begin()
    harness.send(0)
    harness.step(0)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(10**9)
    for turn in range(3):
        now_ns = 10**9 + 10 * turn
        for number in range(6):
            harness.send(number, deadline_ns=now_ns + 1000)
        harness.step(now_ns)
        for task in harness.workers[0].tasks():
            harness.workers[0].finish(task)
        harness.step(now_ns + 5)
        harness.clients[0].collect()
    harness.send(9, deadline_ns=10**9 + 2000)
    harness.step(10**9 + 100)
    assert harness.running() == [9]


FLOODER, POLITE = 7, 8
PUBLISHED = ModelWords.ACCOUNT, ModelWords.LEAST_NS


def published(harness: CollectorHarness) -> tuple[int, int]:
    """Return the account that owns all waiting requests, and the least time to an answer."""
    first = harness.segment.layout.model(0)
    account, least_ns = (harness.segment.words[first + word] for word in PUBLISHED)
    return account, least_ns


def outcomes(harness: CollectorHarness, lane: int = 0) -> dict[int, Status]:
    return {slot: reply.answer.status for slot, reply in harness.clients[lane].collect().items()}


def test_the_flooding_account_and_the_wait_of_others_are_published() -> None:
    harness = busy_harness(20, account=FLOODER)
    assert backlog(harness)[0] == 12 * CYCLE
    assert published(harness) == (FLOODER, 3 * CYCLE)
    harness.send(1, lane=1, account=POLITE)
    harness.step(1002)
    assert published(harness) == (EVERY_BIT, 3 * CYCLE)
    for now_ns in (1100, 1200):
        harness.workers[0].finish(harness.workers[0].task())
        harness.step(now_ns)
    assert published(harness) == (FLOODER, 3 * CYCLE)


def test_a_polite_account_is_in_time_where_a_flood_is_late() -> None:
    harness = busy_harness(20, account=FLOODER)
    polite = harness.send(1, lane=1, account=POLITE, deadline_ns=1001 + 4 * CYCLE)
    harness.step(1001)
    late = harness.send(2, account=FLOODER, deadline_ns=1001 + 4 * CYCLE)
    patient = harness.send(3, account=FLOODER)
    harness.step(1001)
    replies = harness.clients[0].collect()
    assert replies.keys() == {late}
    assert replies[late].answer.status is Status.OVERLOADED
    refused = read_overload(replies[late].data.decode())
    assert "would take" in str(refused)
    now_ns = 1001
    while tasks := harness.workers[0].tasks():
        for task in tasks:
            harness.workers[0].finish(task)
        now_ns += len(tasks) * CYCLE
        harness.step(now_ns)
    assert outcomes(harness, lane=1) == {polite: Status.OK}
    assert outcomes(harness)[patient] is Status.OK
    assert harness.model().requests == 2 + 20 + 3


def test_of_many_at_once_each_is_looked_at_where_one_may_be_late() -> None:
    for accounts in ((FLOODER,), (FLOODER, POLITE)):
        harness = busy_harness(6, account=POLITE)
        for number in range(8):
            harness.send(
                number, account=accounts[number % len(accounts)], deadline_ns=1001 + 6 * CYCLE
            )
        harness.step(1001)
        refused = outcomes(harness)
        assert set(refused.values()) == {Status.OVERLOADED}
        assert 0 < len(refused) < 8


def test_a_request_that_came_too_late_expires_and_is_not_refused() -> None:
    harness = busy_harness(20, account=FLOODER)
    harness.send(1, lane=1, account=POLITE, deadline_ns=900)
    harness.step(1001)
    assert [*outcomes(harness, lane=1).values()] == [Status.EXPIRED]


def test_the_requests_of_one_account_are_left_to_the_frontends() -> None:
    harness = busy_harness(20, account=FLOODER)
    harness.send(1, account=FLOODER, deadline_ns=1001 + 3 * CYCLE)
    harness.step(1001)
    assert outcomes(harness) == {}


BOUND = 6 * CYCLE


def standing_harness(most_ns: int = BOUND) -> CollectorHarness:
    """Return a harness with a standing queue, for a model whose queue wait is bounded."""
    bounded = replace(eager(max_batch_size=2), max_queue_wait_ns=most_ns)
    harness = CollectorHarness(bounded).begin()
    harness.measure(CYCLE)
    for number in range(20):
        harness.send(number, account=FLOODER)
    harness.step(1001)
    return harness


def most_ns(harness: CollectorHarness) -> int:
    word: int = harness.segment.words[harness.segment.layout.model(0) + ModelWords.MOST_NS]
    return word


def test_a_wait_is_bounded_once_the_queue_stands_and_until_it_is_empty() -> None:
    harness = standing_harness()
    assert most_ns(harness) == 0, "a burst is taken"
    now_ns = 1001 + STANDING_NS
    harness.send(1, account=FLOODER)
    harness.step(now_ns - 1)
    assert most_ns(harness) == 0
    harness.send(1, account=FLOODER)
    harness.step(now_ns)
    assert most_ns(harness) == BOUND
    while tasks := harness.workers[0].tasks():
        for task in tasks:
            harness.workers[0].finish(task)
        now_ns += CYCLE
        harness.step(now_ns)
    assert most_ns(harness) == 0


def test_a_bound_leaves_the_worker_its_next_batch() -> None:
    harness = standing_harness(1)
    harness.send(1, account=FLOODER)
    harness.step(1001 + STANDING_NS)
    assert most_ns(harness) == 3 * CYCLE + 3 * CYCLE // 8
    harness.send(2, lane=1, account=POLITE)
    harness.step(1001 + STANDING_NS)
    harness.clients[0].collect()
    late = harness.send(3, account=FLOODER)
    harness.step(1001 + STANDING_NS)
    refused = read_overload(harness.clients[0].collect()[late].data.decode())
    assert str(refused).endswith("too long for max_queue_wait_s = 1e-09")


def test_without_a_bound_a_queue_may_stand() -> None:
    harness = standing_harness(0)
    harness.send(1, account=FLOODER)
    harness.step(1001 + 2 * STANDING_NS)
    assert most_ns(harness) == 0


def test_an_account_is_held_to_the_bound_by_its_own_turn() -> None:
    harness = standing_harness()
    harness.send(1, lane=1, account=POLITE)
    now_ns = 1001 + STANDING_NS
    harness.step(now_ns)
    assert most_ns(harness) == BOUND
    polite = harness.send(2, lane=1, account=POLITE)
    flooder = harness.send(2, account=FLOODER)
    harness.step(now_ns)
    assert outcomes(harness) == {flooder: Status.OVERLOADED}
    assert polite not in outcomes(harness, lane=1)
