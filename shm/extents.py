"""Allocator of byte extents in a fixed stretch of memory, for one owner without a lock.

Sizes are rounded up to `ALIGNMENT`. A freed extent goes to a list for its size, and the next
request of that size gets it as it is. So the usual case, many requests of one size, costs two list
operations. If nothing fits, free extents are merged with their neighbours. Small extents are cut
from the low end and large ones from the high end, so that small ones do not break up the room for
large ones. Large ones leave a reserve that only small ones may use, so that one large request never
keeps small ones out. A large extent that is the only one leaves less, so it may be almost as large
as the memory.

A part of the memory can be set aside for extents that are allocated as own ones.

After D. Lea's allocator (quick lists before coalescing) and Knuth's first fit, TAOCP volume 1,
section 2.5.
"""

from collections.abc import Iterable

from ringbatch.shm.layout import ALIGNMENT, aligned

LARGE_SHARE = 16
"""An extent over the size of the memory divided by this is large."""
RESERVE_SHARE = 8
"""The part of the memory that large extents leave to small ones."""
LONE_SHARE = 64
"""The part that a large extent leaves if there is no other large one."""


class Extents:
    """Allocator of offsets; it never touches the memory itself.

    Attributes:
        used: bytes that are allocated.
        aside_bytes: bytes that are set aside for own extents, no more than large ones leave.

    Args:
        size: bytes of the memory, a multiple of `ALIGNMENT`.
    """

    def __init__(self, size: int) -> None:
        assert size % ALIGNMENT == 0
        self.size = size
        self.used = 0
        self.aside_bytes = 0
        self._used_by_large = 0
        self._used_by_own = 0
        self._large = size // LARGE_SHARE
        self._large_limit = size - size // RESERVE_SHARE
        self._lone_limit = size - size // LONE_SHARE
        self._quick: dict[int, list[int]] = {}
        self._free: dict[int, int] = {0: size}
        """Start to end of every free run that is on no quick list."""

    def allocate(self, size: int, *, own: bool = False) -> int | None:
        """Return the offset of `size` free bytes; None if there is no such run.

        Args:
            size: in bytes.
            own: True if they may come from the part set aside; the caller limits their number.
        """
        size = aligned(size) or ALIGNMENT
        if own:
            offset = self._found(size)
            if offset is not None:
                self._used_by_own += size
            return offset
        return self._found(size) if not self.aside_bytes or self._leaves_aside(size) else None

    def _leaves_aside(self, size: int) -> bool:
        """Return whether an extent leaves the bytes that are set aside for own ones."""
        lone = size > self._large and not self._used_by_large
        limit = self._lone_limit if lone else self.size - self.aside_bytes
        return self.used - self._used_by_own + size <= limit

    def _found(self, size: int) -> int | None:
        quick = self._quick.get(size)
        if quick and size <= self._large:
            self._count(size, 1)
            return quick.pop()
        offset = self._cut(size)
        if offset is None and self._quick:
            self._merge()
            offset = self._cut(size)
        return offset

    def free(self, offset: int, size: int, *, own: bool = False) -> None:
        """Give back what `allocate` returned for these arguments."""
        size = aligned(size) or ALIGNMENT
        if own:
            self._used_by_own -= size
        self._count(size, -1)
        self._quick.setdefault(size, []).append(offset)

    def reserve(self, offset: int, size: int) -> bool:
        """Allocate exactly these bytes, as an earlier owner did; False if not all are free."""
        if offset % ALIGNMENT or size < 0:
            return False
        size = aligned(size) or ALIGNMENT
        self._merge()
        for start, end in self._free.items():
            if start <= offset and offset + size <= end:
                del self._free[start]
                self._keep(start, offset)
                self._keep(offset + size, end)
                self._count(size, 1)
                return True
        return False

    def could_hold(self, sizes: Iterable[int]) -> bool:
        """Return whether extents of these sizes fit an empty memory and leave the part set aside.

        A single one need not leave it.
        """
        taken = [aligned(size) or ALIGNMENT for size in sizes]
        large = [size for size in taken if size > self._large]
        limit = self._large_limit if len(large) > 1 else self._lone_limit
        aside = self.aside_bytes if len(taken) > 1 else 0
        return sum(taken) <= self.size - aside and sum(large) <= limit

    def _cut(self, size: int) -> int | None:
        large = size > self._large
        if large:
            limit = self._large_limit if self._used_by_large else self._lone_limit
            if self._used_by_large + size > limit:
                return None
        fitting = [start for start, end in self._free.items() if end - start >= size]
        if not fitting:
            return None
        start = max(fitting) if large else min(fitting)
        end = self._free.pop(start)
        self._count(size, 1)
        if large:
            self._keep(start, end - size)
            return end - size
        self._keep(start + size, end)
        return start

    def _count(self, size: int, sign: int) -> None:
        self.used += sign * size
        if size > self._large:
            self._used_by_large += sign * size

    def _keep(self, start: int, end: int) -> None:
        if start < end:
            self._free[start] = end

    def _merge(self) -> None:
        runs = [(start, end) for start, end in self._free.items()]
        for size, starts in self._quick.items():
            runs += [(start, start + size) for start in starts]
        self._quick.clear()
        self._free.clear()
        runs.sort()
        low, high = 0, 0
        for start, end in runs:
            if start == high:
                high = end
                continue
            self._keep(low, high)
            low, high = start, end
        self._keep(low, high)
