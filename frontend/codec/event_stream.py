"""Server-sent events: an answer in parts over HTTP, an event for each part.

The format is that of the HTML standard, section "Server-sent events". The data of each event is
JSON. An error behind the first part is an event too, the last.
"""

from typing import Final

from ringbatch.frontend.codec.outcome import Headers

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


def event(data: bytes) -> bytes:
    """Return JSON text as an event; its lines are the event's."""
    return b"data: %b\n\n" % b"\ndata: ".join(data.splitlines())


def wants_events(accept: str | None) -> bool:
    """Return whether a client asks for events: an Accept header names them."""
    if accept is None:
        return False
    ranges = (part.partition(";") for part in accept.lower().split(","))
    return any(
        kind.strip() == MEDIA_TYPE and parameters.replace(" ", "") not in _REFUSED
        for kind, _, parameters in ranges
    )
