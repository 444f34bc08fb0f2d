"""Parts of one request's answer, from a worker to its frontend.

A part that finds no room in the ring waits here, behind those that wait already. A frontend takes
parts as fast as they come, however slow its client is: one that does not is stopped or broken. So
only `MOST_WAITING` parts wait; beyond them the request fails.
"""

from collections import deque
from typing import Final

from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.parts import Room, bytes_for, ring_bytes

MOST_WAITING: Final = 256
"""Parts of one request that wait for room."""


class TooLarge(Exception):
    """A part is larger than any that the ring can take.

    Attributes:
        result_bytes: the result memory that it needs.
    """

    def __init__(self, result_bytes: int) -> None:
        super().__init__(result_bytes)
        self.result_bytes = result_bytes


class NotTaken(Exception):
    """The frontend takes no parts."""


class PartStream:
    """Writing end of one request.

    Args:
        slots: answers for this worker.
        request: wants parts.
        batch: the number of its batch.
    """

    __slots__ = ("_most_bytes", "_waiting", "_writer", "request")

    def __init__(self, slots: EngineSlots, request: Request, batch: int) -> None:
        self.request = request
        self._writer = slots.part_writer(request, batch)
        self._most_bytes = ring_bytes(request.result_capacity)
        self._waiting: deque[bytes] = deque()

    @property
    def part_is_out(self) -> bool:
        """True if the frontend has a part, or is about to."""
        return self._writer.part_is_out

    @property
    def deadline_ns(self) -> int:
        """Deadline of the request in nanoseconds, as its frontend has set it last."""
        return self._writer.deadline_ns

    @property
    def waits(self) -> bool:
        """True if parts wait for room."""
        return bool(self._waiting)

    @property
    def room(self) -> Room | None:
        """The first room for the next part; None if there is none, or if others wait for it."""
        return None if self._waiting else self._writer.first_room()

    def put_at_once(self, part: bytes) -> bool:
        """Write a part; return False, with nothing done, if it is too large or finds no room."""
        if self._waiting or bytes_for(len(part)) > self._most_bytes:
            return False
        return self._writer.write(part)

    def put(self, part: bytes) -> bool:
        """Write a part, or keep it until there is room; return whether any was written.

        Raises:
            TooLarge, NotTaken: see there.
        """
        needed = bytes_for(len(part))
        if needed > self._most_bytes:
            raise TooLarge(needed)
        news = bool(self._waiting) and self.write_waiting()
        if not self._waiting and self._writer.write(part):
            return True
        if len(self._waiting) >= MOST_WAITING:
            raise NotTaken(f"its frontend has not taken {MOST_WAITING} parts of the answer")
        self._waiting.append(part)
        return news

    def write_waiting(self) -> bool:
        """Write parts that wait, while there is room; return whether any was written."""
        before = len(self._waiting)
        while self._waiting and self._writer.write(self._waiting[0]):
            self._waiting.popleft()
        return len(self._waiting) < before
