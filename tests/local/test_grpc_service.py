"""Single gRPC calls: their answers, and what they leave behind if their client goes."""

import time
from dataclasses import replace
from typing import Any

import pytest
from grpc_harness import STREAM
from grpc_service_harness import (
    IDENTITY,
    MAX_REQUEST_BYTES,
    SLOTS,
    TIMEOUT_NS,
    Harness,
    asked,
    message,
    numbers_in,
    on_loop,
    streamed,
)

from ringbatch.frontend.grpc import inference as grpc_inference
from ringbatch.frontend.grpc.messages import inference
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.slot import Status


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


def test_of_a_repeated_message_only_the_differences_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        harness = Harness()
        await asked(harness, message(7))
        monkeypatch.setattr(grpc_inference, "parsed", None)
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
        targets: list[str] = []

        def record(_ending: Any, exchanged: Any, **_: Any) -> None:
            targets.append(exchanged.target)

        harness.recorder.record = record  # type: ignore[method-assign, assignment]
        await harness.call(data).ended()
        assert targets == [target]

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
def test_an_unusable_message_ends_the_call(data: bytes, code: str, words: str) -> None:
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
        assert (code, text) == ("UNAVAILABLE", 'model "m" is not ready: no worker holds it yet')

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
    """The three are those of the model, of the parameter and of the call."""

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
def test_a_malformed_timeout_ends_the_call(timeout: str) -> None:
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
        assert not harness.engine_slots.wanted(request.ref)
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
        assert not any(harness.engine_slots.wanted(request.ref) for request in requests)
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
