"""A collector that takes another's place while the workers go on: what each holds, who is ready."""

from dataclasses import replace
from typing import Any

from stand import Stand, eager

from ringbatch.engine.collector import takeover
from ringbatch.engine.collector.health import LOOP
from ringbatch.engine.collector.model_pool import NEXT_FROM_NS
from ringbatch.shm.layout import MODEL_ANSWER_NS, MODEL_DEATHS, RING_HEAD, WORD
from ringbatch.shm.model_spec import LOADING, RETIRING
from ringbatch.shm.slot import Status

TWO = {"workers": (0, 1)}


def test_what_a_worker_holds_is_left_to_it_and_the_rest_is_taken_over() -> None:
    stand = Stand(eager()).begin()
    slots = [stand.send(n) for n in range(6)]
    stand.step(1)
    held = stand.workers[0].task()
    assert stand.payloads(held) == [0, 1, 2, 3]
    slots.append(stand.send(6, lane=1) + 64)
    stand.new_collector()
    stand.step(2)
    assert stand.workers[0].tasks() == [], "it is busy"
    stand.workers[0].finish(held)
    seen: list[int] = []
    for now_ns in range(3, 10):
        stand.step(now_ns)
        for task in stand.workers[0].tasks():
            seen += stand.payloads(task)
            stand.workers[0].finish(task)
    assert sorted(seen) == [4, 5, 6]
    assert sorted(stand.clients[0].collect()) == sorted(slots[:6])
    assert len(stand.clients[1].collect()) == 1
    assert stand.collector.in_flight == 0
    assert stand.all_free()


def test_nothing_is_loaded_again() -> None:
    stand = Stand(eager(**TWO)).begin()
    stand.new_collector()
    assert stand.ready_word() == 2
    stand.send(0)
    stand.step(1)
    assert [len(worker.tasks()) for worker in stand.workers].count(1) == 1


def test_both_batches_of_a_worker_are_its_own() -> None:
    stand = Stand(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    for number in range(3):
        stand.send(number)
    stand.step(2 * NEXT_FROM_NS)
    first, second = stand.workers[0].tasks()
    stand.new_collector()
    stand.step(2 * NEXT_FROM_NS + 1)
    for task, left in ((first, 2), (second, 1)):
        stand.workers[0].finish(task)
        stand.step(3 * NEXT_FROM_NS)
        assert stand.collector.in_flight == left
    assert stand.running() == [2]


def test_a_batch_that_was_let_go_and_not_reported_is_answered() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    task = stand.workers[0].task()
    stand.workers[0].write(task)
    stand.workers[0].port.flush()
    stand.workers[0].let_go(task.mark.batch)
    stand.new_collector()
    stand.workers[0].say_done(task.mark.batch)
    stand.send(1)
    stand.step(2)
    assert list(stand.clients[0].collect()) == [slot]
    assert stand.running() == [1], "it is idle once, not twice"
    assert stand.collector.in_flight == 1


def test_an_old_report_ends_no_other_batch() -> None:
    stand = Stand(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    stand.send(0)
    stand.send(1)
    stand.step(2 * NEXT_FROM_NS)
    first, second = stand.workers[0].tasks()
    stand.workers[0].finish(first)
    stand.new_collector()
    stand.step(3 * NEXT_FROM_NS)
    assert stand.collector.in_flight == 1
    stand.workers[0].finish(second)
    stand.step(3 * NEXT_FROM_NS)
    assert stand.collector.in_flight == 0


def test_numbers_of_batches_never_come_twice() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    old = stand.workers[0].task()
    stand.new_collector()
    stand.workers[0].finish(old)
    stand.send(1)
    stand.step(2)
    assert stand.workers[0].task().mark.batch > old.mark.batch


def test_whoever_holds_something_is_rung_for_it() -> None:
    """The collector before may have died between giving it and ringing."""
    stand = Stand(eager(**TWO)).begin()
    stand.send(0)
    stand.step(1)
    (busy,) = [worker.number for worker in stand.workers if worker.tasks()]
    stand.worker_wakes.clear()
    stand.new_collector()
    assert stand.worker_wakes == [busy]


def test_what_was_answered_and_not_announced_is_announced() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    task = stand.workers[0].task()
    stand.workers[0].write(task, b"old")
    stand.new_collector()
    stand.step(2)
    assert stand.clients[0].collect()[slot].data == b"old"
    stand.workers[0].port.flush()
    stand.workers[0].let_go(task.mark.batch)
    stand.workers[0].say_done(task.mark.batch)
    stand.step(3)
    assert stand.clients[0].collect() == {}, "the second time to no effect"
    assert stand.collector.in_flight == 0
    assert stand.all_free()


def test_what_was_cancelled_meanwhile_is_dropped() -> None:
    stand = Stand(eager())
    slot = stand.send(0)
    stand.step(1)
    stand.clients[0].lane.cancel(slot)
    stand.new_collector()
    stand.workers[0].ready()
    stand.step(2)
    assert stand.workers[0].tasks() == []
    assert stand.clients[0].collect() == {}
    assert stand.all_free()


def test_a_worker_that_was_busy_can_be_given_a_batch_to_go_on_with() -> None:
    stand = Stand(eager(max_batch_size=1)).begin().measure(NEXT_FROM_NS)
    stand.send(0)
    stand.step(2 * NEXT_FROM_NS)
    held = stand.workers[0].task()
    stand.new_collector()
    stand.workers[0].finish(held)
    stand.send(1)
    stand.send(2)
    stand.step(3 * NEXT_FROM_NS)
    assert [stand.payloads(task) for task in stand.workers[0].tasks()] == [[1], [2]]


def test_a_worker_that_hangs_over_a_takeover_is_ended_all_the_same() -> None:
    stand = Stand(eager(batch_timeout_ns=100)).begin()
    stand.send(0)
    stand.step(1)
    stand.new_collector()
    made_ns = 1000 * stand.collectors
    assert stand.step(made_ns) == made_ns + 100
    stand.step(made_ns + 100)
    assert stand.ended == [0]


# Deaths


def test_who_died_while_there_was_no_collector_is_reclaimed_by_the_next() -> None:
    stand = Stand(eager(**TWO)).begin()
    slots = [stand.send(n) for n in range(4)]
    stand.step(1)
    number = next(worker.number for worker in stand.workers if worker.tasks())
    stand.segment.worker_ended(number)
    stand.new_collector()
    assert stand.ready_word() == 1
    stand.step(2)
    assert stand.workers[1 - number].tasks() == [], "it is not known to be dead yet"
    stand.collector.worker_died(number, 3)
    stand.step(3)
    seen = []
    for now_ns in range(4, 9):
        for task in stand.workers[1 - number].tasks():
            seen += stand.payloads(task)
            stand.workers[1 - number].finish(task)
        stand.step(now_ns)
    assert sorted(seen) == [0, 1, 2, 3]
    assert sorted(stand.clients[0].collect()) == sorted(slots)
    assert stand.all_free()


def test_reclaiming_leaves_nothing_for_the_next_worker_or_collector() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    stand.dies(0, 2)
    assert takeover.held(stand.segment, 0) == []
    stand.new_collector()
    assert stand.ready_word() == 0
    assert stand.collector.in_flight == 0
    stand.step(3)
    stand.workers[0].ready()
    stand.step(4)
    assert stand.running() == [0]


def test_a_dead_worker_is_ready_no_longer_before_it_is_reclaimed_either() -> None:
    stand = Stand(eager()).begin()
    stand.segment.worker_ended(0)
    stand.new_collector()
    stand.send(0)
    stand.step(1)
    assert stand.ready_word() == 0
    assert stand.workers[0].tasks() == []


def test_one_that_said_it_is_ready_and_died_is_ready_until_it_is_reclaimed() -> None:
    stand = Stand(eager())
    stand.workers[0].ready()
    stand.segment.worker_ended(0)
    stand.new_collector()
    stand.collector.worker_died(0, 1)
    stand.send(0)
    stand.step(1)
    assert stand.ready_word() == 0
    assert stand.workers[0].tasks() == []


def test_being_ready_is_taken_once_from_the_word_and_the_report() -> None:
    stand = Stand(eager())
    stand.workers[0].ready()
    stand.new_collector()
    stand.step(1)
    assert stand.ready_word() == 1
    stand.send(0)
    stand.send(1)
    stand.step(2)
    assert len(stand.workers[0].tasks()) == 1


def test_a_request_that_kills_every_worker_does_not_kill_for_ever() -> None:
    """The collectors' deaths, which it has nothing to do with, cost it two workers more each."""
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    deaths = 0
    for now_ns in range(1, 20):
        stand.step(now_ns)
        if stand.workers[0].tasks():
            deaths += 1
            if deaths == 1:
                stand.new_collector()
            stand.dies(0, now_ns)
            stand.workers[0].ready()
    assert deaths <= 3
    assert stand.clients[0].collect()[slot].answer.status is Status.WORKER_DIED


def test_a_crash_loop_is_not_over_because_the_collector_is_another() -> None:
    stand = Stand(eager()).begin()
    for now_ns in range(LOOP):
        stand.dies(0, now_ns)
    word = (stand.segment.layout.model(0) + MODEL_DEATHS) // WORD
    assert stand.segment.words[word] == LOOP
    stand.new_collector()
    assert stand.segment.words[word] == LOOP
    stand.dies(0, LOOP)
    assert stand.segment.words[word] == LOOP + 1


# What makes no sense


def test_a_worker_whose_ring_makes_no_sense_is_ended_before_anything_else_is_done() -> None:
    """Nobody can tell which requests it is writing to; those of the others go on."""
    stand = Stand(eager(max_batch_size=1, **TWO)).begin()
    slots = [stand.send(n) for n in range(3)]
    stand.step(1)
    mad, sane = stand.workers
    running = sane.task()
    head = (stand.segment.layout.task_ring(mad.number) + RING_HEAD) // WORD
    stand.segment.words[head] += 1
    stand.new_collector()
    assert stand.ended == [mad.number]
    assert stand.step(2) is None
    sane.finish(running)
    stand.step(3)
    assert sane.tasks() == []
    assert len(stand.clients[0].collect()) == 1
    stand.dies(mad.number, 4)
    for now_ns in range(5, 9):
        stand.step(now_ns)
        for task in sane.tasks():
            sane.finish(task)
    assert len(stand.clients[0].collect()) == len(slots) - 1
    assert stand.all_free()


def test_a_request_whose_words_a_frontend_has_spoilt_meanwhile_stays_its_workers() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    task = stand.workers[0].task()
    stand.segment.words[stand.segment.layout.slot(slot) // WORD + 2] = 0
    stand.new_collector()
    stand.step(2)
    assert stand.clients[0].collect() == {}, "the worker answers it"
    stand.workers[0].port.answer(task.references[0], Status.CORRUPT, 0, task.mark, 0)
    stand.workers[0].port.flush()
    stand.workers[0].say_done(task.mark.batch)
    stand.step(3)
    assert stand.clients[0].collect()[slot].answer.status is Status.CORRUPT
    assert stand.collector.in_flight == 0


# While the table changes


class Changing(Stand):
    """A stand with a worker to spare, that keeps what the collector says."""

    def __init__(self, *models: Any) -> None:
        self.said: list[dict[str, Any]] = []
        super().__init__(*models, spare=3)

    def say(self, **what: Any) -> None:
        self.said.append(what)


OLD = eager()
NEW = replace(eager(index=1, workers=(1,)), generation=1)


def test_a_model_that_retires_is_drained_once_its_worker_has_answered() -> None:
    stand = Changing(OLD)
    stand.workers[0].ready()
    stand.step(0)
    stand.send(1)
    stand.step(1)
    held = stand.workers[0].task()
    stand.segment.table.publish((replace(OLD, state=RETIRING), NEW))
    stand.workers[1].ready(NEW)
    stand.new_collector()
    stand.send(2, model=NEW.reference)
    stand.step(5)
    assert stand.running(1) == [2]
    later_ns = 1 << 40
    stand.step(later_ns)
    assert stand.said == []
    stand.workers[0].finish(held)
    stand.step(later_ns)
    assert stand.said == [{"drained": OLD.reference}]


def test_that_a_model_is_loaded_is_said_again() -> None:
    loading = replace(NEW, state=LOADING)
    stand = Changing(OLD)
    stand.segment.table.publish((OLD, loading))
    stand.step(1)
    stand.segment.read_models()
    stand.workers[1].ready()
    stand.new_collector()
    assert stand.said == [{"loaded": loading.reference}]
    stand.step(2)
    assert stand.said == [{"loaded": loading.reference}]


def test_whom_the_table_has_no_longer_is_let_go_when_it_holds_nothing() -> None:
    stand = Changing(eager(max_batch_size=1, workers=(0, 1, 2)))
    first, *_ = stand.segment.models
    for worker in stand.workers[:2]:
        worker.ready()
    stand.step(0)
    stand.send(1)
    stand.step(1)
    (busy,) = [worker for worker in stand.workers if takeover.held(stand.segment, worker.number)]
    idle = stand.workers[1 - busy.number]
    held = busy.task()
    stand.segment.table.publish((replace(first, workers=(3,)),))
    stand.new_collector()
    stand.step(2)
    assert stand.said == [{"released": idle.number}]
    busy.finish(held)
    stand.step(3)
    assert stand.said[1:] == [{"released": busy.number}]
    stand.workers[2].ready(first)
    stand.step(4)
    assert stand.said[2:] == [{"released": 2}], "it was still loading its model"
    assert len(stand.clients[0].collect()) == 1


def test_what_such_a_worker_held_at_its_death_runs_elsewhere() -> None:
    stand = Changing(eager(workers=(0, 1)))
    first, *_ = stand.segment.models
    stand.workers[0].ready()
    stand.step(0)
    stand.send(1)
    stand.step(1)
    stand.segment.table.publish((replace(first, workers=(1,)),))
    stand.new_collector()
    stand.workers[1].ready()
    stand.step(2)
    stand.dies(0, 3)
    stand.step(4)
    assert stand.running(1) == [1]
    assert stand.said == [{"released": 0}]


def test_a_worker_of_a_model_that_nobody_knows_is_ended_and_its_requests_are_answered() -> None:
    stand = Changing(OLD)
    stand.workers[0].ready()
    stand.step(0)
    slot = stand.send(1)
    stand.step(1)
    stand.segment.table.publish((NEW,))
    stand.new_collector()
    assert stand.ended == [0]
    stand.step(2)
    assert stand.clients[0].collect() == {}
    stand.dies(0, 3)
    stand.step(4)
    assert stand.clients[0].collect()[slot].answer.status is Status.NO_WORKER


def test_the_estimate_of_the_one_before_does_not_stay() -> None:
    stand = Stand(eager(max_batch_size=1)).begin().measure(1000)
    stand.send(0)
    stand.step(1000)
    word = (stand.segment.layout.model(0) + MODEL_ANSWER_NS) // WORD
    assert stand.segment.words[word]
    stand.workers[0].finish(stand.workers[0].task())
    stand.new_collector()
    stand.step(2000)
    assert not stand.segment.words[word]
