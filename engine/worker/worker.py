"""The worker: takes batches, has them run, and reports.

`step` does everything there is to do. A request belongs to the worker from the moment its batch is
in the task ring until it is answered. If nobody waits for it any more when its turn comes, the
worker answers it without a run.

A batch stays in the ring until all of it is answered, so that a collector that takes another's
place finds there what the worker holds. The worker releases it before the report. A collector that
has read the report and dies then leaves no batch that nobody would report again.
"""

from collections.abc import Callable
from typing import Final

from ringbatch.engine.ipc.messages import TOO_LATE, ReportKind, read_tasks, report_words, task_size
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.runner import Runner
from ringbatch.shm.counters import Counters
from ringbatch.shm.descriptors import REPORT_WORDS, TASK_WORDS
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status

_DONE, _FAILED = ReportKind.DONE, ReportKind.FAILED
WAITED_NS: Final = 1_000_000
"""A batch that was dispatched so long ago stood behind another: some may be given up by now."""
RETRY_S: Final = 0.01
"""Delay of the next step if answers found no room in a lane's ring."""


class Worker:
    """Worker role: each step runs the tasks in its ring.

    Args:
        segment: the memory.
        number: which worker this is.
        runner: runs the batches.
        slots: the runner's.
        wake_collector: rings the collector's doorbell.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        segment: Segment,
        number: int,
        runner: Runner | Forwarder,
        slots: EngineSlots,
        wake_collector: Callable[[], object],
        clock_ns: Callable[[], int],
    ) -> None:
        layout, words = segment.layout, segment.words
        self._tasks = Consumer(words, layout.task_ring(number), TASK_WORDS)
        self._reports = Producer(words, layout.report_ring(number), REPORT_WORDS)
        self._counters = Counters(words, layout.worker_counters(number))
        self._runner = runner
        self._slots = slots
        self._wake_collector = wake_collector
        self._clock_ns = clock_ns

    def begin(self) -> None:
        """Tell the collector that this worker takes tasks."""
        self._report(ReportKind.READY, 0)

    def step(self) -> int:
        """Run the tasks in the ring, and return their number."""
        runner, slots = self._runner, self._slots
        slots.flush()
        found = read_tasks(self._tasks.peek())
        for mark, references, asked in found:
            size = task_size(references)
            now_ns = self._clock_ns()
            if now_ns - mark.dispatched_ns > WAITED_NS:
                mark, references = self._still_wanted(mark, references, now_ns)
                if not references:
                    self._finish(size, _DONE, mark.batch, 0)
                    continue
            before_ns = runner.run_ns
            runner.run(references, mark, now_ns, asked)
            run_ns = runner.run_ns - before_ns
            spent = runner.runs.spent(run_ns, self._clock_ns())
            kind = _FAILED if runner.failed else _DONE
            self._finish(size, kind, mark.batch, mark.rows, spent)
            # BATCHES, ROWS and RUN_NS.
            self._counters.add_each((1, mark.rows, run_ns))
        return len(found)

    def wait_s(self) -> float | None:
        """Return the longest time to the next step if nobody rings; None if it needs none."""
        return RETRY_S if self._slots.delayed else None

    def _finish(
        self, size: int, kind: ReportKind, batch: int, rows: int, spent: Spent = NOTHING
    ) -> None:
        """Post the answers of a batch with so many instances, release its task, and report it."""
        self._slots.flush()
        self._tasks.release(size)
        self._report(kind, batch, rows, spent)

    def _still_wanted(
        self, mark: BatchMark, references: list[int], now_ns: int
    ) -> tuple[BatchMark, list[int]]:
        """Return the wanted part of a batch that has waited behind another; answer the rest."""
        slots = self._slots
        given_up = slots.given_up(references, now_ns)
        if not given_up:
            return mark, references
        gone = set(given_up)
        left = [ref for ref in references if ref not in gone]
        dropped = slots.read_all(given_up, mark, self._clock_ns)
        statuses = [slots.give_up(request, TOO_LATE, mark, now_ns) for request in dropped]
        expired = statuses.count(Status.EXPIRED)
        if expired:
            self._report(ReportKind.EXPIRED, mark.batch, expired)
        if expired < len(statuses):
            self._report(ReportKind.CANCELLED, mark.batch, len(statuses) - expired)
        # What a frontend wrote may have changed since the collector added it up.
        rows = max(mark.rows - sum([request.rows for request in dropped]), len(left))
        return mark._replace(rows=rows), left

    def runs_again(self, batch: int) -> None:
        """Tell the collector that a batch takes another run, so that it is not taken for hung.

        The worker leaves the report out if the collector has not read earlier ones.
        """
        if self._reports.backlog < REPORT_WORDS // 2:
            self._report(ReportKind.RUNS_AGAIN, batch)

    def _report(
        self, kind: ReportKind, first: int, second: int = 0, spent: Spent = NOTHING
    ) -> None:
        fits = self._reports.offer(report_words(kind, first, second, spent))
        assert fits, "a worker has few reports under way, beside some that it leaves out"
        self._wake_collector()
