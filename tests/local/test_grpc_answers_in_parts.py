"""Answers in parts over a stream of gRPC, written by hand: slow clients, ends and stops."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from grpc_harness import STREAM
from grpc_service_harness import IDENTITY, MAX_REQUEST_BYTES, Harness, message, on_loop, streamed

from ringbatch.frontend.grpc import answers_in_parts
from ringbatch.shm.engine_slots import BatchMark, Request
from ringbatch.shm.slot import Reason, Status

MARK = BatchMark(1, 1, Reason.IDLE, 0)
PARTED = replace(IDENTITY, in_parts=True)
ENDS: dict[str, Any] = {"parameters": {"triton_enable_empty_final_response": {"bool_param": True}}}


def put(harness: Harness, request: Request, *numbers: int) -> None:
    """Answer with parts, as a worker does, and have them looked for."""
    slots = harness.engine_slots
    writer = slots.part_writer(request, 1)
    for number in numbers:
        assert writer.write(number.to_bytes(8, "little"))
    slots.post_part(request.ref)
    slots.flush()
    harness.gateway.collect()


def seen(answer: Any) -> tuple[str, int | None, bool]:
    """The id of an answer, its number, and whether it is the last."""
    response = answer.infer_response
    raw = [*response.raw_output_contents]
    number = int.from_bytes(raw[0], "little") if raw else None
    return response.id, number, response.parameters["triton_final_response"].bool_param


async def all_gone(harness: Harness) -> None:
    await harness.quiet()
    connection = harness.client.connection
    assert (connection._serving, connection._held, connection.core.waiting_bytes) == ({}, {}, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    harness.settings.budget.take(8 * MAX_REQUEST_BYTES)


def test_parts_of_several_requests_come_as_they_are_made() -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        call = harness.call(message(1, id="a"), message(2, id="b", **ENDS), path=STREAM)
        first, second = await harness.taken(2)
        put(harness, second, 20, 21)
        put(harness, first, 10)
        put(harness, second, 22)
        harness.answer(second)
        await harness.quiet()
        assert call.status is None
        put(harness, first, 11)
        harness.answer(first)
        assert await call.ended() == ("OK", "")
        found = [seen(answer) for answer in streamed(call)]
        assert [one for one in found if one[0] == "b"] == [
            ("b", 20, False),
            ("b", 21, False),
            ("b", 22, False),
            ("b", None, True),
        ]
        assert [one for one in found if one[0] == "a"] == [("a", 10, False), ("a", 11, False)]
        await all_gone(harness)

    on_loop(test)


def test_only_messages_without_room_need_a_task() -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        call = harness.call(message(1, id="a", **ENDS), message(2, id="b"), path=STREAM)
        first, second = await harness.taken(2)
        await harness.quiet()
        tasks = asyncio.all_tasks()
        put(harness, first, 10, 11)
        assert asyncio.all_tasks() == tasks
        harness.client.windows(0)
        put(harness, second, 20)
        put(harness, first, 12)
        put(harness, second, 21)
        await harness.quiet()
        assert len(asyncio.all_tasks()) == len(tasks) + 1
        assert [seen(answer)[1] for answer in streamed(call)] == [10, 11]
        harness.client.windows(1 << 20)
        # It finds room, but others were there before.
        put(harness, second, 22)
        harness.answer(second)
        await harness.quiet()
        assert asyncio.all_tasks() == tasks
        put(harness, first, 13)
        harness.answer(first)
        assert await call.ended() == ("OK", "")
        found = [seen(answer)[1] for answer in streamed(call)]
        assert found == [10, 11, 20, 12, 21, 22, 13, None]
        await all_gone(harness)

    on_loop(test)


@pytest.mark.parametrize("status", [Status.OK, Status.CUT_OFF])
def test_a_client_that_asks_gets_the_timing_with_the_last_response(status: Status) -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        ask = [("x-server-timing", "1")]
        asking, plain = message(1, id="a", **ENDS), message(2, id="b")
        call = harness.call(asking, plain, path=STREAM, metadata=ask)
        first, second = await harness.taken(2)
        put(harness, first, 10)
        put(harness, first, 11, 12)
        harness.answer(second)
        harness.engine_slots.answer(first.ref, status, 0, MARK, 0)
        harness.engine_slots.flush()
        harness.gateway.collect()
        await call.ended()
        timings = {
            seen(answer)[1]: answer.infer_response.parameters["server_timing"].string_param
            for answer in streamed(call)
        }
        assert [timings[number] for number in (10, 11, 12)] == ["", "", ""]
        found = r'first_part;dur=[^;]+;dur=.*;desc="mean of 2", longest_part_gap;dur='
        assert re.search(found, timings[None])
        await all_gone(harness)

    on_loop(test)


def test_a_client_that_does_not_ask_gets_no_timing() -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        call = harness.call(message(1, id="a", **ENDS), path=STREAM)
        (request,) = await harness.taken(1)
        put(harness, request, 10)
        harness.answer(request)
        await call.ended()
        for answer in streamed(call):
            assert "server_timing" not in answer.infer_response.parameters

    on_loop(test)


def test_a_failure_behind_a_part_is_the_last_response_of_its_request() -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        call = harness.call(message(1, id="a", **ENDS), path=STREAM)
        (request,) = await harness.taken(1)
        put(harness, request, 10)
        harness.engine_slots.answer(request.ref, Status.CUT_OFF, 0, MARK, 0)
        harness.engine_slots.flush()
        harness.gateway.collect()
        assert await call.ended() == ("OK", "")
        part, error = streamed(call)
        assert seen(part) == ("a", 10, False)
        assert error.error_message
        assert seen(error) == ("a", None, True)
        await all_gone(harness)

    on_loop(test)


def test_a_client_that_takes_nothing_for_too_long_loses_the_row() -> None:
    async def test() -> None:
        harness = Harness(replace(PARTED, stream_stall_ns=3_000_000_000))
        harness.client.windows(0)
        call = harness.call(message(1, id="a"), path=STREAM)
        (request,) = await harness.taken(1)
        for number in range(4):
            put(harness, request, number)
            await harness.quiet()
            assert harness.engine_slots.wanted(request.ref)
            harness.client.connection.tick()
        put(harness, request, 4)
        assert not harness.engine_slots.wanted(request.ref)
        harness.client.windows(1 << 20)
        harness.answer(request)
        assert await call.ended() == ("OK", "")
        *parts, last = streamed(call)
        assert [seen(part)[1] for part in parts] == [0, 1, 2, 3]
        assert "has taken nothing for stream_stall_s = 3" in last.error_message
        await all_gone(harness)

    on_loop(test)


@pytest.mark.parametrize("bound", ["stream", "connection"])
def test_a_client_that_reads_no_parts_gets_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        core = harness.client.connection.core
        if bound == "stream":
            monkeypatch.setattr(answers_in_parts, "MOST_UNREAD_BYTES", 1000)
        else:
            core.most_waiting_bytes = 1000
        harness.client.windows(0)
        call = harness.call(message(1, id="a"), message(2, id="b"), path=STREAM)
        slow, other = await harness.taken(2)
        number = 0
        while harness.engine_slots.wanted(slow.ref):
            put(harness, slow, number)
            await harness.quiet()
            number += 1
            assert core.waiting_bytes < 2000
        # The first part of another is taken: it is one for each request.
        put(harness, other, 7)
        await harness.quiet()
        assert harness.engine_slots.wanted(other.ref)
        harness.client.windows(1 << 20)
        harness.answer(other)
        assert await call.ended() == ("OK", "")
        *parts, error = [a for a in streamed(call) if a.infer_response.id == "a"]
        assert [seen(part)[1] for part in parts] == [*range(number - 1)]
        assert "the client has not read" in error.error_message
        assert seen(error) == ("a", None, True)
        assert [seen(a) for a in streamed(call) if a.infer_response.id == "b"] == [("b", 7, False)]
        harness.submitted()
        harness.gateway.collect()
        await all_gone(harness)

    on_loop(test)


@pytest.mark.parametrize("window", [0, 1 << 20])
def test_a_call_that_is_cancelled_leaves_nothing(window: int) -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        harness.client.windows(window)
        call = harness.call(message(1), message(2), path=STREAM, end=False)
        requests = await harness.taken(2)
        for request in requests:
            put(harness, request, 1, 2, 3)
        await harness.quiet()
        call.cancel()
        await harness.quiet()
        assert not any(harness.engine_slots.wanted(request.ref) for request in requests)
        await all_gone(harness)

    on_loop(test)


def test_an_end_behind_that_of_its_call_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    last: list[object] = []

    def noted(*answered: object) -> bytes:
        last.append(answered)
        return b""

    async def test() -> None:
        harness = Harness(PARTED)
        monkeypatch.setattr(answers_in_parts, "final_response", noted)
        call = harness.call(message(1), path=STREAM, end=False)
        (request,) = await harness.taken(1)
        put(harness, request, 1)
        call.cancel()
        # The call's task has yet to learn of it.
        harness.answer(request)
        await all_gone(harness)
        assert not last

    on_loop(test)


def test_a_stop_waits_for_the_last_part() -> None:
    async def test() -> None:
        harness = Harness(PARTED)
        call = harness.call(message(1, id="a"), path=STREAM, end=False)
        (request,) = await harness.taken(1)
        put(harness, request, 10)
        harness.stop()
        await harness.quiet()
        assert call.status is None
        put(harness, request, 11)
        harness.answer(request)
        assert await call.ended() == ("UNAVAILABLE", "the server is stopping")
        assert [seen(answer)[1] for answer in streamed(call)] == [10, 11]

    on_loop(test)


def test_a_stream_whose_parts_fail_ends_though_its_client_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_pending: object) -> bytes:
        raise ZeroDivisionError

    async def test() -> None:
        harness = Harness(PARTED)
        monkeypatch.setattr(answers_in_parts, "final_response", fail)
        call = harness.call(message(1), path=STREAM, end=False)
        harness.answer(*await harness.taken(1))
        assert await call.ended() == ("INTERNAL", "internal error")

    on_loop(test)
