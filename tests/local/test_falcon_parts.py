"""Parts of an answer on Falcon: those that go out at once, and those that the task sends.

Tests frontend/falcon/streaming.py.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import pytest

from ringbatch.frontend.codec.event_stream import (
    COMMENT,
    END,
    MOST_UNREAD_BYTES,
    SILENCE_S,
    event,
)
from ringbatch.frontend.codec.outcome import JSON, Answer
from ringbatch.frontend.codec.part_limits import NO_LIMITS
from ringbatch.frontend.falcon.streaming import EventStream
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.shm.errors import Overloaded


class Client:
    """Client of a stream: what has reached it in order, at once or by the task.

    Attributes:
        takes_parts: whether it has room for a part at once.
        sent_bytes: as in `PieceOutlet`.
        at_once: the events that went out without the task.
        got: all of them.
    """

    def __init__(self) -> None:
        self.takes_parts = True
        self.sent_bytes = 0
        self.at_once: list[bytes] = []
        self.got: list[bytes] = []
        outcome = cast(RequestOutcome, None)
        self.stream = EventStream(lambda: outcome, NO_LIMITS, lambda: 0, outlet=self, forms={})
        self._events: AsyncGenerator[bytes, None] | None = None
        self._task: asyncio.Task[None] | None = None

    def takes(self, size: int) -> bool:
        """As in `PieceOutlet`."""
        return self.takes_parts

    def send(self, piece: bytes) -> bool:
        """As in `PieceOutlet`."""
        if self.takes_parts:
            self.at_once.append(piece)
            self.got.append(piece)
        return self.takes_parts

    def part(self, text: bytes) -> None:
        self.stream.in_parts.on_part(answer(text))

    def begin(self) -> None:
        """Have a task send what there is, as Falcon does."""
        self._task = asyncio.create_task(self._read())

    async def ended(self) -> None:
        assert self._task is not None
        await self._task

    async def _read(self) -> None:
        async for text in self.stream.events():
            # As a client without room would have it.
            await asyncio.sleep(0)
            self.got.append(text)


def answer(text: bytes) -> Answer:
    return 200, text, JSON


def is_free(client: Client) -> bool:
    return client.stream.is_free


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def on_loop(test: Callable[[], Awaitable[Any]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(cast(Any, test()))

    run.__name__ = test.__name__
    return run


@on_loop
async def test_behind_the_first_part_each_goes_out_at_once() -> None:
    client = Client()
    client.part(b"0")
    assert client.got == [], "the head of the answer is to go before"
    client.begin()
    await settle()
    assert client.got == [event(b"0")]
    client.part(b"1")
    client.part(b"2")
    assert client.at_once == [event(b"1"), event(b"2")]
    client.stream.reply(END)
    await client.ended()
    assert client.got == [event(b"0"), event(b"1"), event(b"2")]


@on_loop
async def test_a_stream_is_free_while_its_task_waits_and_its_client_takes() -> None:
    client = Client()
    assert not is_free(client)
    client.part(b"0")
    client.begin()
    await settle()
    assert is_free(client)
    client.takes_parts = False
    assert not is_free(client)
    client.part(b"1")
    client.takes_parts = True
    assert not is_free(client), "a part waits"
    await settle()
    assert is_free(client)
    client.stream.reply(END)
    await client.ended()


@on_loop
async def test_parts_without_room_wait_in_their_order() -> None:
    client = Client()
    client.part(b"0")
    client.begin()
    await settle()
    client.takes_parts = False
    client.part(b"1")
    client.takes_parts = True
    client.part(b"2")
    assert client.got == [event(b"0")]
    await asyncio.sleep(0)
    client.part(b"3")
    await settle()
    client.part(b"4")
    client.stream.reply(END)
    await client.ended()
    assert b"".join(client.got) == b"".join(map(event, (b"0", b"1", b"2", b"3", b"4")))
    assert client.at_once == [event(b"4")]


@on_loop
async def test_only_parts_that_wait_count_as_unread() -> None:
    client = Client()
    part = b"x" * (MOST_UNREAD_BYTES // 2)
    client.part(part)
    client.begin()
    await settle()
    for _ in range(4):
        client.part(part)
    client.takes_parts = False
    client.part(part)
    client.part(part)
    with pytest.raises(Overloaded):
        client.part(part)
    client.stream.reply(END)
    await client.ended()


@on_loop
async def test_a_comment_comes_a_while_behind_the_latest_part() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    now_s = began_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", lambda: now_s)
        client = Client()
        client.part(b"0")
        client.begin()
        await settle()
        now_s = began_s + SILENCE_S - 1
        client.part(b"1")
        now_s = began_s + SILENCE_S + 1
        await settle()
        assert client.got == [event(b"0"), event(b"1")]
        now_s = began_s + 2 * SILENCE_S
        await settle()
        assert client.got[2:] == [COMMENT]
        now_s += SILENCE_S + 1
        await settle()
        assert client.got[2:] == [COMMENT, COMMENT]
        client.part(b"2")
        client.stream.reply(END)
        await client.ended()
    assert client.got[4:] == [event(b"2")]


@on_loop
async def test_nothing_goes_out_behind_the_end() -> None:
    client = Client()
    client.part(b"0")
    client.begin()
    await settle()
    client.stream.gone()
    await settle()
    assert len(client.got) == 2, "the error that nobody reads"
    await client.ended()
