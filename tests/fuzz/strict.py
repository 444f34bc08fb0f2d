"""Requests on a connection as h11, a third and strict parser, reads them.

Behind a proxy that reads them otherwise, what one takes for a body is a request to the other. So
whatever is served must be a request to h11 too, in the same order and with the same body, and no
trailer may have become one of its headers.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import h11

from ringbatch.frontend.http.head import RequestHead
from ringbatch.frontend.http.head_framing import END
from ringbatch.frontend.http.head_reader import HeadReader

_DIGITS: Final = re.compile(rb"[0-9]")
_MOST: Final = 1 << 17
"""Most bytes of a head."""


class Parsed(NamedTuple):
    """A request as h11 has it; names of headers are in lower case. One that is not whole may be
    answered, as its head may be enough to refuse it, but no model is asked."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of the headers of that name."""
        return [value for known, value in self.headers if known == name]


def requests_of(data: bytes) -> tuple[list[Parsed], bool]:
    """Return the requests on a connection.

    Empty lines before a request are no part of it (RFC 9112, 2.2).

    Returns:
        All requests up to the first that is not whole, which is the last; and whether a head is
        next that h11 refuses.
    """
    found: list[Parsed] = []
    goes_on = True
    while goes_on:
        while data.startswith(b"\r\n"):
            data = data[2:]
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST)
        parser.receive_data(data)
        try:
            head = parser.next_event()
        except h11.RemoteProtocolError:
            return found, True
        if not isinstance(head, h11.Request) or _has_chunks_too_early(head):
            return found, False
        body, whole = _body_of(parser)
        found.append(Parsed(head.method, head.target, list(head.headers), body, whole))
        goes_on = whole and (parser.our_state is not h11.MUST_CLOSE or _is_kept_though_old(head))
        data, _ = parser.trailing_data
    return found, False


def _has_chunks_too_early(head: h11.Request) -> bool:
    """Return whether an HTTP/1.0 request has chunks, which that version lacks (RFC 9112, 6.1).

    Its body may end elsewhere for servers that know so; h11 reads it as a request of HTTP/1.1.
    """
    return head.http_version == b"1.0" and any(
        name == b"transfer-encoding" for name, _ in head.headers
    )


def _is_kept_though_old(head: h11.Request) -> bool:
    """Return whether an HTTP/1.0 request asks for keep-alive, of which h11 knows nothing."""
    wishes = [value.lower() for name, value in head.headers if name == b"connection"]
    return head.http_version == b"1.0" and b"keep-alive" in b",".join(wishes)


def _body_of(parser: h11.Connection) -> tuple[bytes, bool]:
    """The body behind a head, and whether it is whole."""
    body = b""
    try:
        while isinstance(event := parser.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.RemoteProtocolError:
        return body, False
    if not isinstance(event, h11.EndOfMessage):
        return body, False
    parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    parser.send(h11.EndOfMessage())
    return body, True


def first_stranger(
    served: Sequence[Any], found: Sequence[Parsed], alike: Callable[[Any, Parsed], bool]
) -> Any:
    """Return the first served request that h11 has not found in that order, or None."""
    left = iter(found)
    return next((one for one in served if not any(alike(one, request) for request in left)), None)


def check_head(data: bytes, max_request_bytes: int) -> bool:
    """Return whether the fast lane takes the head that the bytes begin with.

    Raises:
        AssertionError: it does, and h11 reads it otherwise; or so does who has read others before.
    """
    end = data.find(END)
    text = data[: end + len(END)]
    head = None if end < 0 else HeadReader(max_request_bytes).read(text)
    assert head == _after_others(text, max_request_bytes), "it is taken for one that came before"
    if head is None:
        return False
    body = b"x" * head.content_length
    found, _ = requests_of(text + body + b"GET ")
    assert found, "h11 refuses what the fast lane takes"
    request = found[0]
    named = request.method == b"POST" and head.model.encode() in request.target
    assert named, f"h11 sees {request.method!r} {request.target!r}"
    assert request.body == body, "h11 sees another end of the body"
    return True


def _after_others(text: bytes, max_request_bytes: int) -> RequestHead | None:
    """Read a head after others that differ from it in the values of lines, and in a line."""
    reader = HeadReader(max_request_bytes)
    line, *others = text.split(b"\r\n")
    reader.read(b"\r\n".join([line, *(_DIGITS.sub(b"1", other) for other in others)]))
    left_out = len(text) % len(others) if others else 0
    reader.read(b"\r\n".join([line, *others[:left_out], *others[left_out + 1 :]]))
    return reader.read(text) if text.endswith(END) else None
