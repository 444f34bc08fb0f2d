"""Refusals that a request's head decides alone, over every protocol.

It is too long, or its body is not wanted.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from http2_client import POST, Client
from http_harness import ESCAPED, Connection, request, scenario
from segment_fixture import local_segment, spec

from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.http.head_framing import HEAD_TOO_LONG, MAX_HEAD_BYTES
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.lane import Lane

PREDICT: Final = "/v1/models/m%3Apredict"
LIMIT: Final = 1000
REFUSED: Final[dict[str, tuple[str, str, dict[str, str], int]]] = {
    "too-large": ("POST", PREDICT, {"content-length": str(LIMIT + 1)}, 413),
    "nowhere": ("POST", "/nothing", {"content-length": "9"}, 404),
    "no-model": ("POST", "/v1/models/none:predict", {"content-length": "9"}, 404),
    "no-v2-model": ("POST", "/v2/models/none/infer", {"content-length": "9"}, 404),
    "no-method": ("PUT", PREDICT, {"content-length": "9"}, 405),
    "no-coding": ("POST", PREDICT, {"content-length": "9", "content-encoding": "br"}, 415),
}


def falcon() -> Any:
    """Falcon's application, with one model."""
    segment = local_segment(spec(), slots=8)
    gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
    return create_app(Service(segment, gateway, time.monotonic_ns), LIMIT)


@pytest.mark.parametrize("case", REFUSED)
def test_no_client_is_to_send_a_body_that_is_refused(case: str) -> None:
    method, path, headers, status = REFUSED[case]

    async def run() -> None:
        app = falcon()
        connection = Connection(served=app)
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Expect: 100-continue"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        connection.feed("\r\n".join([*lines, "", ""]).encode())
        await connection.settle()
        assert connection.transport.written.startswith(b"HTTP/1.1 %d " % status)
        client = Client(served=app)
        fields = {":method": method, ":scheme": "http", ":path": path, ":authority": "x"}
        fields |= {"expect": "100-continue", **headers}
        number = client.begin(tuple(fields.items()))
        await client.send()
        answer = client.answers[number]
        assert (answer.status, answer.informed, answer.ended) == (status, [], True)

    asyncio.run(run())


@scenario
async def test_a_welcome_body_gets_one_100_continue_before_or_after_it_begins() -> None:
    for begun in (b"", b"{"):
        connection = Connection()
        data = request(b"{}", b"Expect: 100-continue", path=ESCAPED)
        connection.feed(data[:-2] + begun)
        await connection.settle()
        assert connection.transport.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.feed(b"{}"[len(begun) :])
        await connection.settle()
        assert connection.seen == [("POST /v1/models/m:predict", b"{}")]
        assert connection.transport.written.count(b" 100 ") == 1


def long_target(size: int, path: bytes) -> bytes:
    """Return a request whose head has so many bytes, most of them in its target."""
    data = request(b"{}", path=path + b"?")
    return request(b"{}", path=path + b"?" + b"a" * (size + 2 - len(data)))


def long_field(size: int, path: bytes) -> bytes:
    """Return a request of that size with a long field."""
    data = request(b"{}", b"A: ", path=path)
    return request(b"{}", b"A: " + b"a" * (size + 2 - len(data)), path=path)


@scenario
async def test_a_head_has_the_same_limit_over_http_2_which_refuses_its_stream_alone() -> None:
    client = Client()
    for size, status in ((MAX_HEAD_BYTES, 200), (MAX_HEAD_BYTES + 1, 431), (120_000, 431)):
        for name in (":path", "x-field"):
            fields = dict(POST[:2]) | {":path": "/", ":authority": "x", "x-field": ""}
            counted = sum(len(one) + len(text) + 32 for one, text in fields.items())
            fields[name] += "a" * (size - counted)
            answer = await client.ask(b"{}", tuple(fields.items()))
            assert (answer.status, answer.ended) == (status, True)
            if status == 431:
                assert answer.body == b'{"error":"%b"}' % HEAD_TOO_LONG.encode()
    assert client.left is None


SIZES: Final = (65_000, 65_500, 65_519, 65_520, 65_535, MAX_HEAD_BYTES, MAX_HEAD_BYTES + 1)
SIZES_ABOVE: Final = (65_600, 66_000, 69_631, 69_632, 69_633, 73_000, 200_000)


@pytest.mark.parametrize("path", [b"/v1/models/m:predict", ESCAPED], ids=["fast-lane", "falcon"])
@pytest.mark.parametrize("head", [long_target, long_field])
@pytest.mark.parametrize("size", SIZES + SIZES_ABOVE)
@pytest.mark.parametrize("before", [0, 1, 4000])
def test_a_head_has_one_limit_to_the_byte_and_one_refusal(
    path: bytes, head: Callable[[int, bytes], bytes], size: int, before: int
) -> None:
    """Also behind an answer, wherever a piece of it begins that is read at once."""

    async def run() -> None:
        connection = Connection(at_once=True)
        data = head(size, path)
        assert data.index(b"\r\n\r\n") + 4 == size
        if before:
            first = request(b"x" * before, path=path)
            connection.feed(first + data[:100])
            await connection.settle()
            data = data[100:]
            connection.transport.written = b""
        for at in range(0, len(data), 1 << 16):
            connection.feed(data[at : at + (1 << 16)])
            await connection.settle()
        written = connection.transport.written
        if size <= MAX_HEAD_BYTES:
            assert written.startswith(b"HTTP/1.1 200 ")
        else:
            assert written.startswith(b"HTTP/1.1 431 ")
            assert written.endswith(b'{"error":"%b"}' % HEAD_TOO_LONG.encode())

    asyncio.run(run())
