"""The server's sides of connections: the real protocol objects, led turn by turn, with nothing
behind them or a service."""

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from fuzz.turns import Turns
from grpc_harness import Client as GrpcClient
from grpc_service_harness import IDENTITY, Harness
from http_harness import Connection, Transport
from segment_fixture import local_segment, spec

from ringbatch.frontend.codec.outcome import JSON
from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.grpc.connection import GrpcConnection
from ringbatch.frontend.grpc.inference import GrpcAnswer, Inference
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.http2.frames import HEADERS
from ringbatch.frontend.request.calls import Reply
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.lane import Lane

LIMIT_BYTES: Final = 1 << 24
"""The default of max_request_bytes."""
_PAUSE: Final = 20_000
"""The most turns in which nothing is read."""


class Sink(Transport):
    """Transport that drops what is written.

    Attributes:
        written_bytes: so much was.
        answers: number of writes that began with an answer, or had one behind a frame or two.
    """

    written_bytes = answers = 0

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)
        self.answers += _has_answer(data)

    def writelines(self, list_of_data: Any) -> None:
        # The base class would join them, which uvloop does not.
        for data in list_of_data:
            self.write(data)


def _has_answer(data: Any) -> bool:
    if data[:9] == b"HTTP/1.1 ":
        return True
    at = 0
    for _ in range(8):
        if at + 9 > len(data):
            break
        if data[at + 3] == HEADERS:
            return True
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return False


class HttpSide:
    """A connection of HTTP, HTTP/2 included.

    Args:
        turns: of its loop.
        app: serves what is not for the fast lane.
        predictions: serves the others.
    """

    def __init__(self, turns: Turns, app: Any, predictions: Any) -> None:
        self.transport = Sink()
        turns.call(self._connect, app, predictions)

    def _connect(self, app: Any, predictions: Any) -> None:
        self._connection = Connection(
            http2=True,
            served=app,
            max_request_bytes=LIMIT_BYTES,
            budget=BodyBudget.of(LIMIT_BYTES),
            predictions=predictions,
        )
        lane = self._connection.another()
        self._connection.transport = self.transport
        self.transport.protocol = lane
        lane.connection_made(self.transport)

    @property
    def reads(self) -> bool:
        """True if the transport is read at present."""
        return self.transport.reading

    @property
    def over(self) -> bool:
        """True if the connection closes, so that it is never read again."""
        return self.transport.closing

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._connection.feed(data)

    def leave(self) -> None:
        """Lose the client."""
        self.transport.abort()


class GrpcSide:
    """A connection of gRPC.

    Args:
        turns: of its loop.
        inference: serves its requests, instead of that of a harness, which is given to it.
    """

    def __init__(self, turns: Turns, inference: Callable[[Inference], Any]) -> None:
        turns.call(self._connect, turns, inference)

    def _connect(self, turns: Turns, inference: Callable[[Inference], Any]) -> None:
        settings = Harness(IDENTITY).settings
        settings.inference = inference(settings.inference)
        settings.max_request_bytes = LIMIT_BYTES
        settings.budget = BodyBudget.of(LIMIT_BYTES)
        self.transport = _GrpcSink(GrpcConnection(settings, turns.loop), b"")

    @property
    def reads(self) -> bool:
        """True if more may come."""
        return self.transport.reading

    @property
    def over(self) -> bool:
        """True if nothing more is read, ever."""
        return self.transport.gone()

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        self.transport.send(data)

    def leave(self) -> None:
        """Lose the client."""
        self.transport.connection.connection_lost(None)


class _GrpcSink(GrpcClient):
    written_bytes = answers = 0

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)
        self.answers += _has_answer(data)

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def absorb(self) -> None:
        """Take nothing in."""


class Answering:
    """Stand-in for `Inference`, which refuses an empty message with an unknown model."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inference, name)

    def prepare(self, *_: Any) -> None:
        """See `Inference.prepare`; every message is gathered."""

    def start(self, data: bytes, timeout_ns: int, framing: Any, reply: Any) -> Any:
        """See `Inference.start`; every other message is answered at once."""
        if not data:
            return self._inference.start(data, timeout_ns, framing, reply)
        return reply(GrpcAnswer(b"", None, ()))


def _answer(_name: str, _body: Any, *given: Any, **_more: Any) -> None:
    """Answer at once, in place of `PredictionService.predict` and `infer`."""
    reply: Reply = next(one for one in given if callable(one))
    reply((200, b"{}", JSON))


@cache
def _application() -> tuple[Any, Any]:
    """A process's own, and its service."""
    segment = local_segment(spec(name="m"))
    gateway: Any = Gateway(Lane(segment, 0, lambda: None), asyncio.new_event_loop())
    service: Any = Service(segment, gateway, lambda: 1)
    service.expect_known = lambda *_: None
    service.last_ending = lambda: None
    service.predict = service.infer = _answer
    return create_app(service, LIMIT_BYTES), service


Side = HttpSide | GrpcSide


def http_side(turns: Turns) -> HttpSide:
    return HttpSide(turns, *_application())


def grpc_side(turns: Turns) -> GrpcSide:
    return GrpcSide(turns, Answering)


def converse(
    turns: Turns,
    side: Side,
    data: bytes,
    read_bytes: int,
    *,
    singly: int = 0,
    patient: bool = False,
) -> None:
    """Feed all bytes to a connection, and go on until nothing more happens.

    Args:
        turns: of its loop.
        side: the server's.
        data: bytes that its client sends.
        read_bytes: comes at once.
        singly: so many bytes come one by one, before the rest.
        patient: whether its client sends on only once nothing is due, so that no window is
            overrun.
    """
    for piece in _pieces(data, read_bytes, singly):
        for _ in range(_PAUSE):
            if side.reads or side.over:
                break
            turns.turn()
        if patient:
            turns.settle()
        if side.over:
            break
        assert side.reads, "nothing is read any more"
        turns.call(side.feed, piece)
    turns.settle()


def _pieces(data: bytes, read_bytes: int, singly: int) -> Iterator[bytes]:
    for at in range(singly):
        yield data[at : at + 1]
    for at in range(singly, len(data), read_bytes):
        yield data[at : at + read_bytes]
