"""gRPC's services on a lane in this process, with an engine that is stepped by hand and a
connection that is handed a client's bytes."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from grpc_harness import INFER, Call, Client
from http2_harness import frame
from segment_fixture import local_segment, spec

from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.grpc.call_head import CallHeadReader
from ringbatch.frontend.grpc.connection import GrpcConnection, GrpcSettings
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.reading_in_place import IN_PLACE_BYTES
from ringbatch.frontend.grpc.service import methods_of
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http2.frames import DATA
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.readiness import ModelState, publish
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import Reason, Status, without_part
from ringbatch.shm.tallies import CODE_LABELS, Protocol, ends_of
from ringbatch.shm.tensor import Tensor

SLOTS = 256
TIMEOUT_NS = 3_600_000_000_000
MAX_REQUEST_BYTES = 1 << 20
IDENTITY = spec(
    0,
    [Tensor("x", "INT64", [])],
    [Tensor("x", "INT64", [])],
    max_batch_size=4,
    timeout_ns=TIMEOUT_NS,
)
MINE = (("x-request-id", "mine"),)
BEGUN = frame(DATA, 0, 1, bytes(9))[:-1]


class Harness:
    """The services and everything under them; within a running loop."""

    def __init__(
        self,
        model: ModelSpec = IDENTITY,
        keys: ApiKeys | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.segment = local_segment(model, slots=SLOTS, lane_bytes=1 << 20)
        self.lane = Lane(self.segment, 0, lambda: None)
        self.gateway = Gateway(self.lane, asyncio.get_running_loop(), clock)
        self.service = Service(self.segment, self.gateway, clock)
        self.recorder, _ = recording(AccessSettings(), self.service.engine, "f")
        self.stopping = asyncio.Event()
        inference = Inference(self.service)
        self.methods: dict[str, MethodHandler] = {}
        heads = CallHeadReader(self.methods, keys)
        self.methods |= methods_of(self.service, inference, self.stopping, heads, self.recorder)
        self.settings = GrpcSettings(
            inference=inference,
            heads=heads,
            recorder=self.recorder,
            budget=BodyBudget(8 * MAX_REQUEST_BYTES),
            max_request_bytes=MAX_REQUEST_BYTES,
            idle_timeout_s=5.0,
            age_s=lambda: 3600.0,
            stopping=self.stopping.is_set,
            connections=set(),
            incoming=bytearray(IN_PLACE_BYTES),
            keyless={},
        )
        self.client = self.connect()
        self.engine_slots = EngineSlots(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(
            self.segment.words, self.segment.layout.submission_ring(0), SLOTS
        )
        self._words = self.segment.layout.model(0)
        self._found: set[int] = set()
        self._batch = 0
        self.served(1)

    def connect(self) -> Client:
        """Return another client."""
        return Client(GrpcConnection(self.settings, asyncio.get_running_loop()))

    def call(self, *messages: bytes, path: str = INFER, **more: Any) -> Call:
        """Make a whole call."""
        return self.client.call(path, *messages, **{"metadata": MINE, **more})

    def stop(self) -> None:
        """Tell the server to stop."""
        self.stopping.set()
        for connection in list(self.settings.connections):
            connection.stop()

    def served(self, workers: int) -> None:
        self.segment.words[self._words + ModelWords.READY] = workers
        state = ModelState.SERVING if workers else ModelState.LOADING
        publish(self.segment.words, self._words, state)

    async def taken(self, count: int) -> list[Request]:
        """Return the next requests that the engine finds."""
        found: list[Request] = []
        while len(found) < count:
            await asyncio.sleep(0)
            found += self.submitted()
        assert len(found) == count
        return found

    def submitted(self) -> list[Request]:
        """Return the requests that the engine finds now; cancelled ones it answers at once."""
        words = dict.fromkeys(map(without_part, self._submitted.take()))
        references = [ref for ref in words if ref not in self._found]
        self._found.update(references)
        read = [self.engine_slots.read(ref) for ref in references]
        found = [request for request in read if request is not None]
        self.publish(*(request for request in found if not self.engine_slots.wanted(request.ref)))
        return [request for request in found if self.engine_slots.wanted(request.ref)]

    async def quiet(self) -> None:
        """Wait until every task has run as far as it can."""
        for _ in range(20):
            await asyncio.sleep(0)

    def answer(self, *requests: Request, status: Status = Status.OK, text: str = "") -> None:
        """Answer as one batch, with what each request holds, and have the answers looked for."""
        self.publish(*requests, status=status, text=text)
        self.gateway.collect()

    def publish(self, *requests: Request, status: Status = Status.OK, text: str = "") -> None:
        """Answer as one batch; nobody has looked for the answers yet."""
        self._batch += 1
        mark = BatchMark(self._batch, len(requests), Reason.IDLE, 0)
        for request in requests:
            if status is Status.OK:
                size, start = request.request_bytes, request.request_offset
                end = request.result_offset
                self.segment.memory[end : end + size] = self.segment.memory[start : start + size]
                self.engine_slots.answer(request.ref, status, size, mark, 0)
            else:
                self.engine_slots.fail(request, status, text, mark, 0)
        self.engine_slots.flush()


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def counted(harness: Harness) -> dict[tuple[Protocol, str], int]:
    """Calls for no model that have ended, by how they came and how they ended."""
    nobody = harness.segment.layout.models
    codes = ends_of(harness.segment, [nobody])[nobody].codes
    return {
        (protocol, code): count
        for protocol in Protocol
        for code, count in zip(("200", *CODE_LABELS), codes[protocol], strict=True)
        if count
    }


def message(*numbers: int, **more: Any) -> bytes:
    tensor = {"name": "x", "datatype": "INT64", "shape": [len(numbers)]}
    raw = b"".join(number.to_bytes(8, "little") for number in numbers)
    fields = {"model_name": "m", "inputs": [tensor], "raw_input_contents": [raw]} | more
    data: bytes = inference("ModelInferRequest")(**fields).SerializeToString()
    return data


def numbers_in(response: bytes | Any) -> list[int]:
    if isinstance(response, bytes):
        response = inference("ModelInferResponse").FromString(response)
    (raw,) = response.raw_output_contents
    return [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8)]


def streamed(call: Call) -> list[Any]:
    """The answers of a stream so far."""
    return [inference("ModelStreamInferResponse").FromString(data) for data in call.messages]


def whole(flag: int, size: int, data: bytes) -> bytes:
    return bytes([flag]) + size.to_bytes(4, "big") + data


async def asked(harness: Harness, data: bytes) -> bytes:
    """The answer to a request of one part."""
    call = harness.call(data)
    harness.answer(*await harness.taken(1))
    return await call.answer()
