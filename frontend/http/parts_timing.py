"""Timing of an answer in parts, for clients that ask for ``Server-Timing``.

The header leaves before anything is known. So the same text is a comment behind the last event:
every client of events passes over it that does not look for it.
"""

from typing import Final

from ringbatch.frontend.access.recorder import Recorder
from ringbatch.frontend.codec.event_stream import comment
from ringbatch.frontend.codec.request_ids import TIMING_HEADER
from ringbatch.frontend.codec.server_timing import PartIntervals
from ringbatch.frontend.request.outcomes import RequestOutcome

TIMING: Final = "ringbatch.parts_timing"
"""The key in an ASGI scope of the `PartsTiming` of a request that asks for it."""


class PartsTiming:
    """Timing of one answer.

    Args:
        recorder: of the process.
        began_ns: when the first byte of the request came; 0 if all of it came at once.
    """

    def __init__(self, recorder: Recorder, began_ns: int) -> None:
        self._recorder = recorder
        self._began_ns = began_ns
        self._intervals = PartIntervals()

    def note(self) -> None:
        """Note that a part has come."""
        self._intervals.note(self._recorder.clock())

    def value(self, ending: RequestOutcome) -> bytes:
        """Return the value that ``Server-Timing`` would have; `ending` is that of the request."""
        timing = self._recorder.metadata.timing(ending, self._began_ns)
        return timing + self._intervals.entries(ending.accepted_ns).encode()

    def event(self, ending: RequestOutcome) -> bytes:
        """Return the comment behind the last event."""
        return comment(b"%b: %b" % (TIMING_HEADER.encode(), self.value(ending)))
