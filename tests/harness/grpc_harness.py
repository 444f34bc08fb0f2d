"""A client of gRPC on a connection of this process, without a socket."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc
from hpack import Decoder
from http2_harness import GREETING, data, frame, frames_of, headers, settings

from ringbatch.frontend.grpc.connection import GrpcConnection
from ringbatch.frontend.http2.bodies import STREAM_ROOM
from ringbatch.frontend.http2.frames import (
    ACK,
    CANCEL,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)
from ringbatch.frontend.http2.header_text import field

INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
STREAM: Final = "/inference.GRPCInferenceService/ModelStreamInfer"
_CODES: Final = {str(code.value[0]): code.name for code in grpc.StatusCode}
_WINDOWS: Final = {"gzip": 31, "deflate": 15}
_TURNS: Final = 10_000


class Call:
    """gRPC call as its client sees it.

    Attributes:
        client: its client.
        number: of its stream.
        messages: messages received.
        status: the name of its code, and the text; None until it has ended.
        http_status: of its head.
        trailing: metadata behind it.
        reset: the error code with which the server has reset it; None where it has not.
        room: bytes that the server has allowed, from the first on.
    """

    def __init__(self, client: "Client", number: int) -> None:
        self.client = client
        self.number = number
        self.messages: list[bytes] = []
        self.status: tuple[str, str] | None = None
        self.http_status = ""
        self.trailing: dict[str, str] = {}
        self.reset: int | None = None
        self.room = STREAM_ROOM
        self._buffer = b""

    @staticmethod
    def framed(message: bytes, coding: str | None = None) -> bytes:
        """Return a message with its prefix."""
        if coding is not None:
            message = zlib.compress(message, wbits=_WINDOWS[coding])
        return bytes([coding is not None]) + len(message).to_bytes(4, "big") + message

    def send(self, message: bytes, cut: int | None = None) -> None:
        """Send a message, or the first bytes of it."""
        self.send_bytes(self.framed(message)[:cut])

    def send_bytes(self, payload: bytes) -> None:
        """Send a piece of the body."""
        for at in range(0, len(payload), 1 << 14):
            self.client.send(data(self.number, payload[at : at + (1 << 14)]))

    def finish(self) -> None:
        """End the client's side of the call."""
        self.client.send(data(self.number, b"", END_STREAM))

    def cancel(self) -> None:
        """Cancel the call."""
        self.client.send(frame(RST_STREAM, 0, self.number, CANCEL.to_bytes(4, "big")))

    async def ended(self) -> tuple[str, str]:
        """Wait for the end of the call, and return its status and message."""
        for _ in range(_TURNS):
            self.client.absorb()
            if self.status is not None:
                return self.status
            await asyncio.sleep(0.001)
        raise AssertionError("it does not end")

    async def answer(self) -> bytes:
        """Return the only message that answers the call."""
        assert await self.ended() == ("OK", ""), self.status
        (message,) = self.messages
        return message

    def take(self, kind: int, flags: int, payload: bytes, fields: dict[str, str]) -> None:
        """Take a frame of the server."""
        if kind == DATA:
            self._buffer += payload
            while len(self._buffer) >= 5:
                size = int.from_bytes(self._buffer[1:5])
                if len(self._buffer) < 5 + size:
                    break
                assert self._buffer[0] == 0, "answers are not compressed"
                self.messages.append(self._buffer[5 : 5 + size])
                self._buffer = self._buffer[5 + size :]
        elif kind == HEADERS:
            self.http_status = fields.get(":status", self.http_status)
            if flags & END_STREAM:
                code, text = fields.pop("grpc-status"), fields.pop("grpc-message", "")
                self.status = _CODES[code], text
                own = (":status", "content-type", "grpc-accept-encoding")
                self.trailing = {name: fields[name] for name in fields if name not in own}
        elif kind == RST_STREAM:
            self.reset = int.from_bytes(payload)
        elif kind == WINDOW_UPDATE:
            self.room += int.from_bytes(payload)


class Client(asyncio.Transport):
    """A connection, as its transport and as the client at its other end.

    Attributes:
        connection: the server's.
        reading: whether the server reads.
        full: bytes that the socket does not take.
        protocol: protocol that reads the socket.
        read_bytes: at once, at most.
        held: what is to be sent with the next, where it is not sent by itself.
        goaways: the last streams that the server has named.

    Args:
        connection: new.
        greeting: first bytes sent.
    """

    def __init__(self, connection: GrpcConnection, greeting: bytes = GREETING) -> None:
        super().__init__()
        self.connection = connection
        self.protocol: asyncio.BaseProtocol = connection
        self._gone = False
        self.reading = True
        self.full = 0
        self.read_bytes = 1 << 20
        self.held: bytearray | None = None
        self.goaways: list[int] = []
        self._calls: dict[int, Call] = {}
        self._decoder = Decoder()
        self._sent = b""
        self._pings: list[bytes] = []
        connection.connection_made(self)
        if greeting:
            self.send(greeting)

    def send(self, given: bytes) -> None:
        """Send bytes."""
        if self.held is not None:
            self.held += given
            return
        self._receive(given)
        self.absorb()

    def release(self) -> None:
        """Send at once what was held."""
        held, self.held = self.held, None
        if held is not None:
            self.send(bytes(held))

    def _receive(self, given: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            self.connection.data_received(given)
            return
        while given:
            memory = memoryview(protocol.get_buffer(-1))
            size = min(len(given), len(memory), self.read_bytes)
            memory[:size] = given[:size]
            given = given[size:]
            protocol.buffer_updated(size)
            # As the next read does, for whichever connection.
            memory[:size] = bytes(size)

    def gone(self) -> bool:
        """Return whether the server has closed the connection."""
        return self._gone

    def windows(self, size: int) -> None:
        """Set the initial window of streams."""
        self.send(settings(window=size))

    def call(
        self,
        path: str,
        *messages: bytes,
        end: bool = True,
        timeout: str | None = None,
        coding: str | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        fields: Mapping[str, str] | None = None,
    ) -> Call:
        """Begin a call, and send messages; the usual way with one, which is a piece with its end.

        Args:
            path: of the method.
            messages: to be sent.
            end: whether there are no more.
            timeout: as gRPC writes it.
            coding: to compress messages with.
            metadata: of the call.
            fields: other values of other headers.
        """
        call = Call(self, 2 * len(self._calls) + 1)
        self._calls[call.number] = call
        named = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "x",
            "content-type": "application/grpc",
            "te": "trailers",
        } | dict(fields or {})
        if timeout is not None:
            named["grpc-timeout"] = timeout
        if coding is not None:
            named["grpc-encoding"] = coding
        pairs = [*named.items(), *metadata]
        block = b"".join(field(name.encode(), value.encode("latin-1")) for name, value in pairs)
        bodies = [call.framed(message, coding) for message in messages]
        if len(bodies) == 1 and end and len(bodies[0]) <= 1 << 14:
            self.send(headers(call.number, 0, block) + data(call.number, bodies[0], END_STREAM))
            return call
        self.send(headers(call.number, 0, block))
        for body in bodies:
            call.send_bytes(body)
        if end:
            call.finish()
        return call

    def pong(self) -> None:
        """Answer the server's pings."""
        pings, self._pings = self._pings, []
        for payload in pings:
            self.send(frame(PING, ACK, 0, payload))

    def absorb(self) -> None:
        """Take in what the server has sent."""
        sent, self._sent = self._sent, b""
        for kind, flags, stream, payload in frames_of(sent):
            fields: dict[str, str] = {}
            if kind == HEADERS:
                fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            if kind == GOAWAY:
                self.goaways.append(int.from_bytes(payload[:4]))
            elif kind == PING and not flags & ACK:
                self._pings.append(payload)
            elif kind == SETTINGS and not flags:
                self._receive(frame(SETTINGS, ACK, 0))
            elif stream:
                self._calls[stream].take(kind, flags, payload, fields)

    def write(self, data: Any) -> None:
        self._sent += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self._sent += b"".join(list_of_data)

    def close(self) -> None:
        self._gone = True

    def abort(self) -> None:
        self._gone = True

    def is_closing(self) -> bool:
        return self._gone

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self.full

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default
