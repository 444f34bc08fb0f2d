"""A fast lane on a real lane, fed with large bodies by hand."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from frontend_harness import AtOnce
from segment_fixture import local_segment, spec
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.log_entry import Entry
from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S, FastLaneSettings
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.receiver import HEAD_BYTES, Receiver
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.arrival import LARGE_BYTES
from ringbatch.frontend.request.calls import RequestHandle, Upload
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.descriptors import HeaderWords, ModelWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import PART, Reason, Status
from ringbatch.shm.tensor import Tensor

EACH = LARGE_BYTES // 4
"""Numbers in one instance; it has as many bytes as a large tensor has at least."""
LANE_BYTES = 20 * LARGE_BYTES
MAX_REQUEST_BYTES = 1 << 20
SECOND_NS = 1_000_000_000


def model(index: int, name: str, inputs: Any, outputs: Any, **more: Any) -> ModelSpec:
    return spec(index, inputs, outputs, name=name, max_batch_size=2, **more)


SUM = [Tensor("y", "FP64", [])]
MODELS = (
    model(0, "sum", [Tensor("x", "FP32", [EACH])], SUM, timeout_ns=60 * SECOND_NS),
    model(1, "flags", [Tensor("x", "BOOL", [4 * EACH])], SUM),
    model(2, "texts", [Tensor("x", "BYTES", [1])], SUM),
    model(3, "open", [Tensor("x", "FP32", [-1])], SUM),
    model(4, "pair", [Tensor("x", "FP32", [EACH]), Tensor("z", "FP32", [1])], SUM),
    model(5, "unsized", [Tensor("x", "FP32", [EACH])], [Tensor("y", "FP32", [-1])]),
    model(6, "untyped", (), ()),
    model(7, "loading", [Tensor("x", "FP32", [EACH])], SUM),
)


class Transport(asyncio.Transport):
    """Transport that keeps what is written, and feeds bytes to the protocol of the moment.

    Its client hangs up when the test says so, by `close`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.written = b""
        self.closed = self.ended = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert not self.reading, "uvloop looks at the protocol's kind when reading starts"
        self.protocol = protocol

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    def feed(self, data: bytes) -> None:
        while data and not self.closed:
            protocol = self.protocol
            if not isinstance(protocol, asyncio.BufferedProtocol):
                protocol.data_received(data)
                return
            buffer = memoryview(protocol.get_buffer(-1))
            assert buffer, "the transport has nowhere to put a byte"
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            protocol.buffer_updated(size)
            data = data[size:]


class Harness:
    """Connection to a service, and an engine that the test runs by hand."""

    def __init__(self) -> None:
        self.segment = local_segment(*MODELS, slots=8, lane_bytes=LANE_BYTES)
        layout, self._words = self.segment.layout, self.segment.words
        for given in MODELS[:-1]:
            self.serve(given.index)
        self._words[HeaderWords.RING_COLLECTOR] = 1
        loop = asyncio.get_running_loop()
        self.lane = Lane(self.segment, 0, lambda: None)
        self.gateway = Gateway(self.lane, loop)
        self.service = Service(self.segment, self.gateway, time.monotonic_ns)
        self.service.engine.apart = AtOnce()
        self._engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(self._words, layout.submission_ring(0), layout.slots)
        self._batch = 0
        self.needed_bytes = 0
        """Bytes that answers take, if they need more than there is room for."""
        self.gathered = 0
        self.handed_over = 0
        self.logged: list[Entry] = []
        """Requests that have ended."""
        engine = self.service.engine
        recorder = Recorder(
            AccessSettings("all"), engine.outcomes, engine.batch_ids, cast(Any, self)
        )
        state = ServerState()
        settings = FastLaneSettings(
            predictions=self,
            heads=HeadReader(MAX_REQUEST_BYTES),
            response_heads=ResponseHeads(state),
            idle_timeout_s=60,
            count_hand_over=self._count_hand_over,
            stopping=lambda: False,
            leaving=lambda: False,
            close_grace_s=lambda: CLOSE_GRACE_S,
            budget=BodyBudget.of(MAX_REQUEST_BYTES),
            recorder=recorder,
        )
        config = Config(
            create_app(self.service, MAX_REQUEST_BYTES), log_config=None, lifespan="off"
        )
        config.load()
        self.transport = Transport()
        self.connection = FastLane(settings, config, state, {}, loop)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def serve(self, index: int) -> None:
        offset = self.segment.layout.model(index)
        self._words[offset + ModelWords.READY] = 1
        publish(self._words, offset, ModelState.SERVING)

    def predict(self, *arguments: Any) -> RequestHandle | None:
        return self.service.predict(*arguments)

    def infer(self, *arguments: Any) -> RequestHandle | None:
        self.gathered += 1
        return self.service.infer(*arguments)

    def generate(self, *arguments: Any) -> RequestHandle | None:
        return self.service.generate(*arguments)

    def prepare(self, *arguments: Any) -> Upload | None:
        return self.service.prepare(*arguments)

    def record_outside(self, *arguments: Any) -> None:
        self.service.record_outside(*arguments)

    def put(self, entry: Entry) -> None:
        """Write a log entry, as the recorder's writer."""
        self.logged.append(entry)

    def _count_hand_over(self) -> None:
        self.handed_over += 1

    def receives(self) -> bool:
        """Return whether a body is being received into a slot."""
        receiver = self.transport.protocol
        return isinstance(receiver, Receiver) and len(receiver.get_buffer(-1)) != HEAD_BYTES

    async def answers(self) -> list[Any]:
        """Run everything that was submitted, and decode what was written since."""
        await self.run()
        found = []
        data, self.transport.written = self.transport.written, b""
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            size = int(head.lower().rpartition(b"content-length: ")[2].split(b"\r\n")[0])
            body, data = json.loads(data[:size]), data[size:]
            status = int(head.split()[1])
            found.append(body["outputs"][0]["data"] if status == 200 else (status, body["error"]))
        return found

    async def run(self) -> None:
        """Run everything that was submitted, as often as that makes more of it."""
        for _ in range(20):
            await asyncio.sleep(0)
            for ref in self._submitted.take():
                request = self._engine_slots.read(ref & ~PART)
                assert request is not None
                self._answer(request)
            self._engine_slots.flush()
            self.gateway.collect()

    def _answer(self, request: Request) -> None:
        self._batch += 1
        start = request.request_offset
        payload = bytes(self.segment.memory[start : start + request.request_bytes])
        sums = np.frombuffer(payload, "<f4").reshape(request.rows, -1).sum(1, dtype="<f8")
        start = request.result_offset
        self.segment.memory[start : start + sums.nbytes] = sums.tobytes()
        mark = BatchMark(self._batch, request.rows, Reason.IDLE, 0)
        if self.needed_bytes:
            self._engine_slots.answer(
                request.ref, Status.RESULT_TOO_LARGE, self.needed_bytes, mark, 0
            )
        else:
            self._engine_slots.answer(request.ref, Status.OK, sums.nbytes, mark, 0)


def scenario(test: Callable[[Harness], Any]) -> Callable[[], None]:
    """Run a test on an event loop of its own; nothing may be in flight at its end."""

    def run() -> None:
        async def whole() -> None:
            harness = Harness()
            await test(harness)
            assert harness.lane.in_flight == 0
            harness.gateway.close()

        asyncio.run(whole())

    run.__name__ = test.__name__
    return run


def values(seed: int, rows: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 9, (rows, EACH)).astype("<f4")


def text_of(array: Any, name: str = "x", datatype: str = "FP32", **changes: Any) -> bytes:
    size = {"binary_data_size": array.nbytes}
    entry = {"name": name, "shape": array.shape, "datatype": datatype, "parameters": size}
    return json.dumps({"inputs": [entry | changes]}).encode()


def post(text: bytes, data: bytes, name: str = "sum", *lines: str) -> bytes:
    head = [
        f"POST /v2/models/{name}/infer HTTP/1.1",
        "Host: x",
        f"Content-Length: {len(text) + len(data)}",
        f"Inference-Header-Content-Length: {len(text)}",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + text + data


def large(seed: int, rows: int = 1) -> bytes:
    array = values(seed, rows)
    return post(text_of(array), array.tobytes())


def total(seed: int, rows: int = 1) -> list[float]:
    found: list[float] = values(seed, rows).sum(1, dtype="<f8").tolist()
    return found
