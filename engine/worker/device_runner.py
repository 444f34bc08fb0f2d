"""Run of batches on a device in two halves: `begin` and `finish`, with another batch between them.

A `Begun` carries the state of one batch from its `begin` to its `finish`. Batches that need more
than one run, or may, are run by `run` alone, with nothing else under way. So are batches that fail:
one that fails beside another is run again by itself before any request is blamed.
"""

from typing import Any, NamedTuple

from ringbatch.engine.devices.batch_run import BatchRun, UnderWay
from ringbatch.engine.models.model import RestartWorker
from ringbatch.engine.worker.device_codec import DeviceCodec
from ringbatch.engine.worker.finite_outputs import FiniteCodec
from ringbatch.engine.worker.memory_cap import MemoryCap, ran_out_of_memory
from ringbatch.engine.worker.run_times import Runs
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_setup import RunnerSetup
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.uniform_batch import UniformBatch


class Begun(NamedTuple):
    """A batch under way.

    Attributes:
        mark: of the batch.
        uniform: its requests, if they are alike.
        requests: otherwise.
        rows: instances of each request.
        spare: rows that were added behind them.
        under_way: the same on the device.
        runs: its times.
        started_ns: the time when its rows were on their way.
    """

    mark: BatchMark
    uniform: UniformBatch | None
    requests: list[Request]
    rows: list[int]
    spare: int
    under_way: UnderWay
    runs: Runs
    started_ns: int


class DeviceRunner(Runner):
    """Runner of a model on a device.

    Args:
        setup: as for `Runner`.
        on_device: runs the batches.
    """

    def __init__(self, setup: RunnerSetup, *, on_device: BatchRun) -> None:
        super().__init__(setup)
        self._on_device = on_device
        self._predict = self._alone
        # Other codecs keep something of a batch from its inputs to its outputs.
        self._in_halves = setup.plan is None and type(self._codec) in (DeviceCodec, FiniteCodec)
        self._beside = MemoryCap()
        """Memory cap of batches that begin while another is under way."""
        self._freed_ns = 0
        """The latest time at which the device had ended a batch."""

    def begin(
        self, references: list[int], mark: BatchMark, began_ns: int, asked: int = 0
    ) -> Begun | None:
        """Begin a batch; it is to be finished by `finish`, in the order of the calls.

        The arguments are those of `run`. None is for a batch that only `run` can run, once nothing
        is under way; nothing of it is then.

        Raises:
            RestartWorker: the device has failed for good.
        """
        if not self._may_begin(mark, asked):
            return None
        runs = self.runs = Runs()
        runs.begin(mark, began_ns)
        beside = bool(self._on_device.under_way)
        codec = self._codec
        try:
            requests: list[Request] = []
            arguments = None
            uniform = self._slots.read_uniform(references) if codec.uniform else None
            if uniform is not None:
                arguments = codec.read_uniform(uniform)
                rows = [uniform.sizes.rows] * len(references)
            if arguments is None:
                uniform = None
                requests = [r for r in map(self._slots.read, references) if r is not None]
                readable, _, arguments = codec.read(requests)
                if len(readable) < len(references):
                    return None
                rows = [request.rows for request in requests]
            arguments, spare = self._fitted(arguments, rows)
            started_ns = self._clock_ns()
            under_way = self._on_device.begin(*arguments)
            self._fork_guard.check()
        except RestartWorker:
            raise
        except BaseException as error:
            self._fork_guard.check(error)
            if beside and ran_out_of_memory(error):
                self._beside.ran_out(mark.rows)
            return None
        if beside:
            self._beside.fitted(mark.rows)
        return Begun(mark, uniform, requests, rows, spare, under_way, runs, started_ns)

    def _may_begin(self, mark: BatchMark, asked: int) -> bool:
        """Return whether a batch may be run in halves, by what is known of it."""
        if mark.reason is Reason.RETRY:
            # A worker has died of it or of another batch, and the collector blames what it runs.
            return False
        if asked != self._asked and self._place_of(asked) is None:
            # A batch that is under way is of no chain either.
            self._turn_to(asked)
        return (
            self._in_halves
            and asked == self._asked
            and self._place is None
            and self._retry.allows(mark.rows)
            and (not self._on_device.under_way or self._beside.allows(mark.rows))
        )

    def passed(self, begun: Begun) -> bool:
        """Return whether `finish` of a batch would not wait for the device.

        Raises:
            RestartWorker: the device has failed for good.
        """
        try:
            return self._on_device.passed(begun.under_way)
        except RestartWorker:
            raise
        except BaseException:
            # `finish` finds out what it is.
            return True

    def finish(self, begun: Begun) -> None:
        """Answer every request of a batch as `run` does; wait for the device if need be.

        Raises:
            RestartWorker: the device has failed for good.
        """
        mark = begun.mark
        self.failed = False
        self._answered, self._fault = False, ""
        self.runs = begun.runs
        answered, error = self._answer_begun(begun)
        if not answered:
            if begun.under_way.lost:
                error = None
                self._run_again(mark.batch)
            self._retry.answer(self._requests(begun), mark, error)
        self._judge(mark)

    def _answer_begun(self, begun: Begun) -> tuple[bool, BaseException | None]:
        """Answer a batch out of the run that it had; return success, and the exception."""
        codec, uniform, mark = self._codec, begun.uniform, begun.mark
        try:
            results = codec.check(self._outputs(begun), begun.rows, begun.spare)
            size = None if uniform is None else codec.write_uniform(results, uniform)
            requests = self._requests(begun) if size is None else []
            written = codec.write(results, requests) if size is None else []
        except RestartWorker:
            raise
        except BaseException as error:
            return False, error
        if uniform is None or size is None:
            self._answer(requests, written, mark)
        else:
            fits = size <= uniform.sizes.result_capacity
            status = Status.OK if fits else Status.RESULT_TOO_LARGE
            stamped = begun.runs.stamped(mark)
            self._slots.answer_uniform(uniform, status, size, stamped, self._clock_ns())
            self._answered = True
        self._retry.fitted(mark.rows)
        return True, None

    def _outputs(self, begun: Begun) -> Any:
        # Until the batch before was ended, this one stood behind it.
        freed_ns = self._freed_ns
        try:
            outputs = self._on_device.finish(begun.under_way)
            self._fork_guard.check()
            begun.runs.copied(self._on_device.copy_ns)
            return outputs
        except BaseException as error:
            self._fork_guard.check(error)
            raise
        finally:
            started_ns = max(begun.started_ns, freed_ns)
            self._freed_ns = ended_ns = self._clock_ns()
            self.run_ns += ended_ns - started_ns
            begun.runs.stood_behind(freed_ns)
            begun.runs.ran(started_ns, ended_ns)

    def _requests(self, begun: Begun) -> list[Request]:
        return begun.requests if begun.uniform is None else self._slots.requests(begun.uniform)

    def _alone(self, *inputs: Any) -> Any:
        """Run the model once nothing is under way that could fail in its place."""
        run = self._on_device
        for other in run.under_way:
            try:
                run.wait(other)
            except RestartWorker:
                raise
            except BaseException:
                # It is lost now, and will be run again.
                continue
        try:
            outputs = run.predict(*inputs)
            self.runs.copied(run.copy_ns)
            return outputs
        finally:
            self._freed_ns = self._clock_ns()
