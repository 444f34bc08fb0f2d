"""What the collector does when workers die, frontends lie, or it is a dead one's successor."""

from collections.abc import Callable, Iterator

import pytest
from rig import Reply
from simulation.mutants import Late
from stand import LATENCY, Stand, eager, fixed

from ringbatch.engine.collector.collector import MAX_DEATHS, Collector
from ringbatch.shm import layout as at
from ringbatch.shm.engine_port import EnginePort
from ringbatch.shm.layout import WORD
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, Reason, State, Status, reference


def test_a_dead_workers_requests_run_again_each_alone_and_before_others() -> None:
    stand = Stand(eager(workers=(0, 1)))
    stand.workers[0].ready()
    stand.step(0)
    slots = [stand.send(n) for n in range(3)]
    stand.step(1)
    assert stand.running(0) == [0, 1, 2]
    stand.send(3)
    stand.step(2)
    stand.dies(0, 3)
    stand.workers[1].ready()
    order = []
    for now_ns in range(4, 8):
        stand.step(now_ns)
        task = stand.workers[1].task()
        order.append((stand.payloads(task), task.mark.reason))
        stand.workers[1].finish(task)
    retry = Reason.RETRY
    assert order == [([0], retry), ([1], retry), ([2], retry), ([3], Reason.IDLE)]
    stand.step(9)
    assert set(stand.clients[0].collect()) >= set(slots)
    assert stand.model().retried == 3
    assert stand.status().collector["worker_deaths"] == 1


def test_what_a_dead_worker_was_to_go_on_with_runs_again_as_it_was() -> None:
    stand = Stand(eager()).begin().measure()
    slots = [stand.send(number) for number in range(8)]
    stand.step(1)
    for now_ns in (2, 3):
        assert stand.running()[0] == 0
        stand.workers[0].tasks()
        stand.dies(0, now_ns)
        stand.workers[0].ready()
        stand.step(now_ns)
    runs = []
    while tasks := stand.workers[0].tasks():
        for task in tasks:
            runs.append(stand.payloads(task))
            stand.workers[0].finish(task)
        stand.step(4)
    assert [4, 5, 6, 7] in runs, "nobody had died of these"
    replies = stand.clients[0].collect()
    died = [slot for slot in slots if replies[slot].answer.status is Status.WORKER_DIED]
    assert died == slots[:1], "only the first was alone with a worker that died"
    assert stand.all_free()


def test_a_worker_that_dies_with_the_first_of_two_batches_answered_died_of_the_second() -> None:
    stand = Stand(eager()).begin().measure()
    for number in range(8):
        stand.send(number)
    stand.step(1)
    first, _ = stand.workers[0].tasks()
    stand.workers[0].finish(first)
    stand.dies(0, 2)
    stand.workers[0].ready()
    assert len(stand.clients[0].collect()) == 4
    stand.step(3)
    assert stand.running() == [4], "each alone, as one of these is to blame"


def test_a_hung_worker_gets_nothing_to_go_on_with() -> None:
    stand = Stand(eager(batch_timeout_ns=100)).begin().measure()
    stand.send(0)
    stand.step(0)
    stand.step(100)
    assert stand.ended == [0]
    stand.workers[0].tasks()
    for number in range(4):
        stand.send(number)
    stand.step(101)
    assert stand.workers[0].tasks() == []


def test_a_request_that_kills_again_and_again_fails_in_words_and_the_others_do_not() -> None:
    stand = Stand(eager()).begin()
    slots = [stand.send(n) for n in range(2)]
    runs = 0
    replies: dict[int, Reply] = {}
    for now_ns in range(1, 20):
        stand.step(now_ns)
        for task in stand.workers[0].tasks():
            if 0 in stand.payloads(task):
                runs += 1
                stand.dies(0, now_ns)
                stand.workers[0].ready()
            else:
                stand.workers[0].finish(task)
        replies |= stand.clients[0].collect()
    assert runs == MAX_DEATHS
    assert replies[slots[0]].answer.status is Status.WORKER_DIED
    assert b"so did a second one" in replies[slots[0]].data
    assert replies[slots[1]].data == b"done"
    assert stand.all_free()


HUNG = 1_000
"""How long a batch may run, in nanoseconds, where it is limited."""


def test_a_worker_that_runs_one_batch_too_long_is_ended_once() -> None:
    stand = Stand(eager(batch_timeout_ns=HUNG)).begin()
    stand.send(0)
    assert stand.step(5) == 5 + HUNG
    for now_ns in (6, 5 + HUNG - 1):
        assert stand.step(now_ns) == 5 + HUNG
    assert stand.ended == []
    for now_ns in (5 + HUNG, 5 + HUNG + 1):
        assert stand.step(now_ns) is None
    assert stand.ended == [0]
    assert stand.status().collector["workers_hung"] == 1


def test_the_time_of_a_batch_counts_from_its_dispatch() -> None:
    stand = Stand(eager(batch_timeout_ns=HUNG)).begin()
    stand.send(0)
    stand.step(5)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(6)
    assert stand.step(10 * HUNG) is None
    stand.send(1)
    assert stand.step(20 * HUNG) == 21 * HUNG
    assert stand.ended == []


def test_the_requests_of_an_ended_worker_run_again_after_its_death_and_not_before() -> None:
    stand = Stand(eager(workers=(0, 1), batch_timeout_ns=HUNG))
    stand.workers[0].ready()
    stand.step(0)
    slots = [stand.send(n) for n in range(2)]
    stand.step(1)
    stand.workers[1].ready()
    stand.step(1 + HUNG)
    assert stand.ended == [0]
    assert stand.workers[1].tasks() == []
    stand.dies(0, 2 + HUNG)
    for now_ns in (3 + HUNG, 4 + HUNG):
        stand.step(now_ns)
        stand.workers[1].finish(stand.workers[1].task())
    stand.step(5 + HUNG)
    assert set(stand.clients[0].collect()) == set(slots)
    assert stand.all_free()


def test_what_an_ended_worker_still_answers_counts_but_it_gets_nothing_more() -> None:
    stand = Stand(eager(batch_timeout_ns=HUNG)).begin()
    first = stand.send(0)
    stand.step(1)
    stand.step(1 + HUNG)
    assert stand.ended == [0]
    stand.workers[0].finish(stand.workers[0].task())
    second = stand.send(1)
    stand.step(2 + HUNG)
    assert set(stand.clients[0].collect()) == {first}
    assert stand.workers[0].tasks() == []
    stand.dies(0, 3 + HUNG)
    stand.workers[0].ready()
    for now_ns in (4 + HUNG, 6 + HUNG):
        stand.step(now_ns)
        stand.workers[0].finish(stand.workers[0].task())
        stand.step(now_ns + 1)
        assert set(stand.clients[0].collect()) == {second}
        second = stand.send(2)


def test_a_request_that_waits_for_another_run_expires_when_no_worker_comes() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0, deadline_ns=500)
    stand.step(1)
    stand.dies(0, 2)
    assert stand.step(3) == 500
    assert stand.step(500) is None
    assert stand.clients[0].collect()[slot].answer.status is Status.EXPIRED
    assert stand.collector.in_flight == 0


def test_a_request_cancelled_while_it_waits_for_another_run_is_not_run() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    stand.workers[0].tasks()
    stand.clients[0].lane.cancel(slot)
    stand.dies(0, 2)
    stand.workers[0].ready()
    stand.step(3)
    assert stand.workers[0].tasks() == []
    assert stand.clients[0].collect() == {}
    assert stand.all_free()


def test_answers_a_dead_worker_wrote_and_did_not_announce_are_delivered_and_not_run_again() -> None:
    stand = Stand(eager()).begin()
    slots = [stand.send(n) for n in range(3)]
    stand.step(1)
    task = stand.workers[0].task()
    first = task._replace(references=task.references[:2])
    stand.workers[0].write(first, b"before death")
    assert stand.clients[0].collect() == {}
    stand.dies(0, 2)
    stand.step(3)
    assert stand.lane_wakes == [0]
    replies = stand.clients[0].collect()
    assert {slot: reply.data for slot, reply in replies.items()} == dict.fromkeys(
        slots[:2], b"before death"
    )
    stand.step(4)
    assert stand.clients[0].collect() == {}, "announced once"
    stand.workers[0].ready()
    stand.step(5)
    assert stand.running() == [2]


def test_answers_a_dead_worker_announced_but_did_not_report_are_delivered_once() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    stand.workers[0].write(stand.workers[0].task())
    stand.workers[0].port.flush()
    stand.dies(0, 2)
    stand.step(3)
    assert list(stand.clients[0].collect()) == [slot]
    assert stand.status().frontends["late_answers"] == 1
    assert stand.clients[0].collect() == {}
    assert stand.all_free()


def test_what_a_dead_worker_reported_last_still_counts() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    stand.workers[0].finish(stand.workers[0].task())
    stand.dies(0, 2)
    stand.step(3)
    assert list(stand.clients[0].collect()) == [slot]
    assert stand.model().retried == 0
    stand.send(1)
    stand.step(4)
    assert stand.workers[0].tasks() == [], "nothing is handed to the dead"


def test_a_worker_that_dies_before_it_was_ready_changes_nothing() -> None:
    stand = Stand(eager())
    stand.dies(0, 1)
    assert stand.ready_word() == 0
    stand.workers[0].ready()
    stand.step(2)
    assert stand.ready_word() == 1


def test_a_report_of_a_batch_the_worker_does_not_hold_is_ignored() -> None:
    stand = Stand(eager()).begin()
    stand.workers[0].say_done(12345)
    stand.send(0)
    stand.step(1)
    task = stand.workers[0].task()
    stand.workers[0].say_done(task.mark.batch + 1)
    stand.send(1)
    stand.step(2)
    assert stand.workers[0].tasks() == []
    assert stand.collector.in_flight == 2


def test_once_served_a_model_stays_served_also_to_the_next_collector() -> None:
    """Requests for it wait for the next worker, and are refused only before the first."""
    stand = Stand(eager())
    assert stand.served_word() == 0
    stand.workers[0].ready()
    stand.step(1)
    assert stand.served_word() == 1
    stand.dies(0, 2)
    stand.new_collector()
    assert (stand.ready_word(), stand.served_word()) == (0, 1)


def test_ready_words_count_the_workers_that_take_batches() -> None:
    stand = Stand(eager(workers=(0, 2)), eager(index=1, name="n", workers=(1,)))
    counts = [(stand.ready_word(0), stand.ready_word(1))]
    for worker in (0, 1, 2):
        stand.workers[worker].ready()
        stand.step(worker)
        counts.append((stand.ready_word(0), stand.ready_word(1)))
    for worker in (2, 1):
        stand.dies(worker, 9)
        counts.append((stand.ready_word(0), stand.ready_word(1)))
    assert counts == [(0, 0), (1, 0), (1, 1), (2, 1), (1, 1), (1, 0)]


def test_a_request_over_the_cap_is_refused_in_words() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0, rows=5)
    stand.step(1)
    reply = stand.clients[0].collect()[slot]
    assert (reply.answer.status, reply.data) == (
        Status.INVALID,
        b"a request may hold 4 instances",
    )


def test_a_reference_announced_twice_is_run_and_answered_once() -> None:
    stand = Stand(fixed()).begin()
    slot = stand.send(0)
    ref = reference(1, slot)
    stand.submit_words(ref, ref)
    stand.step(1)
    stand.submit_words(ref)
    stand.step(LATENCY)
    task = stand.workers[0].task()
    assert task.references == [ref]
    stand.submit_words(ref)
    stand.step(LATENCY + 1)
    stand.workers[0].finish(task)
    stand.submit_words(ref)
    stand.step(LATENCY + 2)
    stand.step(3 * LATENCY)
    assert list(stand.clients[0].collect()) == [slot]
    assert stand.workers[0].tasks() == []
    assert stand.collector.in_flight == 0


FOREIGN: dict[str, Callable[[int], int]] = {
    "another-lanes-slot": lambda slot: reference(1, 64 + slot),
    "no-lanes-slot": lambda slot: reference(1, 500),
    "the-last-number-there-is": lambda slot: 2**64 - 1,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_reference_outside_its_own_lane_is_counted_and_does_nothing(
    make: Callable[[int], int],
) -> None:
    stand = Stand(fixed()).begin()
    slot = stand.send(0, lane=1)
    stand.submit_words(make(slot), lane=0)
    stand.step(1)
    assert stand.status().collector["corrupt_slots"] == 1
    assert stand.collector.in_flight == 1
    stand.step(LATENCY)
    assert stand.running() == [0]


@pytest.mark.parametrize("generation", [0, 2, (1 << 40) - 1])
def test_a_reference_of_another_generation_is_ignored(generation: int) -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.submit_words(reference(generation, slot))
    stand.step(1)
    assert len(stand.workers[0].task().references) == 1
    assert stand.collector.in_flight == 1


SPOILT = {
    "rows-zero": (at.ROWS, 0),
    "no-such-model": (at.MODEL, 7),
    "payload-outside-the-lane": (at.REQUEST_OFFSET, 64),
    "payload-end-overflows": (at.REQUEST_OFFSET, 2**64 - 8),
    "result-outside-the-lane": (at.RESULT_OFFSET, 64),
    "key-longer-than-the-payload": (at.KEY_BYTES, 999),
}


@pytest.mark.parametrize(("field", "value"), SPOILT.values(), ids=SPOILT.keys())
def test_a_slot_whose_words_make_no_sense_is_answered_counted_and_harms_nobody(
    field: int, value: int
) -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0, lane=1)
    stand.segment.words[(stand.segment.layout.slot(64 + slot) + field) // WORD] = value
    good = stand.send(5)
    stand.step(1)
    assert stand.clients[1].collect()[slot].answer.status is Status.CORRUPT
    assert stand.status().collector["corrupt_slots"] == 1
    assert stand.running() == [5]
    assert stand.collector.in_flight == 1
    assert good in range(64)


@pytest.mark.parametrize("claimed", [-1, 65, 1 << 60])
def test_a_ring_that_claims_the_impossible_is_skipped_counted_and_harms_nobody(
    claimed: int,
) -> None:
    stand = Stand(eager()).begin()
    stand.send(0, lane=1)
    stand.step(1)
    stand.workers[0].finish(stand.workers[0].task())
    tail = stand.segment.layout.submission_ring(1) // WORD
    stand.segment.words[tail] = (1 + claimed) % (1 << 64)
    stand.send(5)
    stand.step(2)
    assert stand.status().collector["corrupt_rings"] == 1
    assert stand.running() == [5]


TIMES = {
    "accepted-after-the-clock-was-read": 101,
    "accepted-in-the-far-future": 2**64 - 1,
    "accepted-at-the-beginning-of-time": 0,
}


@pytest.mark.parametrize("accepted_ns", TIMES.values(), ids=TIMES.keys())
def test_no_time_of_acceptance_stops_the_collector_or_makes_others_wait(accepted_ns: int) -> None:
    now_ns = 10**15
    stand = Stand(fixed(timeout_ns=10**9)).begin()
    liar = stand.send(0, lane=1, accepted_ns=accepted_ns + (now_ns if accepted_ns == 101 else 0))
    stand.send(1, accepted_ns=now_ns)
    until_ns = stand.step(now_ns)
    assert until_ns is None or until_ns <= now_ns + LATENCY
    stand.step(now_ns + LATENCY)
    assert sorted(n for task in stand.workers[0].tasks() for n in stand.payloads(task)) == [0, 1]
    assert 0 <= stand.model().wait_ms <= 1000
    assert liar in range(64)


def test_a_slot_used_again_while_the_collector_holds_it_harms_its_own_lane_only() -> None:
    """No lane's owner does that; whoever writes its words by hand can."""
    stand = Stand(fixed()).begin()
    slot = stand.send(0, lane=1)
    stand.send(1)
    stand.step(1)
    stand.segment.words[stand.segment.layout.slot(64 + slot) // WORD] = 2 << FLAG_BITS | 1
    stand.submit_words(reference(2, 64 + slot), lane=1)
    stand.step(2)
    stand.step(LATENCY)
    task = stand.workers[0].task()
    assert [ref >> SLOT_BITS for ref in task.references] == [1, 2]
    stand.workers[0].finish(task)
    stand.step(LATENCY + 1)
    assert len(stand.clients[0].collect()) == 1
    assert stand.collector.in_flight == 0


@pytest.fixture
def while_looking(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A collector has looked at all slots, and before it does anything else a request comes."""
    stand = Stand(eager()).begin()
    look = EnginePort.published

    def published(port: EnginePort) -> Iterator[tuple[int, State]]:
        yield from look(port)
        stand.send(1)

    monkeypatch.setattr(EnginePort, "published", published)
    return stand


def test_what_comes_while_a_new_collector_looks_at_the_slots_is_run(while_looking: Stand) -> None:
    while_looking.new_collector()
    while_looking.step(2_000)
    assert while_looking.running(0) == [1]


def test_a_collector_that_empties_the_rings_last_is_found_out(while_looking: Stand) -> None:
    with Late(Collector, "_adopt", "self._submissions.skip()", "self._adopt_slots()").applied():
        while_looking.new_collector()
    while_looking.step(2_000)
    assert while_looking.workers[0].tasks() == []
