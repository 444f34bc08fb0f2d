"""Headers about a request itself: its id, its trace, and the phases of its time.

The client may choose the id; else the server makes one.
"""

import re
from typing import Final

ID_HEADER: Final = "x-request-id"
TRACE_HEADER: Final = "traceparent"
TIMING_HEADER: Final = "server-timing"
ASK_HEADER: Final = "x-server-timing"
"""Header of a request that asks, with `ASKED`, where the time went."""
ASKED: Final = "1"
MAX_ID: Final = 128
"""Characters."""

_ID: Final = re.compile(rb"[!-~]{1,%d}" % MAX_ID)
_TRACE: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,64})?"
)
"""Header `traceparent` of W3C Trace Context; a later version than 00 may add to it."""
_FIRST_VERSION: Final = b"00"
_USUAL_TRACE: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""The usual form of a trace. Without groups, a match takes half the time."""


def taken(found: bytes) -> bytes:
    """Return a client's id, as it is echoed, logged and passed on.

    Returns:
        Empty if it is none: not 1 to `MAX_ID` visible characters of ASCII. One is made then.
    """
    return found if _ID.fullmatch(found) else b""


def sound_trace(found: bytes) -> bytes:
    """Return a ``traceparent`` as it came; empty if it is malformed, which W3C counts as absent."""
    if _USUAL_TRACE.fullmatch(found):
        return found
    match = _TRACE.fullmatch(found)
    if match is None or (match[1] == _FIRST_VERSION and match[2] is not None):
        return b""
    return found


def trace_id(trace: bytes) -> bytes:
    """Return the trace id of a sound ``traceparent``, 32 hexadecimal digits; empty for none."""
    return trace[3:35]


def parent_id(trace: bytes) -> bytes:
    """Return the parent span id of a ``traceparent``: 16 hexadecimal digits; empty without one."""
    return trace[36:52]


def is_sampled(trace: bytes) -> bool:
    """Return the sampled flag of a sound ``traceparent``: its sender may record the trace."""
    return bool(int(trace[53:55], 16) & 1)


class RequestIds:
    """Makes ids that no other process makes.

    Args:
        seed: random, of 64 bits.
    """

    __slots__ = ("_count", "_prefix")

    def __init__(self, seed: int) -> None:
        self._prefix = b"%016x-" % seed
        self._count = 0

    def make(self) -> bytes:
        """Return a new id."""
        self._count = count = self._count + 1
        return b"%b%x" % (self._prefix, count)
