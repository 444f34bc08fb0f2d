"""Run of one batch: inputs out of the slots, the model, answers into the slots.

One bad request fails alone. Each request is checked as far as possible before they are put
together, and so is each of its results. If the model raises, or its results cannot be divided,
as with another number of rows, the batch is halved. It is run again until the request that fails is
alone, see `ringbatch.engine.worker.retry`.
"""

import logging
from collections.abc import Sequence
from typing import Any

from ringbatch.engine.ipc.shaping import padded_rows
from ringbatch.engine.models.model import (
    InvalidInput,
    RestartWorker,
    ServerFailed,
    error_text,
)
from ringbatch.engine.worker.codec import Codec, Place
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.engine.worker.fork_guard import ForkGuard
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.engine.worker.memory_cap import ran_out_of_memory
from ringbatch.engine.worker.outputs import WrongCount, WrongResult
from ringbatch.engine.worker.retry import Retry
from ringbatch.engine.worker.run_times import Runs
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.engine.worker.tensor_codec import TensorCodec
from ringbatch.engine.worker.tensors import Unlike
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.slot import Status
from ringbatch.shm.uniform_batch import UniformBatch

logger = logging.getLogger("ringbatch.worker")

_OK = Status.OK


class Runner:
    """Runs batches of one model, in the process that holds it.

    Args:
        setup: the model, and how it runs them.
    """

    def __init__(self, setup: RunnerSetup) -> None:
        name, slots, clock_ns, run_again = setup.name, setup.slots, setup.clock_ns, setup.run_again
        self._predict = setup.model.predict
        self._batched = setup.batched
        self._name = name
        self._slots = slots
        self._clock_ns = clock_ns
        self._sizes = setup.sizes
        self._codec = setup.codec or _usual_codec(setup)
        self._own_codec = self._codec
        self._plan = setup.plan
        self._place_of = setup.place
        self._place: Place | None = None
        self._asked = 0
        self._fork_guard = ForkGuard()
        self._run_again = run_again
        self._retry = Retry(name, slots, clock_ns, self._run, self._failed, run_again)
        self._failing = setup.failing or Failing()
        self._answered = False
        self._fault = ""
        """Why the model failed a request of the latest batch last, in words."""
        self._found_no_memory = False
        self.run_ns = 0
        """Time spent inside the model so far."""
        self.failed = False
        """True if a part of the latest batch failed."""
        self.runs = Runs()

    def run(self, references: list[int], mark: BatchMark, began_ns: int, asked: int = 0) -> None:
        """Run a batch and answer every request in it; the answers still want a `flush`.

        Requests that go on to the next step of their chain get no answer.

        Args:
            references: the requests.
            mark: the batch.
            began_ns: now, on the monotonic clock.
            asked: the model and step of all of them, see `ringbatch.shm.chain`.
        """
        if asked != self._asked:
            self._turn_to(asked)
        self.failed = False
        self.runs.begin(mark, began_ns)
        uniform = error = None
        if self._codec.uniform and self._retry.allows(mark.rows):
            uniform = self._slots.read_uniform(references)
        if uniform is None:
            requests = self._slots.read_all(references, mark, self._clock_ns)
        else:
            answered, error = self._run_uniform(uniform, mark)
            if answered:
                if self.failed:
                    self._judge(mark)
                elif self._failing.batches:
                    self._failing.answered()
                return
            requests = self._slots.requests(uniform)
        self._answered, self._fault = False, ""
        if self._plan is None:
            self._retry.answer(requests, mark, error)
        else:
            parts, refused = self._plan(requests)
            for request, failure in refused:
                self._failed(failure, [request], mark)
            self._retry.answer_in_turn(parts, mark)
        self._judge(mark)

    def _judge(self, mark: BatchMark) -> None:
        """Count a batch that the model failed entirely; after enough, find out why."""
        failing = self._failing
        if self._answered:
            failing.answered()
            return
        now_ns = self._clock_ns()
        if not self._fault or not failing.failed(now_ns):
            return
        if self._found_no_memory or not self._answers_sample(mark):
            failing.blame(self._fault, now_ns)
        else:
            failing.sound()

    def _answers_sample(self, mark: BatchMark) -> bool:
        """Return whether the model answers values of its warm-up; nobody waits for them."""
        sample = self._failing.sample
        if sample is None:
            return False
        self._slots.flush()
        self._run_again(mark.batch)
        self._turn_to(0)
        try:
            sample()
        except RestartWorker:
            raise
        except BaseException:
            return False
        return True

    def _turn_to(self, asked: int) -> None:
        """Have the batches to come be of requests for that."""
        self._place = self._place_of(asked)
        self._codec = self._own_codec if self._place is None else self._place.codec
        self._asked = asked

    def try_out(self, values: Any, rows: int) -> int:
        """Run the model on values that no client has sent, and answer nobody.

        Args:
            values: as `ringbatch.engine.worker.samples.Values` has them.
            rows: instances in them.

        Returns:
            How long it ran in nanoseconds.

        Raises:
            WrongResult: the result does not fit the model's signature, or cannot be sent.
        """
        before_ns = self.run_ns
        self.results(values, [rows])
        return self.run_ns - before_ns

    def results(self, values: Any, rows: list[int]) -> Any:
        """Return the model's results for values, as `Codec.check` returns them.

        `rows` are instances of each request that there might be.
        """
        results = self._call(self._codec.synthetic_arguments(values), rows)
        if (fault := self._codec.first_invalid(results)) is not None:
            raise fault
        return results

    def answers(self, values: Any, rows: int) -> list[list[Any]]:
        """Return the results for each row: an array for each output, or the one value of JSON."""
        return self._codec.per_row_results(self.results(values, [1] * rows), rows)

    def _run_uniform(
        self, uniform: UniformBatch, mark: BatchMark
    ) -> tuple[bool, BaseException | None]:
        """Run uniform requests without a look at each; return success, and the exception."""
        codec, slots, sizes = self._codec, self._slots, uniform.sizes
        try:
            arguments = codec.read_uniform(uniform)
            if arguments is None:
                return False, None
            results = self._call(arguments, [sizes.rows] * len(uniform.references))
            size = codec.write_uniform(results, uniform)
            if size is None:
                self._answered, self._fault = False, ""
            requests = slots.requests(uniform) if size is None else []
            written = codec.write(results, requests) if size is None else []
        except RestartWorker:
            raise
        except BaseException as error:
            return False, error
        if size is None:
            self._answer(requests, written, mark)
        else:
            status = _OK if size <= sizes.result_capacity else Status.RESULT_TOO_LARGE
            stamped = self.runs.stamped(mark)
            if self._place is None:
                slots.answer_uniform(uniform, status, size, stamped, self._clock_ns())
            else:
                self._answer_step(uniform.references, status, size, stamped)
        self._retry.fitted(mark.rows)
        return True, None

    def _run(
        self, requests: list[Request], mark: BatchMark
    ) -> tuple[list[Request], BaseException | None]:
        """Run once and answer; return the requests, and the exception if there was one."""
        try:
            readable, unreadable, arguments = self._codec.read(requests)
        except Unlike as unlike:
            return requests, unlike
        except MemoryError as short:
            return requests, short
        for request in unreadable:
            self._fail([request], Status.CORRUPT, "the payload is not what its header says", mark)
        if not readable:
            return [], None
        try:
            self._run_readable(arguments, readable, mark)
        except RestartWorker:
            raise
        except BaseException as error:
            left = self._unanswered(readable, error, mark)
            if len(left) == len(readable):
                return left, error
            # Those that are answered may be to blame.
            return self._run(left, mark) if left else ([], None)
        self._retry.fitted(sum(request.rows for request in readable))
        return readable, None

    def _run_readable(self, arguments: Any, readable: list[Request], mark: BatchMark) -> None:
        """Run requests once, and answer them; the model's exceptions pass."""
        results = self._call(arguments, [request.rows for request in readable])
        self._answer(readable, self._codec.write(results, readable), mark)

    def _unanswered(
        self, readable: list[Request], error: BaseException, mark: BatchMark
    ) -> list[Request]:
        """Return the requests of a run that failed, without those that have an answer."""
        return readable

    def _call(self, arguments: Any, rows: list[int]) -> Any:
        spare = 0
        if not self._batched or self._sizes:
            arguments, spare = self._fitted(arguments, rows)
        started_ns = self._clock_ns()
        try:
            returned = self._predict(*arguments)
            self._fork_guard.check()
        except BaseException as error:
            self._fork_guard.check(error)
            raise
        finally:
            ended_ns = self._clock_ns()
            self.run_ns += ended_ns - started_ns
            self.runs.ran(started_ns, ended_ns)
        return self._codec.check(returned, rows, spare)

    def _fitted(self, arguments: Any, rows: list[int]) -> tuple[Any, int]:
        """Return arguments as the model takes them, and how many rows were added."""
        if not self._batched:
            return self._codec.squeeze_batch(arguments), 0
        if not self._sizes:
            return arguments, 0
        spare = padded_rows(sum(rows), self._sizes) - sum(rows)
        self.runs.padded_rows += spare
        return self._codec.pad_rows(arguments, spare) if spare else arguments, spare

    def _answer(
        self, requests: list[Request], sizes: Sequence[int | WrongResult], mark: BatchMark
    ) -> None:
        now_ns = self._clock_ns()
        stamped = self.runs.stamped(mark)
        answer = self._slots.answer
        for request, size in zip(requests, sizes, strict=True):
            if isinstance(size, WrongResult):
                self._failed(size, [request], mark)
                continue
            self._answered = True
            status = _OK if size <= request.result_capacity else Status.RESULT_TOO_LARGE
            if self._place is None:
                answer(request.ref, status, size, stamped, now_ns)
            else:
                self._answer_step([request.ref], status, size, stamped)

    def _answer_step(
        self, references: Sequence[int], status: Status, size: int, stamped: BatchMark
    ) -> None:
        """Answer requests for a chain that end with this step; the others go on to the next."""
        place, slots = self._place, self._slots
        assert place is not None, "the batch is of a chain"
        if status is _OK and not place.last:
            if not place.number:
                slots.store_first_step_start(references, stamped)
            return
        if place.number:
            slots.answer_later_step(references, status, size, stamped, self._clock_ns())
        else:
            for ref in references:
                slots.answer(ref, status, size, stamped, self._clock_ns())

    def _failed(self, error: BaseException, requests: list[Request], mark: BatchMark) -> None:
        if isinstance(error, WrongResult):
            self._fault, self._found_no_memory = str(error), False
            logger.error("model %s: %s; %s", self._name, error, self._batch(mark))
            counted = isinstance(error, WrongCount)
            status = Status.WRONG_COUNT if counted else Status.MODEL_FAILED
            self._fail(requests, status, f"model {self._name!r}: {error}", mark)
        elif isinstance(error, InvalidInput):
            self._fail(
                requests, Status.INVALID, error_text(error) or "the model refused the input", mark
            )
        elif isinstance(error, ServerFailed):
            self._fail(requests, error.status, str(error), mark)
        else:
            logger.error("model %s raised; %s", self._name, self._batch(mark), exc_info=error)
            self._found_no_memory = ran_out_of_memory(error)
            event = "ran out of memory" if self._found_no_memory else f"raised {_kind(error)}"
            self._fault = f"it {event}"
            text = f"model {self._name!r} {event}; the server's log has more"
            self._fail(requests, Status.MODEL_FAILED, text, mark)

    def _batch(self, mark: BatchMark) -> str:
        """Return a batch's name for the log, as its clients know it."""
        return f"batch {self._slots.batch_ids.text(mark.batch)}"

    def _fail(self, requests: list[Request], status: Status, text: str, mark: BatchMark) -> None:
        if not requests:
            return
        self.failed = True
        now_ns = self._clock_ns()
        # A model may put half of a surrogate pair into its text, straight from a client's JSON.
        text = text.encode(errors="replace").decode()
        stamped = self.runs.stamped(mark)
        place = self._place
        for request in requests:
            kept = place.kept_bytes(request) if place is not None and place.number else None
            self._slots.fail(request, status, text, stamped, now_ns, kept_bytes=kept)


def _usual_codec(setup: RunnerSetup) -> Codec:
    """Return the codec of a model whose caller has chosen none."""
    model, memory, batched = setup.model, setup.slots.memory, setup.batched
    if model.inputs:
        return TensorCodec(memory, model, batched)
    return JsonCodec(memory, batched, function=model.function)


def _kind(error: BaseException) -> str:
    return type(error).__name__
