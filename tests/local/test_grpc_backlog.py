"""Backlog of gRPC answers that wait for their client: their bounds, and the calls begun then."""

import asyncio

from grpc_harness import STREAM, Call
from grpc_service_harness import MAX_REQUEST_BYTES, Harness, message, numbers_in, on_loop, streamed
from http2_harness import frame

from ringbatch.frontend.grpc.streams import WINDOW
from ringbatch.frontend.http2.frames import CANCEL, PING
from ringbatch.frontend.http2.outgoing import ANSWERS
from ringbatch.shm.counters import LaneCounter

LIVE = "/inference.GRPCInferenceService/ServerLive"


async def full(harness: Harness) -> list[Call]:
    """Calls whose answers wait for a client that makes no room, until there are enough of them."""
    harness.client.windows(0)
    core = harness.client.connection.core
    core.most_waiting_bytes = 1
    calls = []
    while not core.full:
        calls.append(harness.call(message(*range(4))))
        harness.answer(*await harness.taken(1))
        await harness.quiet()
        assert len(calls) <= ANSWERS + 1
    assert len(calls) == ANSWERS + 1, "several of the largest may wait"
    return calls


def requests_of(harness: Harness) -> int:
    return int(harness.lane.counters[LaneCounter.REQUESTS])


def pass_time(harness: Harness, seconds: int) -> None:
    for _ in range(seconds):
        harness.client.connection.tick()
        # Otherwise the client would count as gone.
        harness.client.send(frame(PING, 0, 0, bytes(8)))


async def all_gone(harness: Harness) -> None:
    """Check that nothing of any call is left."""
    await harness.quiet()
    connection = harness.client.connection
    assert (connection._serving, connection._held, connection.core.waiting_bytes) == ({}, {}, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    harness.settings.budget.take(8 * MAX_REQUEST_BYTES)


def test_while_answers_wait_for_their_client_no_more_is_begun() -> None:
    async def test() -> None:
        harness = Harness()
        answered = await full(harness)
        begun = requests_of(harness)
        held = [harness.call(message(number)) for number in range(20)]
        live = harness.call(b"", path=LIVE)
        await harness.quiet()
        assert requests_of(harness) == begun
        assert live.status is None
        harness.client.windows(1 << 20)
        for call in answered:
            assert numbers_in(await call.answer()) == [0, 1, 2, 3]
        harness.answer(*await harness.taken(20))
        assert [numbers_in(await call.answer()) for call in held] == [[n] for n in range(20)]
        assert await live.answer()
        await all_gone(harness)

    on_loop(test)


def test_a_client_that_takes_its_answers_gets_all_of_them_however_few_may_wait() -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.connection.core.most_waiting_bytes = 1
        harness.client.windows(10)
        calls = [harness.call(message(number)) for number in range(100)]
        left = list(calls)
        for _ in range(1000):
            await harness.quiet()
            harness.answer(*await harness.taken(harness.lane.in_flight))
            await harness.quiet()
            harness.client.windows(1 << 10)
            harness.client.windows(10)
            left = [call for call in left if call.status is None]
            if not left:
                break
        assert [numbers_in(await call.answer()) for call in calls] == [[n] for n in range(100)]
        await all_gone(harness)

    on_loop(test)


def test_a_cancelled_answer_makes_room_and_a_waiting_client_may_leave() -> None:
    async def test() -> None:
        harness = Harness()
        answered = await full(harness)
        first, second = harness.call(message(1)), harness.call(message(2))
        first.cancel()
        for call in answered:
            call.cancel()
        (request,) = await harness.taken(1)
        harness.client.windows(1 << 20)
        harness.answer(request)
        assert numbers_in(await second.answer()) == [2]
        assert first.status is None
        await all_gone(harness)

    on_loop(test)


def test_a_clock_ends_waiting_calls_and_the_others_are_begun() -> None:
    async def test() -> None:
        harness = Harness()
        answered = await full(harness)
        late = harness.call(message(7))
        pass_time(harness, 70)
        assert {call.reset for call in answered} == {CANCEL}
        harness.client.windows(1 << 20)
        harness.answer(*await harness.taken(1))
        assert numbers_in(await late.answer()) == [7]
        await all_gone(harness)

    on_loop(test)


def test_of_a_connection_that_is_lost_nothing_waits() -> None:
    async def test() -> None:
        harness = Harness()
        await full(harness)
        begun = requests_of(harness)
        harness.call(message(7))
        harness.client.connection.connection_lost(None)
        await all_gone(harness)
        assert requests_of(harness) == begun

    on_loop(test)


def test_a_stream_is_read_no_further_while_answers_wait() -> None:
    """Waiting answers include the stream's own that are not written yet."""

    async def test() -> None:
        harness = Harness()
        harness.client.connection.core.most_waiting_bytes = 1
        harness.client.windows(0)
        call = harness.call(path=STREAM, end=False)
        await harness.quiet()
        count = 0
        while not harness.client.connection.core.full:
            call.send(message(count))
            harness.answer(*await harness.taken(1))
            await harness.quiet()
            count += 1
            assert count < 2 * ANSWERS
        begun = requests_of(harness)
        for number in range(WINDOW):
            call.send(message(number))
        call.finish()
        # The time of those that are not read does not run.
        pass_time(harness, 40)
        await harness.quiet()
        assert requests_of(harness) == begun
        harness.client.windows(1 << 20)
        harness.answer(*await harness.taken(WINDOW))
        assert await call.ended() == ("OK", "")
        numbers = [*range(count), *range(WINDOW)]
        assert [numbers_in(one.infer_response) for one in streamed(call)] == [[n] for n in numbers]
        await all_gone(harness)

    on_loop(test)


def test_a_cancelled_stream_leaves_none_of_its_unwritten_answers() -> None:
    async def test() -> None:
        harness = Harness()
        harness.client.windows(0)
        call = harness.call(*map(message, range(20)), path=STREAM, end=False)
        requests = await harness.taken(20)
        harness.answer(*requests[:10])
        await harness.quiet()
        assert harness.client.connection.core.waiting_bytes > 10 * 50
        call.cancel()
        await all_gone(harness)
        harness.answer(*requests[10:])
        await harness.quiet()
        assert harness.client.connection.core.waiting_bytes == 0

    on_loop(test)


def test_a_message_may_take_its_time_while_its_client_is_to_take_answers() -> None:
    async def test() -> None:
        harness = Harness()
        half = harness.call(end=False)
        half.send_bytes(half.framed(message(7))[:-1])
        await full(harness)
        pass_time(harness, 40)
        assert half.status is None
        harness.client.windows(1 << 20)
        half.send_bytes(half.framed(message(7))[-1:])
        harness.answer(*await harness.taken(1))
        assert numbers_in(await half.answer()) == [7]

    on_loop(test)
