"""Whether a client takes what is written to it, or only keeps memory busy.

Pure: who asks says how much is left, once a second.
"""

from typing import Final

WRITE_TIMEOUT_S: Final = 60
LEAST_BYTES: Final = 1 << 16
"""In `WRITE_TIMEOUT_S` so much of an answer is taken, or all of it, by whoever wants it."""


class SlowReader:
    """The client of one connection, from when it does not keep up until it does."""

    __slots__ = ("_age_s", "_left_bytes")

    def __init__(self) -> None:
        self._age_s = 0
        self._left_bytes = 0

    def is_gone(self, left_bytes: int) -> bool:
        """Another second has passed; whether the client is to be given up.

        Args:
            left_bytes: how much of what was written waits in this process.
        """
        if not self._age_s:
            self._left_bytes = left_bytes
        self._age_s += 1
        if self._age_s <= WRITE_TIMEOUT_S:
            return False
        self._age_s = 0
        return self._left_bytes - left_bytes < LEAST_BYTES
