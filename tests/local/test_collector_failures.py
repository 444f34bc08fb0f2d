"""Collector failures: dying workers, lying frontends, and work taken over from a dead collector."""

from collections.abc import Iterator

import pytest
from collector_harness import LATENCY, CollectorHarness, eager, fixed
from segment_fixture import Reply
from simulation.mutation import Late

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.dead_batches import MAX_DEATHS
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.slot import Reason, State, Status, reference


def test_a_dead_workers_requests_run_again_each_alone_and_before_others() -> None:
    harness = CollectorHarness(eager(workers=(0, 1)))
    harness.workers[0].ready()
    harness.step(0)
    slots = [harness.send(n) for n in range(3)]
    harness.step(1)
    assert harness.running(0) == [0, 1, 2]
    harness.send(3)
    harness.step(2)
    harness.dies(0, 3)
    harness.workers[1].ready()
    order = []
    for now_ns in range(4, 8):
        harness.step(now_ns)
        task = harness.workers[1].task()
        order.append((harness.payloads(task), task.mark.reason))
        harness.workers[1].finish(task)
    retry = Reason.RETRY
    assert order == [([0], retry), ([1], retry), ([2], retry), ([3], Reason.IDLE)]
    harness.step(9)
    assert set(harness.clients[0].collect()) >= set(slots)
    assert harness.model().retried == 3
    assert harness.status().collector["worker_deaths"] == 1


def test_a_dead_workers_next_batch_runs_again_unchanged() -> None:
    harness = CollectorHarness(eager()).begin().measure()
    slots = [harness.send(number) for number in range(8)]
    harness.step(1)
    for now_ns in (2, 3):
        assert harness.running()[0] == 0
        harness.workers[0].tasks()
        harness.dies(0, now_ns)
        harness.workers[0].ready()
        harness.step(now_ns)
    runs = []
    while tasks := harness.workers[0].tasks():
        for task in tasks:
            runs.append(harness.payloads(task))
            harness.workers[0].finish(task)
        harness.step(4)
    assert [4, 5, 6, 7] in runs, "nobody had died of these"
    replies = harness.clients[0].collect()
    died = [slot for slot in slots if replies[slot].answer.status is Status.WORKER_DIED]
    assert died == slots[:1], "only the first was alone with a worker that died"
    assert harness.all_free()


def test_a_worker_that_dies_with_the_first_of_two_batches_answered_died_of_the_second() -> None:
    harness = CollectorHarness(eager()).begin().measure()
    for number in range(8):
        harness.send(number)
    harness.step(1)
    first, _ = harness.workers[0].tasks()
    harness.workers[0].finish(first)
    harness.dies(0, 2)
    harness.workers[0].ready()
    assert len(harness.clients[0].collect()) == 4
    harness.step(3)
    assert harness.running() == [4], "each alone, as one of these is to blame"


def test_a_hung_worker_gets_nothing_to_go_on_with() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=100)).begin().measure()
    harness.send(0)
    harness.step(0)
    harness.step(100)
    assert harness.ended == [0]
    harness.workers[0].tasks()
    for number in range(4):
        harness.send(number)
    harness.step(101)
    assert harness.workers[0].tasks() == []


def test_a_request_that_kills_again_and_again_fails_in_words_and_the_others_do_not() -> None:
    harness = CollectorHarness(eager()).begin()
    slots = [harness.send(n) for n in range(2)]
    runs = 0
    replies: dict[int, Reply] = {}
    for now_ns in range(1, 20):
        harness.step(now_ns)
        for task in harness.workers[0].tasks():
            if 0 in harness.payloads(task):
                runs += 1
                harness.dies(0, now_ns)
                harness.workers[0].ready()
            else:
                harness.workers[0].finish(task)
        replies |= harness.clients[0].collect()
    assert runs == MAX_DEATHS
    assert replies[slots[0]].answer.status is Status.WORKER_DIED
    assert b"so did a second one" in replies[slots[0]].data
    assert replies[slots[1]].data == b"done"
    assert harness.all_free()


HUNG = 1_000
"""Limit of a batch's run in nanoseconds, for tests that set one."""


def test_a_worker_that_runs_one_batch_too_long_is_ended_once() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=HUNG)).begin()
    harness.send(0)
    assert harness.step(5) == 5 + HUNG
    for now_ns in (6, 5 + HUNG - 1):
        assert harness.step(now_ns) == 5 + HUNG
    assert harness.ended == []
    for now_ns in (5 + HUNG, 5 + HUNG + 1):
        assert harness.step(now_ns) is None
    assert harness.ended == [0]
    assert harness.status().collector["workers_hung"] == 1


def test_the_time_of_a_batch_counts_from_its_dispatch() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=HUNG)).begin()
    harness.send(0)
    harness.step(5)
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(6)
    assert harness.step(10 * HUNG) is None
    harness.send(1)
    assert harness.step(20 * HUNG) == 21 * HUNG
    assert harness.ended == []


def test_the_requests_of_an_ended_worker_run_again_after_its_death_and_not_before() -> None:
    harness = CollectorHarness(eager(workers=(0, 1), batch_timeout_ns=HUNG))
    harness.workers[0].ready()
    harness.step(0)
    slots = [harness.send(n) for n in range(2)]
    harness.step(1)
    harness.workers[1].ready()
    harness.step(1 + HUNG)
    assert harness.ended == [0]
    assert harness.workers[1].tasks() == []
    harness.dies(0, 2 + HUNG)
    for now_ns in (3 + HUNG, 4 + HUNG):
        harness.step(now_ns)
        harness.workers[1].finish(harness.workers[1].task())
    harness.step(5 + HUNG)
    assert set(harness.clients[0].collect()) == set(slots)
    assert harness.all_free()


def test_a_hung_workers_answers_count_but_it_gets_no_more_batches() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=HUNG)).begin()
    first = harness.send(0)
    harness.step(1)
    harness.step(1 + HUNG)
    assert harness.ended == [0]
    harness.workers[0].finish(harness.workers[0].task())
    second = harness.send(1)
    harness.step(2 + HUNG)
    assert set(harness.clients[0].collect()) == {first}
    assert harness.workers[0].tasks() == []
    harness.dies(0, 3 + HUNG)
    harness.workers[0].ready()
    for now_ns in (4 + HUNG, 6 + HUNG):
        harness.step(now_ns)
        harness.workers[0].finish(harness.workers[0].task())
        harness.step(now_ns + 1)
        assert set(harness.clients[0].collect()) == {second}
        second = harness.send(2)


def test_a_request_that_waits_for_another_run_expires_when_no_worker_comes() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0, deadline_ns=500)
    harness.step(1)
    harness.dies(0, 2)
    assert harness.step(3) == 500
    assert harness.step(500) is None
    assert harness.clients[0].collect()[slot].answer.status is Status.EXPIRED
    assert harness.collector.in_flight == 0


def test_a_request_cancelled_while_it_waits_for_another_run_is_not_run() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    harness.workers[0].tasks()
    harness.clients[0].lane.cancel(slot)
    harness.dies(0, 2)
    harness.workers[0].ready()
    harness.step(3)
    assert harness.workers[0].tasks() == []
    assert harness.clients[0].collect() == {}
    assert harness.all_free()


def test_answers_a_dead_worker_wrote_and_did_not_post_are_delivered_and_not_run_again() -> None:
    harness = CollectorHarness(eager()).begin()
    slots = [harness.send(n) for n in range(3)]
    harness.step(1)
    task = harness.workers[0].task()
    first = task._replace(references=task.references[:2])
    harness.workers[0].write(first, b"before death")
    assert harness.clients[0].collect() == {}
    harness.lane_wakes.clear()
    harness.dies(0, 2)
    harness.step(3)
    assert harness.lane_wakes == [0]
    replies = harness.clients[0].collect()
    assert {slot: reply.data for slot, reply in replies.items()} == dict.fromkeys(
        slots[:2], b"before death"
    )
    harness.step(4)
    assert harness.clients[0].collect() == {}, "posted once"
    harness.workers[0].ready()
    harness.step(5)
    assert harness.running() == [2]


def test_answers_a_dead_worker_posted_but_did_not_report_are_delivered_once() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    harness.workers[0].write(harness.workers[0].task())
    harness.workers[0].engine_slots.flush()
    harness.dies(0, 2)
    harness.step(3)
    assert list(harness.clients[0].collect()) == [slot]
    assert harness.status().frontends["late_answers"] == 1
    assert harness.clients[0].collect() == {}
    assert harness.all_free()


def test_a_dead_workers_last_report_still_counts() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    harness.workers[0].finish(harness.workers[0].task())
    harness.dies(0, 2)
    harness.step(3)
    assert list(harness.clients[0].collect()) == [slot]
    assert harness.model().retried == 0
    harness.send(1)
    harness.step(4)
    assert harness.workers[0].tasks() == [], "nothing is handed to the dead"


def test_a_worker_that_dies_before_it_was_ready_changes_nothing() -> None:
    harness = CollectorHarness(eager())
    harness.dies(0, 1)
    assert harness.ready_word() == 0
    harness.workers[0].ready()
    harness.step(2)
    assert harness.ready_word() == 1


def test_a_report_of_a_batch_the_worker_does_not_hold_is_ignored() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.workers[0].say_done(12345)
    harness.send(0)
    harness.step(1)
    task = harness.workers[0].task()
    harness.workers[0].say_done(task.mark.batch + 1)
    harness.send(1)
    harness.step(2)
    assert harness.workers[0].tasks() == []
    assert harness.collector.in_flight == 2


def test_once_served_a_model_stays_served_also_to_the_next_collector() -> None:
    """Requests for it wait for the next worker, and are refused only before the first."""
    harness = CollectorHarness(eager())
    assert harness.takes_word() == 0
    harness.workers[0].ready()
    harness.step(1)
    assert harness.takes_word() == 1
    harness.dies(0, 2)
    harness.new_collector()
    assert (harness.ready_word(), harness.takes_word()) == (0, 1)


def test_ready_words_count_the_workers_that_take_batches() -> None:
    harness = CollectorHarness(eager(workers=(0, 2)), eager(index=1, name="n", workers=(1,)))
    counts = [(harness.ready_word(0), harness.ready_word(1))]
    for worker in (0, 1, 2):
        harness.workers[worker].ready()
        harness.step(worker)
        counts.append((harness.ready_word(0), harness.ready_word(1)))
    for worker in (2, 1):
        harness.dies(worker, 9)
        counts.append((harness.ready_word(0), harness.ready_word(1)))
    assert counts == [(0, 0), (1, 0), (1, 1), (2, 1), (1, 1), (1, 0)]


def test_a_request_over_the_cap_is_refused_in_words() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0, rows=5)
    harness.step(1)
    reply = harness.clients[0].collect()[slot]
    assert (reply.answer.status, reply.data) == (
        Status.INVALID,
        b"a request may hold 4 instances",
    )


def test_a_reference_submitted_twice_is_run_and_answered_once() -> None:
    harness = CollectorHarness(fixed()).begin()
    slot = harness.send(0)
    ref = reference(1, slot)
    harness.submit_words(ref, ref)
    harness.step(1)
    harness.submit_words(ref)
    harness.step(LATENCY)
    task = harness.workers[0].task()
    assert task.references == [ref]
    harness.submit_words(ref)
    harness.step(LATENCY + 1)
    harness.workers[0].finish(task)
    harness.submit_words(ref)
    harness.step(LATENCY + 2)
    harness.step(3 * LATENCY)
    assert list(harness.clients[0].collect()) == [slot]
    assert harness.workers[0].tasks() == []
    assert harness.collector.in_flight == 0


@pytest.fixture
def while_looking(monkeypatch: pytest.MonkeyPatch) -> CollectorHarness:
    """A collector has looked at all slots, and before it does anything else a request comes."""
    harness = CollectorHarness(eager()).begin()
    look = EngineSlots.published

    def published(engine_slots: EngineSlots) -> Iterator[tuple[int, State]]:
        yield from look(engine_slots)
        harness.send(1)

    monkeypatch.setattr(EngineSlots, "published", published)
    return harness


def test_a_request_that_comes_while_a_new_collector_reads_slots_is_run(
    while_looking: CollectorHarness,
) -> None:
    while_looking.new_collector()
    while_looking.step(2_000)
    assert while_looking.running(0) == [1]


def test_a_collector_that_empties_the_rings_last_is_found_out(
    while_looking: CollectorHarness,
) -> None:
    with Late(Collector, "_adopt", "self._submissions.skip()", "self._adopt_slots()").applied():
        while_looking.new_collector()
    while_looking.step(2_000)
    assert while_looking.workers[0].tasks() == []


def test_requests_for_a_model_without_workers_are_reported_to_the_supervisor() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.dies(0, 0)

    def awaited() -> int:
        words, layout = harness.segment.words, harness.segment.layout
        return int(words[layout.model(0) + ModelWords.AWAITED])

    harness.step(0)
    assert awaited() == 0
    harness.send(1)
    harness.step(1)
    assert awaited() == 1
    harness.workers[0].ready()
    harness.step(2)
    assert awaited() == 0
    harness.dies(0, 3)
    harness.step(4)
    assert awaited() == 1, "what the dead one held waits again"
    harness.new_collector()
    harness.step(5)
    assert awaited() == 1
    harness.step(1 << 62)
    assert awaited() == 0, "it has expired"
