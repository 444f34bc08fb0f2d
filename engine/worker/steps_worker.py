"""Worker of a model in steps: takes batches between any two steps, and reports them as they end.

The rows of such a batch may end in any order, and the task ring gives its places back in order. So
the worker stores in each slot that it holds the request, see `ringbatch.shm.joined`, and takes the
task out of its ring before the model begins the rows. It reports a batch once all of its requests
are answered.
"""

from collections import deque
from collections.abc import Callable
from math import ceil

from ringbatch.engine.ipc.messages import (
    NO_BATCH_NUMBER,
    ReportKind,
    read_tasks,
    report_words,
    task_size,
)
from ringbatch.engine.worker.parts_runner import PAUSE_S
from ringbatch.engine.worker.steps_runner import LiveBatch, StepsRunner
from ringbatch.engine.worker.worker import WAITED_NS, Worker
from ringbatch.shm.counters import WorkerCounter
from ringbatch.shm.descriptors import WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.joined import JoinedRows
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.segment import Segment


class StepsWorker(Worker):
    """Worker role for a model in steps; the arguments are those of `Worker`."""

    def __init__(
        self,
        segment: Segment,
        number: int,
        runner: StepsRunner,
        slots: EngineSlots,
        wake_collector: Callable[[], object],
        clock_ns: Callable[[], int],
    ) -> None:
        super().__init__(segment, number, runner, slots, wake_collector, clock_ns)
        self._number = number
        self._stepped = runner
        self._joined = JoinedRows(segment)
        self._words = segment.words
        self._live_word = segment.layout.worker(number) + WorkerWords.LIVE_ROWS
        self._most_word = segment.layout.worker(number) + WorkerWords.MOST_ROWS
        self._cost_word = segment.layout.worker(number) + WorkerWords.LIVE_COST
        for word in (self._live_word, self._most_word, self._cost_word):
            self._words[word] = 0
        self._unsent: deque[list[int]] = deque()
        """Reports that found no room in the ring."""

    def step(self) -> int:
        """Have the rows of new tasks join, and run one step; how many rows it holds."""
        runner, counters = self._stepped, self._counters
        self._slots.flush()
        self._send_reports()
        self._take_tasks()
        before_ns = runner.run_ns
        if runner.held:
            runner.step()
        self._publish_room()
        if ended := runner.take_ended():
            self._report_ended(ended)
        if runner.run_ns > before_ns:
            counters.add(WorkerCounter.RUN_NS, runner.run_ns - before_ns)
        live = runner.live
        if live != self._words[self._live_word]:
            self._words[self._live_word] = live
        return runner.held

    def _publish_room(self) -> None:
        """Publish what its rows cost, and how many it can hold by that, if these change.

        Before the rows that have ended are reported: the collector is to give none in their place
        to a worker without room.
        """
        most_rows = self._stepped.most_rows
        if not most_rows:
            return
        self._words[self._cost_word] = ceil(self._stepped.live_cost)
        if most_rows != self._words[self._most_word]:
            self._words[self._most_word] = most_rows
            self._report(ReportKind.MOST_ROWS, NO_BATCH_NUMBER)

    def wait_s(self) -> float | None:
        """Return it as in `Worker`; 0 while rows can step."""
        if self._unsent or self._stepped.paused:
            return PAUSE_S
        return 0.0 if self._stepped.held else super().wait_s()

    def _take_tasks(self) -> None:
        """Take the tasks that there are, and have their rows join the live ones."""
        found = read_tasks(self._tasks.peek())
        if not found:
            return
        for mark, references, _ in found:
            for ref in references:
                self._joined.join(ref, self._number, mark)
        # From here on, the slots say what this worker holds.
        self._tasks.release(sum(task_size(references) for _, references, _ in found))
        for mark, references, _ in found:
            now_ns = self._clock_ns()
            if now_ns - mark.dispatched_ns > WAITED_NS:
                wanted_mark, references = self._still_wanted(mark, references, now_ns)
                if not references:
                    self._slots.flush()
                    self._report(ReportKind.DONE, mark.batch)
                    continue
                mark = wanted_mark
            self._stepped.join(references, mark, now_ns)

    def _report_ended(self, batches: list[LiveBatch]) -> None:
        """Post the answers of batches, and report all with one wake-up of the collector."""
        self._slots.flush()
        rows = 0
        for batch in batches:
            mark, kind = batch.mark, ReportKind.FAILED if batch.failed else ReportKind.DONE
            self._unsent.append(report_words(kind, mark.batch, mark.rows, batch.spent))
            rows += mark.rows
        self._send_reports()
        self._counters.add_each((len(batches), rows, 0))

    def _report(
        self, kind: ReportKind, first: int, second: int = 0, spent: Spent = NOTHING
    ) -> None:
        """Report as in `Worker`: there may be as many reports at once as rows end together."""
        self._unsent.append(report_words(kind, first, second, spent))
        self._send_reports()

    def _send_reports(self) -> None:
        before = len(self._unsent)
        while self._unsent and self._reports.offer(self._unsent[0]):
            self._unsent.popleft()
        if len(self._unsent) < before:
            self._wake_collector()
