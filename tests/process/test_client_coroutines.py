"""A client's answers in parts for coroutines: as they come, and an end by either side.

Tests frontend/client/streaming.py and frontend/client/session.py.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from client_harness import (
    CAP,
    CLIENT_LANE,
    MODELS,
    ClientHarness,
    WaitUntil,
    numbers,
    taken,
    usual_client,
)
from part_worker import Worker, streamed_harness

from ringbatch.frontend import (
    AnswerCutOff,
    Client,
    ClientClosed,
    DeadlineExceeded,
    EngineGone,
    InvalidRequest,
)
from ringbatch.frontend.client import channel as channel_module
from ringbatch.shm.slot import Status

T = TypeVar("T")


harness, client = streamed_harness, usual_client


async def until(found: Callable[[], Any]) -> Any:
    """Wait for a condition while the loop runs on; the test's timeout is the watchdog."""
    while not (value := found()):
        await asyncio.sleep(0.001)
    return value


def asked(client: Client, *values: int, **limits: Any) -> AsyncGenerator[Any, None]:
    parts = client.stream_async("same", numbers(*values), **limits)
    assert isinstance(parts, AsyncGenerator)
    return parts


def soon(part: Awaitable[T]) -> "asyncio.Task[T]":
    async def wait() -> T:
        return await part

    return asyncio.get_running_loop().create_task(wait())


class Streaming:
    """A stream of which the first part is there, and its worker."""

    parts: AsyncGenerator[Any, None] | None
    worker: Worker

    @classmethod
    async def begun(cls, harness: ClientHarness, client: Client) -> "Streaming":
        made = cls()
        made.parts = asked(client, 1, 2)
        first = soon(anext(made.parts))
        (ref,) = await until(harness.take)
        made.worker = Worker(harness, ref)
        assert made.worker.put(3, 4)
        assert (await first).tolist() == [3, 4]
        return made

    def next(self) -> "asyncio.Task[Any]":
        assert self.parts is not None
        return soon(anext(self.parts))


def test_each_part_comes_before_the_next_is_made(harness: ClientHarness, client: Client) -> None:
    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        for number in range(3):
            waiting = stream.next()
            await asyncio.sleep(0)
            assert stream.worker.put(number, number)
            assert (await waiting).tolist() == [number, number]
        waiting = stream.next()
        stream.worker.put(7, 8)
        stream.worker.end()
        assert (await waiting).tolist() == [7, 8]
        with pytest.raises(StopAsyncIteration):
            await stream.next()

    asyncio.run(run())


def test_parts_are_taken_while_the_loop_does_something_else(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        # More than the slot has room for.
        for number in range(600):
            wait_until(lambda number=number: stream.worker.put(number, 0), "the client takes parts")
        stream.worker.end()
        wait_until(stream.worker.all_is_posted, "the ring of answers has room")
        assert stream.parts is not None
        assert [part[0] async for part in stream.parts] == [*range(600)]

    asyncio.run(run())


def test_coroutines_of_one_loop_get_their_own_parts(harness: ClientHarness, client: Client) -> None:
    async def run() -> None:
        async def all_of(value: int) -> list[int]:
            return [part[0] async for part in asked(client, value)]

        answers = [soon(all_of(value)) for value in range(3)]
        found: list[int] = []
        while len(found) < len(answers):
            found += await until(harness.take)
        workers = [Worker(harness, ref) for ref in found]
        values = [int(harness.payload(ref)[0][0]) for ref in found]
        for number in range(4):
            for worker, value in zip(workers, values, strict=True):
                worker.put(10 * value + number)
            await asyncio.sleep(0)
        for worker in workers:
            worker.end()
        parts = [[10 * value + number for number in range(4)] for value in range(3)]
        assert await asyncio.gather(*answers) == parts

    asyncio.run(run())


def test_loops_of_two_threads_get_their_own_parts(harness: ClientHarness, client: Client) -> None:
    async def run() -> None:
        async def own() -> list[int]:
            return [part[0] async for part in asked(client, 5)]

        elsewhere = soon(asyncio.to_thread(asyncio.run, own()))
        (ref,) = await until(harness.take)
        stream = await Streaming.begun(harness, client)
        worker = Worker(harness, ref)
        worker.put(6)
        worker.end()
        assert await elsewhere == [6]
        stream.worker.end()
        with pytest.raises(StopAsyncIteration):
            await stream.next()

    asyncio.run(run())


def test_an_error_behind_a_part_raises_when_all_before_it_are_had(
    harness: ClientHarness, client: Client
) -> None:
    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        stream.worker.put(5, 6)
        stream.worker.end(Status.CUT_OFF)
        assert (await stream.next()).tolist() == [5, 6]
        with pytest.raises(AnswerCutOff, match="what has come is not all"):
            await stream.next()
        with pytest.raises(StopAsyncIteration):
            await stream.next()

    asyncio.run(run())


@pytest.mark.parametrize("way", ["aclose", "let go", "cancel"])
def test_a_program_that_leaves_ends_the_request(
    harness: ClientHarness, client: Client, way: str
) -> None:
    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        worker = stream.worker
        assert worker.is_wanted
        if way == "aclose":
            assert stream.parts is not None
            await stream.parts.aclose()
        elif way == "let go":
            stream.parts = None
            gc.collect()
        else:
            waiting = stream.next()
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await until(lambda: not worker.is_wanted)
        # Later writes of the worker reach no client.
        worker.put(9, 9)
        worker.end(Status.CANCELLED)
        future = client.infer_async("same", numbers(1))
        harness.answer(await until(harness.take))
        assert await asyncio.wrap_future(future) == 1

    asyncio.run(run())
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_a_part_may_come_as_its_task_is_cancelled(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    faults: list[Any] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        stream = await Streaming.begun(harness, client)
        request: Any
        (request,) = client._session.channel._waiters
        waiting = stream.next()
        await asyncio.sleep(0)
        stream.worker.put(5, 6)
        # The wake-up is on its way, and the loop takes it when this is done.
        wait_until(lambda: request._arrived and request._waker._is_due, "the part is there")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not stream.worker.is_wanted)
        stream.worker.end(Status.CANCELLED)

    asyncio.run(run())
    assert faults == []


def test_a_request_that_an_engine_takes_no_more_goes_to_the_next_one(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, asked_twice = client._sent, iter((False, True))
    monkeypatch.setattr(client, "_sent", lambda *request: next(asked_twice) and usual(*request))

    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        stream.worker.end()
        with pytest.raises(StopAsyncIteration):
            await stream.next()

    asyncio.run(run())
    assert [*asked_twice] == []


def test_late_parts_raise(harness: ClientHarness, client: Client) -> None:
    async def run() -> None:
        late = soon(anext(asked(client, 1, first_part_timeout_s=0.02)))
        (ref,) = await until(harness.take)
        with pytest.raises(DeadlineExceeded, match=r"the 0\.02 s to the first part"):
            await late
        assert not harness._engine_slots.wanted(ref)

    asyncio.run(run())


def test_closing_the_client_ends_the_stream(harness: ClientHarness, client: Client) -> None:
    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        waiting = stream.next()
        await asyncio.sleep(0)
        client.close()
        with pytest.raises(ClientClosed, match="the client was closed"):
            await waiting

    asyncio.run(run())


def test_the_end_of_the_engine_ends_the_stream(
    harness: ClientHarness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "SWEEP_NS", 1_000_000)

    async def run() -> None:
        stream = await Streaming.begun(harness, client)
        waiting = stream.next()
        await asyncio.sleep(0)
        harness.end()
        with pytest.raises(EngineGone):
            await waiting

    asyncio.run(run())


def test_a_closed_loop_is_left_alone(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    loop = asyncio.new_event_loop()
    stream = loop.run_until_complete(Streaming.begun(harness, client))
    loop.close()
    # The parts and the end come to nobody, and the client goes on.
    stream.worker.put(5, 6)
    stream.worker.end()
    future = client.infer_async("same", numbers(1))
    harness.answer(taken(harness, 1, wait_until))
    assert future.result() == 1


def test_a_request_for_parts_is_refused_as_of_a_thread(
    harness: ClientHarness, client: Client
) -> None:
    async def run() -> None:
        with pytest.raises(InvalidRequest, match=f"has {CAP + 1} instances, but an answer in"):
            await anext(asked(client, *range(CAP + 1)))
        with pytest.raises(ValueError, match="part_gap_timeout_s must be above 0, not 0"):
            await anext(asked(client, 1, part_gap_timeout_s=0))

    asyncio.run(run())
    assert harness.take() == []


def test_without_a_loop_nothing_is_sent(harness: ClientHarness, client: Client) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        anext(asked(client, 1)).__await__().send(None)
    assert harness.take() == []


def test_a_model_without_parts_yields_its_answer() -> None:
    with ClientHarness(MODELS) as plain, Client(segment=plain.name) as client:

        async def run() -> list[Any]:
            return [y.tolist() async for y in asked(client, 5, 6)]

        thread = plain.serve()
        assert asyncio.run(run()) == [[5, 6]]
        plain.halt(thread)
