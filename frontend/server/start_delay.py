"""The delay before a frontend that has ended is started again. Pure.

A frontend that ends as soon as it starts, as where the host has no more threads for it, would be
started and logged ten times a second. One that has served, or was killed from outside, is replaced
at once: without it requests wait.
"""

from typing import Final

STEADY_S: Final = 1.0
"""A frontend that lived so long can live here."""
FIRST_S: Final = 0.5
MOST_S: Final = 2.0
"""The longest delay: a frontend starts quickly, and the host may have recovered."""


class StartDelay:
    """Ends in a row of frontends that could not live."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, lived_s: float, *, killed: bool) -> float:
        """Return the seconds to wait before the replacement of a frontend that has ended.

        The first end of a row is taken for an accident, with no delay.

        Args:
            lived_s: its life in seconds.
            killed: True if it was killed from outside, which says nothing of the next one.
        """
        if killed:
            return 0.0
        if lived_s >= STEADY_S:
            self._failures = 0
            return 0.0
        self._failures += 1
        return min(FIRST_S * 2 ** (self._failures - 2), MOST_S) if self._failures > 1 else 0.0
