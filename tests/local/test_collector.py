"""The collector on a segment of its own, its workers played by hand, its clock a number."""

from typing import Any

import numpy as np
import pytest
from rig import FAR_NS, Reply, pack, spec, unpack
from stand import LATENCY, Stand, eager, fixed

from ringbatch.engine.batch.messages import ReportKind
from ringbatch.engine.collector.model_pool import NEXT_FROM_NS, NEXT_UP_TO_NS
from ringbatch.engine.runtimes.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm import layout as at
from ringbatch.shm.engine_port import EnginePort
from ringbatch.shm.layout import WORD
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor


def statuses(replies: dict[int, Reply]) -> list[Status]:
    return [replies[slot].answer.status for slot in sorted(replies)]


def test_eager_hands_a_lone_request_on_at_once() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(7)
    assert stand.step(10) == 10 + FAR_NS, "nothing but the limit of a run"
    assert stand.worker_wakes == [0]
    task = stand.workers[0].task()
    assert stand.payloads(task) == [7]
    assert (task.mark.rows, task.mark.reason, task.mark.dispatched_ns) == (1, Reason.IDLE, 10)
    stand.workers[0].finish(task)
    stand.step(20)
    reply = stand.clients[0].collect()[slot]
    assert (reply.answer.batch, reply.data) == (task.mark.batch, b"done")
    assert stand.collector.in_flight == 0


def test_eager_grows_a_batch_while_the_worker_is_busy() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    first = stand.workers[0].task()
    for number in range(1, 4):
        stand.send(number, lane=number % 2)
        stand.step(number)
    assert stand.workers[0].tasks() == []
    stand.workers[0].finish(first)
    stand.step(10)
    assert sorted(stand.running()) == [1, 2, 3]


def test_fixed_waits_for_the_latency_of_the_oldest_and_names_the_instant() -> None:
    stand = Stand(fixed()).begin()
    stand.send(0, accepted_ns=100)
    assert stand.step(100) == 100 + LATENCY
    stand.send(1, accepted_ns=600)
    assert stand.step(600) == 100 + LATENCY, "a latecomer does not extend"
    assert stand.step(99 + LATENCY) == 100 + LATENCY
    assert stand.workers[0].tasks() == []
    stand.step(100 + LATENCY)
    task = stand.workers[0].task()
    assert stand.payloads(task) == [0, 1]
    assert task.mark.reason is Reason.LATENCY


def test_fixed_closes_a_full_batch_at_once_and_the_excess_stays_behind() -> None:
    stand = Stand(fixed()).begin()
    for number in range(5):
        stand.send(number, accepted_ns=50)
    assert stand.step(60) == 1 << 62, "the rest waits for a worker, not beyond its deadline"
    task = stand.workers[0].task()
    assert (stand.payloads(task), task.mark.reason) == ([0, 1, 2, 3], Reason.FULL)
    stand.workers[0].finish(task)
    assert stand.step(70) == 50 + LATENCY


def test_rows_are_what_fills_a_batch() -> None:
    stand = Stand(fixed()).begin()
    for number, rows in enumerate([3, 2, 2]):
        stand.send(number, rows=rows)
    stand.step(0)
    task = stand.workers[0].task()
    assert (stand.payloads(task), task.mark.rows) == ([0], 3)
    stand.workers[0].finish(task)
    stand.step(1)
    assert stand.running() == [1, 2]


def test_fixed_closes_in_time_for_a_deadline() -> None:
    stand = Stand(fixed()).begin()
    stand.send(0)
    stand.step(LATENCY)
    first = stand.workers[0].task()
    stand.workers[0].finish(first, run_ns=800)
    stand.step(LATENCY)
    expected_ns = 800 // 8
    stand.send(1, accepted_ns=2_000, deadline_ns=2_500)
    assert stand.step(2_000) == 2_500 - expected_ns
    stand.step(2_500 - expected_ns)
    assert stand.workers[0].task().mark.reason is Reason.DEADLINE


def test_draining_closes_at_once_what_would_wait() -> None:
    stand = Stand(fixed()).begin()
    stand.send(0)
    stand.step(1)
    stand.segment.drain()
    stand.step(2)
    assert stand.workers[0].task().mark.reason is Reason.DRAIN


def test_several_batches_run_at_once() -> None:
    stand = Stand(eager(workers=(0, 1))).begin()
    slots = [stand.send(n) for n in range(8)]
    stand.step(1)
    batches = [worker.task() for worker in stand.workers]
    assert sorted(n for task in batches for n in stand.payloads(task)) == list(range(8))
    assert len({task.mark.batch for task in batches}) == 2
    for worker, task in zip(stand.workers, batches, strict=True):
        worker.finish(task)
    stand.step(2)
    assert sorted(stand.clients[0].collect()) == sorted(slots)


def test_the_only_worker_gets_one_batch_to_go_on_with_where_it_is_full() -> None:
    stand = Stand(eager()).begin().measure()
    for number in range(12):
        stand.send(number)
    stand.step(1)
    stand.step(2)
    first, second = stand.workers[0].tasks()
    assert [stand.payloads(task) for task in (first, second)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    stand.workers[0].finish(first)
    stand.step(3)
    assert stand.running() == [8, 9, 10, 11]
    stand.send(12)
    stand.step(4)
    assert stand.workers[0].tasks() == [], "two are enough"
    stand.workers[0].finish(second)
    stand.step(5)
    assert stand.workers[0].tasks() == [], "a batch that can grow is not frozen"


def test_what_a_worker_left_out_of_a_batch_is_counted_as_dropped() -> None:
    stand = Stand(eager()).begin().measure()
    for number in range(8):
        stand.send(number)
    stand.step(1)
    worker = stand.workers[0]
    first, second = worker.tasks()
    worker.say_dropped(second.mark.batch, expired=5, cancelled=5)
    worker.finish(first)
    worker.say_dropped(second.mark.batch, expired=2, cancelled=1)
    worker.finish(second)
    stand.step(2)
    status = stand.status().models["m"]
    assert status.dropped == 3, "of the batch that it runs"


@pytest.mark.parametrize("cycle_ns", [0, NEXT_UP_TO_NS + 1], ids=["unknown", "long"])
def test_where_batches_are_not_known_to_be_short_none_is_given_in_advance(cycle_ns: int) -> None:
    stand = Stand(eager()).begin()
    if cycle_ns:
        stand.measure(cycle_ns)
    slots = [stand.send(number) for number in range(8)]
    stand.step(cycle_ns)
    (first,) = stand.workers[0].tasks()
    stand.clients[0].lane.cancel(slots[4])
    stand.workers[0].finish(first)
    stand.step(cycle_ns + 1)
    assert stand.running() == [5, 6, 7], "what is given up meanwhile is not run"


@pytest.mark.parametrize(
    ("cycle_ns", "rings"),
    [(NEXT_FROM_NS - 1, 0), (NEXT_FROM_NS, 1), (NEXT_UP_TO_NS, 1), (NEXT_UP_TO_NS + 1, 0)],
)
def test_frontends_ring_for_a_batch_to_go_on_with_where_it_pays(cycle_ns: int, rings: int) -> None:
    stand = Stand(eager()).begin().measure(cycle_ns)
    stand.send(0)
    stand.step(cycle_ns)
    stand.collector.prepare_to_sleep()
    assert stand.segment.words[at.RING_COLLECTOR // WORD] == rings


def test_where_there_are_more_workers_the_first_to_be_free_gets_the_batch() -> None:
    stand = Stand(eager(workers=(0, 1))).begin()
    for number in range(16):
        stand.send(number)
    stand.step(1)
    tasks = [worker.task() for worker in stand.workers]
    assert [worker.tasks() for worker in stand.workers] == [[], []]
    stand.workers[1].finish(tasks[1])
    stand.step(2)
    assert len(stand.running(1)) == 4


def test_a_full_batch_does_not_pass_an_older_request_of_another_shape() -> None:
    stand = Stand(eager()).begin().measure()
    stand.send(0)
    stand.step(1)
    first = stand.workers[0].task()
    stand.send(77777777, key_bytes=8, accepted_ns=1)
    stand.step(2)
    for number in range(4):
        stand.send(number, accepted_ns=2)
    stand.step(3)
    assert stand.workers[0].tasks() == []
    stand.workers[0].finish(first)
    stand.step(4)
    assert [stand.payloads(task) for task in stand.workers[0].tasks()] == [[77777777], [0, 1, 2, 3]]


def test_a_batch_that_a_worker_goes_on_with_has_its_whole_time() -> None:
    stand = Stand(eager(batch_timeout_ns=100)).begin().measure()
    for number in range(8):
        stand.send(number)
    assert stand.step(0) == 100
    first, second = stand.workers[0].tasks()
    stand.workers[0].finish(first)
    assert stand.step(90) == 190
    assert stand.step(189) == 190
    assert stand.ended == []
    stand.workers[0].finish(second)
    stand.step(189)
    assert stand.step(500) is None
    assert stand.collector.in_flight == 0


def test_several_models_have_queues_and_workers_of_their_own() -> None:
    stand = Stand(eager(), fixed(index=1, name="n", workers=(1,))).begin()
    stand.send(1, model=1, accepted_ns=5)
    stand.send(2, model=0, lane=1)
    assert stand.step(5) == 5 + LATENCY
    assert stand.running(0) == [2]
    assert stand.workers[1].tasks() == []
    stand.step(5 + LATENCY)
    assert stand.running(1) == [1]


def send_keyed(stand: Stand, key: bytes, **more: Any) -> int:
    return stand.clients[0].send(key.ljust(8, b"\0"), key_bytes=8, **more)


def test_requests_that_come_together_have_the_signature_that_they_share() -> None:
    stand = Stand(eager(max_batch_size=8)).begin()
    keys = {}
    for now_ns, key in enumerate((b"1", b"2", b"1", b"2"), start=1):
        for _ in range(4):
            keys[send_keyed(stand, key)] = key
        stand.step(now_ns)
    replies: list[tuple[int, bytes]] = []
    for now_ns in range(10, 15):
        for task in stand.workers[0].tasks():
            stand.workers[0].finish(task)
        stand.step(now_ns)
        for slot, reply in stand.clients[0].collect().items():
            replies.append((reply.answer.batch, keys[slot]))
    batches = [[key for batch, key in replies if batch == b] for b in sorted(dict(replies))]
    assert batches == [[b"1"] * 4, [b"2"] * 8, [b"1"] * 4]


def test_requests_of_different_signature_never_share_a_batch() -> None:
    stand = Stand(eager(workers=(0, 1))).begin()
    for key in (b"1", b"2", b"1", b"2", b"1"):
        send_keyed(stand, key)
    stand.step(1)
    batches = [worker.task() for worker in stand.workers]
    keys = []
    for task in batches:
        found = set()
        for ref in task.references:
            request = stand.workers[0].port.read(ref)
            assert request is not None
            found.add(bytes(stand.segment.memory[request.request_offset :][:1]))
        keys.append(found)
        assert task.mark.reason is Reason.SHAPE
    assert sorted(map(sorted, keys)) == [[b"1"], [b"2"]]
    assert sorted(len(task.references) for task in batches) == [2, 3]


def test_a_signature_that_waits_for_company_does_not_hold_up_a_full_one() -> None:
    stand = Stand(fixed()).begin()
    send_keyed(stand, b"1", accepted_ns=10)
    for _ in range(4):
        send_keyed(stand, b"2", accepted_ns=20)
    assert stand.step(20) is not None
    task = stand.workers[0].task()
    assert (len(task.references), task.mark.reason) == (4, Reason.FULL)


def test_signatures_take_turns_by_the_age_of_their_oldest() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    running = stand.workers[0].task()
    send_keyed(stand, b"2", accepted_ns=5)
    send_keyed(stand, b"1", accepted_ns=3)
    stand.step(6)
    stand.workers[0].finish(running)
    stand.step(7)
    request = stand.workers[0].port.read(stand.workers[0].task().references[0])
    assert request is not None
    assert request.accepted_ns == 3


def test_a_request_whose_deadline_passes_while_all_workers_are_busy_expires() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    task = stand.workers[0].task()
    late = stand.send(1, deadline_ns=100)
    later = stand.send(2, deadline_ns=200)
    assert stand.step(2) == 100, "it asks to be called when the first expires"
    assert stand.step(99) == 100
    assert stand.clients[0].collect() == {}
    assert stand.step(100) == 200
    (reply,) = [stand.clients[0].collect()[late]]
    assert reply.answer.status is Status.EXPIRED
    assert reply.data == b"the deadline passed before a worker was free"
    stand.workers[0].finish(task)
    stand.step(150)
    assert stand.running() == [2]
    assert later in range(64)
    assert stand.model().dropped == 1


def test_without_any_worker_requests_wait_and_expire() -> None:
    stand = Stand(eager())
    slot = stand.send(0, deadline_ns=50)
    assert stand.step(1) == 50
    assert stand.step(50) is None
    assert statuses({slot: stand.clients[0].collect()[slot]}) == [Status.EXPIRED]
    assert stand.collector.in_flight == 0


def test_a_cancelled_request_is_not_run_and_its_slot_comes_back() -> None:
    stand = Stand(fixed()).begin()
    gone, kept = stand.send(0), stand.send(1)
    stand.step(1)
    stand.clients[0].lane.cancel(gone)
    stand.step(LATENCY)
    task = stand.workers[0].task()
    assert stand.payloads(task) == [1]
    stand.workers[0].finish(task)
    assert list(stand.clients[0].collect()) == [kept]
    assert stand.all_free()
    assert stand.model().dropped == 1


def test_where_everything_is_cancelled_no_worker_is_taken() -> None:
    stand = Stand(fixed()).begin()
    slots = [stand.send(n) for n in range(4)]
    for slot in slots:
        stand.clients[0].lane.cancel(slot)
    stand.step(LATENCY)
    assert stand.workers[0].tasks() == []
    assert stand.clients[0].collect() == {}
    assert stand.all_free()
    stand.send(9)
    stand.step(2 * LATENCY)
    assert stand.running() == [9]


def test_a_request_cancelled_while_it_runs_comes_back_when_it_is_done() -> None:
    stand = Stand(eager()).begin()
    slot = stand.send(0)
    stand.step(1)
    stand.clients[0].lane.cancel(slot)
    assert stand.clients[0].collect() == {}
    assert not stand.all_free(), "the worker may still be writing"
    stand.workers[0].finish(stand.workers[0].task())
    assert stand.clients[0].collect() == {}
    assert stand.all_free()


def test_counters_tell_reasons_sizes_waits_and_runs() -> None:
    stand = Stand(fixed(max_batch_size=8)).begin()
    for rows, now_ns in (([8], 0), ([1, 2], 10_000), ([1], 20_000)):
        for own in rows:
            stand.send(rows=own, accepted_ns=now_ns)
        stand.step(now_ns)
        stand.step(now_ns + LATENCY)
        task = stand.workers[0].task()
        stand.workers[0].finish(task, run_ns=4_000_000)
        stand.step(now_ns + LATENCY)
    model = stand.model()
    assert (model.requests, model.rows) == (4, 12)
    assert model.batches == {"full": 1, "latency": 2}
    assert model.batch_rows == {"1": 1, "3-4": 1, "5-8": 1}
    assert model.wait_ms == pytest.approx(3 * LATENCY / 4 / 1e6)
    assert model.run_ms == pytest.approx(4.0)
    assert model.failed == 0


def test_a_batch_the_model_failed_is_counted() -> None:
    stand = Stand(eager()).begin()
    stand.send(0)
    stand.step(1)
    stand.workers[0].finish(stand.workers[0].task(), ReportKind.FAILED)
    stand.step(2)
    assert stand.model().failed == 1
    assert stand.collector.in_flight == 0


def test_news_are_requests_and_reports_that_no_step_has_seen() -> None:
    stand = Stand(eager()).begin()
    assert not stand.collector.has_news()
    stand.send(0)
    assert stand.collector.has_news()
    stand.step(1)
    assert not stand.collector.has_news()
    stand.workers[0].finish(stand.workers[0].task())
    assert stand.collector.has_news()


def test_it_sleeps_only_where_a_request_will_ring_or_nobody_could_run_one() -> None:
    stand = Stand(eager()).begin()
    word = at.RING_COLLECTOR // WORD
    assert stand.collector.prepare_to_sleep()
    assert stand.segment.words[word] == 1, "a worker is idle: requests must ring"
    stand.send(0)
    assert not stand.collector.prepare_to_sleep(), "one has come before it could know that it must"
    stand.step(1)
    stand.send(1)
    assert stand.collector.prepare_to_sleep()
    assert stand.segment.words[word] == 0, "all are busy: the report will ring"
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(2)
    assert stand.running() == [1]


def test_with_a_real_worker_the_whole_way_in_one_process() -> None:
    x = Tensor("x", "FP32", [-1])
    stand = Stand(spec(0, [x], [x], max_batch_size=8))
    port = EnginePort(stand.segment, 0, stand.lane_wakes.append)
    model = Model((x,), (x,), lambda: None, lambda v: v * 2)
    runner = Runner(model, "m", port, lambda: 0)
    worker = Worker(stand.segment, 0, runner, port, lambda: None, lambda: 0)
    worker.begin()
    sent = {}
    for number in range(20):
        values = np.full((1, 1 + number % 3), number)
        payload, key_bytes = pack([x], [values])
        lane = number % 2
        slot = stand.clients[lane].send(payload, key_bytes=key_bytes)
        sent[lane, slot] = values
    for now_ns in range(1, 10):
        stand.step(now_ns)
        worker.step()
    stand.step(10)
    got = {
        (lane, slot): unpack([x], 1, reply.data)[0]
        for lane in range(2)
        for slot, reply in stand.clients[lane].collect().items()
    }
    assert got.keys() == sent.keys()
    assert all(np.array_equal(got[key], 2 * sent[key]) for key in sent)
    assert stand.all_free()
    assert stand.model().rows == 20
    assert stand.status().workers[0]["rows"] == 20


CYCLE = 100


def backlog(stand: Stand) -> tuple[int, int]:
    """The published time to an answer, and what each further instance adds."""
    first = stand.segment.layout.model(0)
    words = stand.segment.words
    return words[(first + at.MODEL_ANSWER_NS) // WORD], words[(first + at.MODEL_ROW_NS) // WORD]


def busy_stand(requests: int, **limits: Any) -> Stand:
    """A model whose batches take `CYCLE`, with a batch of one under way since the instant 1000 and
    more requests waiting."""
    stand = Stand(eager(max_batch_size=2)).begin()
    stand.send(100)
    stand.step(0)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(CYCLE)
    stand.send(101)
    stand.step(1000)
    for number in range(requests):
        stand.send(number, **limits)
    stand.step(1001)
    return stand


def test_the_backlog_is_published_and_withdrawn() -> None:
    stand = Stand(eager(max_batch_size=2)).begin()
    assert backlog(stand) == (0, 0)
    for waiting, answer in ((0, 2), (1, 2), (2, 3), (5, 4)):
        assert backlog(busy_stand(waiting)) == (answer * CYCLE, CYCLE // 2)
    stand = busy_stand(1)
    for now_ns in (1100, 1200):
        stand.workers[0].finish(stand.workers[0].task())
        stand.step(now_ns)
    assert backlog(stand) == (0, CYCLE // 2)


def test_a_batch_of_which_nothing_was_run_says_nothing_of_how_long_batches_take() -> None:
    stand = busy_stand(0)
    batch = stand.workers[0].task().mark.batch
    before = backlog(stand)
    stand.workers[0].say_dropped(batch, expired=0, cancelled=1)
    stand.workers[0].say_done(batch)
    stand.step(1001)
    assert backlog(stand) == (0, before[1])


def test_where_much_waits_no_place_is_given_to_what_would_be_late() -> None:
    stand = busy_stand(0)
    late = [stand.send(n, deadline_ns=1150) for n in (0, 1)]
    for number in (7, 8):
        stand.send(number)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(1100)
    assert stand.running() == [7, 8]
    replies = stand.clients[0].collect()
    assert [replies[slot].answer.status for slot in late] == [Status.EXPIRED] * 2
    assert stand.model().dropped == 2


def test_an_idle_worker_would_be_in_time_where_a_busy_one_would_not() -> None:
    stand = busy_stand(0)
    stand.workers[0].finish(stand.workers[0].task())
    for number in range(4):
        stand.send(number, deadline_ns=1150)
    stand.step(1040)
    assert stand.running() == [0, 1]


def test_where_little_waits_even_what_may_be_late_is_run() -> None:
    stand = busy_stand(2, deadline_ns=1150)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(1100)
    assert stand.running() == [0, 1]


def test_a_first_slow_batch_does_not_keep_everything_after_it_from_running() -> None:
    stand = Stand(eager(max_batch_size=2)).begin()
    stand.send(0)
    stand.step(0)
    stand.workers[0].finish(stand.workers[0].task())
    stand.step(10**9)
    for turn in range(3):
        now_ns = 10**9 + 10 * turn
        for number in range(6):
            stand.send(number, deadline_ns=now_ns + 1000)
        stand.step(now_ns)
        for task in stand.workers[0].tasks():
            stand.workers[0].finish(task)
        stand.step(now_ns + 5)
        stand.clients[0].collect()
    stand.send(9, deadline_ns=10**9 + 2000)
    stand.step(10**9 + 100)
    assert stand.running() == [9]
