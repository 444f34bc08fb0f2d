"""The same bytes on two connections: through the fast lane, and past it.

What the models are asked for and what the clients are answered must be the same. And whatever the
fast lane takes must be one request to h11 too, a third and strict parser, that ends in the same
place: behind a proxy that reads it otherwise, what one takes for a body is a request to the other.
"""

import asyncio
import functools
import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

import h11
from rig import local_segment, spec
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.anyhttp import AnyHttp
from ringbatch.frontend.app import create_app
from ringbatch.frontend.body_budget import BodyBudget
from ringbatch.frontend.calls import Body, Reply
from ringbatch.frontend.fastlane import FastLane, FastLaneSettings
from ringbatch.frontend.gateway import Gateway
from ringbatch.frontend.head import END, HeadReader, read_head
from ringbatch.frontend.outcome import JSON
from ringbatch.frontend.response_heads import ResponseHeads
from ringbatch.frontend.service import Service
from ringbatch.shm.lane import Lane
from ringbatch.shm.tensor import Tensor

MAX_REQUEST_BYTES: Final = 1 << 12
_NOW_NS: Final = 1_000_000_000
_BAD_REQUEST: Final = 400
_TURNS: Final = 6
"""Of the event loop, in which nothing comes, before a connection counts as quiet."""
_TURNS_AT_MOST: Final = 5_000


@dataclass
class Seen:
    """What came of some bytes."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    """Of the models."""
    written: bytes = b""
    closed: bool = False
    fast: int = 0
    """Requests that the fast lane served."""


class _Transport(asyncio.Transport):
    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.protocol: Any = None
        self._seen = seen
        self._reading = True

    def write(self, data: Any) -> None:
        if not self._seen.closed:
            self._seen.written += bytes(data)

    def close(self) -> None:
        if not self._seen.closed:
            self._seen.closed = True
            self.protocol.connection_lost(None)

    abort = close

    def is_closing(self) -> bool:
        return self._seen.closed

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0


class Pair:
    """Both ways into one process, whose models answer with what they were asked."""

    def __init__(self) -> None:
        self._seen = Seen()
        tensor = Tensor("x", "FP32", [-1])
        segment = local_segment(spec(0, [tensor], [tensor], name="m"))
        loop = asyncio.get_running_loop()
        gateway = Gateway(Lane(segment, 0, lambda: None), loop)
        service = Service(segment, gateway, lambda: _NOW_NS)
        service.predict = self._predict  # type: ignore[method-assign]
        service.infer = self._infer  # type: ignore[method-assign]
        app = create_app(service, MAX_REQUEST_BYTES)
        self._config = Config(
            app, lifespan="off", ws="none", log_config=None, interface="asgi3", proxy_headers=False
        )
        self._config.load()
        self._loop = loop

    async def both(self, pieces: list[bytes]) -> tuple[Seen, Seen]:
        """What comes of the bytes through the fast lane, and past it."""
        return await self._one(pieces, fast=True), await self._one(pieces, fast=False)

    async def _one(self, pieces: list[bytes], *, fast: bool) -> Seen:
        self._seen = seen = Seen()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        transport = _Transport(seen)
        protocol = self._fast_lane(state) if fast else AnyHttp(self._config, state, {}, self._loop)
        transport.protocol = protocol
        protocol.connection_made(transport)
        for piece in pieces:
            if not seen.closed:
                transport.protocol.data_received(piece)
            await self._settle(state)
        closed = seen.closed
        if not closed:
            transport.protocol.connection_lost(None)
        transport.protocol = None
        for task in list(state.tasks):
            task.cancel()
        await self._settle(state)
        seen.closed = closed
        return seen

    async def _settle(self, state: ServerState) -> None:
        quiet, before = 0, (-1, -1)
        for _ in range(_TURNS_AT_MOST):
            await asyncio.sleep(0)
            now = (len(self._seen.written), len(self._seen.asked))
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= _TURNS * (1 + 4 * bool(state.tasks)):
                return
        raise AssertionError("there is no end to it")

    def _fast_lane(self, state: ServerState) -> FastLane:
        settings = FastLaneSettings(
            predict=functools.partial(self._fast, self._predict),
            infer=functools.partial(self._fast, self._infer),
            expect=lambda *_: None,
            heads=HeadReader(MAX_REQUEST_BYTES),
            response_heads=ResponseHeads(state),
            idle_timeout_s=60,
            handed_over=lambda: None,
            stopping=lambda: False,
            budget=BodyBudget.of(MAX_REQUEST_BYTES),
        )
        return FastLane(settings, self._config, state, {}, self._loop)

    def _fast(self, call: Any, *arguments: Any) -> None:
        self._seen.fast += 1
        call(*arguments)

    def _predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: bytes | None = None,
    ) -> None:
        self._answer(("predict", name, bytes(body), timeout_ns, origin), reply)

    def _infer(
        self, name: str, body: Body, json_bytes: int | None, reply: Reply, timeout_ns: int = 0
    ) -> None:
        self._answer(("infer", name, bytes(body), json_bytes, timeout_ns), reply)

    def _answer(self, asked: tuple[Any, ...], reply: Reply) -> None:
        self._seen.asked.append(asked)
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()
        reply(200, b'{"asked":"%b"}' % digest.encode(), JSON)


async def check(pair: Pair, pieces: list[bytes]) -> Seen:
    """Send bytes both ways.

    Returns:
        What came of them through the fast lane.

    Raises:
        AssertionError: it is not the same, or another parser would differ.
    """
    fast, slow = await pair.both(pieces)
    assert fast.asked == slow.asked, f"asked {fast.asked}, past the fast lane {slow.asked}"
    answers, expected = _answers(fast.written), _answers(slow.written)
    unsound = bool(expected) and expected[-1][0] == _BAD_REQUEST
    if unsound and answers == expected[:-1] and not fast.closed:
        # A head that is wrong already, and has not ended: the fast lane waits for its end.
        return fast
    assert answers == expected, f"answers {answers}, past the fast lane {expected}"
    assert fast.closed == slow.closed, f"closed {fast.closed}, past the fast lane {slow.closed}"
    return fast


def check_head(data: bytes) -> bool:
    """Whether the fast lane takes the head that the bytes begin with.

    Raises:
        AssertionError: it does, and h11 reads it otherwise.
    """
    end = data.find(END)
    head = data[: end + len(END)]
    verdict = None if end < 0 else read_head(head, MAX_REQUEST_BYTES)
    if verdict is None:
        return False
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 16)
    parser.receive_data(head + b"x" * verdict.content_length + b"GET ")
    try:
        request = parser.next_event()
        body = b""
        while isinstance(event := parser.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.RemoteProtocolError as error:
        raise AssertionError(f"h11 refuses what the fast lane takes: {error}") from error
    assert isinstance(request, h11.Request)
    assert isinstance(event, h11.EndOfMessage)
    assert request.method == b"POST"
    assert verdict.model.encode() in request.target
    assert len(body) == verdict.content_length, "h11 sees another end of the body"
    return True


def _answers(written: bytes) -> list[tuple[int, bytes, bool]]:
    """Status and body of each answer, and whether it says that it was the last."""
    found = []
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        status = int(lines[0].split(b" ")[1])
        length = int(headers.get(b"content-length", b"0"))
        found.append((status, rest[:length], headers.get(b"connection") == b"close"))
        written = rest[length:]
    return found
