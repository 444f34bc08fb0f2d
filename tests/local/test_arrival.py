"""Large bodies received into their slots: a fast lane on a real lane, fed by hand."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
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
from ringbatch.frontend.http.phases import BODY_TIMEOUT_S, BODY_TOO_SLOW
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
from ringbatch.shm.tallies import CLIENT_GONE, Protocol
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
    """Keeps what is written, and brings what is fed to the protocol of the moment. Its client hangs
    up when the test says so, by `close`."""

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
    """One connection to a service, and an engine that is run by hand."""

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
        """What answers take, where that is more than there is room for."""
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

    def prepare(self, *arguments: Any) -> Upload | None:
        return self.service.prepare(*arguments)

    def record_outside(self, *arguments: Any) -> None:
        self.service.record_outside(*arguments)

    def put(self, entry: Entry) -> None:
        """As the recorder's writer."""
        self.logged.append(entry)

    def _count_hand_over(self) -> None:
        self.handed_over += 1

    def receives(self) -> bool:
        """Whether a body is being received into a slot."""
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
    """Runs a test on a loop of its own; nothing may be in flight at its end."""

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


@scenario
async def test_a_body_that_comes_in_pieces_is_received_into_its_slot(harness: Harness) -> None:
    for seed in range(3):
        request = large(seed, rows=2)
        harness.transport.feed(request[:5000])
        assert harness.receives()
        harness.transport.feed(request[5000:-1])
        assert await harness.answers() == []
        harness.transport.feed(request[-1:])
        assert not harness.receives()
        assert await harness.answers() == [total(seed, 2)]
    assert harness.gathered == 0


@scenario
async def test_wherever_a_request_is_cut_its_answer_is_the_same(harness: Harness) -> None:
    request, text = large(0), text_of(values(0))
    head = len(request) - len(text) - 4 * EACH
    edges = [head, head + len(text), head + len(text) + HEAD_BYTES, len(request) - 1]
    places = {edge + step for edge in edges for step in (-1, 0, 1)} - {len(request)}
    for place in sorted(places):
        harness.transport.feed(request[:place])
        harness.transport.feed(request[place:])
        assert await harness.answers() == [total(0)], place


@scenario
async def test_an_answer_larger_than_its_signature_says_fails_the_request(harness: Harness) -> None:
    harness.needed_bytes = 5000
    request = large(0)
    harness.transport.feed(request[:5000])
    harness.transport.feed(request[5000:])
    text = "the model's answer takes 5000 bytes, more than its signature says"
    assert await harness.answers() == [(500, text)]


@scenario
async def test_large_and_small_requests_follow_each_other_without_a_pause(harness: Harness) -> None:
    small = b'{"inputs":[{"name":"x","shape":[0,%d],"datatype":"FP32","data":[]}]}' % EACH
    plain = (
        b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(small)
    ) + small
    whole = plain + large(1) + plain + large(2) + large(3)
    pieces = [whole[start : start + 30_000] for start in range(0, len(whole), 30_000)]
    found = []
    for piece in pieces:
        harness.transport.feed(piece)
        found += await harness.answers()
    assert found == [[], total(1), [], total(2), total(3)]


@scenario
async def test_a_body_that_came_with_its_head_is_taken_as_it_is(harness: Harness) -> None:
    harness.transport.feed(large(4))
    assert await harness.answers() == [total(4)]
    assert harness.gathered == 1


@scenario
async def test_a_raw_tensor_is_received_into_its_slot(harness: Harness) -> None:
    data = values(5).tobytes()
    request = post(b"", data)
    harness.transport.feed(request[:300])
    assert harness.receives()
    harness.transport.feed(request[300:])
    await harness.run()
    assert harness.transport.written.endswith(np.array(total(5)).tobytes())


OTHERS = {
    "a wrong size": (post(text_of(values(0)), values(0).tobytes() + b"x"), 400),
    "no JSON": (post(b"{" * 40, values(0).tobytes()), 400),
    "a wrong name": (post(text_of(values(0), name=""), values(0).tobytes()), 400),
    "more rows than a batch": (large(0, rows=3), [*total(0, 3)]),
    "an unknown model": (post(text_of(values(0)), values(0).tobytes(), "nobody"), 404),
    "a model that is loading": (post(text_of(values(0)), values(0).tobytes(), "loading"), 503),
    "an untyped model": (post(text_of(values(0)), values(0).tobytes(), "untyped"), 400),
    "numbers in the text": (
        post(
            text_of(values(0), parameters={}, data=values(0)[0].tolist()) + b" " * LARGE_BYTES, b""
        ),
        total(0),
    ),
    "strings": (
        post(
            text_of(np.zeros((1, LARGE_BYTES), "u1"), datatype="BYTES", shape=[1, 1]),
            b"\xff" * LARGE_BYTES,
            "texts",
        ),
        400,
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_that_simple_is_gathered_and_answered_as_ever(case: str) -> None:
    request, expected = OTHERS[case]

    @scenario
    async def run(harness: Harness) -> None:
        for start in range(0, len(request), 20_000):
            harness.transport.feed(request[start : start + 20_000])
            if case != "a model that is loading":
                assert not harness.receives()
        (answer,) = await harness.answers()
        assert (answer[0] if isinstance(answer, tuple) else answer) == expected

    run()


@pytest.mark.parametrize("name", ["flags", "open", "pair", "unsized"])
def test_models_without_one_tensor_of_numbers_of_a_fixed_shape_gather(name: str) -> None:
    @scenario
    async def run(harness: Harness) -> None:
        array = np.zeros((1, 4 * EACH), "?") if name == "flags" else values(0)
        text = text_of(array, datatype="BOOL" if name == "flags" else "FP32")
        harness.transport.feed(post(text, array.tobytes(), name)[:2000])
        assert not harness.receives()
        assert harness.lane.in_flight == 0

    run()


@contextmanager
def begun(harness: Harness) -> Iterator[bytes]:
    """A request whose body has come in part; gives what is still to come."""
    request = large(6)
    harness.transport.feed(request[:9000])
    assert harness.receives()
    assert harness.lane.in_flight == 1
    yield request[9000:]


@scenario
async def test_a_client_that_leaves_gives_the_slot_back(harness: Harness) -> None:
    with begun(harness):
        harness.transport.close()
    assert await harness.answers() == []
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", CLIENT_GONE)]


@scenario
async def test_a_body_that_does_not_come_is_refused_and_gives_the_slot_back(
    harness: Harness,
) -> None:
    with begun(harness) as rest:
        for _ in range(BODY_TIMEOUT_S):
            harness.connection.tick()
        assert not harness.transport.written
        harness.connection.tick()
    ((status, text),) = await harness.answers()
    assert (status, text) == (408, BODY_TOO_SLOW)
    assert harness.transport.ended
    assert harness.lane.in_flight == 0
    # Its slot is somebody else's now.
    slots = np.frombuffer(harness.lane.memory, "u1")
    before = slots.copy()
    harness.transport.feed(rest)
    assert (slots == before).all()
    # And the request that has ended last.
    harness.service.record_outside(Protocol.HTTP, 404)
    harness.transport.close()
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", 408)]


@scenario
async def test_a_stop_waits_for_the_rest_of_the_body(harness: Harness) -> None:
    with begun(harness) as rest:
        harness.connection.shutdown()
        harness.connection._close_if_idle()
        harness.transport.feed(rest)
    assert await harness.answers() == [total(6)]
    assert harness.transport.closed


@scenario
async def test_a_request_whose_model_left_meanwhile_is_refused(harness: Harness) -> None:
    with begun(harness) as rest:
        offset = harness.segment.layout.model(0)
        publish(harness.segment.words, offset, ModelState.LOADING)
        harness.transport.feed(rest)
    ((status, _),) = await harness.answers()
    assert status == 503


@scenario
async def test_a_client_that_leaves_after_its_body_came_cancels_its_request(
    harness: Harness,
) -> None:
    with begun(harness) as rest:
        harness.transport.feed(rest)
        harness.transport.close()
    assert await harness.answers() == []
    assert [(entry.model, entry.status) for entry in harness.logged] == [("sum", CLIENT_GONE)]


@scenario
async def test_writing_may_pause_while_a_body_comes(harness: Harness) -> None:
    with begun(harness) as rest:
        seen = []
        for call in (
            harness.transport.protocol.pause_writing,
            harness.transport.protocol.resume_writing,
        ):
            call()
            seen.append(harness.transport.reading)
        assert seen == [False, True]
        harness.transport.feed(rest)
    assert await harness.answers() == [total(6)]


@scenario
async def test_a_connection_with_a_large_body_can_be_handed_over_afterwards(
    harness: Harness,
) -> None:
    harness.transport.feed(large(7)[:9000])
    harness.transport.feed(large(7)[9000:])
    assert await harness.answers() == [total(7)]
    harness.transport.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert harness.handed_over == 1
    assert harness.transport.reading
    while b'{"status":"alive"}' not in harness.transport.written:
        await asyncio.sleep(0)


@scenario
async def test_senders_that_owe_bytes_hold_half_of_the_memory_at_most(harness: Harness) -> None:
    text = text_of(values(0, 2))
    owing = []
    while (arrival := harness.service.prepare("sum", text, 8 * EACH)) is not None:
        owing.append(arrival)
    assert sum(arrival.size for arrival in owing) <= LANE_BYTES // 2
    assert sum(arrival.size for arrival in owing) + owing[0].size > LANE_BYTES // 2
    owing.pop().abandon()
    again = harness.service.prepare("sum", text, 8 * EACH)
    assert again is not None
    for arrival in (*owing, again):
        arrival.abandon()


@scenario
async def test_without_a_free_slot_a_body_is_gathered(harness: Harness) -> None:
    reference = harness.service.model("sum").reference
    slots = []
    while (slot := harness.lane.claim(8, 512, reference)) is not None:
        slots.append(slot)
    assert harness.service.prepare("sum", text_of(values(0)), 4 * EACH) is None
    for slot in slots:
        harness.lane.abort(slot)


def test_pieces_of_every_size_make_the_same_request() -> None:
    request = large(8)
    for size in (1000, 16_384, 65_536, 70_000):

        @scenario
        async def run(harness: Harness, size: int = size) -> None:
            edges = [*range(0, len(request), size), len(request)]
            for start, end in itertools.pairwise(edges):
                harness.transport.feed(request[start:end])
            assert await harness.answers() == [total(8)]

        run()
