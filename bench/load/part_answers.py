"""Answers in parts as a client reads them off each protocol, part by part. Pure.

A model of this bench answers a number with that number, the next one, and so on. Each part is
compared, and noted with its time.
"""

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from host.server import HOST

from load.answers import WrongAnswer
from ringbatch.bench.load.grpc_call import prefixed
from ringbatch.bench.load.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    Frame,
    Kind,
    frame,
    frames_of,
    greeting,
    header_block,
    more_room,
)
from ringbatch.frontend.grpc.messages import inference

MODEL: Final = "parts"
PARTS: Final = 20
_PATH: Final = f"/v1/models/{MODEL}:predict"
_METHOD: Final = "/inference.GRPCInferenceService/ModelStreamInfer"
_EVENTS: Final = "text/event-stream"
_HEAD_END: Final = b"\r\n\r\n"
_EVENT_END: Final = b"\n\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_WELL: Final = 0x88
"""First byte of a header block: the field `:status: 200` of HPACK's static table."""
_PREFIX_BYTES: Final = 5
_REPLENISH: Final = 1 << 30
"""Bytes that have come, after which the peer may send as many again."""
_Request: Final = inference("ModelInferRequest")
_Response: Final = inference("ModelStreamInferResponse")


@dataclass
class Times:
    """Times of the answers of some clients, in milliseconds.

    Attributes:
        first: from the request to the first part, or to the answer.
        gaps: between two parts.
        answers: that have ended.
        parts: in them, and in those that have begun.
    """

    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    answers: int = 0
    parts: int = 0


class Answers:
    """Answers that one client gets, one after the other.

    Args:
        value: the number that the client sends.
        times: takes note of the parts.
        parts: of an answer.

    Attributes:
        value: as above.
    """

    def __init__(self, value: int, times: Times, parts: int = PARTS) -> None:
        self.value = value
        self._times = times
        self._expected = [float(value + step) for step in range(parts)]
        self._found: list[float] = []
        self._sent_s = self._last_s = 0.0

    def sent(self, now_s: float) -> None:
        """Begin the next answer."""
        self._sent_s = now_s
        self._found = []

    def part(self, numbers: Sequence[float], now_s: float) -> None:
        """Take a part."""
        times = self._times
        if self._found:
            times.gaps.append(1e3 * (now_s - self._last_s))
        else:
            times.first.append(1e3 * (now_s - self._sent_s))
        self._found += numbers
        self._last_s = now_s
        times.parts += 1

    def whole(self, numbers: Sequence[float], now_s: float) -> None:
        """Take all parts at once."""
        self._found += numbers
        self._times.first.append(1e3 * (now_s - self._sent_s))
        self._times.parts += len(self._expected)

    def end(self) -> None:
        """End the answer.

        Raises:
            WrongAnswer: it is not the right one.
        """
        if self._found != self._expected:
            raise WrongAnswer(f"{self._found} and not {self._expected}")
        self._times.answers += 1


class Exchange(Protocol):
    """One connection, and the clients that ask over it.

    Attributes:
        clients: the answers of each.
        reply: bytes that the protocol itself is to send; taken by the driver.
    """

    clients: Sequence[Answers]
    reply: bytes

    def ask(self, client: Answers, now_s: float) -> bytes:
        """Return a client's next request."""

    def take(self, data: bytes, now_s: float) -> list[Answers]:
        """Take received bytes; return the clients whose answers have ended.

        Raises:
            WrongAnswer: an answer is not the right one.
        """


class OverHttp1:
    """See `Exchange`: one client over HTTP/1.1.

    Args:
        client: its answers.
        events: whether it asks for events.
    """

    def __init__(self, client: Answers, *, events: bool) -> None:
        self.clients: Sequence[Answers] = (client,)
        self.reply = b""
        self._client = client
        self._events = events
        self._unread = b""
        self._in_body = False
        body = _body(client.value)
        accept = f"Accept: {_EVENTS}\r\n" if events else ""
        head = f"POST {_PATH} HTTP/1.1\r\nHost: {HOST}\r\n{accept}Content-Length: {len(body)}\r\n"
        self._request = head.encode() + b"\r\n" + body

    def ask(self, client: Answers, now_s: float) -> bytes:
        """As in `Exchange`."""
        client.sent(now_s)
        self._in_body, self._unread = False, b""
        return self._request

    def take(self, data: bytes, now_s: float) -> list[Answers]:
        """As in `Exchange`."""
        self._unread += data
        if not self._in_body:
            head, found, rest = self._unread.partition(_HEAD_END)
            if not found:
                return []
            if not head.startswith(b"HTTP/1.1 200"):
                raise WrongAnswer(head.decode() + rest.decode())
            self._in_body, self._unread = True, rest
        if self._events:
            self._unread = _take_events(self._client, self._unread, now_s)
            ended = self._unread.endswith(_LAST_CHUNK)
        elif ended := self._unread.endswith(b"]]}"):
            self._client.whole(_numbers(self._unread), now_s)
        if not ended:
            return []
        self._client.end()
        return [self._client]


class _OverHttp2(ABC):
    """Connection over HTTP/2 that many clients share."""

    def __init__(self, clients: Sequence[Answers]) -> None:
        self.clients = clients
        self.reply = greeting()
        self._data = bytearray()
        self._come = 0
        self._streams: dict[int, Answers] = {}
        self._last = -1

    def take(self, data: bytes, now_s: float) -> list[Answers]:
        """As in `Exchange`."""
        self._data += data
        self._come += len(data)
        if self._come > _REPLENISH:
            self.reply += more_room(self._come)
            self._come = 0
        ended = []
        for one in frames_of(self._data):
            client = self._streams.get(one.stream)
            if client is not None:
                if self._take_frame(client, one, now_s):
                    client.end()
                    ended.append(client)
            elif one.kind == Kind.GOAWAY:
                raise WrongAnswer(f"the server closes the connection: {one.payload!r}")
            elif one.kind in (Kind.SETTINGS, Kind.PING) and not one.flags & ACK:
                payload = one.payload if one.kind == Kind.PING else b""
                self.reply += frame(Kind(one.kind), ACK, 0, payload)
        return ended

    def _take_frame(self, client: Answers, one: Frame, now_s: float) -> bool:
        """Take a frame of a client's stream; return whether its answer has ended."""
        if one.kind == Kind.DATA:
            return self._take_data(client, one, now_s)
        well = one.kind != Kind.HEADERS or _WELL in one.payload[:2]
        if one.kind == Kind.RST_STREAM or one.flags & END_STREAM or not well:
            raise WrongAnswer(f"an answer has ended: {one}")
        return False

    @abstractmethod
    def _take_data(self, client: Answers, one: Frame, now_s: float) -> bool:
        """Take data of a client's stream; return whether its answer has ended."""

    def _open(self, client: Answers, path: str, *more: tuple[str, str]) -> bytes:
        """Return the head of a request on a new stream, which is the client's."""
        self._last += 2
        self._streams[self._last] = client
        fields = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", HOST))
        return frame(Kind.HEADERS, END_HEADERS, self._last, header_block((*fields, *more)))


class EventsOverHttp2(_OverHttp2):
    """See `Exchange`: events over one connection, a stream for each answer."""

    def __init__(self, clients: Sequence[Answers]) -> None:
        super().__init__(clients)
        self._unread: dict[int, bytes] = {}

    def ask(self, client: Answers, now_s: float) -> bytes:
        """As in `Exchange`."""
        client.sent(now_s)
        head = self._open(client, _PATH, ("accept", _EVENTS))
        return head + frame(Kind.DATA, END_STREAM, self._last, _body(client.value))

    def _take_data(self, client: Answers, one: Frame, now_s: float) -> bool:
        text = self._unread.pop(one.stream, b"") + one.payload
        self._unread[one.stream] = _take_events(client, text, now_s)
        if not one.flags & END_STREAM:
            return False
        del self._streams[one.stream], self._unread[one.stream]
        return True


class OverGrpc(_OverHttp2):
    """See `Exchange`: one connection, and a ModelStreamInfer that lasts for each client."""

    def __init__(self, clients: Sequence[Answers]) -> None:
        super().__init__(clients)
        self._calls: dict[Answers, int] = {}
        self._unread: dict[int, bytes] = {}

    def ask(self, client: Answers, now_s: float) -> bytes:
        """As in `Exchange`."""
        client.sent(now_s)
        head = b""
        if client not in self._calls:
            more = (("te", "trailers"), ("content-type", "application/grpc"))
            head = self._open(client, _METHOD, *more)
            self._calls[client] = self._last
        request = prefixed(_request(client.value))
        return head + frame(Kind.DATA, 0, self._calls[client], request)

    def _take_data(self, client: Answers, one: Frame, now_s: float) -> bool:
        data, at, ended = self._unread.pop(one.stream, b"") + one.payload, 0, False
        while len(data) - at >= _PREFIX_BYTES:
            begin = at + _PREFIX_BYTES
            end = begin + int.from_bytes(data[at + 1 : begin])
            if end > len(data):
                break
            ended = _take_response(client, data[begin:end], now_s)
            at = end
        self._unread[one.stream] = data[at:]
        return ended


def _take_response(client: Answers, message: bytes, now_s: float) -> bool:
    """Take a message of a stream; return whether it is the empty one that ends an answer."""
    found = _Response.FromString(message)
    if found.error_message:
        raise WrongAnswer(found.error_message)
    response = found.infer_response
    if response.parameters["triton_final_response"].bool_param:
        return True
    (raw,) = response.raw_output_contents
    client.part(struct.unpack(f"<{len(raw) // 4}f", raw), now_s)
    return False


def _take_events(client: Answers, text: bytes, now_s: float) -> bytes:
    """Take whole events; return what stands behind them."""
    *events, rest = text.split(_EVENT_END)
    for event in events:
        client.part(_numbers(event), now_s)
    return rest


def _numbers(text: bytes) -> list[float]:
    """Return the numbers of an answer in JSON, which stands alone or in an event."""
    answer = json.loads(text[text.index(b"{") :])
    if "error" in answer:
        raise WrongAnswer(answer["error"])
    numbers: list[float] = answer["predictions"][0]
    return numbers


def _body(value: int) -> bytes:
    return b'{"instances":[%d]}' % value


def _request(value: int) -> bytes:
    """Return a ModelInferRequest that asks for an empty response behind the last part."""
    row = np.array([value], "<f4")
    message: bytes = _Request(
        model_name=MODEL,
        parameters={"triton_enable_empty_final_response": {"bool_param": True}},
        inputs=[{"name": "x", "shape": row.shape, "datatype": "FP32"}],
        raw_input_contents=[row.tobytes()],
    ).SerializeToString()
    return message
