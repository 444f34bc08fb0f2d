"""Heads of requests that the fast lane takes, and those that it leaves to others.

The fast lane takes one kind of request: a POST to a model's ``:predict`` path of V1, or to its
``/infer`` or ``/generate_stream`` path of V2, over HTTP/1.1 with a plain Content-Length. Every head
is read by httptools' parser, the one that uvicorn uses. Any other kind of request goes to the
fallback protocol. So the two can differ in speed alone: there is no second opinion on where a
request ends.

`ringbatch.frontend.http.head_reader` remembers the results of the parser for repeated lines.
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
from ringbatch.frontend.codec.request_ids import (
    ASK_HEADER,
    ASKED,
    ID_HEADER,
    TRACE_HEADER,
    sound_trace,
    taken,
)
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.http.content_coding import PLAIN, acceptance
from ringbatch.frontend.load.orca_report import ASK_HEADER as LOAD_HEADER
from ringbatch.frontend.load.orca_report import Form, form_of
from ringbatch.frontend.security.accounts import PRIORITY, Accounts
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.cors import ORIGIN, SharedWith
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER
from ringbatch.shm.tuples import unchecked_tuple

START: Final = b"POST /v"
"""Begin of a head of the fast lane."""
END: Final = b"\r\n\r\n"
"""End of every head."""
MAX_HEAD_BYTES: Final = 1 << 16
HEAD_TOO_LONG: Final = f"the head is longer than {MAX_HEAD_BYTES} bytes"
MAX_HEADERS: Final = 256
"""Most headers of one request: a line of five bytes becomes objects of 150."""

_UNCLEAR: Final = b"PR"
"""PROPFIND or HTTP/2's greeting."""
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_MOST_DIGITS: Final = 18
_MODEL: Final = rb"[A-Za-z0-9._-]{1,128}(?:/versions/[A-Za-z0-9._-]{1,64})?"
_TARGET: Final = re.compile(
    rb"/(?:v1/models/(%b):predict|v2/models/(%b)/(infer|generate_stream))(?:\?[!-\"$-~]*)?"
    % (_MODEL, _MODEL)
)
_LENGTH: Final = b"content-length"
_TIMEOUT: Final = TIMEOUT_HEADER.encode()
_KEY_NAMES: Final = (AUTHORIZATION.encode(), KEY_HEADER.encode())
_ID: Final = ID_HEADER.encode()
_TRACE: Final = TRACE_HEADER.encode()
_ASK: Final = ASK_HEADER.encode()
_LOAD: Final = LOAD_HEADER.encode()
_ORIGIN: Final = ORIGIN.encode()
_JSON_LENGTH: Final = b"inference-header-content-length"
_AT_MOST_ONCE: Final = (_LENGTH, _JSON_LENGTH, _TIMEOUT)
VARYING: Final = frozenset({*_AT_MOST_ONCE, _ID, _TRACE})
"""Headers that may have another value in each request."""
_FIRST_PART: Final = FIRST_HEADER.encode()
_PART_GAP: Final = GAP_HEADER.encode()
_PART_LIMITS: Final = (_FIRST_PART, _PART_GAP)
_ACCEPT: Final = b"accept"
_EVENTS: Final = EVENTS.encode()
_GENERATE: Final = b"generate_stream"
_NEVER: Final = frozenset({b"transfer-encoding", b"expect"})
_CLOSE: Final = b"close"
_CONNECTION: Final = frozenset({b"keep-alive", _CLOSE, b"upgrade", b"http2-settings"})
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

Headers = Mapping[bytes, Sequence[bytes]]
"""All values of each header, by its name in lower case."""


class RequestHead(NamedTuple):
    """A request that the fast lane takes.

    Attributes:
        model: the model's name, with the version as in the path where there is one.
        head_bytes: how long the head is.
        content_length: how long the body is.
        request_bytes: both together.
        keep_alive: whether the connection goes on afterwards.
        infer: whether it is a V2 request.
        json_bytes: where the JSON text of a V2 body ends; None where it is nothing else.
        coding: what a large answer is encoded with; None where it is to be plain.
        timeout_ns: how long the client waits; 0 where it does not say.
        origin: of a V1 request to a model that another server runs; of any other the head, for
            models that ask what it says.
        request_id: that the client has chosen; empty where one is to be made.
        trace: its ``traceparent``; empty where it has none.
        timing: whether the client asks where the time goes.
        load: in which form it asks how busy the engine is.
        cors: lines for the head of the answer; empty if no page sent the request, or a foreign one.
        asks: whether the head of the answer has more than usual: `timing`, `load` or `cors`.
        account: its account word, see `ringbatch.shm.account`.
        events: whether the answer is to be events, as its parts come.
        generates: whether it is a V2 request to ``/generate_stream``.
        part_limits: that it asks for, where its answer is to come in parts.
    """

    model: str
    head_bytes: int
    content_length: int
    request_bytes: int
    keep_alive: bool
    infer: bool = False
    json_bytes: int | None = None
    coding: str | None = None
    timeout_ns: int = 0
    origin: bytes = b""
    request_id: bytes = b""
    trace: bytes = b""
    timing: bool = False
    load: Form = ""
    cors: bytes = b""
    asks: bool = False
    account: int = 0
    events: bool = False
    generates: bool = False
    part_limits: PartLimits = NO_LIMITS

    @property
    def target(self) -> str:
        """Method and path, without a query; empty where this stands for no request."""
        if not self.model:
            return ""
        version, verb = ("v2", "/infer") if self.infer else ("v1", ":predict")
        if self.generates:
            verb = "/generate_stream"
        return f"POST /{version}/models/{self.model}{verb}"


def head_size(begun: bytearray, seen_bytes: int) -> int | None:
    """Return the size of a head that has begun to come.

    Args:
        begun: the bytes so far, of it and behind it.
        seen_bytes: how many of these were there at the last look.

    Returns:
        0 while it has no end; None if it cannot be one of the fast lane's any more, so that
        httptools may say at once what is wrong.
    """
    # What was seen has no end in it, but may have the beginning of one.
    end = begun.find(END, max(seen_bytes + 1 - len(END), 0), MAX_HEAD_BYTES)
    if end >= 0:
        return end + len(END)
    if begun.startswith(START[: len(begun)]) and not _BARE_LF.search(begun, seen_bytes):
        return 0
    return 0 if begun == _UNCLEAR else None


class Meaning(NamedTuple):
    """The meaning of all lines of a head but those in `VARYING`.

    Attributes:
        origin: as in `RequestHead`; None if it is the head itself.
        model, keep_alive, infer, coding, timing, load, cors, asks: as in `RequestHead`.
        account: the word of its key and class, without an identity if it has no key.
        events, generates, part_limits: as in `RequestHead`.
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


def parsed_head(
    text: bytes,
    compress_answers: bool,
    keys: ApiKeys | None,
    origins: Origins,
    shared_with: SharedWith,
    accounts: Accounts,
) -> tuple[Headers, Meaning | None]:
    """Parse a head.

    Returns:
        Its headers, and the meaning of all lines but those in `VARYING`. The meaning is None if the
        fast lane does not take the request, with any values of these.
    """
    if not text.startswith(START) or not _has_plain_lines(text):
        return {}, None
    seen = _ParsedHead()
    parser = HttpRequestParser(seen)
    try:
        parser.feed_data(text)
    except HttpParserError:
        return {}, None
    except HttpParserUpgrade:
        # The parser raises this at the end of a sound head.
        pass
    target = _TARGET.fullmatch(seen.url)
    headers = seen.headers
    accept = b",".join(headers.get(_ACCEPT, ()))
    names_events = _EVENTS in accept.lower()
    if (
        not seen.complete
        or target is None
        # llhttp lets more than one space stand in the line, where others refuse it.
        or not text.startswith(b"POST %b HTTP/1.1\r\n" % seen.url)
        or parser.get_method() != b"POST"
        or parser.get_http_version() != "1.1"
        or text.count(b"\r\n") > MAX_HEADERS + 2
        or len(headers.get(b"host", ())) != 1
        or not _NEVER.isdisjoint(headers)
        or any(value.lower() != b"identity" for value in headers.get(b"content-encoding", ()))
        or any(b"cloudevents" in value.lower() for value in headers.get(b"content-type", ()))
        or (names_events and len(headers[_ACCEPT]) > 1)
    ):
        return headers, None
    connection = headers.get(b"connection", [b"keep-alive"])
    wishes = {token.strip(b" \t") for token in connection[0].lower().split(b",")}
    if len(connection) > 1 or not wishes <= _CONNECTION:
        return headers, None
    if keys is not None and not _allowed(headers, keys):
        return headers, None
    accepted = PLAIN
    if compress_answers:
        accepted = acceptance(b",".join(headers.get(b"accept-encoding", ())).decode("latin-1"))
    if not accepted.plain:
        # The client takes no plain answer, and the fast lane sends small answers plain.
        return headers, None
    infer = target[1] is None
    model = (target[2] if infer else target[1]).decode()
    if infer and origins.has(model):
        # V2 is passed on as it is.
        return headers, None
    generates = target[3] == _GENERATE
    events = generates or (names_events and wants_events(accept.decode("latin-1")))
    if events and origins.any_model:
        # Another server may answer it in parts.
        return headers, None
    limits = NO_LIMITS
    if _FIRST_PART in headers or _PART_GAP in headers:
        if any(len(headers.get(name, ())) > 1 for name in _PART_LIMITS):
            return headers, None
        try:
            limits = limits_in(partial(_text, headers))
        except InvalidRequest:
            return headers, None
    account = NOBODY
    if keys is not None or PRIORITY in headers:
        try:
            account = accounts.of_key_and_class(*_key_values(headers), headers.get(PRIORITY, ()))
        except InvalidRequest:
            return headers, None
    timing = only(headers, _ASK) == ASKED.encode()
    load = form_of(only(headers, _LOAD))
    cors = shared_with.lines(only(headers, _ORIGIN)) if _ORIGIN in headers else b""
    return headers, Meaning(
        model=model,
        keep_alive=_CLOSE not in wishes,
        infer=infer,
        # Events are sent plain: whatever gathers bytes to compress them keeps parts back.
        coding=None if events else accepted.coding,
        origin=None if infer else origins.of(model, seen.url, headers),
        timing=timing,
        load=load,
        cors=cors,
        asks=timing or bool(load or cors),
        account=account,
        events=events,
        generates=generates,
        part_limits=limits,
    )


def head_of(
    text: bytes, headers: Headers, meaning: Meaning, max_request_bytes: int, account: int
) -> RequestHead | None:
    """Make the head of a request out of a parsed head; return None as `head_with` does."""
    if any(len(headers.get(name, ())) > 1 for name in _AT_MOST_ONCE):
        return None
    values = {name: only(headers, name) for name in VARYING if name in headers}
    return head_with(text, meaning, values, max_request_bytes, account)


def head_with(
    text: bytes,
    meaning: Meaning,
    values: Mapping[bytes, bytes],
    max_request_bytes: int,
    account: int,
) -> RequestHead | None:
    """Make the head of a request out of the meaning of its lines and the values that vary.

    Args:
        text: the head as it came.
        meaning: of all lines but those of `values`.
        values: of headers in `VARYING`, by name.
        max_request_bytes: bytes of the longest body that the fast lane takes.
        account: its account word.

    Returns:
        None if the fast lane does not take the request.
    """
    length = values.get(_LENGTH, b"")
    # Python is slow to parse numbers of very many digits.
    if not length.isdigit() or len(length) > _MOST_DIGITS:
        return None
    content_length = int(length)
    if content_length > max_request_bytes:
        return None
    json_bytes = None
    json_length = values.get(_JSON_LENGTH)
    if json_length is not None:
        if not json_length.isdigit() or len(json_length) > _MOST_DIGITS:
            return None
        if meaning.events:
            return None
        json_bytes = int(json_length) if meaning.infer else None
    timeout_ns = 0
    timeout = values.get(_TIMEOUT)
    if timeout is not None:
        try:
            timeout_ns = timeout_ns_of(timeout.decode("latin-1"))
        except InvalidRequest:
            return None
    size = len(text)
    request_id, trace = values.get(_ID), values.get(_TRACE)
    return unchecked_tuple(
        RequestHead,
        (
            meaning.model,
            size,
            content_length,
            size + content_length,
            meaning.keep_alive,
            meaning.infer,
            json_bytes,
            meaning.coding,
            timeout_ns,
            text if meaning.origin is None else meaning.origin,
            b"" if request_id is None else taken(request_id),
            b"" if trace is None else sound_trace(trace),
            meaning.timing,
            meaning.load,
            meaning.cors,
            meaning.asks,
            account,
            meaning.events,
            meaning.generates,
            meaning.part_limits,
        ),
    )


def only(headers: Headers, name: bytes) -> bytes:
    """Return the value of a header; empty if it is not there, or not once."""
    values = headers.get(name, ())
    return values[0] if len(values) == 1 else b""


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


def _has_plain_lines(text: bytes) -> bool:
    """Return whether all lines end with CRLF, none is folded, and one empty line ends them."""
    lines = text.count(b"\r\n")
    return (
        text.endswith(END)
        and text.find(END) == len(text) - len(END)
        and text.count(b"\n") == lines == text.count(b"\r")
        and b"\r\n " not in text
        and b"\r\n\t" not in text
    )


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
