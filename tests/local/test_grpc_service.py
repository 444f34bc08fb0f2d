"""Inference over gRPC on a lane in this process, with an engine that is stepped by hand: what a
call comes to, and what is left of it where its client goes or the server stops."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import grpc
import pytest
from segment_fixture import local_segment, spec

from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.grpc import calls as grpc_calls
from ringbatch.frontend.grpc import inference as grpc_inference
from ringbatch.frontend.grpc.calls import Calls
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.messages import SCHEMA, inference
from ringbatch.frontend.grpc.service import WINDOW, Control, Health, Inferences, Reflection
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.engine_port import BatchMark, EnginePort, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import PART, Reason, Status
from ringbatch.shm.tensor import Tensor

SLOTS = 256
TIMEOUT_NS = 3_600_000_000_000
IDENTITY = spec(
    0,
    [Tensor("x", "INT64", [])],
    [Tensor("x", "INT64", [])],
    max_batch_size=4,
    timeout_ns=TIMEOUT_NS,
)


class Ended(Exception):
    """What grpc.aio raises in a method that aborts its call."""


class Call:
    """The context of a call, with the client's side in the hands of a test."""

    def __init__(self, remaining_s: float | None = None) -> None:
        self.status: tuple[grpc.StatusCode, str] | None = None
        self.sent: tuple[tuple[str, str], ...] = (("x-request-id", "mine"),)
        self.trailing: tuple[tuple[str, str], ...] = ()
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing: list[Any] = []
        self._remaining_s = remaining_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self.sent

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        return self._remaining_s

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self.trailing = metadata

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.status = code, text
        raise Ended

    async def read(self) -> Any:
        return await self.incoming.get()

    async def write(self, message: Any) -> None:
        self.outgoing.append(message)


class Harness:
    """The services and everything under them; within a running loop."""

    def __init__(self, model: ModelSpec = IDENTITY) -> None:
        self.segment = local_segment(model, slots=SLOTS, lane_bytes=1 << 20)
        self.lane = Lane(self.segment, 0, lambda: None)
        self.gateway = Gateway(self.lane, asyncio.get_running_loop())
        self.service = Service(self.segment, self.gateway, time.monotonic_ns)
        self.calls = Calls()
        self.recorder, _ = recording(AccessSettings(), self.service.engine, "f")
        self.inferences = Inferences(Inference(self.service), self.calls, self.recorder)
        self.port = EnginePort(self.segment, 0, lambda _lane: None)
        self._submitted = Consumer(
            self.segment.words, self.segment.layout.submission_ring(0), SLOTS
        )
        self._words = self.segment.layout.model(0)
        self._batch = 0
        self.served(1)

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
        harness, call = Harness(), Call()
        answering = asyncio.create_task(harness.inferences.one(message(7, id="i"), call))
        (request,) = await harness.taken(1)
        harness.answer(request)
        response = inference("ModelInferResponse").FromString(await answering)
        assert numbers_in(response) == [7]
        assert (response.id, [*response.parameters]) == ("i", ["batch_id"])
        assert len(response.parameters["batch_id"].string_param) == 36
        assert call.trailing == (("x-request-id", "mine"),)
        assert harness.lane.in_flight == 0

    on_loop(test)


async def asked(harness: Harness, data: bytes) -> bytes:
    """The answer to a request of one part."""
    answering = asyncio.create_task(harness.inferences.one(data, Call()))
    harness.answer(*await harness.taken(1))
    return await answering


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
        code, _ = await ending(harness, message(1, 2), Call())
        assert code.name == "NOT_FOUND"

    on_loop(test)


def test_a_known_message_keeps_its_deadline_and_its_id_where_it_fails() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        more = {"parameters": {"timeout": {"int64_param": 5_000_000}}}
        await asked(harness, message(7, **more))
        stream = asyncio.create_task(harness.inferences.many(None, call))
        call.incoming.put_nowait(message(8, id="i", **more))
        call.incoming.put_nowait(grpc.aio.EOF)
        (request,) = await harness.taken(1)
        assert request.deadline_ns - request.accepted_ns == 5_000_000_000
        harness.answer(request, status=Status.MODEL_FAILED, text="why")
        await stream
        (answer,) = call.outgoing
        assert (answer.error_message, answer.infer_response.id) == ("why", "i")

    on_loop(test)


def test_more_instances_than_a_batch_holds_are_put_together_again() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        answering = asyncio.create_task(harness.inferences.one(message(*range(10)), call))
        requests = await harness.taken(3)
        assert [request.rows for request in requests] == [4, 4, 2]
        for request in reversed(requests):
            harness.answer(request)
        assert numbers_in(await answering) == list(range(10))
        assert harness.lane.in_flight == 0

    on_loop(test)


async def ending(harness: Harness, data: bytes, call: Call) -> tuple[grpc.StatusCode, str]:
    """How a call ends whose request never comes to the engine."""
    with pytest.raises(Ended):
        await harness.inferences.one(data, call)
    assert call.status is not None
    return call.status


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
        found, text = await ending(harness, data, Call())
        assert (found.name, words in text) == (code, True)
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_a_model_that_was_never_ready_is_unavailable() -> None:
    async def test() -> None:
        harness = Harness()
        harness.served(0)
        code, text = await ending(harness, message(1), Call())
        assert (code.name, text) == (
            "UNAVAILABLE",
            'model "m" is not ready: no worker holds it now',
        )

    on_loop(test)


def test_a_full_lane_is_unavailable() -> None:
    async def test() -> None:
        harness = Harness()
        calls = [
            asyncio.create_task(harness.inferences.one(message(n), Call())) for n in range(SLOTS)
        ]
        requests = await harness.taken(SLOTS)
        code, _ = await ending(harness, message(1), Call())
        assert code.name == "UNAVAILABLE"
        harness.answer(*requests)
        assert [numbers_in(await call) for call in calls] == [[n] for n in range(SLOTS)]

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
        harness, call = Harness(), Call()
        answering = asyncio.create_task(harness.inferences.one(message(7), call))
        (request,) = await harness.taken(1)
        harness.answer(request, status=status, text="why")
        with pytest.raises(Ended):
            await answering
        assert call.status is not None
        assert (call.status[0].name, call.status[1]) == (code, "why")
        assert call.trailing[0][0] == "x-batch-id"

    on_loop(test)


def test_no_instances_are_answered_without_the_engine() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        assert numbers_in(await harness.inferences.one(message(), call)) == []
        assert (call.trailing, harness.lane.in_flight) == ((("x-request-id", "mine"),), 0)

    on_loop(test)


@pytest.mark.parametrize(
    ("remaining_s", "timeout_us", "bound_ns"),
    [
        (None, 0, TIMEOUT_NS),
        (None, 1_000_000, 1_000_000_000),
        (100.0, 0, 100_000_000_000),
        (100.0, 1_000_000, 1_000_000_000),
        (0.5, 1_000_000, 500_000_000),
        (1e9, 1 << 51, TIMEOUT_NS),
    ],
)
def test_the_deadline_is_the_earliest_of_three(
    remaining_s: float | None, timeout_us: int, bound_ns: int
) -> None:
    """That of the model, of the parameter and of the call."""

    async def test() -> None:
        harness = Harness()
        data = message(7, parameters={"timeout": {"int64_param": timeout_us}})
        before = time.monotonic_ns()
        call = asyncio.create_task(harness.inferences.one(data, Call(remaining_s)))
        (request,) = await harness.taken(1)
        assert before <= request.deadline_ns - bound_ns <= time.monotonic_ns()
        harness.answer(request)
        await call

    on_loop(test)


def test_a_deadline_that_is_over_ends_the_call_before_the_engine() -> None:
    async def test() -> None:
        harness = Harness()
        code, _ = await ending(harness, message(1), Call(remaining_s=0.0))
        assert code.name == "DEADLINE_EXCEEDED"
        assert harness.lane.counters[LaneCounter.REQUESTS] == 0

    on_loop(test)


def test_no_answer_by_the_deadline_ends_the_call() -> None:
    async def test() -> None:
        harness = Harness()
        code, text = await ending(harness, message(1), Call(remaining_s=0.01))
        assert (code.name, text) == (
            "DEADLINE_EXCEEDED",
            "no answer came within the 0.01 s it asked for",
        )
        assert harness.lane.counters[LaneCounter.TIMEOUTS] == 1

    on_loop(test)


def test_a_call_that_its_client_cancels_gives_its_slot_up() -> None:
    async def test() -> None:
        harness = Harness()
        call = asyncio.create_task(harness.inferences.one(message(1), Call()))
        (request,) = await harness.taken(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not harness.port.wanted(request.ref)
        harness.answer(request)
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_an_answer_that_meets_a_cancellation_harms_nobody() -> None:
    async def test() -> None:
        harness = Harness()
        call = asyncio.create_task(harness.inferences.one(message(1), Call()))
        other = asyncio.create_task(harness.inferences.one(message(2), Call()))
        requests = await harness.taken(2)
        call.cancel()
        harness.answer(*requests)
        assert numbers_in(await other) == [2]
        with pytest.raises(asyncio.CancelledError):
            await call
        assert harness.lane.in_flight == 0

    on_loop(test)


def test_a_stream_is_answered_in_order_whatever_finishes_first() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        stream = asyncio.create_task(harness.inferences.many(None, call))
        for item in (message(1, id="a"), message(2, raw_input_contents=[b""], id="b"), message(3)):
            call.incoming.put_nowait(item)
        requests = await harness.taken(2)
        harness.answer(requests[1])
        await harness.quiet()
        assert call.outgoing == []
        harness.answer(requests[0])
        call.incoming.put_nowait(grpc.aio.EOF)
        await stream
        first, second, third = call.outgoing
        assert (numbers_in(first.infer_response), first.infer_response.id) == ([1], "a")
        assert (numbers_in(third.infer_response), third.error_message) == ([3], "")
        assert "has 0 bytes of binary data" in second.error_message
        assert (second.infer_response.id, second.infer_response.model_name) == ("b", "")
        assert call.status is None

    on_loop(test)


def test_a_stream_has_a_bounded_number_on_their_way() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        stream = asyncio.create_task(harness.inferences.many(None, call))
        total = WINDOW + 40
        for number in range(total):
            call.incoming.put_nowait(message(number))
        call.incoming.put_nowait(grpc.aio.EOF)
        requests = await harness.taken(WINDOW)
        await harness.quiet()
        assert harness.lane.in_flight == WINDOW
        # Only the first in the order makes room.
        harness.answer(*requests[1:])
        await harness.quiet()
        assert harness.lane.counters[LaneCounter.REQUESTS] == WINDOW
        harness.answer(requests[0])
        harness.answer(*await harness.taken(total - WINDOW))
        await stream
        assert [numbers_in(m.infer_response) for m in call.outgoing] == [[n] for n in range(total)]

    on_loop(test)


def test_a_stream_that_its_client_cancels_gives_its_slots_up() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        stream = asyncio.create_task(harness.inferences.many(None, call))
        for number in range(5):
            call.incoming.put_nowait(message(number))
        requests = await harness.taken(5)
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
        await harness.quiet()
        assert not any(harness.port.wanted(request.ref) for request in requests)

    on_loop(test)


def test_a_stop_answers_what_a_stream_has_and_ends_it() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        stream = asyncio.create_task(harness.inferences.many(None, call))
        for number in range(3):
            call.incoming.put_nowait(message(number))
        requests = await harness.taken(3)
        stop = asyncio.create_task(harness.calls.stop(limit_s=3600))
        await harness.quiet()
        assert not stream.done()
        call.incoming.put_nowait(message(9))
        harness.answer(*requests)
        with pytest.raises(Ended):
            await stream
        assert [numbers_in(m.infer_response) for m in call.outgoing] == [[0], [1], [2]]
        assert call.status == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        await stop

    on_loop(test)


def test_a_stop_waits_for_what_is_under_way_and_refuses_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that only what is under way is waited for.
    monkeypatch.setattr(grpc_calls, "_QUIET_S", 0)

    async def test() -> None:
        harness = Harness()
        answering = asyncio.create_task(harness.inferences.one(message(7), Call()))
        (request,) = await harness.taken(1)
        stop = asyncio.create_task(harness.calls.stop(limit_s=3600))
        await harness.quiet()
        refused = grpc.StatusCode.UNAVAILABLE, "the server is stopping"
        assert await ending(harness, message(8), Call()) == refused
        stream = Call()
        with pytest.raises(Ended):
            await harness.inferences.many(None, stream)
        assert stream.status == refused
        await harness.quiet()
        assert not stop.done()
        harness.answer(request)
        assert numbers_in(await answering) == [7]
        await stop

    on_loop(test)


def test_a_stop_that_lasts_too_long_waits_for_nobody() -> None:
    async def test() -> None:
        harness = Harness()
        answering = asyncio.create_task(harness.inferences.one(message(7), Call()))
        await harness.taken(1)
        await harness.calls.stop(limit_s=0.01)
        assert not answering.done()
        answering.cancel()

    on_loop(test)


def test_a_stop_ends_an_idle_reflection_call() -> None:
    async def test() -> None:
        harness, call = Harness(), Call()
        request = SCHEMA.services["grpc.reflection.v1.ServerReflection"][
            "ServerReflectionInfo"
        ].request
        info = asyncio.create_task(Reflection(harness.calls).info(None, call))
        call.incoming.put_nowait(request(list_services="*"))
        await harness.quiet()
        assert len(call.outgoing) == 1
        await harness.calls.stop(limit_s=3600)
        with pytest.raises(Ended):
            await info

    on_loop(test)


def test_health_follows_readiness_and_a_stop() -> None:
    async def test() -> None:
        harness, call, watcher = Harness(), Call(), Call()
        health = Health(Control(harness.service).ready, harness.calls)
        request = SCHEMA.services["grpc.health.v1.Health"]["Check"].request

        async def status(service: str = "") -> int:
            found: int = (await health.check(request(service=service), call)).status
            return found

        assert [await status(), await status("inference.GRPCInferenceService")] == [1, 1]
        harness.served(0)
        assert await status() == 2
        harness.served(1)
        with pytest.raises(Ended):
            await status("nope")
        assert call.status == (grpc.StatusCode.NOT_FOUND, 'there is no service "nope"')
        unknown = Call()
        watching = [
            asyncio.create_task(health.watch(request(), watcher)),
            asyncio.create_task(health.watch(request(service="nope"), unknown)),
        ]
        await harness.quiet()
        await harness.calls.stop(limit_s=3600)
        assert await status() == 2
        await asyncio.gather(*watching)
        assert [message.status for message in watcher.outgoing] == [1, 2]
        assert [message.status for message in unknown.outgoing] == [3]

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
