"""A request over HTTP/1.1 whose client would rather go on over HTTP/2 (`Upgrade: h2c`). Pure.

Nobody has to agree to that. So a request with a body, or one that is not beyond doubt, is served as
if it had not asked.
"""

import re
from base64 import urlsafe_b64decode
from binascii import Error
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ringbatch.frontend.http2.frames import StreamFault
from ringbatch.frontend.http2.header_rules import Fields, Request, request_of

SWITCHING: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n"
)
_END: Final = b"\r\n\r\n"
_WISH: Final = b"http2-settings"
_DROPPED: Final = frozenset(
    {_WISH, b"connection", b"upgrade", b"keep-alive", b"proxy-connection", b"host", b"te"}
)
_BASE64: Final = re.compile(rb"[A-Za-z0-9_-]*")
_BODY: Final = (b"content-length", b"transfer-encoding")


class Upgrade(NamedTuple):
    """Request to upgrade to h2c.

    Attributes:
        settings: the client's, as a SETTINGS frame has them.
        request: to be answered on the first stream.
        head_bytes: the size of its head.
    """

    settings: bytes
    request: Request
    head_bytes: int


def upgrade_of(data: bytes) -> Upgrade | None:
    """Return the request at the beginning of these bytes, if it asks for h2c and may have it."""
    end = data.find(_END)
    if end < 0:
        return None
    size = end + len(_END)
    seen = _Seen()
    parser = HttpRequestParser(seen)
    try:
        parser.feed_data(data[:size])
    except HttpParserUpgrade:
        pass
    except HttpParserError:
        return None
    fields = seen.fields
    names = [name for name, _ in fields]
    hosts = [value for name, value in fields if name == b"host"]
    if (
        not seen.complete
        or parser.get_http_version() != "1.1"
        or b"h2c" not in _tokens(fields, b"upgrade")
        or not {b"upgrade", _WISH} <= _tokens(fields, b"connection")
        or names.count(_WISH) != 1
        or len(hosts) != 1
        or any(name in names for name in _BODY)
    ):
        return None
    pseudo = [
        (b":method", parser.get_method()),
        (b":scheme", b"http"),
        (b":path", seen.url),
        (b":authority", hosts[0]),
    ]
    kept = [(name, value) for name, value in fields if name not in _DROPPED]
    try:
        settings = _decoded(next(value for name, value in fields if name == _WISH))
        return Upgrade(settings, request_of([*pseudo, *kept]), size)
    except (StreamFault, Error, ValueError):
        return None


def _decoded(value: bytes) -> bytes:
    """Base64 without its padding."""
    if not _BASE64.fullmatch(value):
        raise ValueError
    settings = urlsafe_b64decode(value + b"=" * (-len(value) % 4))
    if len(settings) % 6:
        raise ValueError
    return settings


def _tokens(fields: Fields, name: bytes) -> set[bytes]:
    values = (value for own, value in fields if own == name)
    return {token.strip(b" \t").lower() for value in values for token in value.split(b",")}


class _Seen:
    """Takes the parser's calls."""

    def __init__(self) -> None:
        self.url = b""
        self.fields: Fields = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.complete = True
