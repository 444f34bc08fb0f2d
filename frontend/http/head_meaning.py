"""Meaning of a request head's lines to the fast lane, as httptools' parser reads them. Pure.

The parser is the one that uvicorn uses. So the fast lane and the fallback protocol have one opinion
on where a request ends. The values of the headers in `ringbatch.frontend.http.head.VARYING` are no
part of the meaning.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ringbatch.frontend.codec.event_stream import MEDIA_TYPE as EVENTS
from ringbatch.frontend.codec.event_stream import wants_events
from ringbatch.frontend.codec.part_limits import (
    FIRST_HEADER,
    GAP_HEADER,
    NO_LIMITS,
    PartLimits,
    limits_in,
)
from ringbatch.frontend.codec.request_ids import ASK_HEADER, ASKED
from ringbatch.frontend.http.content_coding import PLAIN, acceptance
from ringbatch.frontend.http.head_framing import MAX_HEADERS, START, has_plain_lines
from ringbatch.frontend.load.orca_report import ASK_HEADER as LOAD_HEADER
from ringbatch.frontend.load.orca_report import Form, form_of
from ringbatch.frontend.security.accounts import PRIORITY, Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.cors import ORIGIN, SharedWith
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

Headers = Mapping[bytes, Sequence[bytes]]
"""All values of each header, by its name in lower case."""

_MODEL: Final = rb"[A-Za-z0-9._-]{1,128}(?:/versions/[A-Za-z0-9._-]{1,64})?"
_TARGET: Final = re.compile(
    rb"/(?:v1/models/(%b):predict|v2/models/(%b)/(infer|generate_stream))(?:\?[!-\"$-~]*)?"
    % (_MODEL, _MODEL)
)
_KEY_NAMES: Final = (AUTHORIZATION.encode(), KEY_HEADER.encode())
_ASK: Final = ASK_HEADER.encode()
_LOAD: Final = LOAD_HEADER.encode()
_ORIGIN: Final = ORIGIN.encode()
_FIRST_PART: Final = FIRST_HEADER.encode()
_PART_GAP: Final = GAP_HEADER.encode()
_PART_LIMITS: Final = (_FIRST_PART, _PART_GAP)
_ACCEPT: Final = b"accept"
_EVENTS: Final = EVENTS.encode()
_GENERATE: Final = b"generate_stream"
_NEVER: Final = frozenset({b"transfer-encoding", b"expect"})
_CLOSE: Final = b"close"
_KEEP_ALIVE: Final = frozenset({b"keep-alive"})
_USUAL_LINES: Final = [b"keep-alive"]
"""The lines of Connection that most clients send; to send none is the same."""
_CONNECTION: Final = _KEEP_ALIVE | {_CLOSE, b"upgrade", b"http2-settings"}
"""Values that a client's Connection may have. An offer of another protocol, as in every request of
Java's client, is no reason not to answer in this one (RFC 9110, section 7.8)."""
SERVING: Final = frozenset(
    {
        *(b"host", _ACCEPT, b"accept-encoding", b"content-encoding", b"content-type"),
        *(b"connection", b"proxy-connection", b"upgrade", *_CONNECTION, *_NEVER),
        *(*_KEY_NAMES, _ASK, _LOAD, _ORIGIN, PRIORITY, *_PART_LIMITS),
    }
)
"""Headers that decide how a request is served, beside those in `VARYING`: all others that this
module or the parser reads."""


class Meaning(NamedTuple):
    """Meaning of all lines of a head but those in `VARYING`.

    All attributes but two are those of `ringbatch.frontend.http.head.RequestHead`.

    Attributes:
        origin: as there; None if it is the head itself.
        account: the word of its key and class, without an identity if it has no key.
    """

    model: str
    keep_alive: bool
    infer: bool
    coding: str | None
    origin: bytes | None
    timing: bool
    load: Form
    cors: bytes
    asks: bool
    account: int
    events: bool
    generates: bool
    part_limits: PartLimits


class HeadParser:
    """Parser of heads, by the settings of one server.

    Args:
        compress_answers: whether Accept-Encoding matters.
        keys: the API keys of which a client must send one; None if clients need no key.
        origins: of requests to models that other servers run.
        shared_with: the pages that may read answers.
        accounts: of clients.
    """

    __slots__ = ("_accounts", "_compress_answers", "_keys", "_origins", "_shared_with")

    def __init__(
        self,
        keys: ApiKeys | None,
        origins: Origins,
        shared_with: SharedWith,
        accounts: Accounts,
        *,
        compress_answers: bool,
    ) -> None:
        self._keys = keys
        self._origins = origins
        self._shared_with = shared_with
        self._accounts = accounts
        self._compress_answers = compress_answers

    def parse(self, text: bytes) -> tuple[Headers, Meaning] | None:
        """Parse a head.

        Returns:
            Its headers, and the meaning of all lines but those in `VARYING`; None if the fast lane
            does not take the request, with any values of these.
        """
        seen = _parsed(text)
        target = None if seen is None else _TARGET.fullmatch(seen.url)
        if seen is None or target is None:
            return None
        headers = seen.headers
        lines = headers.get(b"connection", _USUAL_LINES)
        options = _KEEP_ALIVE if lines == _USUAL_LINES else _connection_options(lines)
        if not options <= _CONNECTION or not _is_usual(headers):
            return None
        if self._keys is not None and not _allowed(headers, self._keys):
            return None
        accepted = PLAIN
        if self._compress_answers:
            accepted = acceptance(b",".join(headers.get(b"accept-encoding", ())).decode("latin-1"))
        if not accepted.plain:
            # The client takes no plain answer, and the fast lane sends small answers plain.
            return None
        infer = target[1] is None
        model = (target[2] if infer else target[1]).decode()
        if infer and self._origins.has(model):
            # V2 is passed on as it is.
            return None
        generates = target[3] == _GENERATE
        events = generates or (_ACCEPT in headers and _wants_events(headers))
        if events and self._origins.any_model:
            # Another server may answer it in parts.
            return None
        limits, account = NO_LIMITS, NOBODY
        try:
            if _FIRST_PART in headers or _PART_GAP in headers:
                if any(len(headers.get(name, ())) > 1 for name in _PART_LIMITS):
                    return None
                limits = limits_in(partial(_text, headers))
            if self._keys is not None or PRIORITY in headers:
                values = _key_values(headers)
                account = self._accounts.of_key_and_class(*values, headers.get(PRIORITY, ()))
        except InvalidRequest:
            return None
        timing = only(headers, _ASK) == ASKED.encode()
        load = form_of(only(headers, _LOAD))
        cors = self._shared_with.lines(only(headers, _ORIGIN)) if _ORIGIN in headers else b""
        return headers, Meaning(
            model=model,
            keep_alive=_CLOSE not in options,
            infer=infer,
            # Events are sent plain: whatever gathers bytes to compress them keeps parts back.
            coding=None if events else accepted.coding,
            origin=None if infer else self._origins.of(model, seen.url, headers),
            timing=timing,
            load=load,
            cors=cors,
            asks=timing or bool(load or cors),
            account=account,
            events=events,
            generates=generates,
            part_limits=limits,
        )


def only(headers: Headers, name: bytes) -> bytes:
    """Return the value of a header; empty if it is not there, or not once."""
    values = headers.get(name, ())
    return values[0] if len(values) == 1 else b""


def _parsed(text: bytes) -> "_ParsedHead | None":
    """Return a sound head of a POST over HTTP/1.1; None for any other."""
    if not text.startswith(START) or not has_plain_lines(text):
        return None
    seen = _ParsedHead()
    parser = HttpRequestParser(seen)
    try:
        parser.feed_data(text)
    except HttpParserError:
        return None
    except HttpParserUpgrade:
        # The parser raises this at the end of a sound head.
        pass
    sound = (
        seen.complete
        # llhttp lets more than one space stand in the line, where others refuse it.
        and text.startswith(b"POST %b HTTP/1.1\r\n" % seen.url)
        and parser.get_method() == b"POST"
        and parser.get_http_version() == "1.1"
        and text.count(b"\r\n") <= MAX_HEADERS + 2
    )
    return seen if sound else None


def _is_usual(headers: Headers) -> bool:
    """Return whether a request has one host, and a body and an answer of the usual forms."""
    accepts = headers.get(_ACCEPT, ())
    return (
        len(headers.get(b"host", ())) == 1
        and len(headers.get(b"connection", ())) < 2
        and _NEVER.isdisjoint(headers)
        and (b"content-encoding" not in headers or _is_plain(headers[b"content-encoding"]))
        and not any(b"cloudevents" in value.lower() for value in headers.get(b"content-type", ()))
        and (len(accepts) < 2 or _EVENTS not in b",".join(accepts).lower())
    )


def _is_plain(codings: Sequence[bytes]) -> bool:
    return all(coding.lower() == b"identity" for coding in codings)


def _connection_options(lines: Sequence[bytes]) -> frozenset[bytes]:
    """Return the options in the first line of a client's Connection, in lower case."""
    return frozenset(token.strip(b" \t") for token in lines[0].lower().split(b","))


def _wants_events(headers: Headers) -> bool:
    """Return whether a client asks for events, in the only Accept that names them."""
    accept = only(headers, _ACCEPT)
    return _EVENTS in accept.lower() and wants_events(accept.decode("latin-1"))


def _text(headers: Headers, name: str) -> str | None:
    """Return the value of a header that comes at most once; None if it is not there."""
    values = headers.get(name.encode())
    return values[0].decode("latin-1") if values else None


def _allowed(headers: Headers, keys: ApiKeys) -> bool:
    """Return whether a valid key came with a head; the refusal is Falcon's."""
    return all(len(headers.get(name, ())) < 2 for name in _KEY_NAMES) and keys.allow(
        *_key_values(headers)
    )


def _key_values(headers: Headers) -> tuple[str, str]:
    """Return the values of the headers in which a key may stand."""
    authorization, key = (only(headers, name).decode("latin-1") for name in _KEY_NAMES)
    return authorization, key


class _ParsedHead:
    """Takes the parser's calls."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[bytes, list[bytes]] = {}
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.setdefault(name.lower(), []).append(value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self.complete = True
