"""The collector on a segment of its own, its workers played by hand, its clock a number."""

from typing import Any

import numpy as np
import pytest
from collector_harness import LATENCY, CollectorHarness, eager, fixed
from segment_fixture import FAR_NS, Reply, pack, spec, unpack

from ringbatch.engine.collector.models import NEXT_FROM_NS, NEXT_UP_TO_NS
from ringbatch.engine.ipc.messages import ReportKind
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm.counters import ModelCounter
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tensor import Tensor


def statuses(replies: dict[int, Reply]) -> list[Status]:
    return [replies[slot].answer.status for slot in sorted(replies)]


def test_eager_hands_a_lone_request_on_at_once() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(7)
    assert harness.step(10) == 10 + FAR_NS, "nothing but the limit of a run"
    assert harness.worker_wakes == [0]
    task = harness.workers[0].task()
    assert harness.payloads(task) == [7]
    assert (task.mark.rows, task.mark.reason, task.mark.dispatched_ns) == (1, Reason.IDLE, 10)
    harness.workers[0].finish(task)
    harness.step(20)
    reply = harness.clients[0].collect()[slot]
    assert (reply.answer.batch, reply.data) == (task.mark.batch, b"done")
    assert harness.collector.in_flight == 0


def test_eager_grows_a_batch_while_the_worker_is_busy() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    first = harness.workers[0].task()
    for number in range(1, 4):
        harness.send(number, lane=number % 2)
        harness.step(number)
    assert harness.workers[0].tasks() == []
    harness.workers[0].finish(first)
    harness.step(10)
    assert sorted(harness.running()) == [1, 2, 3]


def test_fixed_waits_for_the_latency_of_the_oldest_and_names_the_instant() -> None:
    harness = CollectorHarness(fixed()).begin()
    harness.send(0, accepted_ns=100)
    assert harness.step(100) == 100 + LATENCY
    harness.send(1, accepted_ns=600)
    assert harness.step(600) == 100 + LATENCY, "a latecomer does not extend"
    assert harness.step(99 + LATENCY) == 100 + LATENCY
    assert harness.workers[0].tasks() == []
    harness.step(100 + LATENCY)
    task = harness.workers[0].task()
    assert harness.payloads(task) == [0, 1]
    assert task.mark.reason is Reason.LATENCY


def test_fixed_closes_a_full_batch_at_once_and_the_excess_stays_behind() -> None:
    harness = CollectorHarness(fixed()).begin()
    for number in range(5):
        harness.send(number, accepted_ns=50)
    assert harness.step(60) == 1 << 62, "the rest waits for a worker, not beyond its deadline"
    task = harness.workers[0].task()
    assert (harness.payloads(task), task.mark.reason) == ([0, 1, 2, 3], Reason.FULL)
    harness.workers[0].finish(task)
    assert harness.step(70) == 50 + LATENCY


def test_rows_fill_a_batch() -> None:
    harness = CollectorHarness(fixed()).begin()
    for number, rows in enumerate([3, 2, 2]):
        harness.send(number, rows=rows)
    harness.step(0)
    task = harness.workers[0].task()
    assert (harness.payloads(task), task.mark.rows) == ([0], 3)
    harness.workers[0].finish(task)
    harness.step(1)
    assert harness.running() == [1, 2]


def test_fixed_closes_in_time_for_a_deadline() -> None:
    harness = CollectorHarness(fixed()).begin()
    harness.send(0)
    harness.step(LATENCY)
    first = harness.workers[0].task()
    harness.workers[0].finish(first, run_ns=800)
    harness.step(LATENCY + 800)
    expected_ns = 800
    harness.send(1, accepted_ns=2_000, deadline_ns=2_900)
    assert harness.step(2_000) == 2_900 - expected_ns
    harness.step(2_900 - expected_ns)
    assert harness.workers[0].task().mark.reason is Reason.DEADLINE


def test_the_first_batch_of_all_leaves_time_for_its_run() -> None:
    harness = CollectorHarness(fixed()).begin()
    harness.send(0, accepted_ns=100, deadline_ns=500)
    assert harness.step(100) == 300
    harness.step(300)
    assert harness.workers[0].task().mark.reason is Reason.DEADLINE


def test_draining_closes_waiting_batches_at_once() -> None:
    harness = CollectorHarness(fixed()).begin()
    harness.send(0)
    harness.step(1)
    harness.segment.drain()
    harness.step(2)
    assert harness.workers[0].task().mark.reason is Reason.DRAIN


def test_several_batches_run_at_once() -> None:
    harness = CollectorHarness(eager(workers=(0, 1))).begin()
    slots = [harness.send(n) for n in range(8)]
    harness.step(1)
    batches = [worker.task() for worker in harness.workers]
    assert sorted(n for task in batches for n in harness.payloads(task)) == list(range(8))
    assert len({task.mark.batch for task in batches}) == 2
    for worker, task in zip(harness.workers, batches, strict=True):
        worker.finish(task)
    harness.step(2)
    assert sorted(harness.clients[0].collect()) == sorted(slots)


def test_the_only_worker_gets_one_batch_to_go_on_with_where_it_is_full() -> None:
    harness = CollectorHarness(eager()).begin().measure()
    for number in range(12):
        harness.send(number)
    harness.step(1)
    harness.step(2)
    first, second = harness.workers[0].tasks()
    assert [harness.payloads(task) for task in (first, second)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    harness.workers[0].finish(first)
    harness.step(3)
    assert harness.running() == [8, 9, 10, 11]
    harness.send(12)
    harness.step(4)
    assert harness.workers[0].tasks() == [], "two are enough"
    harness.workers[0].finish(second)
    harness.step(5)
    assert harness.workers[0].tasks() == [], "a batch that can grow is not frozen"


def test_requests_that_a_worker_left_out_of_a_batch_count_as_dropped() -> None:
    harness = CollectorHarness(eager()).begin().measure()
    for number in range(8):
        harness.send(number)
    harness.step(1)
    worker = harness.workers[0]
    first, second = worker.tasks()
    worker.say_dropped(second.mark.batch, expired=5, cancelled=5)
    worker.finish(first)
    worker.say_dropped(second.mark.batch, expired=2, cancelled=1)
    worker.finish(second)
    harness.step(2)
    status = harness.status().models["m"]
    assert status.dropped == 3, "of the batch that it runs"
    segment = harness.segment
    counted = Counted(segment.words, segment.layout, segment.models[0].account)
    assert counted[ModelCounter.EXECUTED] == 1 + 4 + (4 - 3), "no others were run"


@pytest.mark.parametrize("cycle_ns", [0, NEXT_UP_TO_NS + 1], ids=["unknown", "long"])
def test_where_batches_are_not_known_to_be_short_none_is_given_in_advance(cycle_ns: int) -> None:
    harness = CollectorHarness(eager()).begin()
    if cycle_ns:
        harness.measure(cycle_ns)
    slots = [harness.send(number) for number in range(8)]
    harness.step(cycle_ns)
    (first,) = harness.workers[0].tasks()
    harness.clients[0].lane.cancel(slots[4])
    harness.workers[0].finish(first)
    harness.step(cycle_ns + 1)
    assert harness.running() == [5, 6, 7], "what is given up meanwhile is not run"


@pytest.mark.parametrize(
    ("cycle_ns", "rings"),
    [(NEXT_FROM_NS - 1, 0), (NEXT_FROM_NS, 1), (NEXT_UP_TO_NS, 1), (NEXT_UP_TO_NS + 1, 0)],
)
def test_frontends_ring_for_a_batch_to_go_on_with_where_it_pays(cycle_ns: int, rings: int) -> None:
    harness = CollectorHarness(eager()).begin().measure(cycle_ns)
    harness.send(0)
    harness.step(cycle_ns)
    harness.collector.prepare_to_sleep()
    assert harness.segment.words[HeaderWords.RING_COLLECTOR] == rings


def test_where_there_are_more_workers_the_first_to_be_free_gets_the_batch() -> None:
    harness = CollectorHarness(eager(workers=(0, 1))).begin()
    for number in range(16):
        harness.send(number)
    harness.step(1)
    tasks = [worker.task() for worker in harness.workers]
    assert [worker.tasks() for worker in harness.workers] == [[], []]
    harness.workers[1].finish(tasks[1])
    harness.step(2)
    assert len(harness.running(1)) == 4


def test_a_full_batch_does_not_pass_an_older_request_of_another_shape() -> None:
    harness = CollectorHarness(eager()).begin().measure()
    harness.send(0)
    harness.step(1)
    first = harness.workers[0].task()
    harness.send(77777777, key_bytes=8, accepted_ns=1)
    harness.step(2)
    for number in range(4):
        harness.send(number, accepted_ns=2)
    harness.step(3)
    assert harness.workers[0].tasks() == []
    harness.workers[0].finish(first)
    harness.step(4)
    assert [harness.payloads(task) for task in harness.workers[0].tasks()] == [
        [77777777],
        [0, 1, 2, 3],
    ]


def test_a_batch_that_a_worker_goes_on_with_has_its_whole_time() -> None:
    harness = CollectorHarness(eager(batch_timeout_ns=100)).begin().measure()
    for number in range(8):
        harness.send(number)
    assert harness.step(0) == 100
    first, second = harness.workers[0].tasks()
    harness.workers[0].finish(first)
    assert harness.step(90) == 190
    assert harness.step(189) == 190
    assert harness.ended == []
    harness.workers[0].finish(second)
    harness.step(189)
    assert harness.step(500) is None
    assert harness.collector.in_flight == 0


def test_several_models_have_queues_and_workers_of_their_own() -> None:
    harness = CollectorHarness(eager(), fixed(index=1, name="n", workers=(1,))).begin()
    harness.send(1, model=1, accepted_ns=5)
    harness.send(2, model=0, lane=1)
    assert harness.step(5) == 5 + LATENCY
    assert harness.running(0) == [2]
    assert harness.workers[1].tasks() == []
    harness.step(5 + LATENCY)
    assert harness.running(1) == [1]


def send_keyed(harness: CollectorHarness, key: bytes, **more: Any) -> int:
    return harness.clients[0].send(key.ljust(8, b"\0"), key_bytes=8, **more)


def test_requests_that_come_together_have_the_signature_that_they_share() -> None:
    harness = CollectorHarness(eager(max_batch_size=8)).begin()
    keys = {}
    for now_ns, key in enumerate((b"1", b"2", b"1", b"2"), start=1):
        for _ in range(4):
            keys[send_keyed(harness, key)] = key
        harness.step(now_ns)
    replies: list[tuple[int, bytes]] = []
    for now_ns in range(10, 15):
        for task in harness.workers[0].tasks():
            harness.workers[0].finish(task)
        harness.step(now_ns)
        for slot, reply in harness.clients[0].collect().items():
            replies.append((reply.answer.batch, keys[slot]))
    batches = [[key for batch, key in replies if batch == b] for b in sorted(dict(replies))]
    assert batches == [[b"1"] * 4, [b"2"] * 8, [b"1"] * 4]


def test_requests_of_different_signature_never_share_a_batch() -> None:
    harness = CollectorHarness(eager(workers=(0, 1))).begin()
    for key in (b"1", b"2", b"1", b"2", b"1"):
        send_keyed(harness, key)
    harness.step(1)
    batches = [worker.task() for worker in harness.workers]
    keys = []
    for task in batches:
        found = set()
        for ref in task.references:
            request = harness.workers[0].engine_slots.read(ref)
            assert request is not None
            found.add(bytes(harness.segment.memory[request.request_offset :][:1]))
        keys.append(found)
    assert [task.mark.reason for task in batches] == [Reason.IDLE, Reason.SHAPE]
    assert sorted(map(sorted, keys)) == [[b"1"], [b"2"]]
    assert sorted(len(task.references) for task in batches) == [2, 3]


def test_a_signature_that_waits_for_company_does_not_hold_up_a_full_one() -> None:
    harness = CollectorHarness(fixed()).begin()
    send_keyed(harness, b"1", accepted_ns=10)
    for _ in range(4):
        send_keyed(harness, b"2", accepted_ns=20)
    assert harness.step(20) is not None
    task = harness.workers[0].task()
    assert (len(task.references), task.mark.reason) == (4, Reason.FULL)


def test_signatures_take_turns_by_the_age_of_their_oldest() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    running = harness.workers[0].task()
    send_keyed(harness, b"2", accepted_ns=5)
    send_keyed(harness, b"1", accepted_ns=3)
    harness.step(6)
    harness.workers[0].finish(running)
    harness.step(7)
    request = harness.workers[0].engine_slots.read(harness.workers[0].task().references[0])
    assert request is not None
    assert request.accepted_ns == 3


def test_a_request_whose_deadline_passes_while_all_workers_are_busy_expires() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    task = harness.workers[0].task()
    late = harness.send(1, deadline_ns=100)
    later = harness.send(2, deadline_ns=200)
    assert harness.step(2) == 100, "it asks to be called when the first expires"
    assert harness.step(99) == 100
    assert harness.clients[0].collect() == {}
    assert harness.step(100) == 200
    (reply,) = [harness.clients[0].collect()[late]]
    assert reply.answer.status is Status.EXPIRED
    assert reply.data == b"the deadline passed before a worker was free"
    harness.workers[0].finish(task)
    harness.step(150)
    assert harness.running() == [2]
    assert later in range(64)
    assert harness.model().dropped == 1


def test_without_any_worker_requests_wait_and_expire() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.dies(0, 0)
    slot = harness.send(0, deadline_ns=50)
    assert harness.step(1) == 50
    assert harness.step(50) is None
    assert statuses({slot: harness.clients[0].collect()[slot]}) == [Status.EXPIRED]
    assert harness.collector.in_flight == 0


def test_a_cancelled_request_is_not_run_and_its_slot_comes_back() -> None:
    harness = CollectorHarness(fixed()).begin()
    gone, kept = harness.send(0), harness.send(1)
    harness.step(1)
    harness.clients[0].lane.cancel(gone)
    harness.step(LATENCY)
    task = harness.workers[0].task()
    assert harness.payloads(task) == [1]
    harness.workers[0].finish(task)
    assert list(harness.clients[0].collect()) == [kept]
    assert harness.all_free()
    assert harness.model().dropped == 1


def test_where_everything_is_cancelled_no_worker_is_taken() -> None:
    harness = CollectorHarness(fixed()).begin()
    slots = [harness.send(n) for n in range(4)]
    for slot in slots:
        harness.clients[0].lane.cancel(slot)
    harness.step(LATENCY)
    assert harness.workers[0].tasks() == []
    assert harness.clients[0].collect() == {}
    assert harness.all_free()
    harness.send(9)
    harness.step(2 * LATENCY)
    assert harness.running() == [9]


def test_a_request_cancelled_while_it_runs_comes_back_when_it_is_done() -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.step(1)
    harness.clients[0].lane.cancel(slot)
    assert harness.clients[0].collect() == {}
    assert not harness.all_free(), "the worker may still be writing"
    harness.workers[0].finish(harness.workers[0].task())
    assert harness.clients[0].collect() == {}
    assert harness.all_free()


def test_counters_tell_reasons_sizes_waits_and_runs() -> None:
    harness = CollectorHarness(fixed(max_batch_size=8)).begin()
    for rows, now_ns in (([8], 0), ([1, 2], 10_000), ([1], 20_000)):
        for own in rows:
            harness.send(rows=own, accepted_ns=now_ns)
        harness.step(now_ns)
        harness.step(now_ns + LATENCY)
        task = harness.workers[0].task()
        harness.workers[0].finish(task, run_ns=4_000_000)
        harness.step(now_ns + LATENCY)
    model = harness.model()
    assert (model.requests, model.rows) == (4, 12)
    assert model.batches == {"full": 1, "latency": 2}
    assert model.batch_rows == {"1": 1, "3-4": 1, "5-8": 1}
    assert model.wait_ms == pytest.approx(3 * LATENCY / 4 / 1e6)
    assert model.run_ms == pytest.approx(4.0)
    assert model.failed == 0


def test_a_batch_the_model_failed_is_counted() -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0)
    harness.step(1)
    harness.workers[0].finish(harness.workers[0].task(), ReportKind.FAILED)
    harness.step(2)
    assert harness.model().failed == 1
    assert harness.collector.in_flight == 0


def test_news_are_requests_and_reports_that_no_step_has_seen() -> None:
    harness = CollectorHarness(eager()).begin()
    assert not harness.collector.has_news()
    harness.send(0)
    assert harness.collector.has_news()
    harness.step(1)
    assert not harness.collector.has_news()
    harness.workers[0].finish(harness.workers[0].task())
    assert harness.collector.has_news()


def test_it_sleeps_only_where_a_request_will_ring_or_nobody_could_run_one() -> None:
    harness = CollectorHarness(eager()).begin()
    word = HeaderWords.RING_COLLECTOR
    assert harness.collector.prepare_to_sleep()
    assert harness.segment.words[word] == 1, "a worker is idle: requests must ring"
    harness.send(0)
    assert not harness.collector.prepare_to_sleep(), (
        "one has come before it could know that it must"
    )
    harness.step(1)
    harness.send(1)
    assert harness.collector.prepare_to_sleep()
    assert harness.segment.words[word] == 0, "all are busy: the report will ring"
    harness.workers[0].finish(harness.workers[0].task())
    harness.step(2)
    assert harness.running() == [1]


def test_with_a_real_worker_the_whole_way_in_one_process() -> None:
    x = Tensor("x", "FP32", [-1])
    harness = CollectorHarness(spec(0, [x], [x], max_batch_size=8))
    engine_slots = EngineSlots(harness.segment, 0, harness.lane_wakes.append)
    model = Model((x,), (x,), lambda: None, lambda v: v * 2)
    runner = Runner(RunnerSetup(model, "m", engine_slots, lambda: 0))
    worker = Worker(harness.segment, 0, runner, engine_slots, lambda: None, lambda: 0)
    worker.begin()
    sent = {}
    for number in range(20):
        values = np.full((1, 1 + number % 3), number)
        payload, key_bytes = pack([x], [values])
        lane = number % 2
        slot = harness.clients[lane].send(payload, key_bytes=key_bytes)
        sent[lane, slot] = values
    for now_ns in range(1, 10):
        harness.step(now_ns)
        worker.step()
    harness.step(10)
    got = {
        (lane, slot): unpack([x], 1, reply.data)[0]
        for lane in range(2)
        for slot, reply in harness.clients[lane].collect().items()
    }
    assert got.keys() == sent.keys()
    assert all(np.array_equal(got[key], 2 * sent[key]) for key in sent)
    assert harness.all_free()
    assert harness.model().rows == 20
    assert harness.status().workers[0]["rows"] == 20
