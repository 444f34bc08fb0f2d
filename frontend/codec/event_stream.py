"""Server-sent events: an answer in parts over HTTP, an event for each part.

The format is that of the HTML standard, section "Server-sent events". The data of each event is
JSON. An error behind the first part is an event too, the last.

A browser's EventSource asks again whenever an answer ends or breaks off, until it is closed or gets
another status. So it gets an event "end", and status 204 if it asks again.
"""

from typing import Final

from ringbatch.frontend.codec.outcome import JSON, Answer, Headers
from ringbatch.shm.errors import InvalidRequest, Overloaded

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final[Headers] = (
    ("content-type", MEDIA_TYPE),
    ("cache-control", "no-store"),
    # Or nginx gathers events before it passes them on.
    ("x-accel-buffering", "no"),
)
_REFUSED: Final = ("q=0", "q=0.0", "q=0.00", "q=0.000")
"""Parameters of a range in Accept that the client does not accept."""
COMMENT: Final = b":\n\n"
"""An event without data, which keeps proxies from taking the connection for idle."""
BEGUN: Final = b"id: begun\n\n"
"""Goes before the first event for an EventSource, which sends this id when it asks again."""
LAST_EVENT: Final = b"event: end\ndata:\n\n"
"""Follows the last part for an EventSource, which would ask again at the end of the answer."""
SILENCE_S: Final = 15.0
"""Time without a part, after which a comment is sent."""
MOST_UNREAD_BYTES: Final = 1 << 20
"""Bytes of parts that a client has not taken; beyond them its request ends."""
ENDED: Final = 0
"""The status of `END`, which no answer has."""
END: Final[Answer] = (ENDED, b"", ())
"""The reply behind the last part."""
_LENGTH_HEADER: Final = "inference-header-content-length"


def event(data: bytes) -> bytes:
    """Return JSON text as an event; its lines are the event's."""
    if b"\n" not in data and b"\r" not in data:
        return b"data: %b\n\n" % data
    return b"data: %b\n\n" % b"\ndata: ".join(data.splitlines())


def comment(text: bytes) -> bytes:
    """Return one line of text as a comment, which clients pass over."""
    return b": %b\n\n" % text


def is_text(headers: Headers) -> bool:
    """Return whether an answer with these headers can be an event; V2's may hold binary data."""
    return headers is JSON or all(name != _LENGTH_HEADER for name, _ in headers)


def event_of(answer: Answer) -> bytes:
    """Return a part of an answer as an event.

    Raises:
        InvalidRequest: it holds binary data.
    """
    _, data, headers = answer
    if not is_text(headers):
        raise InvalidRequest("events have no binary data in them; ask for outputs in JSON")
    return event(data)


def too_much_unread() -> Overloaded:
    """Return the error of a request whose client reads too slowly."""
    return Overloaded(f"the client has not read {MOST_UNREAD_BYTES} bytes of the answer")


def took_nothing(stall_ns: int) -> Overloaded:
    """Return the error of a request whose client takes nothing; `stall_ns` is its model's limit."""
    return Overloaded(
        f"the client has taken nothing for stream_stall_s = {stall_ns / 1e9:g}, and parts wait"
    )


def wants_events(accept: str | None) -> bool:
    """Return whether a client asks for events: an Accept header names them."""
    if accept is None:
        return False
    ranges = (part.partition(";") for part in accept.lower().split(","))
    return any(
        kind.strip() == MEDIA_TYPE and parameters.replace(" ", "") not in _REFUSED
        for kind, _, parameters in ranges
    )
