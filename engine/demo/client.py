"""The demo's clients: many keep-alive connections that send pictures and take in the answers.

A client of the V1 protocol in the standard library alone, as small as HTTP/1.1 allows. While it
sends it only stores bytes; they are read as answers afterwards, so that the reading does not slow
the other clients, which share one event loop.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.demo.report import PIXEL_MAX

HOST: Final = "127.0.0.1"
ANSWER_LIMIT_S: Final = 30.0
"""Seconds that a client waits for one answer before it gives up."""


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a response.

    Attributes:
        status: the HTTP status.
        length: bytes of the body.
        keeps_alive: True if the connection takes another request.
    """

    status: int
    length: int
    keeps_alive: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one request.

    Attributes:
        status: the HTTP status.
        body: as it came.
        latency_ns: from before the request was written until its answer was there.
    """

    status: int
    body: bytes
    latency_ns: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The body of a good answer.

    Attributes:
        batch_id: the same for all requests that were run together.
        scores: [10], the probability of each digit.
    """

    batch_id: str
    scores: NDArray[np.float32]


class NoAnswer(Exception):
    """A connection failed, closed early, or stayed silent for too long."""


def request(model: str, image: NDArray[np.uint8]) -> bytes:
    """Return the whole V1 request, head and body, for one picture: [64], 0 to 16."""
    body = json.dumps({"instances": [(image / PIXEL_MAX).tolist()]}).encode()
    head = (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\n"
        f"Host: {HOST}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "\r\n"
    )
    return head.encode() + body


def parse_head(head: bytes) -> Head:
    """Return the head of a response, up to and with its empty line.

    Raises:
        ValueError: it is not HTTP/1.1, or does not say how long the body is.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    code = status[:3]
    if version != "HTTP/1.1" or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise ValueError(f"not a response of HTTP/1.1: {first!r}")
    named = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        raise ValueError(f"a response without a usable Content-Length: {length!r}")
    return Head(int(code), int(length), headers.get("connection", "").lower() != "close")


def parse_prediction(body: bytes) -> Prediction:
    """Return the prediction in an answer with status 200 to a request of one picture.

    Raises:
        ValueError: it is anything else; the text says what.
    """
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"an answer that is no JSON object: {body[:100]!r}")
    batch_id, message = document.get("batchId"), document.get("message")
    if message != "":
        raise ValueError(f"an answer with the message {message!r}")
    if not isinstance(batch_id, str) or not batch_id:
        raise ValueError(f"an answer with the batchId {batch_id!r}")
    try:
        scores = np.asarray(document.get("predictions"), np.float32)
    except (TypeError, ValueError):
        scores = np.empty(0, np.float32)
    if scores.shape != (1, 10):
        raise ValueError(f"an answer that is not one row of ten numbers: {body[:100]!r}")
    return Prediction(batch_id, scores[0])


async def send_all(
    port: int,
    requests: Sequence[bytes],
    clients: int,
    clock_ns: Callable[[], int],
    on_answer: Callable[[], None],
) -> tuple[list[Answer | None], list[str]]:
    """Send every request once, as many at a time as there are clients.

    A client that gets no answer stops; the others go on with the rest.

    Args:
        port: of a server on this host.
        requests: each as `request` makes it.
        clients: how many connections, at least one.
        clock_ns: monotonic nanoseconds.
        on_answer: called once for each answer.

    Returns:
        The answers in the order of the requests, None if there is none; and, in words, why each
        client stopped that had to stop.
    """
    answers: list[Answer | None] = [None] * len(requests)
    jobs = iter(range(len(requests)))

    async def client() -> str:
        connection = _Connection(port)
        try:
            await _work(connection, jobs, requests, answers, clock_ns, on_answer)
        except NoAnswer as reason:
            return str(reason)
        finally:
            await connection.close()
        return ""

    outcomes = await asyncio.gather(*(client() for _ in range(min(clients, len(requests)))))
    return answers, [outcome for outcome in outcomes if outcome]


async def _work(
    connection: "_Connection",
    jobs: Iterator[int],
    requests: Sequence[bytes],
    answers: list[Answer | None],
    clock_ns: Callable[[], int],
    on_answer: Callable[[], None],
) -> None:
    for job in jobs:
        started_at_ns = clock_ns()
        status, body = await connection.exchange(requests[job])
        answers[job] = Answer(status, body, clock_ns() - started_at_ns)
        on_answer()


class _Connection:
    """Keep-alive connection: opened when needed, and again if the server has closed it in order."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one request.

        Raises:
            NoAnswer: in words.
        """
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await self._exchange(request)
        except TimeoutError:
            raise NoAnswer(f"no answer within {ANSWER_LIMIT_S:g} s") from None
        except asyncio.IncompleteReadError:
            raise NoAnswer("the connection was closed before the answer was whole") from None
        except asyncio.LimitOverrunError:
            raise NoAnswer("a response whose head has no end") from None
        except (OSError, ValueError) as error:
            raise NoAnswer(str(error)) from None

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        writer.write(request)
        head = parse_head(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(head.length)
        if not head.keeps_alive:
            await self.close()
        return head.status, body

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
