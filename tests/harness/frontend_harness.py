"""The gateway and its service with a lane in this process, and an engine that is stepped by hand.

The test moves the loop and the clock.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import orjson
from segment_fixture import ALWAYS

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.offload.messages import Bytes, Job
from ringbatch.frontend.offload.process import Broken, error_of
from ringbatch.frontend.offload.role import outcome
from ringbatch.frontend.request.calls import Reply, RequestHandle
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.offload_process import OtherProcess
from ringbatch.frontend.request.service import Service
from ringbatch.shm.account import NOBODY
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import Layout
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status, without_part
from ringbatch.shm.tensor import Tensor

SECOND_NS = 1_000_000_000
TIMEOUT_NS = 60 * SECOND_NS


class Timer:
    def __init__(self, when_ns: int, call: Callable[[], None]) -> None:
        self.when_ns = when_ns
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SteppedLoop:
    """Event loop with as much as the gateway uses; its clock is `now_ns`."""

    def __init__(self) -> None:
        self.now_ns = 5 * SECOND_NS
        self.soon: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[Timer] = []

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.soon.append((call, arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_ns + round(delay_s * 1e9), call))
        return self.timers[-1]

    @property
    def armed(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for call, arguments in due:
            call(*arguments)

    def advance(self, duration_ns: int) -> None:
        """Let time pass and fire what is due, in order; a call that fires may arm again."""
        end = self.now_ns + duration_ns
        while due := [timer for timer in self.armed if timer.when_ns <= end]:
            timer = min(due, key=lambda timer: timer.when_ns)
            self.now_ns = timer.when_ns
            timer.cancel()
            timer.call()
        self.now_ns = end


class Replies:
    """Replies by the number of the request."""

    def __init__(self) -> None:
        self.got: dict[int, tuple[int, Any, dict[str, str]]] = {}

    def to(self, number: int) -> Reply:
        def reply(answer: Answer) -> None:
            status, body, headers = answer
            assert number not in self.got, "replied twice"
            self.got[number] = status, orjson.loads(body), dict(headers)

        return reply


def untyped(name: str = "echo", **changes: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "index": 0,
        "name": name,
        "platform": "python",
        "inputs": (),
        "outputs": (),
        "max_batch_size": 4,
        "max_latency_ns": SECOND_NS,
        "timeout_ns": TIMEOUT_NS,
        "policy": "eager",
        "workers": (0,),
    }
    return ModelSpec(**fields | changes)


def typed(**changes: Any) -> ModelSpec:
    return untyped(
        "double",
        inputs=(Tensor("x", "FP32", [2]),),
        outputs=(Tensor("y", "FP32", [2]),),
        **changes,
    )


class AtOnce(OtherProcess):
    """Stand-in for another process: does its jobs in this process, and at once."""

    def submit(
        self, wanted: Callable[[], bool], job: Job, value: Any, data: Sequence[Bytes]
    ) -> Any:
        """See `OtherProcess.submit`; the future is done."""
        given = orjson.loads(orjson.dumps(value))
        answer, parts = outcome(job, given, [memoryview(bytes(one)) for one in data])
        found, error, defect = orjson.loads(orjson.dumps(answer))
        future: Future[Any] = Future()
        if error is not None:
            future.set_exception(error_of(*error))
        elif defect:
            future.set_exception(Broken(defect))
        else:
            future.set_result((found, [memoryview(bytes(part)) for part in parts]))
        return future


class Held(OtherProcess):
    """Work for the other process that waits until the test lets it run.

    Attributes:
        waiting: what that is.
        done: how much of it was still wanted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []
        self.done = 0

    def submit(
        self, wanted: Callable[[], bool], job: Job, value: Any, data: Sequence[Bytes]
    ) -> Any:
        """See `OtherProcess.submit`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def work() -> None:
            if not wanted():
                future.set_result(None)
                return
            self.done += 1
            (found, error, defect), parts = outcome(
                job, value, [memoryview(bytes(one)) for one in data]
            )
            if error is not None:
                future.set_exception(error_of(*error))
            elif defect:
                future.set_exception(Broken(defect))
            else:
                future.set_result((found, [memoryview(bytes(part)) for part in parts]))

        self.waiting.append(work)
        return future

    async def go_on(self) -> None:
        """Run every waiting job."""
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class FrontendHarness:
    """A service and everything under it. Large bodies are read at once.

    Args:
        spec: of the model that is asked.
        others: of further models, which are ready from the start.
    """

    def __init__(
        self,
        spec: ModelSpec,
        slots: int = 8,
        lane_bytes: int = 1 << 18,
        spin_ns: int = 0,
        traced: int = 0,
        others: tuple[ModelSpec, ...] = (),
    ) -> None:
        layout = Layout(
            lanes=1,
            slots=slots,
            lane_bytes=lane_bytes,
            workers=1,
            models=1 + len(others),
            model_table_bytes=4096 * (1 + len(others)),
            traced=traced,
        )
        self.segment = Segment.local(layout, (spec, *others))
        self.segment.words[HeaderWords.COLLECTOR_NS] = ALWAYS
        self.loop = SteppedLoop()
        self.wakes = 0
        self.lane = Lane(self.segment, 0, self._wake)
        self.gateway = Gateway(
            self.lane,
            self.loop,  # type: ignore[arg-type]
            lambda: self.loop.now_ns,
            spin_ns=spin_ns,
        )
        self.service = Service(self.segment, self.gateway, lambda: self.loop.now_ns)
        self.service.engine.apart = AtOnce()
        self.name = spec.name
        self.account = NOBODY
        self.replies = Replies()
        self.ready(1)
        for other in others:
            self.ready(1, other.index)
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        self.submitted = Consumer(self.segment.words, layout.submission_ring(0), slots)
        self.batch = 0

    def _wake(self) -> None:
        self.wakes += 1

    def ready(self, workers: int, index: int = 0) -> None:
        offset = self.segment.layout.model(index)
        self.segment.words[offset + ModelWords.READY] = workers
        state = ModelState.SERVING if workers else ModelState.RESTARTING
        publish(self.segment.words, offset, state)

    def predict(self, number: int, instances: Any, **members: Any) -> RequestHandle | None:
        body = orjson.dumps({"instances": instances, **members})
        reply = self.replies.to(number)
        return self.service.predict(self.name, body, reply, account=self.account)

    def taken(self) -> list[Request]:
        """Return the requests that the engine finds."""
        references = dict.fromkeys(map(without_part, self.submitted.take()))
        found = [self.engine_slots.read(ref) for ref in references]
        assert None not in found
        return [request for request in found if request is not None]

    def payload(self, request: Request) -> bytes:
        start = request.request_offset
        return bytes(self.segment.memory[start : start + request.request_bytes])

    def answer(self, requests: list[Request], status: Status = Status.OK, text: str = "") -> None:
        """Answer as one batch: with the payload itself, or with a status and its text."""
        self.batch += 1
        mark = BatchMark(self.batch, sum(r.rows for r in requests), Reason.IDLE, self.loop.now_ns)
        for request in requests:
            if status is Status.OK:
                result = self.payload(request)
                if len(result) > request.result_capacity:
                    self.engine_slots.answer(
                        request.ref, Status.RESULT_TOO_LARGE, len(result), mark, self.loop.now_ns
                    )
                    continue
                start = request.result_offset
                self.segment.memory[start : start + len(result)] = result
                self.engine_slots.answer(request.ref, status, len(result), mark, self.loop.now_ns)
            else:
                self.engine_slots.fail(request, status, text, mark, self.loop.now_ns)
        self.engine_slots.flush()

    def count(self, counter: LaneCounter) -> int:
        return self.lane.counters[counter]


def predictions(harness: FrontendHarness, number: int) -> Any:
    status, body, _ = harness.replies.got[number]
    assert status == 200, body
    return body["predictions"]
