"""The worker, stepped: tasks in, answers, reports and counts out."""

from types import SimpleNamespace
from typing import Any, cast

from segment_fixture import Client, local_segment, spec

from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.engine.ipc.messages import TOO_LATE, Report, ReportKind, read_reports, task_words
from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.worker import WAITED_NS, Worker
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS, SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.model_counters import Spent
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.slot import Reason, Status, reference
from ringbatch.shm.snapshot.status import read

RUN_NS = 30
RAN = Spent(0, RUN_NS, 0, 0, 0)
"""Time that a batch takes here: the clock moves while the model runs."""


class Harness:
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

        engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        model = Model((), (), lambda: None, predict)
        runner = Runner(RunnerSetup(model, "m", engine_slots, lambda: self.now_ns))
        return Worker(self.segment, 0, runner, engine_slots, ring, lambda: self.now_ns)

    def hand_over(self, batch: int, *references: int, rows: int = 0) -> None:
        mark = BatchMark(batch, rows or len(references), Reason.IDLE, 0)
        assert self.tasks.offer(task_words(mark, references))

    def take_reports(self) -> list[Report]:
        taken = read_reports(self.reports.take())
        assert taken is not None
        return taken


def test_it_says_once_that_it_is_ready() -> None:
    harness = Harness()
    assert harness.take_reports() == []
    harness.worker.begin()
    assert harness.take_reports() == [Report(ReportKind.READY, 0, 0)]
    assert harness.rings == 1


def test_a_task_is_run_answered_reported_and_counted() -> None:
    harness = Harness()
    slots = [harness.client.send(b"[%d]" % n) for n in range(3)]
    harness.hand_over(7, *(reference(1, slot) for slot in slots))
    assert harness.worker.step() == 1
    assert harness.take_reports() == [Report(ReportKind.DONE, 7, 3, RAN)]
    replies = harness.client.collect()
    assert [replies[slot].data for slot in slots] == [b"[0]", b"[1]", b"[2]"]
    counted = {"batches": 1, "rows": 3, "run_ns": RUN_NS}
    assert read(harness.segment).workers[0] == counted


def test_an_answer_says_when_the_worker_took_up_its_batch() -> None:
    harness = Harness()
    harness.now_ns = 5
    slots = [harness.client.send(b"[1]") for _ in range(2)]
    for batch, slot in enumerate(slots):
        harness.hand_over(batch, reference(1, slot))
    harness.worker.step()
    replies = harness.client.collect()
    # The second stood behind the first.
    assert [replies[slot].answer.began_ns for slot in slots] == [5, 5 + RUN_NS]


def test_without_a_task_a_step_does_nothing() -> None:
    harness = Harness()
    assert harness.worker.step() == 0
    assert harness.take_reports() == []
    assert harness.rings == 0


def test_several_tasks_are_run_in_their_order_each_with_its_own_time() -> None:
    harness = Harness()
    for batch in (1, 2):
        harness.hand_over(batch, reference(1, harness.client.send(b"[0]")))
    assert harness.worker.step() == 2
    assert harness.take_reports() == [
        Report(ReportKind.DONE, 1, 1, RAN),
        Report(ReportKind.DONE, 2, 1, RAN),
    ]


def test_a_batch_with_a_failure_is_reported_as_failed_and_the_next_is_not() -> None:
    harness = Harness()
    for batch, text in ((1, b'["bad"]'), (2, b'["good"]')):
        harness.hand_over(batch, reference(1, harness.client.send(text)))
    harness.worker.step()
    assert [report.kind for report in harness.take_reports()] == [
        ReportKind.FAILED,
        ReportKind.DONE,
    ]
    replies = sorted(reply.answer.status for reply in harness.client.collect().values())
    assert replies == [Status.OK, Status.MODEL_FAILED]


def test_a_request_given_up_while_its_batch_waits_is_not_run() -> None:
    harness = Harness()
    send = harness.client.send
    late = send(b"[0]", deadline_ns=WAITED_NS + 1)
    gone, one, two = send(b"[1, 1]", 2), send(b"[2]"), send(b"[3]")
    harness.client.lane.cancel(gone)
    harness.hand_over(7, *(reference(1, slot) for slot in (late, gone, one, two)), rows=5)
    harness.now_ns = WAITED_NS + 1
    assert harness.worker.step() == 1
    assert harness.take_reports() == [
        Report(ReportKind.EXPIRED, 7, 1),
        Report(ReportKind.CANCELLED, 7, 1),
        Report(ReportKind.DONE, 7, 2, RAN),
    ]
    replies = harness.client.collect()
    assert replies.pop(late).answer.status is Status.EXPIRED
    assert {slot: reply.data for slot, reply in replies.items()} == {one: b"[2]", two: b"[3]"}
    assert read(harness.segment).workers[0]["rows"] == 2


def test_a_batch_that_is_given_up_altogether_is_reported_and_not_run() -> None:
    harness = Harness()
    late = harness.client.send(b"[0]", deadline_ns=1)
    harness.hand_over(7, reference(1, late))
    harness.now_ns = WAITED_NS + 1
    harness.worker.step()
    assert harness.take_reports() == [
        Report(ReportKind.EXPIRED, 7, 1),
        Report(ReportKind.DONE, 7, 0),
    ]
    assert harness.client.collect()[late].data == TOO_LATE.encode()
    assert read(harness.segment).workers[0]["batches"] == 0


def test_a_frontends_change_to_the_rows_of_its_request_spoils_no_batch() -> None:
    harness = Harness()
    gone, one = harness.client.send(b"[0]"), harness.client.send(b"[1]")
    harness.client.lane.cancel(gone)
    layout = harness.segment.layout
    harness.segment.words[layout.slot(gone) + SlotWords.ROWS] = (1 << 64) - 1
    harness.hand_over(7, reference(1, gone), reference(1, one))
    harness.now_ns = WAITED_NS + 1
    harness.worker.step()
    assert harness.client.collect()[one].answer.batch_rows == 1


def test_answers_are_posted_before_the_report_that_frees_the_worker() -> None:
    """Else the collector could forget requests whose answers nobody will post."""
    harness = Harness()
    seen = []
    worker = harness.worker
    worker._wake_collector = lambda: seen.append(len(harness.client.collect()))
    harness.hand_over(1, reference(1, harness.client.send(b"[0]")))
    worker.step()
    assert seen == [1]


def test_a_batch_stays_in_the_ring_until_its_answers_are_posted() -> None:
    """So that a collector that takes another's place finds what the worker holds."""
    harness = Harness()
    seen = []
    for batch in (1, 2):
        harness.hand_over(batch, reference(1, harness.client.send(b"[0]")))

    def wake_lane(_lane: int) -> None:
        held = held_by_all(harness.segment)[0] or []
        seen.append(([task.mark.batch for task in held], harness.take_reports()))

    harness.worker._slots._wake_lane = wake_lane
    harness.worker.step()
    done = [Report(ReportKind.DONE, batch, 1, RAN) for batch in (1, 2)]
    assert seen == [([1, 2], []), ([2], done[:1])]
    assert harness.take_reports() == done[1:]


def test_a_batch_has_left_the_ring_when_it_is_reported() -> None:
    """A collector that finds a reported batch in the ring would not get another report."""
    harness = Harness()
    seen = []
    harness.hand_over(1, reference(1, harness.client.send(b"[0]")))
    offer = harness.worker._reports.offer

    def report(words: list[int]) -> bool:
        seen.append(held_by_all(harness.segment)[0])
        return offer(words)

    harness.worker._reports = cast(Any, SimpleNamespace(offer=report))
    harness.worker.step()
    assert seen == [[]]


def test_answers_that_find_no_room_are_posted_by_a_later_step() -> None:
    """A lane's rings run out of room only where its owner does not collect."""
    harness = Harness(slots=1)
    ref = reference(1, harness.client.send(b"[0]"))
    for batch in range(1, harness.segment.layout.completion_words + 2):
        harness.hand_over(batch, ref)
    harness.worker.step()
    assert len(harness.client.collect()) == 1
    late = read(harness.segment).frontends["late_answers"]
    harness.worker.step()
    assert harness.client.collect() == {}
    assert read(harness.segment).frontends["late_answers"] == late + 1


def test_further_runs_are_reported_and_leave_room_for_required_reports() -> None:
    harness = Harness()
    harness.worker.runs_again(4)
    assert [(report.kind, report.first) for report in harness.take_reports()] == [
        (ReportKind.RUNS_AGAIN, 4)
    ]
    for _ in range(2 * REPORT_WORDS):
        harness.worker.runs_again(4)
    harness.hand_over(5, reference(1, harness.client.send(b"[0]")))
    harness.worker.step()
    *runs, done = harness.take_reports()
    assert (done.kind, done.first) == (ReportKind.DONE, 5)
    assert len(runs) < REPORT_WORDS // 4
