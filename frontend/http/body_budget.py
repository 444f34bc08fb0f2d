"""Memory budget for the bodies that one process gathers at a time.

Each body has a longest size, but senders may be many, and slow. Without a bound on all of them
together, a thousand connections that each keep back their last byte would hold a thousand of the
largest bodies. What is received straight into slots has a bound of its own, the lane's memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ringbatch.frontend.codec.limit_messages import too_many_bodies

_BODIES: Final = 8
_LEAST_BYTES: Final = 1 << 26


class BodyBudget:
    """The memory for the bodies of one process.

    Args:
        limit_bytes: all of it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = self._left_bytes = limit_bytes

    @classmethod
    def of(cls, max_request_bytes: int) -> "BodyBudget":
        """Return a budget that holds several of the largest bodies."""
        return cls(max(_LEAST_BYTES, _BODIES * max_request_bytes))

    def take(self, size: int) -> None:
        """Count memory in that is about to be used.

        Raises:
            Overloaded: so much is in use that it would be too much.
        """
        if size > self._left_bytes:
            raise too_many_bodies(self._limit_bytes, _BODIES)
        self._left_bytes -= size

    def give(self, size: int) -> None:
        """Count it out again."""
        self._left_bytes += size

    @contextmanager
    def holding(self) -> "Iterator[Holding]":
        """Hold room for one body whose size nobody knows yet; free it at the end."""
        holding = Holding(self)
        try:
            yield holding
        finally:
            holding.end()


class Holding:
    """Share of the budget that one body takes, or one after the other.

    Attributes:
        size: bytes of the budget.
    """

    __slots__ = ("_budget", "size")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.size = 0

    def grow(self, size: int) -> None:
        """Grow to the body's new size; raises `Overloaded`."""
        self._budget.take(size - self.size)
        self.size = size

    def end(self) -> None:
        """Give the memory back; another body may follow."""
        self._budget.give(self.size)
        self.size = 0
