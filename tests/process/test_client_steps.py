"""Parts of a step, which many coroutines of a client get together.

Tests frontend/client/streaming.py and frontend/client/arrays.py.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from client_harness import (
    CLIENT_LANE,
    GROWING,
    MODELS,
    ClientHarness,
    WaitUntil,
    numbers,
    usual_client,
)
from numpy.typing import NDArray
from part_worker import Worker

from ringbatch.frontend import Client, ModelFailed
from ringbatch.frontend.client.streaming import FormGroup
from ringbatch.shm.frame import Frame
from ringbatch.shm.many_parts import FEW
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import ends_of

COUNT: Final = FEW + 4
FRAME: Final = Frame((GROWING,))
client = usual_client
Part = NDArray[Any]
Parts = list[Any]


@pytest.fixture
def harness() -> Iterator[ClientHarness]:
    models = [replace(model, in_parts=True) for model in MODELS]
    with ClientHarness(models, slots=64, pages=512) as made:
        yield made


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of parts that were handed out together."""
    found: list[int] = []
    usual = FormGroup._queue

    def queue(self: FormGroup, requests: Any, arrays: Any, now_ns: int) -> None:
        found.append(len(requests))
        usual(self, requests, arrays, now_ns)

    monkeypatch.setattr(FormGroup, "_queue", queue)
    return found


def grown(*values: int) -> bytes:
    """Return a part of the model whose parts have any length."""
    return FRAME.prefix((len(values),), ()).ljust(64, b"\0") + numbers(*values).tobytes()


class Crowd:
    """Coroutines that take parts, and the workers of their requests, in the order of their values.

    Attributes:
        parts: of each coroutine, as arrays.
        tasks: one for each coroutine.
        workers: one for each coroutine.
    """

    def __init__(self) -> None:
        self.parts: list[list[Part]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.workers: list[Worker] = []

    @classmethod
    async def begun(
        cls,
        harness: ClientHarness,
        client: Client,
        models: Sequence[str],
        first: Sequence[bytes],
        **limits: Any,
    ) -> "Crowd":
        """Begin a stream for each model in the list, with its first part."""
        crowd = cls()
        for value, model in enumerate(models):
            own: list[Part] = []
            crowd.parts.append(own)
            stream = client.stream_async(model, numbers(value), **limits)
            crowd.tasks.append(asyncio.create_task(cls._take(stream, own)))
        found: list[int] = []
        while len(found) < len(models):
            await asyncio.sleep(0)
            assert not any(task.done() for task in crowd.tasks), crowd.tasks
            found += harness.take()
        found.sort(key=lambda ref: int(np.frombuffer(harness.payload(ref)[0], np.int64)[0]))
        crowd.workers = [Worker(harness, ref) for ref in found]
        await crowd.step(first)
        return crowd

    @staticmethod
    async def _take(stream: AsyncIterator[Part], own: list[Part]) -> None:
        async for part in stream:
            own += [part]

    def make(self, parts: Sequence[bytes | None]) -> None:
        """Have each worker write its part, if there is one, and post all at once."""
        for worker, part in zip(self.workers, parts, strict=True):
            assert part is None or worker.put_down(part)
        self.workers[0].all_is_posted()

    async def step(self, parts: Sequence[bytes | None]) -> None:
        """Make parts, and wait until all have come."""
        new = [part is not None for part in parts]
        counts = [len(own) + one for own, one in zip(self.parts, new, strict=True)]
        self.make(parts)
        while [len(own) for own in self.parts] != counts:
            assert not any(map(self._has_failed, self.tasks, parts)), self.tasks
            await asyncio.sleep(0)

    @staticmethod
    def _has_failed(task: asyncio.Task[None], part: bytes | None) -> bool:
        return part is not None and task.done() and task.exception() is not None

    async def end(self) -> None:
        for worker, task in zip(self.workers, self.tasks, strict=True):
            if not task.done():
                worker.end()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    @property
    def lists(self) -> list[Parts]:
        return [[part.tolist() for part in own] for own in self.parts]


def raw(*values: int) -> list[bytes]:
    """Return a part of one number for each value."""
    return [numbers(value).tobytes() for value in values]


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_each_coroutine_gets_its_own_parts_of_each_step(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        assert together == [], "the first parts teach the form"
        # More than a ring holds, so that it begins anew several times.
        for step in range(1, 400):
            await crowd.step(raw(*(100 * step + value for value in range(COUNT))))
        await crowd.end()
        assert crowd.lists == [
            [[100 * step + value] for step in range(400)] for value in range(COUNT)
        ]

    run(main())
    assert sum(together) > 390 * COUNT
    ends = ends_of(harness.segment, [0])[0]
    assert sum(ends.first_parts) == COUNT
    assert sum(ends.gaps) == 399 * COUNT


def test_parts_are_arrays_in_memory_of_their_own(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        models, first = ["growing"] * COUNT, [grown(1, 2, 3)] * COUNT
        crowd = await Crowd.begun(harness, client, models, first)
        await crowd.step([grown(value, 5, 6) for value in range(COUNT)])
        alone, shared = ([own[number] for own in crowd.parts] for number in (0, 1))
        for one, other in zip(alone, shared, strict=True):
            assert (other.shape, other.dtype) == (one.shape, one.dtype)
            assert other.flags.writeable
            assert other.flags.aligned
            assert other.base is None, "who keeps one part keeps no other"
        shared[0][:] = 9
        assert [part.tolist() for part in shared[1:]] == [[[i, 5, 6]] for i in range(1, COUNT)]
        await crowd.end()

    run(main())
    assert together == [COUNT]


def test_several_parts_with_one_notice_come_at_once(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        for worker in crowd.workers:
            assert all(worker.put_down(part) for part in raw(7, 8))
        crowd.make(raw(*[9] * COUNT))
        while any(len(own) < 4 for own in crowd.parts):
            await asyncio.sleep(0)
        assert crowd.lists == [[[value], [7], [8], [9]] for value in range(COUNT)]
        await crowd.end()

    run(main())
    assert together == [COUNT]


def test_parts_of_other_forms_come_too(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        models = ["growing"] * COUNT + ["same"] * COUNT
        ones = raw(*range(COUNT))
        crowd = await Crowd.begun(harness, client, models, [grown(1)] * COUNT + ones)
        await crowd.step([grown(2)] * COUNT + ones)
        # A part of another size, and an answer without elements.
        await crowd.step([grown(3, 4), grown(), *[grown(3)] * (COUNT - 2), *ones])
        await crowd.step([grown(5)] * COUNT + ones)
        await crowd.step([grown(6, 7)] * COUNT + ones)
        await crowd.step([grown(8, 9)] * COUNT + ones)
        await crowd.end()
        others: Parts = [[3, 4], [], *[[3]] * (COUNT - 2)]
        growing = crowd.lists[:COUNT]
        assert growing == [[[[1]], [[2]], [other], [[5]], [[6, 7]], [[8, 9]]] for other in others]
        assert crowd.lists[COUNT:] == [[[value]] * 6 for value in range(COUNT)]

    run(main())
    assert sorted(together) == [COUNT - 2] * 2 + [COUNT] * 7


def test_a_part_that_is_not_as_its_prefix_says_fails_its_own_stream(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["growing"] * COUNT, [grown(1)] * COUNT)
        wrong = FRAME.prefix((2,), ()).ljust(64, b"\0") + numbers(7).tobytes()
        crowd.make([wrong, *[grown(2)] * (COUNT - 1)])
        with pytest.raises(ModelFailed):
            await crowd.tasks[0]
        crowd.workers[0].end(Status.CANCELLED)
        await crowd.step([None, *[grown(3)] * (COUNT - 1)])
        await crowd.end()
        assert crowd.lists == [[[[1]]], *[[[[1]], [[2]], [[3]]]] * (COUNT - 1)]

    run(main())
    assert together == [COUNT - 1, COUNT - 1]


def test_parts_whose_next_may_not_be_late_come_each_alone(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        models = ["same"] * COUNT
        crowd = await Crowd.begun(
            harness, client, models, raw(*range(COUNT)), part_gap_timeout_s=3600
        )
        for _ in range(3):
            await crowd.step(raw(*range(COUNT)))
        request: Any = next(iter(client._session.channel._waiters))
        assert request.deadline_ns < request.until_ns, "each part moves it"
        await crowd.end()

    run(main())
    assert together == []


def test_the_end_and_an_error_come_behind_parts_of_a_step(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*[1] * COUNT))
        crowd.make(raw(*[2] * COUNT))
        for worker in crowd.workers:
            worker.end(Status.CUT_OFF if worker is crowd.workers[3] else Status.OK)
        results = await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert [type(one).__name__ for one in results if one is not None] == ["AnswerCutOff"]
        assert results[3] is not None
        assert crowd.lists == [[[1], [2]]] * COUNT

    run(main())
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_a_coroutine_that_leaves_takes_no_parts_of_others(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        await crowd.step(raw(*range(COUNT)))
        gone = crowd.tasks[2]
        # Two parts are on the way when it is cancelled.
        crowd.make(raw(*range(COUNT)))
        crowd.make(raw(*range(COUNT)))
        gone.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await gone
        while crowd.workers[2].is_wanted:
            await asyncio.sleep(0)
        crowd.workers[2].end(Status.CANCELLED)
        # Its slot may be another request's now.
        again = await Crowd.begun(harness, client, ["same"], raw(77))
        crowd.workers[2], crowd.tasks[2] = again.workers[0], again.tasks[0]
        crowd.parts[2] = again.parts[0]
        while any(len(own) < 4 for own in crowd.parts if own is not crowd.parts[2]):
            await asyncio.sleep(0)
        await crowd.step(raw(*range(COUNT)))
        await crowd.step(raw(*range(COUNT)))
        await crowd.end()
        assert crowd.lists.pop(2) == [[77], [2], [2]]
        assert [own for i, own in enumerate(crowd.lists) if i != 2] == [
            [[i]] * 6 for i in range(COUNT) if i != 2
        ]

    run(main())
    assert together[-1] == COUNT
    client.close()
    assert harness.everything_is_free(CLIENT_LANE)


def test_threads_and_coroutines_share_a_step(
    harness: ClientHarness, client: Client, together: list[int], wait_until: WaitUntil
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))

        def taken() -> Parts:
            return [part.tolist() for part in client.stream("same", numbers(50))]

        answers = [asyncio.create_task(asyncio.to_thread(taken)) for _ in range(2)]
        found: list[int] = []
        while len(found) < len(answers):
            await asyncio.sleep(0)
            found += harness.take()
        others = [Worker(harness, ref) for ref in found]
        for step in range(50):
            for other in others:
                assert other.put_down(*raw(step))
            await crowd.step(raw(*range(COUNT)))
        for other in others:
            other.end()
        assert await asyncio.gather(*answers) == [[[step] for step in range(50)]] * 2
        await crowd.end()
        assert crowd.lists == [[[value]] * 51 for value in range(COUNT)]

    run(main())
    assert together == [COUNT] * 50


def test_coroutines_of_two_loops_share_a_step(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    async def main() -> None:
        async def own() -> list[int]:
            return [int(part[0]) async for part in client.stream_async("same", numbers(99))]

        elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, own()))
        found: list[int] = []
        while not found:
            await asyncio.sleep(0)
            found += harness.take()
        (other,) = [Worker(harness, ref) for ref in found]
        other.put(0)
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        for step in range(1, 50):
            assert other.put_down(*raw(step))
            await crowd.step(raw(*range(COUNT)))
        other.end()
        assert await elsewhere == [*range(50)]
        await crowd.end()

    run(main())
    assert together == [COUNT + 1] * 49


def test_a_loop_that_is_busy_finds_all_parts_of_all_steps(
    harness: ClientHarness, client: Client, wait_until: WaitUntil
) -> None:
    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        for step in range(600):
            for worker in crowd.workers:
                part = raw(step)[0]
                wait_until(lambda w=worker, p=part: w.put_down(p), "the client takes parts")
            wait_until(crowd.workers[0].all_is_posted, "the ring of answers has room")
        await crowd.end()
        assert crowd.lists == [[[v], *([s] for s in range(600))] for v in range(COUNT)]

    run(main())


def test_a_coroutine_that_ends_its_loop_leaves_the_others_awake(
    harness: ClientHarness, client: Client
) -> None:
    loop = asyncio.new_event_loop()
    crowd = loop.run_until_complete(
        Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
    )

    async def interrupt() -> None:
        async for _ in client.stream_async("same", numbers(99)):
            raise KeyboardInterrupt

    async def begun() -> Worker:
        own = asyncio.ensure_future(interrupt())
        crowd.tasks.append(own)
        found: list[int] = []
        while not found:
            await asyncio.sleep(0)
            found += harness.take()
        return Worker(harness, *found)

    worker = loop.run_until_complete(begun())
    # Its part is posted first, so that it goes on first.
    assert worker.put_down(*raw(1))
    crowd.make(raw(*range(COUNT)))
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()

    async def rest() -> None:
        while [len(own) for own in crowd.parts] != [2] * COUNT:
            await asyncio.sleep(0)
        crowd.tasks.pop().exception()
        await crowd.end()

    loop.run_until_complete(rest())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_client_keeps_no_memory_of_requests_and_of_its_engine(
    harness: ClientHarness, client: Client, together: list[int]
) -> None:
    session = client._session

    async def main() -> None:
        crowd = await Crowd.begun(harness, client, ["same"] * COUNT, raw(*range(COUNT)))
        await crowd.step(raw(*range(COUNT)))
        (group,) = session.channel.slots.groups.values()
        assert isinstance(group, FormGroup)
        assert len(group._requests) == COUNT
        crowd.workers[0].end()
        await crowd.tasks[0]
        assert group._requests == []
        await crowd.step([None, *raw(*range(1, COUNT))])
        client.close()
        await crowd.end()

    run(main())
    assert together == [COUNT, COUNT - 1]
    gc.collect()
    with pytest.raises(ValueError, match="released"):
        session.segment.words[0]
