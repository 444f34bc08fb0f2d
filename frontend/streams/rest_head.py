"""The head of a request over HTTP/2 as an ASGI application gets it. Pure."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from ringbatch.frontend.http.head_framing import HEAD_TOO_LONG, MAX_HEAD_BYTES, MAX_HEADERS
from ringbatch.frontend.http2.header_rules import Fields, Http2RequestHead

LIST_BYTES: Final = MAX_HEAD_BYTES
"""Most bytes that the fields of a request may count together, as clients learn."""
_TARGET: Final = re.compile(rb"/[!-~]*")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_COOKIE: Final = b"cookie"
_NOT_A_METHOD: Final = "this is not an HTTP/2 request: :method must be a word without blanks"
_NOT_A_PATH: Final = (
    "this is not an HTTP/2 request: :path must be a path of visible ASCII characters"
)


@dataclass(frozen=True, slots=True)
class RestHead:
    """Head of an HTTP/2 request for ASGI, shared by all requests with the same head.

    Attributes:
        method, path, raw_path, query: as ASGI has them.
        headers: as ASGI has them; the host is among them.
        continues: True if the client waits for status 100 before it sends the body.
        status: that it is refused with; 0 if it is served.
        refusal: why.
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    continues: bool = False
    status: int = 0
    refusal: str = ""


def rest_head(request: Http2RequestHead) -> RestHead:
    """Return the head of a request; a refusal if no server could serve it."""
    headers = _headers(request)
    status, refusal = 0, ""
    if request.size > LIST_BYTES:
        status, refusal = 431, HEAD_TOO_LONG
    elif len(request.fields) > MAX_HEADERS:
        status, refusal = 431, f"the head has more than {MAX_HEADERS} lines"
    elif not _METHOD.fullmatch(request.method):
        status, refusal = 400, _NOT_A_METHOD
    elif not _TARGET.fullmatch(request.path) and (request.method, request.path) != (
        b"OPTIONS",
        b"*",
    ):
        status, refusal = 400, _NOT_A_PATH
    raw_path, _, query = request.path.partition(b"?")
    return RestHead(
        method=request.method.decode("latin-1"),
        path=unquote(raw_path.decode("latin-1")),
        raw_path=raw_path,
        query=query,
        headers=tuple(headers),
        continues=any(n == b"expect" and v.lower() == b"100-continue" for n, v in request.fields),
        status=status,
        refusal=refusal,
    )


def _headers(request: Http2RequestHead) -> Fields:
    found = [(name, value) for name, value in request.fields if name not in (_COOKIE, b"host")]
    # One line, as everybody else expects it; over HTTP/2 each cookie may have its own.
    cookies = [value for name, value in request.fields if name == _COOKIE]
    if cookies:
        found.append((_COOKIE, b"; ".join(cookies)))
    return [(b"host", request.authority), *found] if request.authority else found
