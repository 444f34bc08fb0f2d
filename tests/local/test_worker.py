"""The worker, stepped: tasks in, answers, reports and counts out."""

from types import SimpleNamespace
from typing import Any, cast

from rig import Client, local_segment, spec

from ringbatch.engine.batch.messages import TOO_LATE, Report, ReportKind, reports, task_words
from ringbatch.engine.collector.takeover import held
from ringbatch.engine.report.status import read
from ringbatch.engine.runtimes.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import WAITED_NS, Worker
from ringbatch.shm.engine_port import BatchMark, EnginePort
from ringbatch.shm.layout import REPORT_WORDS, ROWS, SLOT_SIZE, TASK_WORDS, WORD
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.slot import Reason, Status, reference

RUN_NS = 30


class Stand:
    """A worker, the collector's ends of its rings, and a client."""

    def __init__(self, slots: int = 16) -> None:
        self.segment = local_segment(spec(), slots=slots)
        layout, words = self.segment.layout, self.segment.words
        self.client = Client(self.segment)
        self.tasks = Producer(words, layout.task_ring(0), TASK_WORDS)
        self.reports = Consumer(words, layout.report_ring(0), REPORT_WORDS)
        self.rings = 0
        self.now_ns = 0
        self.worker = self.new_worker()

    def new_worker(self) -> Worker:
        def predict(instances: Any) -> Any:
            self.now_ns += RUN_NS
            if "bad" in instances:
                raise ValueError
            return instances

        def ring() -> None:
            self.rings += 1

        port = EnginePort(self.segment, 0, lambda _lane: None)
        model = Model((), (), lambda: None, predict)
        runner = Runner(model, "m", port, lambda: self.now_ns)
        return Worker(self.segment, 0, runner, port, ring, lambda: self.now_ns)

    def hand_over(self, batch: int, *references: int, rows: int = 0) -> None:
        mark = BatchMark(batch, rows or len(references), Reason.IDLE, 0)
        assert self.tasks.offer(task_words(mark, references))

    def said(self) -> list[Report]:
        return list(reports(self.reports.take()))


def test_it_says_once_that_it_is_ready() -> None:
    stand = Stand()
    assert stand.said() == []
    stand.worker.begin()
    assert stand.said() == [Report(ReportKind.READY, 0, 0)]
    assert stand.rings == 1


def test_a_task_is_run_answered_reported_and_counted() -> None:
    stand = Stand()
    slots = [stand.client.send(b"[%d]" % n) for n in range(3)]
    stand.hand_over(7, *(reference(1, slot) for slot in slots))
    assert stand.worker.step() == 1
    assert stand.said() == [Report(ReportKind.DONE, 7, RUN_NS)]
    replies = stand.client.collect()
    assert [replies[slot].data for slot in slots] == [b"[0]", b"[1]", b"[2]"]
    counted = {"batches": 1, "rows": 3, "run_ns": RUN_NS}
    assert read(stand.segment).workers[0] == counted


def test_without_a_task_a_step_does_nothing() -> None:
    stand = Stand()
    assert stand.worker.step() == 0
    assert stand.said() == []
    assert stand.rings == 0


def test_several_tasks_are_run_in_their_order_each_with_its_own_time() -> None:
    stand = Stand()
    for batch in (1, 2):
        stand.hand_over(batch, reference(1, stand.client.send(b"[0]")))
    assert stand.worker.step() == 2
    assert stand.said() == [
        Report(ReportKind.DONE, 1, RUN_NS),
        Report(ReportKind.DONE, 2, RUN_NS),
    ]


def test_a_batch_with_a_failure_is_reported_as_failed_and_the_next_is_not() -> None:
    stand = Stand()
    for batch, text in ((1, b'["bad"]'), (2, b'["good"]')):
        stand.hand_over(batch, reference(1, stand.client.send(text)))
    stand.worker.step()
    assert [report.kind for report in stand.said()] == [ReportKind.FAILED, ReportKind.DONE]
    replies = sorted(reply.answer.status for reply in stand.client.collect().values())
    assert replies == [Status.OK, Status.MODEL_FAILED]


def test_what_is_given_up_while_its_batch_waits_is_not_run() -> None:
    stand = Stand()
    send = stand.client.send
    late = send(b"[0]", deadline_ns=WAITED_NS + 1)
    gone, one, two = send(b"[1, 1]", 2), send(b"[2]"), send(b"[3]")
    stand.client.lane.cancel(gone)
    stand.hand_over(7, *(reference(1, slot) for slot in (late, gone, one, two)), rows=5)
    stand.now_ns = WAITED_NS + 1
    assert stand.worker.step() == 1
    assert stand.said() == [
        Report(ReportKind.EXPIRED, 7, 1),
        Report(ReportKind.CANCELLED, 7, 1),
        Report(ReportKind.DONE, 7, RUN_NS),
    ]
    replies = stand.client.collect()
    assert replies.pop(late).answer.status is Status.EXPIRED
    assert {slot: reply.data for slot, reply in replies.items()} == {one: b"[2]", two: b"[3]"}
    assert read(stand.segment).workers[0]["rows"] == 2


def test_a_batch_that_is_given_up_altogether_is_reported_and_not_run() -> None:
    stand = Stand()
    late = stand.client.send(b"[0]", deadline_ns=1)
    stand.hand_over(7, reference(1, late))
    stand.now_ns = WAITED_NS + 1
    stand.worker.step()
    assert stand.said() == [Report(ReportKind.EXPIRED, 7, 1), Report(ReportKind.DONE, 7, 0)]
    assert stand.client.collect()[late].data == TOO_LATE.encode()
    assert read(stand.segment).workers[0]["batches"] == 0


def test_what_a_frontend_makes_of_the_rows_of_its_request_meanwhile_spoils_no_batch() -> None:
    stand = Stand()
    gone, one = stand.client.send(b"[0]"), stand.client.send(b"[1]")
    stand.client.lane.cancel(gone)
    layout = stand.segment.layout
    stand.segment.words[(layout.slots_offset + gone * SLOT_SIZE + ROWS) // WORD] = (1 << 64) - 1
    stand.hand_over(7, reference(1, gone), reference(1, one))
    stand.now_ns = WAITED_NS + 1
    stand.worker.step()
    assert stand.client.collect()[one].answer.batch_rows == 1


def test_answers_are_announced_before_the_report_that_frees_the_worker() -> None:
    """Else the collector could forget requests whose answers nobody will announce."""
    stand = Stand()
    seen = []
    worker = stand.worker
    worker._wake_collector = lambda: seen.append(len(stand.client.collect()))
    stand.hand_over(1, reference(1, stand.client.send(b"[0]")))
    worker.step()
    assert seen == [1]


def test_a_batch_stays_in_the_ring_until_its_answers_are_announced() -> None:
    """So that a collector that takes another's place finds what the worker holds."""
    stand = Stand()
    seen = []
    for batch in (1, 2):
        stand.hand_over(batch, reference(1, stand.client.send(b"[0]")))

    def wake_lane(_lane: int) -> None:
        seen.append(([task.mark.batch for task in held(stand.segment, 0)], stand.said()))

    stand.worker._port._wake_lane = wake_lane
    stand.worker.step()
    done = [Report(ReportKind.DONE, batch, RUN_NS) for batch in (1, 2)]
    assert seen == [([1, 2], []), ([2], done[:1])]
    assert stand.said() == done[1:]


def test_a_batch_has_left_the_ring_when_it_is_reported() -> None:
    """What is reported already would not be reported again to a collector that finds it held."""
    stand = Stand()
    seen = []
    stand.hand_over(1, reference(1, stand.client.send(b"[0]")))
    offer = stand.worker._reports.offer

    def report(words: list[int]) -> bool:
        seen.append(held(stand.segment, 0))
        return offer(words)

    stand.worker._reports = cast(Any, SimpleNamespace(offer=report))
    stand.worker.step()
    assert seen == [[]]


def test_answers_that_find_no_room_are_announced_by_a_later_step() -> None:
    """A lane, whose rings hold two answers for each slot, runs out of it only where its owner does
    not collect."""
    stand = Stand(slots=1)
    ref = reference(1, stand.client.send(b"[0]"))
    for batch in (1, 2, 3):
        stand.hand_over(batch, ref)
    stand.worker.step()
    assert len(stand.client.collect()) == 1
    late = read(stand.segment).frontends["late_answers"]
    stand.worker.step()
    assert stand.client.collect() == {}
    assert read(stand.segment).frontends["late_answers"] == late + 1


def test_further_runs_are_told_and_leave_room_for_what_must_be_said() -> None:
    stand = Stand()
    stand.worker.runs_again(4)
    assert [(report.kind, report.first) for report in stand.said()] == [(ReportKind.RUNS_AGAIN, 4)]
    for _ in range(2 * REPORT_WORDS):
        stand.worker.runs_again(4)
    stand.hand_over(5, reference(1, stand.client.send(b"[0]")))
    stand.worker.step()
    *runs, done = stand.said()
    assert (done.kind, done.first) == (ReportKind.DONE, 5)
    assert len(runs) < REPORT_WORDS // 4
