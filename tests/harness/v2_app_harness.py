"""V2 on Falcon and on the fast lane, over a lane whose engine is a few lines of numpy."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from falcon.testing import ASGIConductor, Result
from segment_fixture import Array, local_segment, pack, spec, unpack
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S, FastLaneSettings
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE
from ringbatch.shm.model_counters import CounterBlocks, ModelCounters, Spent
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import PART, Reason, Status
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.tensor import Tensor

MAX_REQUEST_BYTES = 4096
SLOTS = 8
TIMEOUT_NS = 30_000_000_000
TARGET = "/v2/models/addone/infer"
Function = Callable[..., list[Array]]


def minus_two(x: Array) -> list[Array]:
    """A model that refuses what a test says it should: NaN where the input is negative."""
    return [np.where(x < 0, np.nan, x + 1).astype("<f4")]


def long_texts(s: Array) -> list[Array]:
    return [np.array([text * 3000 for text in s], object)]


MODELS: list[tuple[ModelSpec, Function]] = []


def model(name: str, function: Function, inputs: Any, outputs: Any, **more: Any) -> None:
    """Enter a model into the table."""
    index = len(MODELS)
    given = spec(index, inputs, outputs, name=name, timeout_ns=TIMEOUT_NS, **more)
    MODELS.append((given, function))


model("addone", minus_two, [Tensor("x", "FP32", [2])], [Tensor("y", "FP32", [2])], max_batch_size=2)


model("echo", lambda s: [s], [Tensor("s", "BYTES", [])], [Tensor("s", "BYTES", [])])


model("long", long_texts, [Tensor("s", "BYTES", [])], [Tensor("t", "BYTES", [])])


model(
    "sum",
    lambda a, b: [a + b, a - b],
    [Tensor("a", "INT64", [-1]), Tensor("b", "INT64", [-1])],
    [Tensor("sum", "INT64", [-1]), Tensor("diff", "INT64", [-1])],
)


model("untyped", lambda: [], [], [])


model("loading", lambda x: [x], [Tensor("x", "FP32", [])], [Tensor("x", "FP32", [])])


model("silent", lambda x: [x], [Tensor("x", "FP32", [])], [Tensor("x", "FP32", [])])


class Harness:
    """A service on a lane, and an engine that answers whatever is submitted."""

    def __init__(self) -> None:
        specs = [given for given, _ in MODELS]
        self.segment = local_segment(*specs, slots=SLOTS, lane_bytes=64 * PAGE)
        words, layout = self.segment.words, self.segment.layout
        for given in specs:
            if given.name != "loading":
                words[layout.model(given.index) + ModelWords.READY] = 1
                publish(words, layout.model(given.index), ModelState.SERVING)
        words[HeaderWords.RING_COLLECTOR] = 1
        self._loop = asyncio.get_running_loop()
        self.lane = Lane(self.segment, 0, self._ring)
        self.gateway = Gateway(self.lane, self._loop)
        self.service = Service(self.segment, self.gateway, time.monotonic_ns)
        self.app = create_app(self.service, MAX_REQUEST_BYTES)
        self._engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(words, layout.submission_ring(0), layout.slots)
        self._batch = 0

    def counters(self, name: str) -> ModelCounters:
        layout = self.segment.layout
        return CounterBlocks(self.segment.words, layout).of(self.service.model(name).spec.account)

    def _ring(self) -> None:
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        requests = [self._engine_slots.read(ref & ~PART) for ref in self._submitted.take()]
        for request in requests:
            assert request is not None
            if MODELS[request.model][0].name != "silent":
                self._answer(request)
        self._engine_slots.flush()
        self._loop.call_soon(self.gateway.collect)

    def _answer(self, request: Request) -> None:
        self._batch += 1
        mark = BatchMark(self._batch, request.rows, Reason.IDLE, 0)
        given, function = MODELS[request.model]
        start = request.request_offset
        payload = bytes(self.segment.memory[start : start + request.request_bytes])
        arrays = function(*unpack(given.inputs, request.rows, payload))
        result, _ = pack(given.outputs, arrays)
        if len(result) > request.result_capacity:
            self._engine_slots.answer(request.ref, Status.RESULT_TOO_LARGE, len(result), mark, 0)
            return
        start = request.result_offset
        self.segment.memory[start : start + len(result)] = result
        self._engine_slots.answer(request.ref, Status.OK, len(result), mark, 0)

    def close(self) -> None:
        self.gateway.close()


class Transport(asyncio.Transport):
    """Transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.came = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        self.came.set()

    def is_closing(self) -> bool:
        return False


async def over_fast_lane(harness: Harness, target: str, body: bytes, header: str | None) -> Any:
    """Status, headers and body of an answer; the request must not be handed over."""
    state = ServerState()

    def handed_over() -> None:
        raise AssertionError("handed over")

    settings = FastLaneSettings(
        predictions=harness.service,
        heads=HeadReader(MAX_REQUEST_BYTES),
        response_heads=ResponseHeads(state),
        idle_timeout_s=60,
        count_hand_over=handed_over,
        stopping=lambda: False,
        leaving=lambda: False,
        close_grace_s=lambda: CLOSE_GRACE_S,
        budget=BodyBudget.of(MAX_REQUEST_BYTES),
        recorder=recording(AccessSettings(), harness.service.engine, "f")[0],
    )
    transport = Transport()
    lane = FastLane(settings, Config(harness.app), state, {}, asyncio.get_running_loop())
    lane.connection_made(transport)
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    if header is not None:
        lines.append(f"Inference-Header-Content-Length: {header}")
    request = "\r\n".join([*lines, "", ""]).encode() + body
    answers = []
    for pieces in ([request], [request], [request[:70], request[70:]]):
        transport.written = b""
        transport.came.clear()
        for piece in pieces:
            lane.data_received(piece)
        await transport.came.wait()
        answers.append(parsed(transport.written))
    lane.connection_lost(None)
    assert all(without_batch(answer) == without_batch(answers[0]) for answer in answers)
    return answers[0]


def parsed(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, body


def without_batch(answer: Any) -> Any:
    """Return the parts of an answer that do not depend on its batch, for comparisons."""
    status, headers, body = answer
    kept = {"content-type", "content-length", "inference-header-content-length", "retry-after"}
    named = {key: value for key, value in headers.items() if key in kept}
    return status, named, "x-batch-id" in headers, body


async def over_falcon(harness: Harness, target: str, body: bytes, header: str | None) -> Any:
    """Status, headers and body of an answer."""
    headers = {} if header is None else {"Inference-Header-Content-Length": header}
    async with ASGIConductor(harness.app) as conductor:
        got: Result = await conductor.simulate_post(target, body=body, headers=headers)
    return got.status_code, dict(got.headers), got.content


def with_harness(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test that takes a stage on an event loop of its own."""

    async def on_harness(**given: Any) -> None:
        harness = Harness()
        try:
            await test(harness, **given)
        finally:
            harness.close()

    def run(**given: Any) -> None:
        asyncio.run(on_harness(**given))

    run.__name__ = test.__name__
    return run


async def infer(
    harness: Harness, target: str, body: bytes, header: str | None = None, *, fast: bool = True
) -> tuple[int, dict[str, str], bytes]:
    """An answer, which is the same on both ways."""
    answer: tuple[int, dict[str, str], bytes]
    answer = await over_falcon(harness, target, body, header)
    if fast:
        other = await over_fast_lane(harness, target, body, header)
        assert without_batch(other) == without_batch(answer)
    return answer


def read(target: str, method: str = "GET", **more: Any) -> Result:
    """Falcon's answer of an engine that has run model `sum` a little."""
    found: list[Result] = []

    @with_harness
    async def run(harness: Harness) -> None:
        counters = harness.counters("sum")
        counters.dispatched((60, 90, 100), 100, Reason.FULL, 30)
        counters.dispatched((0,), 100, Reason.RETRY, 10)
        counters.ran(3, 30, Spent(5, 200, 7, 2, 0))
        counters.ran(1, 10, Spent(1, 100, 2, 0, 1))
        tally = harness.service.model("sum").tallies[Protocol.GRPC]
        for _ in range(4):
            tally.answered(1000, 10)
        tally.ended(504, 50)
        async with ASGIConductor(harness.app) as conductor:
            found.append(await conductor.simulate_request(method, target, **more))

    run()
    return found[0]
