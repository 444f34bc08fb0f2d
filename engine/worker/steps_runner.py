"""Run of a model in steps: rows join and end between any two steps.

Each request is one row. A row has a state, which `begin` returns and only the model reads. Each
step takes the states of all live rows, and gives each row its next part and whether it has ended. A
request that wants parts gets them as they come; any other gets one answer, see
`ringbatch.engine.worker.joined_parts`.

A part with nothing in it is none: a row may take steps before it has something to say. Only an
answer that would have no part at all has an empty one.

A row pauses while its parts find no room, and the others go on. If a step raises, the row to blame
is sought. Where the model says that such a step has changed no state, the rows are halved and step
again. Where it does not, nobody knows what the states are. Rows of which no part is out begin
again, each alone until it is past that step. The others are cut off, so that their clients' side
resumes them, or fail if the model cannot do that.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import compress
from math import fsum
from typing import Any, Final, TypeVar

from ringbatch.engine.models.model import RestartWorker
from ringbatch.engine.worker.join_limits import JoinLimits
from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.engine.worker.part_stream import PartStream
from ringbatch.engine.worker.parts_runner import PATIENCE_NS, PartsRunner
from ringbatch.engine.worker.row_states import RowStates, row_states
from ringbatch.engine.worker.run_times import Runs
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.tensors import Unlike
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.slot import Status

logger = logging.getLogger("ringbatch.worker")

T = TypeVar("T")

DONE: Final = "done"
CANCELLED: Final = "cancelled"
DEADLINE: Final = "deadline"
FAILED: Final = "failed"


@dataclass(slots=True, eq=False)
class LiveBatch:
    """Batch of which rows are live.

    Attributes:
        mark: its mark.
        open: requests of it that are not answered.
        failed: whether the model failed for one of them.
        spent: the time of the row that ended last, with the model's time of all.
    """

    mark: BatchMark
    open: int
    failed: bool = False
    spent: Spent = NOTHING


@dataclass(slots=True, eq=False)
class LiveRow:
    """Row that has begun, or is about to.

    Attributes:
        request: whose row it is.
        batch: the batch of its request.
        stream: takes its parts; None if its client wants one answer.
        runs: the times of its steps.
        state: the model's.
        parts: of the answer, for a client that wants one.
        steps: that it has taken since it began.
        run_ns: its share of the time inside the model.
        ended: whether the model has ended it; parts of it may still wait for room.
        paused_ns: since when its parts have found no room; 0 if they do.
        cost: what the model says that it costs; 0 if there is no limit of costs.
    """

    request: Request
    batch: LiveBatch
    stream: PartStream | None
    runs: Runs
    state: Any = None
    parts: list[Any] = field(default_factory=list)
    steps: int = 0
    run_ns: int = 0
    ended: bool = False
    paused_ns: int = 0
    cost: float = 0.0

    @property
    def ends_without_part(self) -> bool:
        """True if it has ended, and no part of its answer has come."""
        if self.stream is None:
            return self.ended and not self.parts
        return self.ended and not (self.stream.part_is_out or self.stream.waits)


class StepsRunner(PartsRunner):
    """Runner of a model in steps.

    Args:
        setup, pause: as for `PartsRunner`.
        limits: of the rows that join.
    """

    def __init__(
        self, setup: RunnerSetup, *, pause: Callable[[float], object], limits: JoinLimits
    ) -> None:
        super().__init__(setup, pause=pause)
        steps = setup.model.steps
        assert steps is not None, "only a model in steps has steps"
        self._steps = steps
        self._states: RowStates = row_states(steps, setup.name)
        self._rows: dict[int, LiveRow] = {}
        """The live rows by reference, the one that joined first in front."""
        self._joining: dict[int, LiveRow] = {}
        """Rows that have not begun by reference, the one that came first in front."""
        self._held_up: set[int] = set()
        """References of the live rows of which parts wait for room."""
        self._ended: list[LiveBatch] = []
        self._limits = limits

    @property
    def held(self) -> int:
        """Number of rows that are live, or about to begin."""
        return len(self._rows) + len(self._joining)

    @property
    def live(self) -> int:
        """Number of rows that have begun and not left."""
        return len(self._rows)

    @property
    def live_cost(self) -> float:
        """Cost of these rows."""
        return fsum([row.cost for row in self._rows.values()])

    @property
    def most_rows(self) -> int:
        """Number of rows that it can hold, see `ringbatch.engine.worker.join_limits`."""
        if not self._limits.most_cost:
            return 0
        live, waiting = self._rows.values(), self._joining.values()
        return self._limits.most_rows([row.cost for row in live], [row.cost for row in waiting])

    @property
    def paused(self) -> bool:
        """True if there are live rows, all of them wait for room, and none can join them."""
        rows = self._rows.values()
        return bool(rows) and all(row.paused_ns for row in rows) and not self._beginning()

    def join(self, references: list[int], mark: BatchMark, now_ns: int) -> None:
        """Have the rows of a batch begin with the next step.

        Args:
            references: its requests.
            mark: of the batch.
            now_ns: the time.
        """
        slots = self._slots
        requests = slots.read_all(references, mark, self._clock_ns)
        batch = LiveBatch(mark, len(requests))
        for request in requests:
            wants = slots.wants_parts(request.ref)
            stream = PartStream(slots, request, mark.batch) if wants else None
            row = LiveRow(request, batch, stream, Runs())
            row.runs.begin(mark, now_ns)
            if stream is not None:
                self._streams[request.ref] = stream
            if stream is not None and stream.part_is_out:
                # A worker has died of it, and the collector that knew is gone too.
                self._fail_row(row, Status.CUT_OFF, "")
            elif self._fits(row):
                self._joining[request.ref] = row
        if not requests:
            self._ended.append(batch)

    def step(self) -> None:
        """Run one step of all live rows that do not wait for room; answer those that end."""
        # First, as rows that wait may begin in the place of those that leave.
        self._drop_given_up()
        if self._joining:
            self._begin_next()
        rows = [*self._rows.values()]
        if self._held_up:
            rows = [row for row in rows if not self._waits(row)]
        if rows:
            self._step(rows)
        self._slots.flush()
        if self._rows:
            self._report_progress(next(iter(self._rows.values())).batch.mark)

    def _fits(self, row: LiveRow) -> bool:
        """Ask the model what a row costs; answer it, and return False, if it can never begin."""
        most_cost = self._limits.most_cost
        if not most_cost:
            return True
        try:
            readable, _, arguments = self._codec.read([row.request])
            row.cost = self._limits.cost(arguments) if readable else 0.0
        except RestartWorker:
            raise
        except BaseException as error:
            self._blame(row, error)
            return False
        if row.cost > most_cost:
            text = f"the request costs {row.cost:.12g}, and max_batch_cost is {most_cost:.12g}"
            self._fail_row(row, Status.INVALID, f"model {self._name!r}: {text}")
            return False
        return True

    def _beginning(self) -> list[LiveRow]:
        """Return the rows that begin now, the first ones of those that have not begun."""
        rows = [*self._joining.values()]
        costs = (row.cost for row in rows)
        return rows[: self._limits.beginning(costs, self.live_cost if rows else 0.0)]

    def _begin_next(self) -> None:
        rows = self._beginning()
        for row in rows:
            del self._joining[row.request.ref]
        if rows:
            self._begin(rows)

    def take_ended(self) -> list[LiveBatch]:
        """Remove and return the batches of which every request is answered."""
        ended, self._ended = self._ended, []
        return ended

    def _call(self, arguments: Any, rows: list[int]) -> Any:
        """Begin rows that no client has sent, run one step of them, and end them."""
        states = self._timed([], lambda: self._states.begin(arguments, sum(rows)))
        try:
            outputs, _ = self._timed([], lambda: self._states.step(states))
        finally:
            for state in states:
                self._states.end(state, DONE)
        return self._codec.check(outputs, rows)

    def _begin(self, rows: list[LiveRow]) -> None:
        """Have the model begin rows: together, or one by one if that fails."""
        try:
            readable, unreadable, arguments = self._codec.read([row.request for row in rows])
            if unreadable:
                spoilt = {request.ref for request in unreadable}
                for row in rows:
                    if row.request.ref in spoilt:
                        text = "the payload is not what its header says"
                        self._fail_row(row, Status.CORRUPT, text)
                rows = [row for row in rows if row.request.ref not in spoilt]
            if not readable:
                return
            states = self._timed(rows, lambda: self._states.begin(arguments, len(rows)))
        except RestartWorker:
            raise
        except BaseException as error:
            if len(rows) == 1:
                self._blame(rows[0], error)
                return
            if not isinstance(error, (Unlike, MemoryError)):
                self._report_run_again(rows)
            for row in rows:
                self._begin([row])
            return
        for row, state in zip(rows, states, strict=True):
            if state is None and self._steps.resumes:
                self._end_begun(row)
                continue
            row.state, row.steps = state, 0
            self._rows[row.request.ref] = row

    def _end_begun(self, row: LiveRow) -> None:
        """Answer a row that goes on behind its last part: nothing was missing but the end."""
        if row.stream is None:
            self._blame(row, WrongResult("begin returned None, but no part of the answer is out"))
        else:
            self._finish(row)

    def _step(self, rows: list[LiveRow]) -> None:
        """Run one step of rows, and hand out their parts."""
        states = [row.state for row in rows]
        try:
            outputs, ended = self._timed(rows, lambda: self._states.step(states))
            results = self._codec.check(outputs, [1] * len(rows))
        except RestartWorker:
            raise
        except BaseException as error:
            self._find_to_blame(rows, error)
            return
        for row in rows:
            row.steps += 1
        ending = [*compress(rows, ended)]
        for row in ending:
            row.ended = True
        self._hand_out(results, rows)
        for row in ending:
            if self._is_live(row) and not self._waits(row):
                self._finish(row)

    def _find_to_blame(self, rows: list[LiveRow], error: BaseException) -> None:
        """Find the rows that a step failed for, and fail these."""
        if len(rows) == 1:
            self._leave(rows[0], FAILED)
            self._blame(rows[0], error)
            return
        self._report_run_again(rows)
        # A step that has returned has changed the states, even if its result is wrong.
        if self._steps.repeatable and not isinstance(error, WrongResult):
            middle = len(rows) // 2
            self._step(rows[:middle])
            self._step(rows[middle:])
            return
        again = []
        resumes = bool(self._steps.resumes) and not isinstance(error, WrongResult)
        if resumes:
            logger.error(
                "model %s: a step of %d rows raised", self._name, len(rows), exc_info=error
            )
        for row in rows:
            self._leave(row, FAILED)
            if row.stream is not None and row.stream.part_is_out:
                if resumes:
                    self._fail_row(row, Status.CUT_OFF, "")
                else:
                    self._blame(row, self._of_one(error, row.batch.mark))
            else:
                again.append((row, row.steps + 1))
                row.parts.clear()
        for row, count in again:
            self._begin([row])
            # Past the step that has failed: together, rows would come to it again and again.
            for _ in range(count):
                self._drop_given_up()
                if not self._is_live(row):
                    break
                self._step([row])
                self._report_progress(row.batch.mark)

    def _hand_out(self, results: Any, rows: list[LiveRow]) -> None:
        """Write the parts of one step, or keep those of clients that want one answer."""
        parts, slots = self._codec.parts(results, [row.request for row in rows]), self._slots
        silent = {n for n in self._codec.empty_rows(results) if not rows[n].ends_without_part}
        for number, row in enumerate(rows):
            part, stream = parts[number], row.stream
            if not isinstance(part, bytes):
                self._leave(row, FAILED)
                self._blame(row, part)
            elif number in silent:
                continue
            elif stream is None:
                row.parts.append(self._codec.row(results, number))
            elif stream.put_at_once(part):
                slots.post_part(row.request.ref)
            else:
                self._put_late(row, stream, part)

    def _put_late(self, row: LiveRow, stream: PartStream, part: bytes) -> None:
        """Keep a part until there is room, or fail its row."""
        ref = row.request.ref
        self.runs = row.runs
        self._write(stream, part, row.batch.mark)
        if ref not in self._streams:
            self._leave(row, FAILED)
            self._answered_row(row, failed=True)
        elif stream.waits:
            self._held_up.add(ref)

    def _waits(self, row: LiveRow) -> bool:
        """Write parts of a row that wait for room; return whether it is paused, or answered."""
        stream = row.stream
        if stream is None or not stream.waits:
            row.paused_ns = 0
            self._held_up.discard(row.request.ref)
            return False
        if stream.write_waiting():
            self._slots.post_part(row.request.ref)
        if self._has_caught_up(row, stream):
            return row.ended
        now_ns = self._clock_ns()
        row.paused_ns = row.paused_ns or now_ns
        if now_ns - row.paused_ns >= PATIENCE_NS:
            self._leave(row, FAILED)
            self._fail_row(
                row, Status.CORRUPT, "its frontend has not taken the parts of the answer"
            )
        return True

    def _has_caught_up(self, row: LiveRow, stream: PartStream) -> bool:
        """Return whether all parts of a row are out; answer it if it has ended."""
        if stream.waits:
            return False
        row.paused_ns = 0
        self._held_up.discard(row.request.ref)
        if row.ended:
            self._finish(row)
        return True

    def _drop_given_up(self) -> None:
        """Answer the rows of which nobody waits for the rest, or whose deadline has come."""
        now_ns, references = self._clock_ns(), [*self._rows, *self._joining]
        if self._slots.all_wait(references, now_ns):
            return
        for ref in self._slots.given_up(references, now_ns):
            row = self._joining.pop(ref, None)
            self._give_up_row(row or self._rows[ref], now_ns)

    def _give_up_row(self, row: LiveRow, now_ns: int) -> None:
        late = (row.stream or row.request).deadline_ns <= now_ns
        self._leave(row, DEADLINE if late else CANCELLED)
        # Without a text: a frontend may still read parts where that would stand.
        status = Status.EXPIRED if late else Status.CANCELLED
        self._slots.answer(row.request.ref, status, 0, row.runs.stamped(row.batch.mark), now_ns)
        self._answered_row(row, failed=False)

    def _finish(self, row: LiveRow) -> None:
        """Answer a row that has ended: with an end, or with all parts as one."""
        self._leave(row, DONE)
        mark, request = row.batch.mark, row.request
        if row.stream is not None:
            now_ns = self._clock_ns()
            self._slots.answer(request.ref, Status.OK, 0, row.runs.stamped(mark), now_ns)
        else:
            try:
                (size,) = self._codec.write(self._codec.joined(row.parts), [request])
            except (ValueError, MemoryError) as error:
                self._blame(row, error)
                return
            if isinstance(size, WrongResult):
                self._blame(row, size)
                return
            self.runs = row.runs
            self._answer([request], [size], mark)
        self._failing.answered()
        self._answered_row(row, failed=False)

    def _blame(self, row: LiveRow, error: BaseException) -> None:
        """Fail a row for which the model failed."""
        self.runs, self._answered, self._fault = row.runs, False, ""
        self._failed(error, [row.request], row.batch.mark)
        self._answered_row(row, failed=True)
        self._judge(row.batch.mark)

    def _fail_row(self, row: LiveRow, status: Status, text: str) -> None:
        self.runs = row.runs
        self._fail([row.request], status, text, row.batch.mark)
        self._answered_row(row, failed=True)

    def _answered_row(self, row: LiveRow, *, failed: bool) -> None:
        """Count a row that has its answer."""
        self._streams.pop(row.request.ref, None)
        batch = row.batch
        batch.open -= 1
        batch.failed = batch.failed or failed
        spent = row.runs.spent(batch.spent.infer_ns + row.run_ns, self._clock_ns())
        batch.spent = spent if any(spent) else batch.spent
        if not batch.open:
            self._ended.append(batch)

    def _is_live(self, row: LiveRow) -> bool:
        return row.request.ref in self._rows

    def _leave(self, row: LiveRow, reason: str) -> None:
        """Take a row out of the live ones, and have the model end its state."""
        self._held_up.discard(row.request.ref)
        if self._rows.pop(row.request.ref, None) is not None:
            self._states.end(row.state, reason)
            row.state = None

    def _report_run_again(self, rows: list[LiveRow]) -> None:
        """Tell the collector that rows take more runs, so that they are not taken for hung."""
        self._run_again(rows[0].batch.mark.batch)

    def _timed(self, rows: list[LiveRow], call: Callable[[], T]) -> T:
        """Call the model, and divide the time among the rows."""
        started_ns = self._clock_ns()
        try:
            returned = call()
            self._fork_guard.check()
            return returned
        except BaseException as error:
            self._fork_guard.check(error)
            raise
        finally:
            ended_ns = self._clock_ns()
            took_ns = ended_ns - started_ns
            self.run_ns += took_ns
            share_ns = took_ns // max(len(rows), 1)
            for row in rows:
                row.run_ns += share_ns
                row.runs.went_on(started_ns, ended_ns)
