"""The name of a batch as its clients see it."""

from typing import Final


class BatchIds:
    """Turns the numbers of batches into UUIDs, the same in every process of one engine.

    Args:
        identity: the segment's random number of 64 bits.
    """

    _ODD: Final = 0x1E37_79B9_7F4A_7C15

    def __init__(self, identity: int) -> None:
        high = f"{identity & ~0xF000 | 0x4000:016x}"
        self._start = f"{high[:8]}-{high[8:12]}-{high[12:]}-"
        self._offset = identity
        self._batch = -1
        self._text = ""

    def text(self, batch: int) -> str:
        """Return a version 4 UUID, a different one for every number below 2**62."""
        # Neighbours in a batch are answered one after the other.
        if batch != self._batch:
            # An odd factor permutes the numbers modulo a power of two.
            low = (batch * self._ODD + self._offset) & ((1 << 62) - 1)
            # As str(UUID) writes it, in a fraction of the time: a dash before the last six bytes.
            self._text = self._start + (1 << 63 | low).to_bytes(8, "big").hex("-", 6)
            self._batch = batch
        return self._text
