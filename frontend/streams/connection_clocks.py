"""Clocks of an HTTP/2 connection: a time limit for each of its states. Pure.

state                                             ends
------------------------------------------------  -------------------------------------------
greeting, frame or header block that stops        after `HEAD_TIMEOUT_S`
no call                                           after the idle timeout
a client that has vanished                        after two such times, and a ping without an
                                                  answer in `PING_S`
its socket does not take the bytes                as `Phase.TAKING` has it
a stream does not take its answer                 the same, for that stream alone
its age                                           once the calls under way are over
"""

from enum import Enum
from typing import Any, Final, TypeVar

from ringbatch.frontend.http.phases import HEAD_TIMEOUT_S, Clock, Phase
from ringbatch.frontend.http2.connection import Connection
from ringbatch.frontend.http2.stream import Stream

H = TypeVar("H")

PING_S: Final = 20


class Due(Enum):
    """Actions that are due on a connection."""

    NOTHING = "it goes on"
    PROBE = "its client is asked whether it is there"
    LEAVE = "its client is asked to begin no further call"
    CLOSE = "it is closed, in words"
    ABORT = "it is closed at once"


class ConnectionClocks:
    """Clocks of one connection: its idleness, its age, and the stalls of its client.

    Args:
        idle_timeout_s: longest time without a call.
        age_s: age at which its client is asked to connect anew.
    """

    __slots__ = (
        "_idle_s",
        "_idle_timeout_s",
        "_left_s",
        "_seen_frames",
        "_silent_s",
        "_socket",
        "_stalled_s",
        "_streams",
    )

    def __init__(self, idle_timeout_s: float, age_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._left_s = age_s
        self._idle_s = 0
        self._silent_s = 0
        self._stalled_s = 0
        self._seen_frames = -1
        self._socket = Clock(0)
        self._streams: dict[int, Clock] = {}

    def tick(self, core: Connection[Any], *, calls: int, unsent_bytes: int) -> Due:
        """Note that another second has passed.

        Args:
            core: the connection.
            calls: that are under way.
            unsent_bytes: that its socket does not take.
        """
        moved, self._seen_frames = core.frames != self._seen_frames, core.frames
        self._silent_s = 0 if moved else self._silent_s + 1
        self._stalled_s = self._stalled_s + 1 if core.unfinished and not moved else 0
        self._idle_s = 0 if calls or core.streams else self._idle_s + 1
        self._left_s -= 1
        phase = Phase.TAKING if unsent_bytes else Phase.ANSWER
        if self._socket.is_over(phase, -unsent_bytes) or self._stalled_s > HEAD_TIMEOUT_S:
            return Due.ABORT
        if self._silent_s > 2 * self._idle_timeout_s + PING_S:
            return Due.ABORT
        if self._silent_s == int(2 * self._idle_timeout_s) + 1 and calls:
            return Due.PROBE
        if self._idle_s > self._idle_timeout_s:
            return Due.CLOSE
        return Due.LEAVE if self._left_s <= 0 and not core.leaving else Due.NOTHING

    def stalled(self, core: Connection[H]) -> list[Stream[H]]:
        """Note another second; return the streams whose answers were not taken for too long."""
        known, self._streams = self._streams, {}
        found: list[Stream[H]] = []
        for number, stream in core.streams.items() if core.waits else ():
            if stream.queue:
                clock = self._streams[number] = known.get(number) or Clock(0)
                if clock.is_over(Phase.TAKING, stream.sent_bytes):
                    found.append(stream)
        return found
