"""Lives of a worker of a model on a device: whatever comes between any two of its steps.

Batches of several sizes, with graphs or without, runs that fail early or late, too little memory,
clients that leave, deadlines, and tasks between any two steps. A worker may die between any two
steps and at any wake-up: then its ring must hold what is not answered. Tests
engine/worker/device_worker.py, engine/worker/device_runner.py and engine/devices/batch_run.py.
"""

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from device_worker_harness import BAD, LANES, SHORT, Site
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from ringbatch.engine.collector.takeover import held_by_all
from ringbatch.engine.devices.batch_run import SETS
from ringbatch.engine.ipc.messages import BatchTask, ReportKind, read_tasks
from ringbatch.engine.worker.device_runner import Begun, DeviceRunner
from ringbatch.engine.worker.device_worker import DeviceWorker
from ringbatch.engine.worker.worker import WAITED_NS
from ringbatch.shm.descriptors import RingWords
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.ring import CorruptRingError
from ringbatch.shm.slot import SLOT_MASK, Reason, Status
from ringbatch.shm.snapshot.status import read

MOST_HELD = 4
REFUSED = 5
"""Rows of a run that the model refuses as it begins."""
ENDED = (ReportKind.DONE, ReportKind.FAILED)


@dataclass
class Sent:
    """A request.

    Attributes:
        ref: of it.
        numbers: of its rows.
        deadline_ns: until when it is wanted.
        left: True if its client has left.
    """

    ref: int
    numbers: list[float]
    deadline_ns: int
    left: bool = False


class Life:
    """A worker, what it was given, and what must hold whatever happens."""

    def __init__(
        self, choices: Sequence[int], graphs: Sequence[int], most_rows: int, **how: Any
    ) -> None:
        numbers = iter(choices)
        self.graphs = graphs
        self.most_rows = most_rows
        self.site = Site(
            lambda options: next(numbers, 0) % options, graphs=graphs, sizes=graphs, **how
        )
        self.site.on_run = self._run_begins
        self.site.on_wake = self.check
        self.given: dict[int, list[Sent]] = {}
        """Requests of each batch."""
        self.open: dict[int, Sent] = {}
        """Requests without an answer, by slot."""
        self.ended: list[int] = []

    def _run_begins(self, rows: int) -> None:
        """Run out of memory above `most_rows` rows, or half of that beside another batch."""
        if rows == REFUSED:
            raise ValueError("the model refuses five rows")
        if rows * self.site.begun[-1] > self.most_rows:
            raise MemoryError("CUDA out of memory")

    def send(self, numbers: Sequence[float], lane: int, until_ns: int | None) -> Sent:
        if self.graphs:
            # Their outputs have one shape.
            numbers = [1.0 if number == SHORT else number for number in numbers]
        deadline_ns = self.site.now_ns + until_ns if until_ns else 1 << 62
        ref = self.site.send(*numbers, lane=lane, deadline_ns=deadline_ns)
        sent = Sent(ref, list(numbers), deadline_ns)
        before = self.open.get(ref & SLOT_MASK)
        # A lane releases abandoned requests by itself.
        assert before is None or (before.left and not self.site.slots.is_open(before.ref))
        self.open[ref & SLOT_MASK] = sent
        return sent

    def give(self, requests: Sequence[tuple[list[float], int, int | None]], reason: Reason) -> None:
        """Send requests, and give them to the worker as a batch."""
        self.collect()
        if len(self.site.held()) == MOST_HELD:
            return
        sent = [self.send(*request) for request in requests]
        rows = sum(len(one.numbers) for one in sent)
        refs = [one.ref for one in sent]
        self.given[self.site.hand_over(*refs, rows=rows, reason=reason)] = sent

    def leave(self, number: int) -> None:
        wanted = [sent for sent in self.open.values() if not sent.left]
        if wanted:
            sent = wanted[number % len(wanted)]
            sent.left = True
            self.site.leave(sent.ref)

    def step(self) -> None:
        self.site.worker.step()
        self.check()

    def check(self) -> None:
        """Check that the ring still holds every unanswered request, in case the worker dies now."""
        law = self.site.law
        assert not law.broken, law.broken
        held = {ref for task in held_by_all(self.site.segment)[0] or [] for ref in task.references}
        for batch in self.given.values():
            for sent in batch:
                if self.site.slots.is_open(sent.ref):
                    assert sent.ref in held, "the ring lacks a request without an answer"

    def collect(self) -> None:
        for slot, (status, numbers) in self.site.collect().items():
            sent = self.open.pop(slot)
            assert not self.site.slots.is_open(sent.ref)
            self._expect(sent, status, numbers)

    def _expect(self, sent: Sent, status: Status, numbers: list[float]) -> None:
        late = sent.deadline_ns <= self.site.now_ns
        if status is Status.CANCELLED:
            assert sent.left
        elif status is Status.EXPIRED:
            assert late
        elif BAD in sent.numbers:
            assert status is Status.MODEL_FAILED
        elif SHORT in sent.numbers:
            assert status is Status.WRONG_COUNT
        else:
            assert (status, numbers) == (Status.OK, [2 * number for number in sent.numbers])

    def reports(self) -> None:
        for report in self.site.take_reports():
            if report.kind in ENDED:
                assert report.first not in self.site.held(), "it is in the ring"
                self.ended.append(report.first)

    def end(self) -> None:
        """Finish everything, and check that nothing is missing."""
        self.site.go_on()
        for _ in range(4 * MOST_HELD):
            self.step()
            self.collect()
            self.reports()
        assert self.site.held() == []
        assert self.ended == [*self.given], "in the order of the ring, each once"
        assert all(sent.left for sent in self.open.values()), "a request without an answer"
        assert self._posted() == sum(map(len, self.given.values())), "each is answered once"
        run_ns = read(self.site.segment).workers[0]["run_ns"]
        assert run_ns <= self.site.now_ns, "no time counts twice"
        assert self.site.worker.wait_s() is None
        self.site.run.close()

    def _posted(self) -> int:
        layout, words = self.site.segment.layout, self.site.segment.words
        rings = [layout.completion_ring(lane, 0) for lane in range(LANES)]
        return sum(words[ring + RingWords.TAIL] for ring in rings)


NUMBERS = st.sampled_from([1.0, 2.0, 3.0, 4.0, BAD, SHORT])
ROWS = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=3)
REQUESTS = st.tuples(
    ROWS | ROWS | st.lists(NUMBERS, min_size=1, max_size=2),
    st.integers(0, 1),
    st.sampled_from([None, None, None, WAITED_NS]),
)
"""Rows, the lane, and the time to the deadline."""
STEP = st.just(("step",))
ACTIONS = st.one_of(
    st.tuples(
        st.just("give"),
        st.lists(REQUESTS, min_size=1, max_size=4),
        st.sampled_from([Reason.FULL] * 7 + [Reason.RETRY]),
    ),
    STEP,
    st.just(("collect",)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, WAITED_NS // 2, 2 * WAITED_NS])),
)
CHOICES = st.lists(st.integers(0, 5), max_size=300)
GRAPHS = st.sampled_from([(), (2, 4, 8), (64,)])


def lived(life: Life, actions: Sequence[tuple[Any, ...]]) -> Life:
    for action in actions:
        match action:
            case ("give", requests, reason):
                life.give(requests, reason)
            case ("step",):
                life.step()
            case ("collect",):
                life.collect()
                life.reports()
            case ("leave", number):
                life.leave(number)
            case ("wait", for_ns):
                life.site.now_ns += for_ns
        life.check()
    life.end()
    return life


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Any:
    """Silence the log, as thousands of batches fail."""
    logger = logging.getLogger("ringbatch.worker")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


LIVES = st.tuples(
    *(CHOICES, GRAPHS, st.sampled_from([8, 12, 1000])),
    st.lists(ACTIONS, min_size=12, max_size=40),
)


@given(LIVES)
def test_everyone_is_answered_once_with_its_own(given: tuple[Any, ...]) -> None:
    *how, actions = given
    lived(Life(*how), actions)


class Leaving(DeviceWorker):
    """Defect: answers requests whose clients left while their batch is under way."""

    def _take_up(self) -> None:
        for one in self._taken:
            gone = [ref for ref in one.references if not self._slots.wanted(ref)]
            for request in self._slots.read_all(gone, one.mark, self._clock_ns):
                self._slots.give_up(request, "", one.mark, self._clock_ns())
        super()._take_up()


class Early(DeviceWorker):
    """Defect: lets go of a task as its batch begins."""

    def _take(self, task: BatchTask) -> None:
        super()._take(task)
        self._tasks.release(self._taken_words)
        self._taken_words = 0

    def _end_first(self) -> None:
        self._taken[0].size = 0
        super()._end_first()


class Forgetful(DeviceWorker):
    """Defect: looks for new batches from the start of the ring."""

    def _take_up(self) -> None:
        self._taken_words = 0
        super()._take_up()


class Twice(DeviceWorker):
    """Defect: looks through all requests of a task again before it runs alone."""

    def _end_first(self) -> None:
        (task, *_) = read_tasks(self._tasks.peek())
        one = self._taken[0]
        if one.is_to_run_alone:
            one.references = task.references
        super()._end_first()


class Hurried(DeviceWorker):
    """Defect: ends whichever batch has passed."""

    def _end_first(self) -> None:
        if len(self._taken) == SETS and self._taken[1].begun is not None:
            self._taken.rotate()
        super()._end_first()


class Leaking(DeviceRunner):
    """Defect: ends a batch with the requests of the one that began last."""

    def begin(
        self, references: list[int], mark: BatchMark, began_ns: int, asked: int = 0
    ) -> Begun | None:
        begun = super().begin(references, mark, began_ns, asked)
        self.latest = begun or self.latest
        return begun

    def _requests(self, begun: Begun) -> list[Request]:
        return super()._requests(self.latest or begun)

    latest: Begun | None = None


class Blaming(DeviceRunner):
    """Defect: takes each failure for the batch's own."""

    def finish(self, begun: Begun) -> None:
        begun.under_way.lost = False
        super().finish(begun)


WRONG: dict[str, dict[str, Any]] = {
    "a-request-answered-under-way": {"worker": Leaving},
    "a-task-let-go-of-too-early": {"worker": Early},
    "a-task-taken-up-twice": {"worker": Forgetful},
    "a-request-looked-through-twice": {"worker": Twice},
    "batches-ended-out-of-order": {"worker": Hurried},
    "requests-of-another-batch": {"runner": Leaking},
    "a-batch-blamed-for-another": {"runner": Blaming},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_is_broken_is_found(name: str) -> None:
    def is_wrong(given: tuple[Any, ...]) -> bool:
        *how, actions = given
        try:
            lived(Life(*how, **WRONG[name]), actions)
        except (AssertionError, CorruptRingError, struct.error):
            return True
        return False

    find(
        LIVES,
        is_wrong,
        settings=settings(
            max_examples=2000, phases=[Phase.generate], derandomize=True, database=None
        ),
    )
