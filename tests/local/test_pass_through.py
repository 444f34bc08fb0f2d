"""A request that is passed on over a connection that the other server has just closed."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from http_harness import scenario

from ringbatch.frontend.proxy.pass_through import PassThrough, _body_of
from ringbatch.shm.errors import ModelServerBroken

OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Behind:
    """Server behind the frontend: it answers the first request of each connection.

    It ends the connection with the second, of whose body it reads as much as a test says.

    Attributes:
        heads: the first lines of all requests.
        reads_bytes: of the body of a second request.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.reads_bytes = 0
        self._served: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator["Passing"]:
        """Serve, and have another server in front."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            passing = Passing(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            yield passing
            await passing.close()
            await asyncio.gather(*self._served)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        with suppress(asyncio.IncompleteReadError):
            await self._head(reader)
            writer.write(OK)
            await self._head(reader)
            await reader.readexactly(self.reads_bytes)
        writer.close()
        await writer.wait_closed()

    async def _head(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.partition(b" HTTP")[0])


class Passing:
    """Frontend that passes requests on."""

    def __init__(self, url: str) -> None:
        self._app = PassThrough(
            self._never, url, lambda _scope: False, lambda _scope: False, lambda: None
        )

    async def ask(self, method: str, pieces: Sequence[bytes] = ()) -> int:
        """The status that a client is answered whose body comes in these pieces."""
        left = list(pieces)
        answered: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            piece = left.pop(0) if left else b""
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        async def send(message: Mapping[str, Any]) -> None:
            answered.append(message)

        length = str(sum(map(len, pieces))).encode()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "raw_path": b"/path",
            "query_string": b"",
            "headers": [(b"content-length", length)] if pieces else [],
        }
        await self._app(scope, receive, send)
        status: int = answered[0]["status"]
        return status

    async def close(self) -> None:
        await self._app.close()

    async def _never(self, *_: object) -> None:
        raise AssertionError("all is passed on")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "GET"])
@pytest.mark.parametrize("read", ["nothing", "a part", "all"])
def test_no_body_is_sent_a_second_time_as_its_own_rest(method: str, read: str) -> None:
    """Some releases of aiohttp repeat requests that may be repeated."""
    pieces = [b"a" * 1000, b"b" * 1000]

    @scenario
    async def test() -> None:
        behind = Behind()
        async with behind.passing() as passing:
            assert await passing.ask("GET") == 200
            behind.reads_bytes = {"nothing": 0, "a part": 1000, "all": 2000}[read]
            assert await passing.ask(method, pieces) == 502
            assert behind.heads == [b"GET /path", f"{method} /path".encode()]
            assert await passing.ask(method, pieces) == 200

    test()


@scenario
async def test_a_request_without_a_body_is_sent_again() -> None:
    behind = Behind()
    async with behind.passing() as passing:
        for method in ("GET", "GET", "PUT", "DELETE"):
            assert await passing.ask(method) == 200
        assert behind.heads == [b"GET /path"] * 3 + [b"PUT /path"] * 2 + [b"DELETE /path"] * 2


@scenario
async def test_a_body_is_not_begun_anew() -> None:
    """As some releases of aiohttp would that are not installed here."""

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"a", "more_body": True}

    body = await _body_of({"headers": [(b"content-length", b"9")]}, receive)
    assert body is not None
    assert await anext(aiter(aiter(body))) == b"a"
    with pytest.raises(ModelServerBroken, match="gave no answer: it closed the connection"):
        aiter(body)


@pytest.mark.parametrize("body", [b"", b"ab"])
def test_over_http_2_an_empty_piece_at_first_is_no_body(body: bytes) -> None:
    """An empty piece comes first if nothing of the body has arrived yet."""
    pieces = [b"", body]

    async def receive() -> Mapping[str, Any]:
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def run() -> bytes | None:
        found = await _body_of({"http_version": "2", "headers": []}, receive)
        return None if found is None else b"".join([piece async for piece in found])

    assert asyncio.run(run()) == (body or None)
