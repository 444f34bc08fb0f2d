"""HTTP connection over a recording transport: the test feeds it and answers for the service.

Its application answers at once.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from silent_recorder import silent_recorder
from uvicorn.config import Config
from uvicorn.server import ServerState

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.asked_events import EventsAsked
from ringbatch.frontend.codec.outcome import JSON, Answer, Headers
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.codec.request_ids import RequestIds
from ringbatch.frontend.http.answering import answered
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http.fast_lane import FastLane
from ringbatch.frontend.http.fast_lane_settings import CLOSE_GRACE_S, FastLaneSettings
from ringbatch.frontend.http.head_reader import HeadReader
from ringbatch.frontend.http.refusal_pacing import RefusalPacing
from ringbatch.frontend.http.response_heads import ResponseHeads
from ringbatch.frontend.request.calls import Body, Reply
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.streams.connection import http2_handoff
from ringbatch.shm.tallies import Protocol

IDLE_TIMEOUT_S = 20
WAITS, UNREAD = "/waits", "/unread"
"""Paths whose answers wait for `Connection.may_answer`, and wait not even for the body."""
MAX_REQUEST_BYTES = 1 << 20


class Transport(asyncio.Transport):
    """Transport that keeps what is written; the protocol learns of a close at once.

    Attributes:
        writes: number of writes.
        hangs_up: whether its client does, once nothing more is to be written to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.written = b""
        self.writes = 0
        self.closing = self.closed = self.ended = False
        self.hangs_up = True
        self.reading = True
        self.left_bytes = 0
        self.extra: dict[str, Any] = {}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.extra.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.closed, "written after the close"
        self.written += bytes(data)
        self.writes += 1

    def close(self) -> None:
        self.closing = True
        if not self.closed and not self.left_bytes:
            self.closed = True
            self.protocol.connection_lost(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True
        if self.hangs_up:
            self.close()

    def abort(self) -> None:
        self.left_bytes = 0
        self.close()

    def get_write_buffer_size(self) -> int:
        return self.left_bytes

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Pending:
    """A call of `predict` that the test answers."""

    def __init__(
        self, model: str, body: bytes, reply: Reply, in_parts: InParts[Answer] | None = None
    ) -> None:
        self.model = model
        self.body = body
        self.reply = reply
        self.in_parts = in_parts
        self.abandoned = False

    @property
    def holds(self) -> tuple[int, int]:
        return 1, len(self.body)

    def abandon(self) -> None:
        assert not self.abandoned
        self.abandoned = True

    def parts(self, *texts: bytes, headers: Headers = JSON) -> None:
        """Give parts that are found together."""
        assert self.in_parts is not None, "the client wants parts"
        for text in texts:
            self.in_parts.on_part((200, text, headers))
        self.in_parts.flush()

    def end(self, *texts: bytes) -> None:
        """End an answer in parts, with these behind the others."""
        assert self.in_parts is not None, "the client wants parts"
        for text in texts:
            self.in_parts.on_part((200, text, JSON))
        self.reply(self.in_parts.end)

    def answer(self, status: int = 200) -> None:
        self.reply((status, b'{"echo":%d}' % len(self.body), JSON))


class Placed:
    """A large body that is written to where it belongs, and answered at once when it is there."""

    def __init__(self, size: int, calls: list[Pending]) -> None:
        self.memory = memoryview(bytearray(size))
        self._calls = calls

    def arrived(self, reply: Reply) -> None:
        call = Pending("", bytes(self.memory), reply)
        self._calls.append(call)
        call.answer()

    def abandon(self) -> None:
        """Do nothing: no memory is to be given back."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Note the request, as Falcon's stand-in, and answer with one word, at once or when it may."""
    body, more = b"", scope["path"] != UNREAD
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    scope["state"]["seen"].append((f"{scope['method']} {scope['path']}", body))
    scope["state"]["headers"].append(dict(scope["headers"]))
    if scope["path"] == WAITS:
        await scope["state"]["may_answer"].wait()
    headers = [(b"content-length", b"6")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"falcon"})


@functools.cache
def uvicorn_config(served: Any = app) -> Config:
    config = Config(
        functools.partial(answered, served),
        lifespan="off",
        ws="none",
        log_config=None,
        interface="asgi3",
        proxy_headers=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
    )
    config.load()
    return config


class Connection:
    """A fast lane, its transport and what it asked the service for."""

    def __init__(
        self,
        *,
        at_once: bool = False,
        stopping: bool = False,
        leaving: bool = False,
        budget: BodyBudget = BodyBudget.of(MAX_REQUEST_BYTES),  # noqa: B008
        keys: ApiKeys | None = None,
        places: bool = False,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        http2: bool = False,
        served: Any = app,
        recorder: Recorder | None = None,
        predictions: Any = None,
        pacing: RefusalPacing | None = None,
    ) -> None:
        self.places = places
        self.placed: Placed | None = None
        self.heads = HeadReader(max_request_bytes, compress_answers=True, keys=keys)
        self.at_once = at_once
        self.calls: list[Pending] = []
        self.json_bytes: list[int | None] = []
        self.timeouts_ns: list[int] = []
        self.accounts: list[int] = []
        self.handed_over = self.generated = 0
        self.ended: list[tuple[Protocol, int, str]] = []
        self.seen: list[tuple[str, bytes]] = []
        self.headers: list[dict[bytes, bytes]] = []
        self.may_answer = asyncio.Event()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self._settings = settings = FastLaneSettings(
            predictions=predictions or self,
            heads=self.heads,
            response_heads=ResponseHeads(self.state, SameId(0)),
            idle_timeout_s=IDLE_TIMEOUT_S,
            count_hand_over=self._count_hand_over,
            stopping=lambda: stopping,
            leaving=lambda: leaving,
            close_grace_s=lambda: CLOSE_GRACE_S,
            budget=budget,
            recorder=recorder or silent_recorder(),
            pacing=pacing or RefusalPacing(),
        )
        if http2:
            settings.http2_handoff = functools.partial(http2_handoff, settings)
        self.transport = Transport()
        self._served = served
        self.lane = self.another()
        self.transport.protocol = self.lane
        self.lane.connection_made(self.transport)

    def another(self) -> FastLane:
        """Return another connection of the same process, whose transport the test makes."""
        state = {"seen": self.seen, "headers": self.headers, "may_answer": self.may_answer}
        loop = asyncio.get_running_loop()
        return FastLane(self._settings, uvicorn_config(self._served), self.state, state, loop)

    def _count_hand_over(self) -> None:
        self.handed_over += 1

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders | None = None,
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Pending | None:
        self.accounts.append(account)
        self.timeouts_ns.append(timeout_ns)
        if in_parts is None and b'"stream": true' in body:
            raise EventsAsked
        call = Pending(name, bytes(body), reply, in_parts)
        self.calls.append(call)
        if self.at_once:
            call.answer()
            return None
        return call

    def infer(
        self,
        name: str,
        body: Body,
        json_bytes: int | None,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Pending | None:
        self.json_bytes.append(json_bytes)
        return self.predict(name, body, reply, timeout_ns, account=account, in_parts=in_parts)

    def generate(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> Pending | None:
        self.generated += 1
        return self.predict(name, body, reply, timeout_ns, account=account, in_parts=in_parts)

    def prepare(
        self, name: str, text: bytes, binary_bytes: int, timeout_ns: int = 0, account: int = 0
    ) -> Placed | None:
        self.placed = Placed(binary_bytes, self.calls) if self.places else None
        return self.placed

    def record_outside(
        self, protocol: Protocol, code: int, name: str = "", accepted_ns: int = 0
    ) -> None:
        self.ended.append((protocol, code, name))

    def feed(self, data: bytes) -> None:
        """Hand bytes from the network to the protocol, as the transport would."""
        protocol = self.transport.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data and not self.transport.closed:
                buffer: Any = protocol.get_buffer(len(data))
                size = min(len(data), len(buffer))
                buffer[:size] = data[:size]
                data = data[size:]
                protocol.buffer_updated(size)
        elif not self.transport.closed:
            protocol.data_received(data)

    async def settle(self) -> None:
        """Run every task until it waits."""
        for _ in range(20):
            await asyncio.sleep(0)


def scenario(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop of its own."""

    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


def request(body: bytes, *lines: bytes, path: bytes = b"/v1/models/m:predict") -> bytes:
    head = [b"POST %b HTTP/1.1" % path, b"Host: x", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join([*head, b"", body])


class SameId(RequestIds):
    """Source of ids that are all the same."""

    def make(self) -> bytes:
        return b"made"


def response(size: int, *, close: bool = False) -> bytes:
    body = b'{"echo":%d}' % size
    return (
        b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\n%b"
        b"x-request-id: made\r\ncontent-length: %d\r\n\r\n%b"
        % (b"connection: close\r\n" if close else b"", len(body), body)
    )


ESCAPED = b"/v1/models/m%3Apredict"
"""The path of the same predictions, in a spelling that is Falcon's."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait as long as the test may take."""
    while not condition():
        await asyncio.sleep(0.005)
