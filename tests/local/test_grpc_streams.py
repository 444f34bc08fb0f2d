"""Streams over gRPC: their order, their window, their ends."""

import pytest
from grpc_harness import STREAM
from grpc_service_harness import (
    SLOTS,
    TIMEOUT_NS,
    Harness,
    message,
    numbers_in,
    on_loop,
    streamed,
)
from http2_harness import settings, widen
from segment_fixture import spec

from ringbatch.frontend.grpc import streams
from ringbatch.frontend.grpc.streams import WINDOW
from ringbatch.frontend.http2.bodies import STREAM_ROOM
from ringbatch.frontend.http2.frames import CANCEL
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.tensor import Tensor

WIDE = spec(
    0,
    [Tensor("x", "INT64", [1 << 14])],
    [Tensor("x", "INT64", [1 << 14])],
    max_batch_size=4,
    timeout_ns=TIMEOUT_NS,
)


def test_a_stream_is_answered_in_order_of_its_requests() -> None:
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


def test_a_stream_whose_answers_fail_ends_though_its_client_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_pending: object) -> bytes:
        raise ZeroDivisionError

    async def test() -> None:
        harness = Harness()
        call = harness.call(message(1), path=STREAM, end=False)
        harness.answer(*await harness.taken(1))
        assert await call.ended() == ("INTERNAL", "internal error")

    monkeypatch.setattr(streams, "final_response", fail)
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


@pytest.mark.parametrize("rows", [100, 400, 800])
def test_a_stream_of_large_batches_waits_for_its_own_requests(rows: int) -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.send(settings(window=1 << 30) + widen(0, 1 << 30))
        numbers = range(40)
        call = harness.call(*(message(*[n] * rows) for n in numbers), path=STREAM, end=False)
        call.finish()
        largest = 0
        while call.status is None and call.reset is None:
            await harness.quiet()
            largest = max(largest, harness.lane.in_flight)
            harness.answer(*harness.submitted())
            harness.client.absorb()
        assert call.status == ("OK", "")
        found = streamed(call)
        assert [one.error_message for one in found] == [""] * len(numbers)
        assert [numbers_in(one.infer_response) for one in found] == [[n] * rows for n in numbers]
        assert harness.lane.counters[LaneCounter.REFUSED] == 0
        assert largest > SLOTS // 3, "it does not go one by one without need"

    on_loop(test)


def test_a_stream_of_large_tensors_waits_for_its_own_requests() -> None:
    async def test() -> None:
        harness = Harness(WIDE)
        harness.client.send(settings(window=1 << 30) + widen(0, 1 << 30))
        raw = bytes(8 << 14)
        tensor = {"name": "x", "datatype": "INT64", "shape": [1, 1 << 14]}
        request = message(inputs=[tensor], raw_input_contents=[raw])
        call = harness.call(*[request] * 7, path=STREAM)
        while call.status is None and call.reset is None:
            await harness.quiet()
            harness.answer(*harness.submitted())
            harness.client.absorb()
        assert call.status == ("OK", "")
        assert [one.error_message for one in streamed(call)] == [""] * 7
        assert harness.lane.counters[LaneCounter.REFUSED] == 0

    on_loop(test)


def test_a_client_that_streams_more_than_is_read_has_to_wait() -> None:
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


def test_only_the_read_messages_of_a_stream_make_room() -> None:
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
        assert not any(harness.engine_slots.wanted(request.ref) for request in requests)

    on_loop(test)


def test_a_stop_answers_the_requests_of_a_stream_and_ends_it() -> None:
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
