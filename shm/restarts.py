"""Restart counts by role and by reason of the end.

The collector counts workers' ends itself, see `ringbatch.shm.counters.ModelCounter`. Each process
that starts others counts in a block of its own: the supervisor, and Gunicorn's arbiter, which is
the parent of the frontends for HTTP.
"""

from enum import IntEnum

from ringbatch.shm.counters import Counters
from ringbatch.shm.descriptors import CounterWords
from ringbatch.shm.segment import Segment


class Role(IntEnum):
    """Roles of restarted processes."""

    COLLECTOR = 0
    """The collector, or its standby."""
    FRONTEND = 1
    """Frontend for HTTP."""
    ARBITER = 2
    """Gunicorn's arbiter. Its frontends end with it."""
    GRPC_FRONTEND = 3
    CONTROL = 4
    """The server at the control address."""


class EndReason(IntEnum):
    """Reasons why a process ended."""

    CRASHED = 0
    """The process ended by itself, or by another signal than SIGKILL."""
    KILLED = 1
    """A SIGKILL came from outside the engine, perhaps from the kernel."""
    HUNG = 2
    """The process did not move, or took too long to start, and was ended for that."""


assert len(Role) * len(EndReason) <= CounterWords.SIZE


def end_reason(*, hung: bool, killed: bool) -> EndReason:
    """Return why a process ended.

    Args:
        hung: whether it was ended because it hung.
        killed: whether with SIGKILL.
    """
    if hung:
        return EndReason.HUNG
    return EndReason.KILLED if killed else EndReason.CRASHED


class Restarts:
    """Restart counts of one process that starts others.

    Args:
        segment: attached.
        first: the first word of its block.
    """

    def __init__(self, segment: Segment, first: int) -> None:
        self._counters = Counters(segment.words, first)

    @classmethod
    def of_supervisor(cls, segment: Segment) -> "Restarts":
        """Return the restarts of the supervisor's own children."""
        return cls(segment, segment.layout.supervisor_counters())

    @classmethod
    def of_arbiter(cls, segment: Segment) -> "Restarts":
        """Return the restarts of the frontends for HTTP, which Gunicorn's arbiter counts."""
        return cls(segment, segment.layout.arbiter_counters())

    def add(self, role: Role, reason: EndReason) -> None:
        """Count the end of a process that another replaces."""
        self._counters.add(_place(role, reason))

    def __getitem__(self, of: tuple[Role, EndReason]) -> int:
        return self._counters[_place(*of)]


def restarts_of(segment: Segment) -> dict[tuple[Role, EndReason], int]:
    """Return all counts."""
    blocks = Restarts.of_supervisor(segment), Restarts.of_arbiter(segment)
    kinds = [(role, reason) for role in Role for reason in EndReason]
    return {kind: sum(block[kind] for block in blocks) for kind in kinds}


def _place(role: Role, reason: EndReason) -> int:
    return role * len(EndReason) + reason
