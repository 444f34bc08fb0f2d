"""Takeover by another collector while workers go on: their batches and their readiness."""

from dataclasses import replace
from typing import Any

from collector_harness import CollectorHarness, eager

from ringbatch.engine.collector import takeover
from ringbatch.engine.collector.health import LOOP
from ringbatch.engine.collector.models import NEXT_FROM_NS
from ringbatch.engine.process.role_events import (
    EntryDrained,
    EntryLoaded,
    ModelEvent,
    WorkerReleased,
)
from ringbatch.shm.descriptors import ModelWords, RingWords
from ringbatch.shm.model_spec import LOADING, RETIRING
from ringbatch.shm.slot import Status

TWO = {"workers": (0, 1)}


def test_a_workers_batch_is_left_to_it_and_the_rest_is_taken_over() -> None:
    harness = CollectorHarness(eager()).begin()
    slots = [harness.send(n) for n in range(6)]
    harness.step(1)
    held = harness.workers[0].task()
    assert harness.payloads(held) == [0, 1, 2, 3]
    slots.append(harness.send(6, lane=1) + 64)
    harness.new_collector()
    harness.step(2)
    assert harness.workers[0].tasks() == [], "it is busy"
    harness.workers[0].finish(held)
    seen: list[int] = []
    for now_ns in range(3, 10):
        harness.step(now_ns)
        for task in harness.workers[0].tasks():
            seen += harness.payloads(task)
            harness.workers[0].finish(task)
    assert sorted(seen) == [4, 5, 6]
    assert sorted(harness.clients[0].collect()) == sorted(slots[:6])
    assert len(harness.clients[1].collect()) == 1
    assert harness.collector.in_flight == 0
    assert harness.all_free()


def test_nothing_is_loaded_again() -> None:
    harness = CollectorHarness(eager(**TWO)).begin()
    harness.new_collector()
    assert harness.ready_word() == 2
    harness.send(0)
    harness.step(1)
    assert [len(worker.tasks()) for worker in harness.workers].count(1) == 1


def test_both_batches_of_a_worker_are_its_own() -> None:
    harness = CollectorHarness(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    for number in range(3):
        harness.send(number)
    harness.step(2 * NEXT_FROM_NS)
    first, second = harness.workers[0].tasks()
    harness.new_collector()
    harness.step(2 * NEXT_FROM_NS + 1)
    for task, left in ((first, 2), (second, 1)):
        harness.workers[0].finish(task)
        harness.step(3 * NEXT_FROM_NS)
        assert harness.collector.in_flight == left
    assert harness.running() == [2]


def test_a_batch_that_was_let_go_and_not_reported_is_answered() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    task = harness.workers[0].task()
    harness.workers[0].write(task)
    harness.workers[0].engine_slots.flush()
    harness.workers[0].let_go(task.mark.batch)
    harness.new_collector()
    harness.workers[0].say_done(task.mark.batch)
    harness.send(1)
    harness.step(2)
    assert list(harness.clients[0].collect()) == [slot]
    assert harness.running() == [1], "it is idle once, not twice"
    assert harness.collector.in_flight == 1


def test_an_old_report_ends_no_other_batch() -> None:
    harness = CollectorHarness(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    harness.send(0)
    harness.send(1)
    harness.step(2 * NEXT_FROM_NS)
    first, second = harness.workers[0].tasks()
    harness.workers[0].finish(first)
    harness.new_collector()
    harness.step(3 * NEXT_FROM_NS)
    assert harness.collector.in_flight == 1
    harness.workers[0].finish(second)
    harness.step(3 * NEXT_FROM_NS)
    assert harness.collector.in_flight == 0


def test_numbers_of_batches_never_come_twice() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    old = harness.workers[0].task()
    harness.new_collector()
    harness.workers[0].finish(old)
    harness.send(1)
    harness.step(2)
    assert harness.workers[0].task().mark.batch > old.mark.batch


def test_every_worker_with_a_batch_is_rung_for_it() -> None:
    """The collector before may have died between giving it and ringing."""
    harness = CollectorHarness(eager(**TWO)).begin()
    harness.send(0)
    harness.step(1)
    (busy,) = [worker.number for worker in harness.workers if worker.tasks()]
    harness.worker_wakes.clear()
    harness.new_collector()
    assert harness.worker_wakes == [busy]


def test_an_answered_unposted_request_is_posted() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    task = harness.workers[0].task()
    harness.workers[0].write(task, b"old")
    harness.new_collector()
    harness.step(2)
    assert harness.clients[0].collect()[slot].data == b"old"
    harness.workers[0].engine_slots.flush()
    harness.workers[0].let_go(task.mark.batch)
    harness.workers[0].say_done(task.mark.batch)
    harness.step(3)
    assert harness.clients[0].collect() == {}, "the second time to no effect"
    assert harness.collector.in_flight == 0
    assert harness.all_free()


def test_a_request_cancelled_in_between_is_dropped() -> None:
    harness = CollectorHarness(eager())
    slot = harness.send(0)
    harness.step(1)
    harness.clients[0].lane.cancel(slot)
    harness.new_collector()
    harness.workers[0].ready()
    harness.step(2)
    assert harness.workers[0].tasks() == []
    assert harness.clients[0].collect() == {}
    assert harness.all_free()


def test_a_worker_that_was_busy_can_be_given_a_batch_to_go_on_with() -> None:
    harness = CollectorHarness(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    harness.send(0)
    harness.step(2 * NEXT_FROM_NS)
    held = harness.workers[0].task()
    harness.new_collector()
    harness.workers[0].finish(held)
    harness.send(1)
    harness.send(2)
    harness.step(3 * NEXT_FROM_NS)
    assert [harness.payloads(task) for task in harness.workers[0].tasks()] == [[1], [2]]


def test_a_worker_that_hangs_over_a_takeover_is_ended_all_the_same() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=100)).begin()
    harness.send(0)
    harness.step(1)
    harness.new_collector()
    made_ns = 1000 * harness.collectors
    assert harness.step(made_ns) == made_ns + 100
    harness.step(made_ns + 100)
    assert harness.ended == [0]


# Deaths


def test_a_worker_that_died_without_a_collector_is_reclaimed_by_the_next() -> None:
    harness = CollectorHarness(eager(**TWO)).begin()
    slots = [harness.send(n) for n in range(4)]
    harness.step(1)
    number = next(worker.number for worker in harness.workers if worker.tasks())
    harness.segment.worker_ended(number)
    harness.new_collector()
    assert harness.ready_word() == 1
    harness.step(2)
    assert harness.workers[1 - number].tasks() == [], "it is not known to be dead yet"
    harness.collector.worker_died(number, 3)
    harness.step(3)
    seen = []
    for now_ns in range(4, 9):
        for task in harness.workers[1 - number].tasks():
            seen += harness.payloads(task)
            harness.workers[1 - number].finish(task)
        harness.step(now_ns)
    assert sorted(seen) == [0, 1, 2, 3]
    assert sorted(harness.clients[0].collect()) == sorted(slots)
    assert harness.all_free()


def test_reclaiming_leaves_nothing_for_the_next_worker_or_collector() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    harness.dies(0, 2)
    assert takeover.held_by_all(harness.segment)[0] == []
    harness.new_collector()
    assert harness.ready_word() == 0
    assert harness.collector.in_flight == 0
    harness.step(3)
    harness.workers[0].ready()
    harness.step(4)
    assert harness.running() == [0]


def test_a_dead_worker_is_ready_no_longer_before_it_is_reclaimed_either() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.segment.worker_ended(0)
    harness.new_collector()
    harness.send(0)
    harness.step(1)
    assert harness.ready_word() == 0
    assert harness.workers[0].tasks() == []


def test_one_that_said_it_is_ready_and_died_is_ready_until_it_is_reclaimed() -> None:
    harness = CollectorHarness(eager())
    harness.workers[0].ready()
    harness.segment.worker_ended(0)
    harness.new_collector()
    harness.collector.worker_died(0, 1)
    harness.send(0)
    harness.step(1)
    assert harness.ready_word() == 0
    assert harness.workers[0].tasks() == []


def test_being_ready_is_taken_once_from_the_word_and_the_report() -> None:
    harness = CollectorHarness(eager())
    harness.workers[0].ready()
    harness.new_collector()
    harness.step(1)
    assert harness.ready_word() == 1
    harness.send(0)
    harness.send(1)
    harness.step(2)
    assert len(harness.workers[0].tasks()) == 1


def test_a_request_that_kills_every_worker_does_not_kill_for_ever() -> None:
    """The collectors' deaths, which it has nothing to do with, cost it two workers more each."""
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    deaths = 0
    for now_ns in range(1, 20):
        harness.step(now_ns)
        if harness.workers[0].tasks():
            deaths += 1
            if deaths == 1:
                harness.new_collector()
            harness.dies(0, now_ns)
            harness.workers[0].ready()
    assert deaths <= 3
    assert harness.clients[0].collect()[slot].answer.status is Status.WORKER_DIED


def test_a_crash_loop_is_not_over_because_the_collector_is_another() -> None:
    harness = CollectorHarness(eager()).begin()
    for now_ns in range(LOOP):
        harness.dies(0, now_ns)
    word = harness.segment.layout.model(0) + ModelWords.DEATHS
    assert harness.segment.words[word] == LOOP
    harness.new_collector()
    assert harness.segment.words[word] == LOOP
    harness.dies(0, LOOP)
    assert harness.segment.words[word] == LOOP + 1


# What makes no sense


def test_a_worker_whose_ring_makes_no_sense_is_ended_before_anything_else_is_done() -> None:
    """Nobody can tell which requests it is writing to; those of the others go on."""
    harness = CollectorHarness(eager(max_batch_size=1, **TWO)).begin()
    slots = [harness.send(n) for n in range(3)]
    harness.step(1)
    mad, sane = harness.workers
    running = sane.task()
    head = harness.segment.layout.task_ring(mad.number) + RingWords.HEAD
    harness.segment.words[head] += 1
    harness.new_collector()
    assert harness.ended == [mad.number]
    assert harness.step(2) is None
    sane.finish(running)
    harness.step(3)
    assert sane.tasks() == []
    assert len(harness.clients[0].collect()) == 1
    harness.dies(mad.number, 4)
    for now_ns in range(5, 9):
        harness.step(now_ns)
        for task in sane.tasks():
            sane.finish(task)
    assert len(harness.clients[0].collect()) == len(slots) - 1
    assert harness.all_free()


def test_a_request_whose_words_a_frontend_has_spoilt_meanwhile_stays_its_workers() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    task = harness.workers[0].task()
    harness.segment.words[harness.segment.layout.slot(slot) + 2] = 0
    harness.new_collector()
    harness.step(2)
    assert harness.clients[0].collect() == {}, "the worker answers it"
    harness.workers[0].engine_slots.answer(task.references[0], Status.CORRUPT, 0, task.mark, 0)
    harness.workers[0].engine_slots.flush()
    harness.workers[0].say_done(task.mark.batch)
    harness.step(3)
    assert harness.clients[0].collect()[slot].answer.status is Status.CORRUPT
    assert harness.collector.in_flight == 0


# While the table changes


class Changing(CollectorHarness):
    """A stand with a worker to spare, that keeps what the collector says."""

    def __init__(self, *models: Any) -> None:
        self.news: list[ModelEvent] = []
        super().__init__(*models, spare=3)

    def notify(self, message: ModelEvent) -> None:
        self.news.append(message)


OLD = eager()
NEW = replace(eager(index=1, workers=(1,)), generation=1)


def test_a_model_that_retires_is_drained_once_its_worker_has_answered() -> None:
    harness = Changing(OLD)
    harness.workers[0].ready()
    harness.step(0)
    harness.send(1)
    harness.step(1)
    held = harness.workers[0].task()
    harness.segment.model_table.publish((replace(OLD, state=RETIRING), NEW))
    harness.workers[1].ready(NEW)
    harness.new_collector()
    harness.send(2, model=NEW.reference)
    harness.step(5)
    assert harness.running(1) == [2]
    later_ns = 1 << 40
    harness.step(later_ns)
    assert harness.news == []
    harness.workers[0].finish(held)
    harness.step(later_ns)
    assert harness.news == [EntryDrained(OLD.reference)]


def test_a_loaded_model_is_announced_again() -> None:
    loading = replace(NEW, state=LOADING)
    harness = Changing(OLD)
    harness.segment.model_table.publish((OLD, loading))
    harness.step(1)
    harness.segment.read_models()
    harness.workers[1].ready()
    harness.new_collector()
    assert harness.news == [EntryLoaded(loading.reference)]
    harness.step(2)
    assert harness.news == [EntryLoaded(loading.reference)]


def test_a_worker_that_left_the_table_is_released_once_it_holds_nothing() -> None:
    harness = Changing(eager(max_batch_size=1, workers=(0, 1, 2)))
    first, *_ = harness.segment.models
    for worker in harness.workers[:2]:
        worker.ready()
    harness.step(0)
    harness.send(1)
    harness.step(1)
    (busy,) = [
        worker for worker in harness.workers if takeover.held_by_all(harness.segment)[worker.number]
    ]
    idle = harness.workers[1 - busy.number]
    held = busy.task()
    harness.segment.model_table.publish((replace(first, workers=(3,)),))
    harness.new_collector()
    harness.step(2)
    assert harness.news == [WorkerReleased(idle.number)]
    busy.finish(held)
    harness.step(3)
    assert harness.news[1:] == [WorkerReleased(busy.number)]
    harness.workers[2].ready(first)
    harness.step(4)
    assert harness.news[2:] == [WorkerReleased(2)], "it was still loading its model"
    assert len(harness.clients[0].collect()) == 1


def test_such_a_workers_batch_runs_elsewhere_after_its_death() -> None:
    harness = Changing(eager(workers=(0, 1)))
    first, *_ = harness.segment.models
    harness.workers[0].ready()
    harness.step(0)
    harness.send(1)
    harness.step(1)
    harness.segment.model_table.publish((replace(first, workers=(1,)),))
    harness.new_collector()
    harness.workers[1].ready()
    harness.step(2)
    harness.dies(0, 3)
    harness.step(4)
    assert harness.running(1) == [1]
    assert harness.news == [WorkerReleased(0)]


def test_a_worker_of_a_model_that_nobody_knows_is_ended_and_its_requests_are_answered() -> None:
    harness = Changing(OLD)
    harness.workers[0].ready()
    harness.step(0)
    slot = harness.send(1)
    harness.step(1)
    harness.segment.model_table.publish((NEW,))
    harness.new_collector()
    assert harness.ended == [0]
    harness.step(2)
    assert harness.clients[0].collect() == {}
    harness.dies(0, 3)
    harness.step(4)
    assert harness.clients[0].collect()[slot].answer.status is Status.NO_WORKER


def test_the_estimate_of_the_one_before_does_not_stay() -> None:
    harness = CollectorHarness(eager(max_batch_size=1)).begin().measure(1000)
    harness.send(0)
    harness.step(1000)
    word = harness.segment.layout.model(0) + ModelWords.ANSWER_NS
    assert harness.segment.words[word]
    harness.workers[0].finish(harness.workers[0].task())
    harness.new_collector()
    harness.step(2000)
    assert not harness.segment.words[word]
