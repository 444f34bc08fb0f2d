"""Seconds for which a client has taken nothing, though bytes wait for it. Pure.

Every kind of connection has one for each answer that it sends in parts, and has it tick once a
second. A model's setting says how long is too long.
"""

from collections.abc import Callable

Look = Callable[[], tuple[int, bool]]
"""Returns the bytes that a client has taken, a count that only grows, and whether others wait."""


class StallClock:
    """Clock of one answer, or of a connection with one answer at a time."""

    __slots__ = ("_s", "_taken_bytes", "_waited")

    def __init__(self) -> None:
        self._taken_bytes = 0
        self._waited = False
        self._s = 0

    def tick(self, taken_bytes: int, waits: bool) -> None:
        """Count a second, at whose end a look finds this."""
        stood = self._waited and waits and taken_bytes == self._taken_bytes
        self._s = self._s + 1 if stood else 0
        self._taken_bytes, self._waited = taken_bytes, waits

    def seconds(self, look: Look) -> int:
        """Return the whole seconds without a byte taken; 0 if nothing waits.

        It looks only once a second has been counted, because callers ask for each part.
        """
        if not self._s:
            return 0
        taken_bytes, waits = look()
        return self._s if waits and taken_bytes == self._taken_bytes else 0
