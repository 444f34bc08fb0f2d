"""A client of a connection of HTTP/2 that a frontend serves: the library h2, without a socket."""

import asyncio
from collections.abc import Iterable
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from hpack import Encoder
from http_harness import Connection

from ringbatch.frontend.http.asgi_scope import EXCHANGES

Fields = tuple[tuple[str, str], ...]
Message = dict[str, Any]
POST: Fields = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1/models/m%3Apredict?a=1"),
    (":authority", "here"),
)
GET: Fields = ((":method", "GET"), (":scheme", "http"), (":path", "/p"), (":authority", "here"))
LONG = 10_000
"""Bytes from which a text is sent as it is: the time that the library takes for its Huffman code
grows with the square of the length."""


class Answer:
    """Answer on a stream: everything received there."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.informed: list[str] = []
        self.body = b""
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.fields[":status"])


class Client:
    """HTTP/2 client of a connection that a frontend serves."""

    def __init__(self, *, window: int | None = None, **more: Any) -> None:
        self.connection = Connection(http2=True, **more)
        config = h2.config.H2Configuration(header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.answers: dict[int, Answer] = {}
        self.left: int | None = None
        if window is not None:
            values = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        self.h2.encoder = ShortHuffman()
        self.h2.initiate_connection()

    def begin(self, fields: Fields = POST, *, end: bool = False) -> int:
        number = self.h2.get_next_available_stream_id()
        self.answers[number] = Answer()
        self.h2.send_headers(number, fields, end_stream=end)
        return number

    async def send(self) -> None:
        """Send the bytes that the library has ready, and take the replies."""
        self.connection.feed(self.h2.data_to_send())
        await self.take()

    async def take(self) -> None:
        for _ in range(3):
            await self.connection.settle()
            transport = self.connection.transport
            data, transport.written = transport.written, b""
            for event in self.h2.receive_data(data) if data else ():
                self._note(event)
            if more := self.h2.data_to_send():
                self.connection.feed(more)

    async def ask(self, body: bytes = b"", fields: Fields = POST) -> Answer:
        number = self.begin(fields, end=not body)
        await self.send()
        left = memoryview(body)
        while left:
            size = min(len(left), self.h2.local_flow_control_window(number), 1 << 14)
            assert size > 0, "there is no room"
            self.h2.send_data(number, bytes(left[:size]), end_stream=size == len(left))
            left = left[size:]
            await self.send()
        return self.answers[number]

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.left = int(event.error_code or 0)
            return
        answer = self.answers.get(getattr(event, "stream_id", 0) or 0)
        if answer is None:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            answer.informed.append(_texts(event.headers)[":status"])
        elif isinstance(event, h2.events.ResponseReceived):
            answer.fields = _texts(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.ended = True
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code)

    async def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            if not self.connection.transport.closed:
                self.connection.transport.protocol.tick()
            await self.take()


class ShortHuffman(Encoder):
    """Encoder of fields that has no Huffman code for long texts."""

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        fields = [*headers]
        return super().encode(fields, huffman and all(len(text) < LONG for _, text in fields))


def _texts(fields: Any) -> dict[str, str]:
    return dict(fields)


def replying(status: int, *pieces: bytes, **fields: str) -> Any:
    """An application that answers so."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        lines = [(name.encode(), text.encode()) for name, text in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": lines})
        for number, piece in enumerate(pieces, 1):
            more = number < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    return app


async def stuck(scope: Any, _receive: Any, _send: Any) -> None:
    """Read nothing until the client has gone."""
    exchange = Gone()
    scope[EXCHANGES].add(exchange)
    await exchange.event.wait()


class Gone:
    """Exchange whose client can be gone."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def gone(self) -> None:
        self.event.set()
