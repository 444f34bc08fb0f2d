"""Compressed messages over gRPC: they are expanded in turns, within the budget of the process."""

import asyncio
import gzip

import pytest
from grpc_harness import INFER, STREAM, Call
from grpc_service_harness import Harness, counted, message, numbers_in, on_loop

from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.shm.tallies import Protocol

LIVE = INFER.replace("ModelInfer", "ServerLive")
LIMIT_BYTES = 1 << 24
BUDGET_BYTES = LIMIT_BYTES + (1 << 20)
LARGE = gzip.compress(bytes(LIMIT_BYTES))
MANY = gzip.compress(b"") * 100 + gzip.compress(b"\xff")


def harness_for_large() -> Harness:
    harness = Harness()
    harness.settings.max_request_bytes = LIMIT_BYTES
    harness.settings.budget = BodyBudget(BUDGET_BYTES)
    harness.client = harness.connect()
    return harness


def packed(harness: Harness, data: bytes, path: str = INFER) -> Call:
    """A call with a message that is compressed already; its end has not come."""
    call = harness.call(path=path, end=False, metadata=(("grpc-encoding", "gzip"),))
    call.send_bytes(b"\1" + len(data).to_bytes(4, "big") + data)
    return call


async def turns_of(call: Call) -> int:
    """Return the number of turns of the event loop until a call has ended."""
    turns = 0
    while call.status is None:
        await asyncio.sleep(0)
        call.client.absorb()
        turns += 1
    return turns


@pytest.mark.parametrize(("data", "least"), [(LARGE, 15), (MANY, 100)])
@pytest.mark.parametrize("path", [INFER, STREAM])
def test_while_a_message_is_expanded_others_have_their_turn(
    data: bytes, least: int, path: str
) -> None:
    async def test() -> None:
        harness = harness_for_large()
        call = packed(harness, data, path)
        call.finish()
        other = harness.call(b"", path=LIVE)
        assert await turns_of(other) < least
        assert await turns_of(call) + least // 2 > least
        harness.settings.budget.take(BUDGET_BYTES)

    on_loop(test)


def test_expanding_at_once_has_a_budget() -> None:
    async def test() -> None:
        harness = harness_for_large()
        calls = [packed(harness, LARGE) for _ in range(3)]
        codes = [(await call.ended())[0] for call in calls]
        assert sorted(codes) == ["INVALID_ARGUMENT", "UNAVAILABLE", "UNAVAILABLE"]
        assert counted(harness) == {(Protocol.GRPC, "400"): 1, (Protocol.GRPC, "503"): 2}
        harness.settings.budget.take(BUDGET_BYTES)

    on_loop(test)


def test_a_message_behind_one_being_expanded_ends_its_call() -> None:
    async def test() -> None:
        harness = harness_for_large()
        call = packed(harness, LARGE)
        call.send_bytes(b"more")
        assert await call.ended() == ("UNIMPLEMENTED", "a call of this method has one message")
        assert counted(harness) == {(Protocol.GRPC, "501"): 1}
        await harness.quiet()
        harness.settings.budget.take(BUDGET_BYTES)

    on_loop(test)


def test_a_call_may_be_taken_back_while_its_message_is_expanded() -> None:
    async def test() -> None:
        harness = harness_for_large()
        packed(harness, LARGE).cancel()
        await harness.quiet()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        harness.settings.budget.take(BUDGET_BYTES)

    on_loop(test)


def test_compressed_messages_of_a_stream_are_answered_in_order() -> None:
    async def test() -> None:
        harness = Harness()
        messages = [message(number) for number in range(3)]
        call = harness.call(*messages, path=STREAM, coding="gzip")
        harness.answer(*await harness.taken(3))
        assert await call.ended() == ("OK", "")
        read = inference("ModelStreamInferResponse").FromString
        answers = [read(data).infer_response for data in call.messages]
        assert [numbers_in(answer) for answer in answers] == [[0], [1], [2]]

    on_loop(test)


@pytest.mark.parametrize("coding", [None, "gzip"])
@pytest.mark.parametrize("name", ["ModelMetadata", "RepositoryModelLoad", "LogSettings"])
def test_a_message_to_a_method_that_infers_nothing_is_short(name: str, coding: str | None) -> None:
    async def test() -> None:
        harness = harness_for_large()
        path = INFER.replace("ModelInfer", name)
        call = harness.call(b"\x7a\x00" * (1 << 15), path=path, coding=coding)
        assert "at most" not in (await call.ended())[1]
        call = harness.call(b"\x7a\x00" * (1 << 15) + b"\0", path=path, coding=coding)
        assert await call.ended() == (
            "RESOURCE_EXHAUSTED",
            "a message to this method has at most 65536 bytes",
        )
        harness.settings.budget.take(BUDGET_BYTES)

    on_loop(test)
