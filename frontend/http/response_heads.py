"""The heads of answers on the fast lane, all but their lengths."""

from http import HTTPStatus
from typing import Final

from uvicorn.server import ServerState

from ringbatch.frontend.codec.outcome import JSON, Headers

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
"""Other statuses have none, as a model server may answer with any."""
_LENGTH_NAME: Final = b"content-length: "
_USUAL_END: Final = b"content-type: application/json\r\n" + _LENGTH_NAME


class ResponseHeads:
    """The head of the usual answer, but for the length at its end.

    Args:
        state: the server's; it has a new list of default headers, with the date, every second.
    """

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._defaults: list[tuple[bytes, bytes]] | None = None
        self._usual = b""
        self._of_headers: tuple[Headers | None, bytes] = (None, b"")

    def usual(self) -> bytes:
        """Of a JSON answer with status 200 that keeps the connection."""
        if self._state.default_headers is not self._defaults:
            self._defaults = self._state.default_headers
            self._usual = self.other(200, JSON, keep_alive=True)
            self._of_headers = (None, b"")
        return self._usual

    def success(self, headers: Headers) -> bytes:
        """Of an answer with status 200 and headers of its own that keeps the connection."""
        known, head = self._of_headers
        if known is headers and self._state.default_headers is self._defaults:
            return head
        usual = self.usual()
        # All but the headers that are JSON's and the length, at its end.
        lines = [b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers]
        head = b"".join((usual[: -len(_USUAL_END)], *lines, _LENGTH_NAME))
        self._of_headers = (headers, head)
        return head

    def other(self, status: int, headers: Headers, *, keep_alive: bool) -> bytes:
        """Of any answer."""
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}".encode()]
        lines += [b"%b: %b" % header for header in self._state.default_headers]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
        if not keep_alive:
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, _LENGTH_NAME])
