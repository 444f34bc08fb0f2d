"""The heads of answers on the fast lane, up to the id of the request; behind it is the length."""

import asyncio
from http import HTTPStatus
from random import getrandbits
from typing import Final

from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import JSON, Headers
from ringbatch.frontend.codec.request_ids import ID_HEADER, RequestIds
from ringbatch.frontend.http.content_coding import MIN_ENCODED_BYTES

LENGTHS: Final = tuple(
    b"\r\ncontent-length: %d\r\n\r\n" % size for size in range(MIN_ENCODED_BYTES)
)
"""Ends of the heads of answers too short to be compressed, by the length of the body."""
_COPIED_BYTES: Final = 1 << 16
"""The longest body that is copied behind its head."""
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
"""Other statuses have none, as a model server may answer with any."""
_ID_NAME: Final = ID_HEADER.encode() + b": "
_USUAL_END: Final = b"content-type: application/json\r\n" + _ID_NAME


class ResponseHeads:
    """Heads that end where the id of the request is to stand.

    Attributes:
        ids: makes those that clients have not chosen.

    Args:
        state: the server's; it has a new list of default headers, with the date, every second.
        ids: given if others make ids too; by default its own.
    """

    def __init__(self, state: ServerState, ids: RequestIds | None = None) -> None:
        self.ids = ids or RequestIds(getrandbits(64))
        self._state = state
        self._defaults: list[tuple[bytes, bytes]] | None = None
        self._usual = b""
        self._of_headers: tuple[Headers | None, bytes] = (None, b"")

    def usual(self) -> bytes:
        """Return the head of a JSON answer with status 200 that keeps the connection."""
        if self._state.default_headers is not self._defaults:
            self._defaults = self._state.default_headers
            self._usual = self.other(200, JSON, keep_alive=True)
            self._of_headers = (None, b"")
        return self._usual

    def success(self, headers: Headers) -> bytes:
        """Return the head of an answer with status 200 and its own headers that stays connected."""
        known, head = self._of_headers
        if known is headers and self._state.default_headers is self._defaults:
            return head
        usual = self.usual()
        # All but the headers that are JSON's and the name of the id, at its end.
        lines = [b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers]
        head = b"".join((usual[: -len(_USUAL_END)], *lines, _ID_NAME))
        self._of_headers = (headers, head)
        return head

    def other(self, status: int, headers: Headers, *, keep_alive: bool) -> bytes:
        """Return the head of any answer."""
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}".encode()]
        lines += [b"%b: %b" % header for header in self._state.default_headers]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, _ID_NAME])


def write_whole(
    transport: asyncio.WriteTransport, head: bytes, request_id: bytes, body: bytes
) -> None:
    """Write an answer, without copying a large body once more."""
    before = front(head, request_id, len(body))
    if len(body) <= _COPIED_BYTES:
        transport.write(before + body)
    else:
        transport.writelines((before, body))


def front(head: bytes, request_id: bytes, size: int) -> bytes:
    """Return the bytes before the body of an answer, from the head of `ResponseHeads`."""
    return b"%b%b\r\ncontent-length: %d\r\n\r\n" % (head, request_id, size)
