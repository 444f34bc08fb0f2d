"""Phases of an HTTP connection and their time limits: one table, without exceptions.

Both kinds of connection, the fast lane's and Falcon's, report their phase once a second, and end
when its time is over. So every connection ends, even if its client sends without end or nothing.
Two phases end only if bytes move too slowly.

Before these, a hand-shake of TLS has `HEAD_TIMEOUT_S` (`ringbatch.frontend.http.server`), and
after an answer that ends it in the middle of a request, `LINGER_S`
(`ringbatch.frontend.http.lingering_close`).
"""

from enum import Enum
from math import inf
from typing import Final, NamedTuple

HEAD_TIMEOUT_S: Final = 10
BODY_TIMEOUT_S: Final = 30
LEAST_RECEIVED_BYTES: Final = 1 << 20
"""The least of a body, or all the rest of it, that a client sends in `BODY_TIMEOUT_S`."""
WRITE_TIMEOUT_S: Final = 60
LEAST_TAKEN_BYTES: Final = 1 << 16
"""The least of an answer, or all of it, that a client takes in `WRITE_TIMEOUT_S`."""

HEAD_TOO_SLOW: Final = f"the head did not come within {HEAD_TIMEOUT_S} s"
BODY_TOO_SLOW: Final = (
    f"the body did not come within {BODY_TIMEOUT_S} s, nor {LEAST_RECEIVED_BYTES} bytes of it"
)


class Phase(Enum):
    """Phases of a connection."""

    IDLE = "nothing has begun: no byte of a request has come, or empty lines alone"
    HEAD = "a head is coming"
    BODY = "a body is coming"
    UNWANTED = "the rest of a body is coming whose request is answered already"
    ANSWER = "an answer is being made, and nothing more is read until it is there"
    TAKING = "the client is to take what was written to it, be it the last"


class Limit(NamedTuple):
    """Time limit of a phase.

    Attributes:
        time_s: its length in seconds.
        least_bytes: bytes that must move in that time for the phase to last as long again.
    """

    time_s: float
    least_bytes: float = inf


LIMITS: Final = {
    Phase.HEAD: Limit(HEAD_TIMEOUT_S),
    Phase.BODY: Limit(BODY_TIMEOUT_S, LEAST_RECEIVED_BYTES),
    Phase.UNWANTED: Limit(BODY_TIMEOUT_S),
    # Every request has a deadline of its own: its model's, or the other server's silence.
    Phase.ANSWER: Limit(inf),
    Phase.TAKING: Limit(WRITE_TIMEOUT_S, LEAST_TAKEN_BYTES),
}
"""Limits of all phases but IDLE, whose time is a setting."""


class Clock:
    """Clock of one connection's phase.

    Args:
        idle_timeout_s: the limit of `Phase.IDLE`.

    Attributes:
        age_s: whole seconds in this phase. The code that begins another request sets it to 0; a
            change of the phase is seen here.
    """

    __slots__ = ("_idle", "_moved_bytes", "_phase", "age_s")

    def __init__(self, idle_timeout_s: float) -> None:
        self._idle = Limit(idle_timeout_s)
        self._phase = Phase.IDLE
        self._moved_bytes = 0
        self.age_s = 0

    def is_over(self, phase: Phase, moved_bytes: int) -> bool:
        """Note that another second has passed; return whether the phase has lasted too long.

        Args:
            phase: in which the connection is now.
            moved_bytes: a count that grows by the bytes that this phase is about.
        """
        if phase is not self._phase:
            self._phase = phase
            self.age_s = 0
        if not self.age_s:
            self._moved_bytes = moved_bytes
        self.age_s += 1
        limit = self._idle if phase is Phase.IDLE else LIMITS[phase]
        if self.age_s <= limit.time_s:
            return False
        moved_bytes, self._moved_bytes = moved_bytes - self._moved_bytes, moved_bytes
        self.age_s = 1
        return moved_bytes < limit.least_bytes
