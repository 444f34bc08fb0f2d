"""Engine on a virtual clock: frontend and collector as they are, workers that take a given time.

Nothing waits and nothing runs beside anything else. Time jumps from one event to the next, so an
hour is simulated in the time that its requests take to be handled, and always in the same way.
Workers may share cores; else each has one of its own.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, cast

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.run_reserve import RunReserve
from ringbatch.engine.ipc.messages import BatchTask, ReportKind, read_tasks, report_words, task_size
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import (
    REPORT_WORDS,
    TASK_WORDS,
    HeaderWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

SECOND_NS: Final = 1_000_000_000
_TENSOR: Final = "x"
_ROW: Final = bytes(4)
_LENGTH: Final = Struct("<Q")
_FAR_NS: Final = 1 << 62

Ended = Callable[[int], object]
"""Takes the HTTP status of a request that has ended."""


class VirtualTimer:
    """Call that is due at an instant."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Forget the call."""
        self.call = None


class VirtualTime:
    """Clock, and as much of an event loop as a frontend's gateway uses.

    Attributes:
        now_ns: the time.
    """

    def __init__(self) -> None:
        self.now_ns = SECOND_NS
        self._numbers = count()
        self._due: list[tuple[int, int, VirtualTimer]] = []

    def clock(self) -> int:
        """Return the time, as a function of monotonic nanoseconds."""
        return self.now_ns

    def at(self, instant_ns: int, call: Callable[..., object], *arguments: Any) -> VirtualTimer:
        """Call a function at an instant, or now if that is past."""
        timer = VirtualTimer(partial(call, *arguments))
        heappush(self._due, (max(instant_ns, self.now_ns), next(self._numbers), timer))
        return timer

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> VirtualTimer:
        """As asyncio's."""
        return self.at(self.now_ns, call, *arguments)

    def call_later(
        self, delay_s: float, call: Callable[..., object], *arguments: Any
    ) -> VirtualTimer:
        """As asyncio's."""
        return self.at(self.now_ns + round(delay_s * SECOND_NS), call, *arguments)

    def run(self, until_ns: int) -> None:
        """Let time pass until an instant."""
        while self._due and self._due[0][0] <= until_ns:
            self.now_ns, _, timer = heappop(self._due)
            if timer.call is not None:
                timer.call()
        self.now_ns = until_ns


class Cores:
    """Cores that runs share in equal parts.

    Args:
        time: the clock.
        number: of the cores.
        loss: the share by which runs take longer while there are more of them than cores.
    """

    def __init__(self, time: VirtualTime, number: int, loss: float = 0.0) -> None:
        self._time = time
        self._number = number
        self._loss = loss
        self._runs: dict[int, tuple[float, Callable[[], object]]] = {}
        """Time that each run still takes alone, and the call at its end, by the run's number."""
        self._since_ns = 0
        self._numbers = count()
        self._next: VirtualTimer | None = None

    def run(self, alone_ns: int, ended: Callable[[], object]) -> None:
        """Begin a run.

        Args:
            alone_ns: the time that it takes alone.
            ended: called at its end.
        """
        self._pass_time()
        self._runs[next(self._numbers)] = (alone_ns, ended)
        self._await_end()

    @property
    def running(self) -> int:
        """The number of runs."""
        return len(self._runs)

    @property
    def _slowdown(self) -> float:
        times = len(self._runs) / self._number
        return times * (1 + self._loss) if times > 1 else 1.0

    def _pass_time(self) -> None:
        """Note how much of the runs is done."""
        done_ns = (self._time.now_ns - self._since_ns) / self._slowdown
        self._since_ns = self._time.now_ns
        self._runs = {number: (left - done_ns, end) for number, (left, end) in self._runs.items()}

    def _await_end(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._runs:
            number = min(self._runs, key=lambda each: self._runs[each][0])
            left_ns = math.ceil(max(self._runs[number][0], 0.0) * self._slowdown)
            self._next = self._time.at(self._time.now_ns + left_ns, self._end, number)

    def _end(self, number: int) -> None:
        self._pass_time()
        _, ended = self._runs.pop(number)
        self._await_end()
        ended()


class VirtualModel(NamedTuple):
    """A model, and its settings.

    Attributes:
        run_ns: the time that a worker takes for a batch alone, by its rows and the length of the
            longest.
        max_batch_size, workers, timeout_s, max_queue_wait_s, policy, length_buckets: as the
            settings.
        max_latency_s: as the setting, under ``fixed``.
        lengths: whether rows have lengths of their own; otherwise each has the length 1.
    """

    run_ns: Callable[[int, int], int]
    max_batch_size: int
    workers: int = 1
    timeout_s: float = 60.0
    max_queue_wait_s: float = 0.0
    policy: Literal["eager", "fixed"] = "eager"
    max_latency_s: float = 0.0
    lengths: bool = False
    length_buckets: tuple[int, ...] = ()


class _Worker:
    """A worker that runs one batch after the other."""

    def __init__(
        self,
        engine: "VirtualEngine",
        number: int,
        segment: Segment,
        reference: int,
        model: VirtualModel,
    ) -> None:
        layout, words = segment.layout, segment.words
        self._engine = engine
        self._model = model
        self._memory = segment.memory
        self._slots = EngineSlots(segment, number, engine.collect_answers)
        self._tasks = Consumer(words, layout.task_ring(number), TASK_WORDS)
        self._reports = Producer(words, layout.report_ring(number), REPORT_WORDS)
        self._busy = False
        words[layout.worker(number) + WorkerWords.MODEL] = reference
        words[layout.worker(number) + WorkerWords.STATE] = WorkerState.READY
        self._report(ReportKind.READY, 0, 0)

    def look(self) -> None:
        """Begin the next batch, if there is one and none runs."""
        given = read_tasks(self._tasks.peek())
        if self._busy or not given:
            return
        self._busy = True
        time, cores = self._engine.time, self._engine.cores
        run_ns = self._model.run_ns(given[0].mark.rows, self._longest(given[0]))
        finish = partial(self._finish, given[0], time.now_ns)
        if cores is None:
            time.at(time.now_ns + run_ns, finish)
        else:
            cores.run(run_ns, finish)

    def _longest(self, task: BatchTask) -> int:
        """Return the length of the longest row of a batch."""
        if not self._model.lengths:
            return 1
        requests = [self._slots.read(ref) for ref in task.references]
        starts = [request.request_offset for request in requests if request is not None]
        lengths = [_LENGTH.unpack_from(self._memory, start)[0] for start in starts]
        return max(lengths, default=1)

    def _finish(self, task: BatchTask, began_ns: int) -> None:
        self._busy = False
        run_ns = self._engine.time.now_ns - began_ns
        for ref in task.references:
            request = self._slots.read(ref)
            if request is not None:
                size = request.rows * len(_ROW)
                self._memory[request.result_offset :][:size] = bytes(size)
                self._slots.answer(ref, Status.OK, size, task.mark, self._engine.time.now_ns)
        self._slots.flush()
        self._tasks.release(task_size(task.references))
        spent = Spent(0, run_ns, 0, 0, 0)
        self._report(ReportKind.DONE, task.mark.batch, task.mark.rows, spent)
        self.look()

    def _report(self, kind: ReportKind, batch: int, rows: int, spent: Spent = NOTHING) -> None:
        self._reports.offer(report_words(kind, batch, rows, spent))
        self._engine.wake_collector()


class VirtualEngine:
    """Models behind one frontend.

    Attributes:
        time: its clock.
        cores: that its workers share; None if each has one of its own.
        collector: the engine's collector.

    Args:
        models: that it serves.
        cores: the number of cores that the workers share; 0 if each has one of its own.
        loss: of the cores.
        slots: requests that may be under way.
    """

    def __init__(
        self,
        models: Sequence[VirtualModel],
        *,
        cores: int = 0,
        loss: float = 0.0,
        slots: int = 1 << 14,
    ) -> None:
        self.time = VirtualTime()
        self.cores = Cores(self.time, cores, loss) if cores else None
        specs = _specs(models)
        layout = Layout(
            lanes=1,
            slots=slots,
            lane_bytes=slots * PAGE,
            workers=sum(model.workers for model in models),
            models=len(models),
            model_table_bytes=PAGE * len(models),
        )
        segment = Segment.local(layout, specs)
        # A frontend looks whether the collector moves; this one does, whatever the time.
        segment.words[HeaderWords.COLLECTOR_NS] = _FAR_NS
        self._step: VirtualTimer | None = None
        self._step_ns = _FAR_NS
        self._collecting = False
        self.collector = Collector(
            segment, self.collect_answers, self._wake_worker, end_worker=_never
        )
        self.collector.start(self.time.now_ns)
        lane = Lane(segment, 0, self.wake_collector)
        self._gateway = Gateway(lane, cast(Any, self.time), self.time.clock)
        self._service = Service(segment, self._gateway, self.time.clock)
        self._workers = [
            _Worker(self, number, segment, spec.reference, model)
            for spec, model in zip(specs, models, strict=True)
            for number in spec.workers
        ]
        self.time.run(self.time.now_ns)

    def reserve_by(self, reserve: RunReserve) -> None:
        """Have batches leave another time for their runs than the collector's own."""
        for model in self.collector._models.values():
            model.times.reserve = reserve

    def ask(
        self,
        ended: Ended,
        rows: int = 1,
        timeout_s: float = 0.0,
        account: int = 0,
        length: int = 1,
        *,
        model: int = 0,
    ) -> None:
        """Send a request now.

        Args:
            ended: called when it has ended.
            rows: its instances.
            timeout_s: its own time limit; 0 for the model's.
            account: its account word.
            length: of each row.
            model: the number of its model.
        """

        def reply(answer: Any) -> None:
            ended(answer[0])

        body = json.dumps({"instances": [[0.0] * length] * rows}).encode()
        timeout_ns = round(timeout_s * SECOND_NS)
        self._service.predict(_name(model), body, reply, timeout_ns, account=account)

    def wake_collector(self) -> None:
        """Have the collector look for work now."""
        self._step_at(self.time.now_ns)

    def collect_answers(self, _lane: int) -> None:
        """Have the frontend look for answers now."""
        if not self._collecting:
            self._collecting = True
            self.time.call_soon(self._collect)

    def _collect(self) -> None:
        self._collecting = False
        self._gateway.collect()

    def _wake_worker(self, number: int) -> None:
        self.time.call_soon(self._workers[number].look)

    def _step_at(self, instant_ns: int) -> None:
        if instant_ns < self._step_ns:
            if self._step is not None:
                self._step.cancel()
            self._step_ns = instant_ns
            self._step = self.time.at(instant_ns, self._turn)

    def _turn(self) -> None:
        self._step_ns = _FAR_NS
        until_ns = self.collector.step(self.time.now_ns)
        if until_ns is not None:
            self._step_at(max(until_ns, self.time.now_ns + 1))
        if not self.collector.prepare_to_sleep():
            self.wake_collector()


def _name(model: int) -> str:
    return f"m{model}"


def _specs(models: Sequence[VirtualModel]) -> tuple[ModelSpec, ...]:
    answer, numbers = Tensor("y", "FP32", [1]), count()
    return tuple(
        ModelSpec(
            index=place,
            account=place,
            name=_name(place),
            platform="python",
            inputs=(Tensor(_TENSOR, "FP32", [-1 if model.lengths else 1]),),
            outputs=(answer,),
            max_batch_size=model.max_batch_size,
            max_latency_ns=round(model.max_latency_s * SECOND_NS),
            timeout_ns=round(model.timeout_s * SECOND_NS),
            max_queue_wait_ns=round(model.max_queue_wait_s * SECOND_NS),
            policy=model.policy,
            pad_variable_length=model.lengths,
            length_buckets=model.length_buckets,
            workers=tuple(next(numbers) for _ in range(model.workers)),
        )
        for place, model in enumerate(models)
    )


def _never(number: int) -> None:
    raise AssertionError(f"worker {number} hangs, on a clock that only its batches move")
