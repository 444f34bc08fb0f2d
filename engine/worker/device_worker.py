"""Worker of a model on a device: two of its batches are under way at a time.

While the device runs one, the next one's rows are on their way in, and the last one's answers are
written. Batches end in the order of the task ring, and stay there until all of them is answered. So
the ring shows the batches that the worker holds, even if it dies at any point.

A batch that cannot begin beside another one waits until nothing is under way, and holds back those
behind it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from ringbatch.engine.devices.batch_run import SETS
from ringbatch.engine.ipc.messages import BatchTask, ReportKind, read_tasks, task_size
from ringbatch.engine.worker.device_runner import Begun, DeviceRunner
from ringbatch.engine.worker.worker import WAITED_NS, Worker
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.model_counters import NOTHING
from ringbatch.shm.segment import Segment

LOOK_AGAIN_S: Final = 30e-6
"""Time between two looks at the only batch under way, while another one may come. A request that is
alone waits for half of it, and for half of what the kernel adds to a short sleep."""


class _Taken:
    """A batch that the worker has taken up, and not ended.

    Attributes:
        size: words of its task.
        mark: of the batch, or of what is wanted of it.
        references: those that are wanted; none if nobody waits for any.
        asked: as in its task.
        begun: its run on the device; None for a batch that runs alone, or not at all.
    """

    __slots__ = ("asked", "begun", "mark", "references", "size")

    def __init__(self, size: int, mark: BatchMark, references: list[int], asked: int) -> None:
        self.size = size
        self.mark = mark
        self.references = references
        self.asked = asked
        self.begun: Begun | None = None

    @property
    def is_to_run_alone(self) -> bool:
        return self.begun is None and bool(self.references)


class DeviceWorker(Worker):
    """Worker role for a model on a device; the arguments are those of `Worker`."""

    def __init__(
        self,
        segment: Segment,
        number: int,
        runner: DeviceRunner,
        slots: EngineSlots,
        wake_collector: Callable[[], object],
        clock_ns: Callable[[], int],
    ) -> None:
        super().__init__(segment, number, runner, slots, wake_collector, clock_ns)
        self._on_device = runner
        self._taken: deque[_Taken] = deque()
        self._taken_words = 0
        """Oldest words of the task ring whose batches are already taken up: their number."""

    def step(self) -> int:
        """Begin the batches that can begin, and end the first if it is time; how many ended.

        It waits for the device only if nothing else could be done meanwhile.
        """
        self._slots.flush()
        self._take_up()
        if not self._taken or not self._is_time():
            return 0
        self._end_first()
        # The device is not to wait for it until the next step.
        self._take_up()
        return 1

    def wait_s(self) -> float | None:
        """Return it as in `Worker`; 0 if a step would end a batch."""
        if not self._taken:
            return super().wait_s()
        return LOOK_AGAIN_S if self._may_wait() else 0.0

    def finish_begun(self) -> None:
        """End the batches that are under way, before the worker lets go of the memory."""
        while self._taken and not self._taken[0].is_to_run_alone:
            self._end_first()

    def _take_up(self) -> None:
        """Take batches up, in their order, as long as they may be under way together."""
        words = self._tasks.peek()
        if len(words) == self._taken_words:
            return
        for task in read_tasks(words[self._taken_words :]):
            if len(self._taken) == SETS or (self._taken and self._taken[-1].is_to_run_alone):
                return
            self._take(task)

    def _take(self, task: BatchTask) -> None:
        mark, references, asked = task
        one = _Taken(task_size(references), mark, references, asked)
        now_ns = self._clock_ns()
        self._leave_unwanted(one, now_ns)
        if one.references:
            one.begun = self._on_device.begin(one.references, one.mark, now_ns, asked)
        self._taken.append(one)
        self._taken_words += one.size

    def _leave_unwanted(self, one: _Taken, now_ns: int) -> None:
        """Answer the requests of a batch for which nobody waits, if it stood behind another."""
        if now_ns - one.mark.dispatched_ns > WAITED_NS:
            one.mark, one.references = self._still_wanted(one.mark, one.references, now_ns)

    def _is_time(self) -> bool:
        """Return whether to end the first batch, and to wait for that if need be."""
        return not self._may_wait() or self._has_passed()

    def _may_wait(self) -> bool:
        """Return whether only the device has something to do, and room for another batch."""
        return len(self._taken) < SETS and self._taken[0].begun is not None

    def _has_passed(self) -> bool:
        begun = self._taken[0].begun
        return begun is not None and self._on_device.passed(begun)

    def _end_first(self) -> None:
        """Answer the first batch, let go of its task, and report it."""
        runner, one = self._on_device, self._taken[0]
        if one.is_to_run_alone:
            self._leave_unwanted(one, self._clock_ns())
        mark, size = one.mark, one.size
        before_ns = runner.run_ns
        if one.begun is not None:
            runner.finish(one.begun)
        elif one.references:
            runner.run(one.references, mark, self._clock_ns(), one.asked)
        self._taken.popleft()
        self._taken_words -= size
        if not one.references:
            self._finish(size, ReportKind.DONE, mark.batch, 0, NOTHING)
            return
        run_ns = runner.run_ns - before_ns
        spent = runner.runs.spent(run_ns, self._clock_ns())
        kind = ReportKind.FAILED if runner.failed else ReportKind.DONE
        self._finish(size, kind, mark.batch, mark.rows, spent)
        # BATCHES, ROWS and RUN_NS.
        self._counters.add_each((1, mark.rows, run_ns))
