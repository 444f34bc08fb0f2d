"""History of the page: the events of the last minutes, for subscribers that come later."""

from collections import deque
from typing import Final

SPAN_MS: Final = 600_000
MAX_BYTES: Final = 8 << 20
"""Limit of the history's size; with very many models the past is shorter."""


class History:
    """Events by the time at which they happened.

    Args:
        span_ms: age in milliseconds beyond which events are forgotten.
        max_bytes: of all events; beyond them the oldest are forgotten.
    """

    def __init__(self, span_ms: int = SPAN_MS, max_bytes: int = MAX_BYTES) -> None:
        self._span_ms = span_ms
        self._max_bytes = max_bytes
        self._events: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    def add(self, at_ms: int, event: bytes) -> None:
        """Add an event, later than all before."""
        self._events.append((at_ms, event))
        self._bytes += len(event)
        while len(self._events) > 1 and (
            self._bytes > self._max_bytes or self._events[0][0] <= at_ms - self._span_ms
        ):
            self._bytes -= len(self._events.popleft()[1])

    def after(self, at_ms: int, max_bytes: int) -> tuple[int, bytes]:
        """Return the events later than a time, up to a size but one at least.

        Returns:
            The time of the last of them, and all of them together; the given time and nothing
            if there are none.
        """
        found: list[bytes] = []
        size = 0
        for happened_ms, event in self._later(at_ms):
            if found and size + len(event) > max_bytes:
                break
            found.append(event)
            size += len(event)
            at_ms = happened_ms
        return at_ms, b"".join(found)

    def _later(self, at_ms: int) -> list[tuple[int, bytes]]:
        later: list[tuple[int, bytes]] = []
        # From the newest: nearly always one alone is later.
        for happened in reversed(self._events):
            if happened[0] <= at_ms:
                break
            later.append(happened)
        return later[::-1]
