"""Heads of requests that the fast lane takes, and those that it leaves to others.

The fast lane takes one kind of request: a POST to a model's ``:predict`` path of V1, or to its
``/infer`` or ``/generate_stream`` path of V2, over HTTP/1.1 with a plain Content-Length. Any other
kind of request goes to the fallback protocol, so the two can differ in speed alone.

A head has two parts: the values of the headers in `VARYING`, which this module reads, and the
meaning of all other lines, which `ringbatch.frontend.http.head_meaning` parses.
`ringbatch.frontend.http.head_reader` remembers meanings. Pure.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.frontend.codec.request_ids import ID_HEADER, TRACE_HEADER, sound_trace, taken
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.http.head_meaning import Headers, Meaning, only
from ringbatch.frontend.load.orca_report import Form
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.tuples import unchecked_tuple

_MOST_DIGITS: Final = 18
_LENGTH: Final = b"content-length"
_TIMEOUT: Final = TIMEOUT_HEADER.encode()
_ID: Final = ID_HEADER.encode()
_TRACE: Final = TRACE_HEADER.encode()
_JSON_LENGTH: Final = b"inference-header-content-length"
_AT_MOST_ONCE: Final = (_LENGTH, _JSON_LENGTH, _TIMEOUT)
VARYING: Final = frozenset({*_AT_MOST_ONCE, _ID, _TRACE})
"""Headers that may have another value in each request."""


class RequestHead(NamedTuple):
    """A request that the fast lane takes.

    Attributes:
        model: the model's name, with the version as in the path if there is one.
        head_bytes: how long the head is.
        content_length: how long the body is.
        request_bytes: both together.
        keep_alive: whether the connection goes on afterwards.
        infer: whether it is a V2 request.
        json_bytes: where the JSON text of a V2 body ends; None if it is nothing else.
        coding: what a large answer is encoded with; None if it is to be plain.
        timeout_ns: how long the client waits; 0 if it does not say.
        origin: of a V1 request to a model that another server runs; of any other the head, for
            models that ask what it says.
        request_id: that the client has chosen; empty if one is to be made.
        trace: its ``traceparent``; empty if it has none.
        timing: whether the client asks where the time goes.
        load: in which form it asks how busy the engine is.
        cors: lines for the head of the answer; empty if no page sent the request, or a foreign one.
        asks: whether the head of the answer has more than usual: `timing`, `load` or `cors`.
        account: its account word, see `ringbatch.shm.account`.
        events: whether the answer is to be events, as its parts come.
        generates: whether it is a V2 request to ``/generate_stream``.
        part_limits: that it asks for, if its answer is to come in parts.
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
        """Method and path, without a query; empty if this stands for no request."""
        if not self.model:
            return ""
        version, verb = ("v2", "/infer") if self.infer else ("v1", ":predict")
        if self.generates:
            verb = "/generate_stream"
        return f"POST /{version}/models/{self.model}{verb}"


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
