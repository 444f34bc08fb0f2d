"""Seconds for which a client has taken nothing, though bytes wait for it. Pure.

Every kind of connection has one for each answer that it sends in parts, and has it tick once a
second. A model's setting says how long is too long.
"""

from collections.abc import Callable


class StallClock:
    """Clock of one answer, or of a connection with one answer at a time.

    Args:
        look: returns the bytes that the client has taken, a count that only grows, and whether
            others wait for it.
    """

    __slots__ = ("_look", "_s", "_taken_bytes", "_waited")

    def __init__(self, look: Callable[[], tuple[int, bool]]) -> None:
        self._look = look
        self._taken_bytes = 0
        self._waited = False
        self._s = 0

    def tick(self) -> None:
        """Count a second."""
        taken_bytes, waits = self._look()
        stood = self._waited and waits and taken_bytes == self._taken_bytes
        self._s = self._s + 1 if stood else 0
        self._taken_bytes, self._waited = taken_bytes, waits

    def seconds(self) -> int:
        """Return the whole seconds since the client took something; 0 if nothing waits for it."""
        if not self._s:
            return 0
        taken_bytes, waits = self._look()
        return self._s if waits and taken_bytes == self._taken_bytes else 0
