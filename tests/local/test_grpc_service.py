"""Inference over gRPC on a lane in this process, with an engine that is stepped by hand and a
connection that is handed a client's bytes: what a call comes to, and what is left of it where its
client goes or the server stops."""

import asyncio
import gc
import hashlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from grpc_harness import INFER, STREAM, Call, Client
from http2_harness import GREETING, frame
from segment_fixture import local_segment, spec

from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.grpc import inference as grpc_inference
from ringbatch.frontend.grpc.call_head import CallHeads
from ringbatch.frontend.grpc.calls import Method
from ringbatch.frontend.grpc.connection import GrpcConnection, GrpcSettings
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.messages import SCHEMA, inference
from ringbatch.frontend.grpc.service import WINDOW, Control, methods_of
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http2.connection import STREAM_ROOM
from ringbatch.frontend.http2.frames import CANCEL, DATA
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_port import BatchMark, EnginePort, Request
from ringbatch.shm.errors import ModelNotReady
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import PART, Reason, Status
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

    def __init__(self, model: ModelSpec = IDENTITY, keys: ApiKeys | None = None) -> None:
        self.segment = local_segment(model, slots=SLOTS, lane_bytes=1 << 20)
        self.lane = Lane(self.segment, 0, lambda: None)
        self.gateway = Gateway(self.lane, asyncio.get_running_loop())
        self.service = Service(self.segment, self.gateway, time.monotonic_ns)
        self.recorder, _ = recording(AccessSettings(), self.service.engine, "f")
        self.stopping = asyncio.Event()
        inference = Inference(self.service)
        methods: dict[str, Method] = {}
        heads = CallHeads(methods, keys)
        methods |= methods_of(self.service, inference, self.stopping, heads, self.recorder)
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
        )
        self.client = self.connect()
        self.port = EnginePort(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(
            self.segment.words, self.segment.layout.submission_ring(0), SLOTS
        )
        self._words = self.segment.layout.model(0)
        self._batch = 0
        self.served(1)

    def connect(self) -> Client:
        """Another client."""
        return Client(GrpcConnection(self.settings, asyncio.get_running_loop()))

    def call(self, *messages: bytes, path: str = INFER, **more: Any) -> Call:
        """A whole call."""
        return self.client.call(path, *messages, **{"metadata": MINE, **more})

    def stop(self) -> None:
        """The server is to stop."""
        self.stopping.set()
        for connection in list(self.settings.connections):
            connection.stop()

    def served(self, workers: int) -> None:
        for word in (ModelWords.READY, ModelWords.SERVED):
            self.segment.words[self._words + word] = workers

    async def taken(self, count: int) -> list[Request]:
        """The next requests that the engine finds."""
        found: list[Request] = []
        while len(found) < count:
            await asyncio.sleep(0)
            for ref in self._submitted.take():
                request = self.port.read(ref & ~PART)
                assert request is not None
                found.append(request)
        assert len(found) == count
        return found

    async def quiet(self) -> None:
        """Until every task has run as far as it can."""
        for _ in range(20):
            await asyncio.sleep(0)

    def answer(self, *requests: Request, status: Status = Status.OK, text: str = "") -> None:
        """Answer as one batch, with what each request holds."""
        self._batch += 1
        mark = BatchMark(self._batch, len(requests), Reason.IDLE, 0)
        for request in requests:
            if status is Status.OK:
                size, start = request.request_bytes, request.request_offset
                end = request.result_offset
                self.segment.memory[end : end + size] = self.segment.memory[start : start + size]
                self.port.answer(request.ref, status, size, mark, 0)
            else:
                self.port.fail(request, status, text, mark, 0)
        self.port.flush()
        self.gateway.collect()


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


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


def test_a_request_is_answered_with_its_batch() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7, id="i"))
        (request,) = await harness.taken(1)
        harness.answer(request)
        response = inference("ModelInferResponse").FromString(await call.answer())
        assert numbers_in(response) == [7]
        assert (response.id, [*response.parameters]) == ("i", ["batch_id"])
        assert len(response.parameters["batch_id"].string_param) == 36
        assert call.trailing == {"x-request-id": "mine"}
        assert harness.lane.in_flight == 0

    on_loop(test)


async def asked(harness: Harness, data: bytes) -> bytes:
    """The answer to a request of one part."""
    call = harness.call(data)
    harness.answer(*await harness.taken(1))
    return await call.answer()


def test_of_a_message_that_comes_again_only_what_differs_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        harness = Harness()
        await asked(harness, message(7))
        monkeypatch.setattr(grpc_inference, "_parsed", None)
        for identity, number in (("a", 8), ("", 9), ("b" * 127, 10)):
            answer = await asked(harness, message(number, id=identity))
            assert numbers_in(answer) == [number]
            assert inference("ModelInferResponse").FromString(answer).id == identity

    on_loop(test)


def test_a_known_message_is_for_the_model_of_that_name_now() -> None:
    async def test() -> None:
        harness = Harness()
        response = inference("ModelInferResponse").FromString
        assert response(await asked(harness, message(1, 2))).model_version == "1"
        harness.segment.model_table.publish((replace(IDENTITY, version="2", generation=1),))
        assert response(await asked(harness, message(1, 2))).model_version == "2"
        harness.segment.model_table.publish(())
        code, _ = await harness.call(message(1, 2)).ended()
        assert code == "NOT_FOUND"

    on_loop(test)


def test_a_known_message_keeps_its_deadline_and_its_id_where_it_fails() -> None:
    async def test() -> None:
        harness = Harness()
        more = {"parameters": {"timeout": {"int64_param": 5_000_000}}}
        await asked(harness, message(7, **more))
        call = harness.call(message(8, id="i", **more), path=STREAM)
        (request,) = await harness.taken(1)
        assert request.deadline_ns - request.accepted_ns == 5_000_000_000
        harness.answer(request, status=Status.MODEL_FAILED, text="why")
        await call.ended()
        (answer,) = streamed(call)
        assert (answer.error_message, answer.infer_response.id) == ("why", "i")

    on_loop(test)


def test_more_instances_than_a_batch_holds_are_put_together_again() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(*range(10)))
        requests = await harness.taken(3)
        assert [request.rows for request in requests] == [4, 4, 2]
        for request in reversed(requests):
            harness.answer(request)
        assert numbers_in(await call.answer()) == list(range(10))
        assert harness.lane.in_flight == 0

    on_loop(test)


def streamed(call: Call) -> list[Any]:
    """The answers of a stream so far."""
    return [inference("ModelStreamInferResponse").FromString(data) for data in call.messages]


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (message(1, model_name="nope"), "ModelInfer nope"),
        (message(1, model_version="2"), "ModelInfer m"),
        (message(1, raw_input_contents=[bytes(7)]), "ModelInfer"),
        (b"\xff", "ModelInfer"),
    ],
)
def test_the_log_has_the_name_of_a_model_that_there_is_not(data: bytes, target: str) -> None:
    async def test() -> None:
        harness = Harness()
        told: list[str] = []

        def record(_ending: Any, exchanged: Any, **_: Any) -> None:
            told.append(exchanged.target)

        harness.recorder.record = record  # type: ignore[method-assign, assignment]
        await harness.call(data).ended()
        assert told == [target]

    on_loop(test)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"\xff", "INVALID_ARGUMENT", "the message is no ModelInferRequest"),
        (message(1, model_name="nope"), "NOT_FOUND", 'there is no model "nope"'),
        (message(1, model_version="2"), "NOT_FOUND", 'no version "2"'),
        (message(1, raw_input_contents=[bytes(7)]), "INVALID_ARGUMENT", "has 7 bytes"),
        (message(*range(4 * SLOTS + 1)), "RESOURCE_EXHAUSTED", "which make 257 batches"),
    ],
)
def test_what_cannot_be_taken_ends_the_call(data: bytes, code: str, words: str) -> None:
    async def test() -> None:
        harness = Harness()
        found, text = await harness.call(data).ended()
        assert (found, words in text) == (code, True)
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_a_model_that_was_never_ready_is_unavailable() -> None:
    async def test() -> None:
        harness = Harness()
        harness.served(0)
        code, text = await harness.call(message(1)).ended()
        assert (code, text) == ("UNAVAILABLE", 'model "m" is not ready: no worker holds it now')

    on_loop(test)


def test_a_full_lane_is_unavailable() -> None:
    async def test() -> None:
        harness = Harness()
        calls = [harness.call(message(n)) for n in range(SLOTS)]
        requests = await harness.taken(SLOTS)
        code, _ = await harness.call(message(1)).ended()
        assert code == "UNAVAILABLE"
        harness.answer(*requests)
        assert [numbers_in(await call.answer()) for call in calls] == [[n] for n in range(SLOTS)]

    on_loop(test)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.INVALID, "INVALID_ARGUMENT"),
        (Status.MODEL_FAILED, "INTERNAL"),
        (Status.WORKER_DIED, "UNAVAILABLE"),
        (Status.EXPIRED, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_failure_in_the_engine_ends_the_call_with_its_batch(status: Status, code: str) -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7))
        (request,) = await harness.taken(1)
        harness.answer(request, status=status, text="why")
        assert await call.ended() == (code, "why")
        assert [*call.trailing] == ["x-batch-id", "x-request-id"]

    on_loop(test)


def test_no_instances_are_answered_without_the_engine() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message())
        assert numbers_in(await call.answer()) == []
        assert (call.trailing, harness.lane.in_flight) == ({"x-request-id": "mine"}, 0)

    on_loop(test)


@pytest.mark.parametrize(
    ("timeout", "timeout_us", "bound_ns"),
    [
        (None, 0, TIMEOUT_NS),
        (None, 1_000_000, 1_000_000_000),
        ("100S", 0, 100_000_000_000),
        ("100S", 1_000_000, 1_000_000_000),
        ("500m", 1_000_000, 500_000_000),
        ("99999999H", 1 << 51, TIMEOUT_NS),
    ],
)
def test_the_deadline_is_the_earliest_of_three(
    timeout: str | None, timeout_us: int, bound_ns: int
) -> None:
    """That of the model, of the parameter and of the call."""

    async def test() -> None:
        harness = Harness()
        data = message(7, parameters={"timeout": {"int64_param": timeout_us}})
        before = time.monotonic_ns()
        call = harness.call(data, timeout=timeout)
        (request,) = await harness.taken(1)
        assert before <= request.deadline_ns - bound_ns <= time.monotonic_ns()
        harness.answer(request)
        await call.answer()

    on_loop(test)


def test_a_deadline_that_is_over_ends_the_call_before_the_engine() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(timeout="1n", end=False)
        await call.ended()
        call = harness.call(message(1), timeout="0S")
        code, _ = await call.ended()
        assert code == "DEADLINE_EXCEEDED"

    on_loop(test)


def test_no_answer_by_the_deadline_ends_the_call() -> None:
    async def test() -> None:
        harness = Harness()
        code, text = await harness.call(message(1), timeout="10m").ended()
        assert (code, text) == (
            "DEADLINE_EXCEEDED",
            "no answer came within the 0.01 s it asked for",
        )
        assert harness.lane.counters[LaneCounter.TIMEOUTS] == 1

    on_loop(test)


@pytest.mark.parametrize("timeout", ["", "1", "S", "-1S", "1.5S", "123456789S", "1s"])
def test_what_is_no_time_ends_the_call(timeout: str) -> None:
    async def test() -> None:
        code, text = await Harness().call(message(1), timeout=timeout).ended()
        assert (code, text) == ("INTERNAL", "grpc-timeout is no time")

    on_loop(test)


def test_a_call_that_its_client_cancels_gives_its_slot_up() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(1))
        (request,) = await harness.taken(1)
        call.cancel()
        assert not harness.port.wanted(request.ref)
        harness.answer(request)
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_a_connection_that_is_lost_gives_its_slots_up() -> None:
    async def test() -> None:
        harness = Harness()
        harness.call(message(1))
        stream = harness.call(message(2), path=STREAM, end=False)
        half = harness.call(end=False)
        half.send(b"", cut=3)
        requests = await harness.taken(2)
        stream.client.connection.connection_lost(None)
        await harness.quiet()
        assert not any(harness.port.wanted(request.ref) for request in requests)
        assert harness.settings.connections == set()
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_an_answer_that_meets_a_cancellation_harms_nobody() -> None:
    async def test() -> None:
        harness = Harness()
        call, other = harness.call(message(1)), harness.call(message(2))
        requests = await harness.taken(2)
        call.cancel()
        harness.answer(*requests)
        assert numbers_in(await other.answer()) == [2]
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_a_message_may_come_in_pieces_and_with_others() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(end=False)
        framed = call.framed(message(7))
        for at in range(0, len(framed), 7):
            call.send_bytes(framed[at : at + 7])
        call.finish()
        harness.answer(*await harness.taken(1))
        assert numbers_in(await call.answer()) == [7]
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_a_message_is_answered_though_its_client_has_not_come_to_its_end() -> None:
    async def test() -> None:
        harness = Harness()
        whole, cut = harness.call(message(7), end=False), harness.call(end=False)
        framed = cut.framed(message(8))
        cut.send_bytes(framed[:9])
        cut.send_bytes(framed[9:])
        requests = await harness.taken(2)
        # What comes behind it is not kept.
        whole.send_bytes(bytes(1 << 14))
        harness.answer(*requests)
        assert numbers_in(await whole.answer()) == [7]
        assert numbers_in(await cut.answer()) == [8]
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_of_a_call_that_is_over_nothing_is_left_to_collect() -> None:
    async def test() -> None:
        harness = Harness()
        gc.collect()
        before = len(gc.get_objects())
        gc.disable()
        try:
            for _ in range(100):
                call = harness.call(path=STREAM, end=False)
                await harness.quiet()
                call.cancel()
                await harness.quiet()
            assert len(gc.get_objects()) - before < 10 * 100
        finally:
            gc.enable()

    on_loop(test)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_message_may_be_compressed(coding: str) -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7), coding=coding)
        harness.answer(*await harness.taken(1))
        assert numbers_in(await call.answer()) == [7]

    on_loop(test)


def whole(flag: int, size: int, data: bytes) -> bytes:
    return bytes([flag]) + size.to_bytes(4, "big") + data


BODIES = {
    "nothing": (b"", {}, "INVALID_ARGUMENT", "in the middle of its message"),
    "half": (whole(0, 9, b"12345678"), {}, "INVALID_ARGUMENT", "in the middle of its message"),
    "two": (whole(0, 1, b"a") * 2, {}, "INVALID_ARGUMENT", "one message"),
    "flag": (whole(2, 0, b""), {}, "INVALID_ARGUMENT", "compressed or it is not"),
    "no-coding": (whole(1, 1, b"a"), {}, "INVALID_ARGUMENT", "does not say how"),
    "coding": (whole(1, 1, b"a"), {"grpc-encoding": "br"}, "UNIMPLEMENTED", "gzip or deflate"),
    "no-gzip": (whole(1, 1, b"a"), {"grpc-encoding": "gzip"}, "INVALID_ARGUMENT", "gzip stream"),
    "long": (whole(0, 1 << 30, b"a"), {}, "RESOURCE_EXHAUSTED", "max_request_bytes"),
}


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("method", [INFER, "/inference.GRPCInferenceService/ModelMetadata"])
def test_what_is_no_message_ends_the_call(case: str, method: str) -> None:
    body, metadata, code, words = BODIES[case]

    async def test() -> None:
        harness = Harness()
        call = harness.call(path=method, end=False, metadata=tuple(metadata.items()))
        call.send_bytes(body)
        call.finish()
        found, text = await call.ended()
        assert (found, words in text) == (code, True), text
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_what_is_expanded_has_a_limit_too() -> None:
    async def test() -> None:
        harness = Harness()
        code, text = await harness.call(bytes(MAX_REQUEST_BYTES + 1), coding="gzip").ended()
        assert (code, "max_request_bytes" in text) == ("RESOURCE_EXHAUSTED", True)

    on_loop(test)


def test_what_is_not_whole_has_a_budget() -> None:
    async def test() -> None:
        harness = Harness()
        calls = [harness.call(end=False) for _ in range(12)]
        for call in calls:
            call.send_bytes(whole(0, MAX_REQUEST_BYTES, b""))
            for _ in range(63):
                call.send_bytes(bytes(1 << 14))
        ended = [call.status for call in calls if call.status is not None]
        assert {code for code, _ in ended} == {"UNAVAILABLE"}
        assert len(ended) == 4
        for call in calls:
            call.cancel()
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "application/json"}, "415"),
        ({"content-type": "application/grpcx"}, "415"),
    ],
)
def test_what_is_no_grpc_is_told_so_as_http(fields: dict[str, str], status: str) -> None:
    async def test() -> None:
        call = Harness().call(message(1), fields=fields)
        await call.ended()
        assert call.http_status == status

    on_loop(test)


def test_an_unknown_method_is_unimplemented_whatever_its_path() -> None:
    async def test() -> None:
        for path in ("/nope/Nope", "/\xff", "/"):
            code, _ = await Harness().call(message(1), path=path).ended()
            assert code == "UNIMPLEMENTED"

    on_loop(test)


def test_metadata_have_a_limit() -> None:
    async def test() -> None:
        harness = Harness()
        code, _ = await harness.call(message(1), metadata=(("x", "y"),) * 500).ended()
        assert code == "RESOURCE_EXHAUSTED"
        call = harness.call(message(1), metadata=(("x", "y"),) * 450)
        harness.answer(*await harness.taken(1))
        await call.answer()

    on_loop(test)


def test_a_key_is_asked_for_until_keys_change_and_then_again() -> None:
    digests = [hashlib.sha256(key).digest() for key in (b"first-key", b"second-key")]

    async def test() -> None:
        keys = ApiKeys(digests[:1])
        harness = Harness(keys=keys)
        code, _ = await harness.call(message(1)).ended()
        assert code == "UNAUTHENTICATED"
        mine = (("x-api-key", "first-key"),)
        call = harness.call(message(1), metadata=mine)
        harness.answer(*await harness.taken(1))
        await call.answer()
        stream = harness.call(message(2), path=STREAM, end=False, metadata=mine)
        harness.answer(*await harness.taken(1))
        keys.replace(digests[1:])
        for connection in harness.settings.connections:
            connection.forget()
        code, _ = await harness.call(message(1), metadata=mine).ended()
        assert code == "UNAUTHENTICATED"
        stream.send(message(3))
        code, _ = await stream.ended()
        assert code == "UNAUTHENTICATED"
        # What health and readiness ask for needs none.
        call = harness.call(b"", path="/inference.GRPCInferenceService/ServerReady")
        assert await call.answer()

    on_loop(test)


def test_a_stream_is_answered_in_order_whatever_finishes_first() -> None:
    async def test() -> None:
        harness = Harness()
        items = (message(1, id="a"), message(2, raw_input_contents=[b""], id="b"), message(3))
        call = harness.call(*items, path=STREAM, end=False)
        requests = await harness.taken(2)
        harness.answer(requests[1])
        await harness.quiet()
        assert call.messages == []
        harness.answer(requests[0])
        call.finish()
        assert await call.ended() == ("OK", "")
        first, second, third = streamed(call)
        for answered in (first, second, third):
            assert answered.infer_response.parameters["triton_final_response"].bool_param
        assert (numbers_in(first.infer_response), first.infer_response.id) == ([1], "a")
        assert (numbers_in(third.infer_response), third.error_message) == ([3], "")
        assert "has 0 bytes of binary data" in second.error_message
        assert (second.infer_response.id, second.infer_response.model_name) == ("b", "")

    on_loop(test)


def test_a_stream_has_a_bounded_number_on_their_way() -> None:
    async def test() -> None:
        harness = Harness()
        total = WINDOW + 40
        call = harness.call(*(message(number) for number in range(total)), path=STREAM)
        requests = await harness.taken(WINDOW)
        await harness.quiet()
        assert harness.lane.in_flight == WINDOW
        # Only the first in the order makes room.
        harness.answer(*requests[1:])
        await harness.quiet()
        assert harness.lane.counters[LaneCounter.REQUESTS] == WINDOW
        harness.answer(requests[0])
        harness.answer(*await harness.taken(total - WINDOW))
        assert await call.ended() == ("OK", "")
        answers = streamed(call)
        assert [numbers_in(m.infer_response) for m in answers] == [[n] for n in range(total)]

    on_loop(test)


def test_who_streams_more_than_is_read_has_to_wait() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(path=STREAM, end=False)
        await harness.quiet()
        for number in range(WINDOW):
            call.send(message(number))
        requests = await harness.taken(WINDOW)
        await harness.quiet()
        given = call.room
        for _ in range(40):
            call.send(bytes((1 << 14) - 5))
            await harness.quiet()
        assert call.room == given
        harness.answer(*requests)
        await harness.quiet()
        harness.client.absorb()
        assert len(call.messages) == WINDOW + 40
        assert call.room > given

    on_loop(test)


def test_of_what_a_stream_has_sent_only_what_is_read_makes_room() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(path=STREAM, end=False)
        size = 1 << 13
        for _ in range(WINDOW + 40):
            call.send(message(1, id="i" * (size - 50)))
        await harness.quiet()
        harness.client.absorb()
        # Of those it is less than half of the room, so that it does not come back yet.
        assert call.room == STREAM_ROOM

    on_loop(test)


def test_a_stream_whose_client_does_not_read_waits_and_ends() -> None:
    async def test() -> None:
        harness = Harness()
        client = harness.client
        client.windows(0)
        call = harness.call(message(1), message(2), path=STREAM, end=False)
        harness.answer(*await harness.taken(2))
        await harness.quiet()
        assert call.messages == []
        for _ in range(70):
            client.connection.tick()
            client.absorb()
            client.pong()
        assert call.reset == CANCEL
        assert harness.settings.connections

    on_loop(test)


def test_a_stream_that_its_client_cancels_gives_its_slots_up() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(*(message(number) for number in range(5)), path=STREAM, end=False)
        requests = await harness.taken(5)
        call.cancel()
        await harness.quiet()
        assert not any(harness.port.wanted(request.ref) for request in requests)

    on_loop(test)


def test_a_stop_answers_what_a_stream_has_and_ends_it() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(*(message(number) for number in range(3)), path=STREAM, end=False)
        requests = await harness.taken(3)
        harness.stop()
        await harness.quiet()
        assert call.status is None
        call.send(message(9))
        harness.answer(*requests)
        assert await call.ended() == ("UNAVAILABLE", "the server is stopping")
        assert [numbers_in(m.infer_response) for m in streamed(call)] == [[0], [1], [2]]

    on_loop(test)


def test_a_stop_serves_what_comes_before_its_client_knows() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(7))
        (request,) = await harness.taken(1)
        harness.stop()
        late = harness.call(message(8))
        (other,) = await harness.taken(1)
        harness.client.absorb()
        assert harness.client.goaways == [(1 << 31) - 1]
        harness.client.pong()
        assert harness.client.goaways == [(1 << 31) - 1, late.number]
        assert not harness.client.gone()
        harness.answer(request, other)
        assert numbers_in(await call.answer()) == [7]
        assert numbers_in(await late.answer()) == [8]
        await harness.quiet()
        assert harness.client.gone()

    on_loop(test)


def test_who_comes_to_a_server_that_stops_is_told_so() -> None:
    async def test() -> None:
        harness = Harness()
        harness.stop()
        client = harness.connect()
        client.absorb()
        assert client.goaways == [(1 << 31) - 1]

    on_loop(test)


def test_a_stop_ends_an_idle_reflection_call() -> None:
    async def test() -> None:
        harness = Harness()
        service = "grpc.reflection.v1.ServerReflection"
        request = SCHEMA.services[service]["ServerReflectionInfo"].request
        asked = request(list_services="*").SerializeToString()
        call = harness.call(asked, path=f"/{service}/ServerReflectionInfo", end=False)
        await harness.quiet()
        harness.client.absorb()
        assert len(call.messages) == 1
        harness.stop()
        assert await call.ended() == ("UNAVAILABLE", "the server is stopping")

    on_loop(test)


def expect_nothing() -> NoReturn:
    raise ModelNotReady("another is loading")


def test_health_follows_readiness_and_a_stop() -> None:
    async def test() -> None:
        harness = Harness()
        method = SCHEMA.services["grpc.health.v1.Health"]["Check"]
        path = "/grpc.health.v1.Health"

        def asked(name: str, service: str) -> Call:
            request = method.request(service=service).SerializeToString()
            return harness.call(request, path=f"{path}/{name}")

        async def status(service: str = "") -> int:
            answer = await asked("Check", service).answer()
            return int(method.response.FromString(answer).status)

        assert [await status(), await status("inference.GRPCInferenceService")] == [1, 1]
        assert await status("m") == 1
        harness.served(0)
        assert [await status(), await status("m")] == [2, 2]
        harness.served(1)
        # Another model is not ready.
        harness.service.expect_ready = expect_nothing  # type: ignore[method-assign]
        assert [await status(), await status("m")] == [2, 1]
        del harness.service.expect_ready
        harness.served(0)
        harness.served(1)
        ended = await asked("Check", "nope").ended()
        assert ended == ("NOT_FOUND", 'there is no service "nope"')
        watcher, unknown = asked("Watch", ""), asked("Watch", "nope")
        await harness.quiet()
        harness.stop()
        assert await status() == 2
        for call, statuses in ((watcher, [1, 2]), (unknown, [3])):
            assert await call.ended() == ("OK", "")
            found = [method.response.FromString(data).status for data in call.messages]
            assert found == statuses

    on_loop(test)


# Clocks


def test_a_connection_without_a_call_ends_after_a_time() -> None:
    async def test() -> None:
        harness = Harness()
        for _ in range(5):
            harness.client.connection.tick()
        assert not harness.client.gone()
        harness.client.connection.tick()
        harness.client.absorb()
        assert harness.client.gone()
        assert harness.client.goaways == [0]

    on_loop(test)


@pytest.mark.parametrize("sent", [b"", b"PRI * HT", GREETING + b"\0", GREETING + BEGUN])
def test_who_stops_in_the_middle_is_gone_after_a_time(sent: bytes) -> None:
    async def test() -> None:
        harness = Harness()
        harness.settings.idle_timeout_s = 3600.0
        client = Client(GrpcConnection(harness.settings, asyncio.get_running_loop()), sent)
        for _ in range(13):
            client.connection.tick()
        assert client.gone()

    on_loop(test)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_message_that_stops_ends_its_call_after_a_time(path: str) -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(path=path, end=False)
        call.send_bytes(whole(0, 1000, b"half"))
        await harness.quiet()
        for _ in range(32):
            harness.client.connection.tick()
        code, text = await call.ended()
        assert (code, "did not come within" in text) == ("DEADLINE_EXCEEDED", True)
        harness.settings.budget.take(8 * MAX_REQUEST_BYTES)

    on_loop(test)


def test_a_stream_may_be_silent_for_as_long_as_its_client_is_there() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(path=STREAM, end=False)
        await harness.quiet()
        for _ in range(200):
            harness.client.connection.tick()
            harness.client.absorb()
            harness.client.pong()
        assert call.status is None
        assert not harness.client.gone()
        for _ in range(50):
            harness.client.connection.tick()
        assert harness.client.gone()

    on_loop(test)


def test_a_client_that_does_not_read_ends_after_a_time() -> None:
    async def test() -> None:
        harness = Harness()
        client = harness.client
        call = harness.call(message(1))
        client.full = 1 << 20
        client.connection.pause_writing()
        assert not client.reading
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        client.absorb()
        assert call.messages == []
        for _ in range(62):
            client.connection.tick()
        assert client.gone()

    on_loop(test)


def test_a_client_that_reads_again_gets_its_answer() -> None:
    async def test() -> None:
        harness = Harness()
        call = harness.call(message(1))
        harness.client.connection.pause_writing()
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        harness.client.connection.resume_writing()
        assert numbers_in(await call.answer()) == [1]
        assert harness.client.reading

    on_loop(test)


def test_what_is_said_of_models_is_what_rest_says() -> None:
    async def test() -> None:
        harness = Harness()
        control = Control(harness.service)
        methods = control.methods()
        named = inference("ModelMetadataRequest")
        assert methods["ServerLive"](None) == {"live": True}
        assert methods["ModelMetadata"](named(name="m", version="1"))["platform"] == "python"
        (statistics,) = methods["ModelStatistics"](named())["model_stats"]
        assert statistics["name"] == "m"
        index = inference("RepositoryIndexRequest")
        harness.served(0)
        assert methods["ServerReady"](None) == {"ready": False}
        assert methods["ModelReady"](named(name="m")) == {"ready": False}
        (entry,) = methods["RepositoryIndex"](index())["models"]
        assert (entry["state"], "not ready" in entry["reason"]) == ("UNAVAILABLE", True)
        assert methods["RepositoryIndex"](index(ready=True)) == {"models": []}

    on_loop(test)
