"""Parts of one request's answer, from a worker to its frontend.

A part that finds no room in the ring waits here, behind those that wait already. A frontend takes
parts as fast as they come, however slow its client is: one that does not is stopped or broken. So
only `MOST_WAITING` parts wait; beyond them the request fails.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ringbatch.engine.worker.outputs import WrongResult
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.parts import Room, bytes_for, ring_bytes
from ringbatch.shm.tuples import unchecked_tuple

MOST_WAITING: Final = 256
"""Parts of one request that wait for room."""

Write = Callable[[Any, Request], int | WrongResult]
"""Writes one request's rows of results into its result memory, as `Codec.write` does."""


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
        self._waiting: deque[Any] = deque()

    @property
    def part_is_out(self) -> bool:
        """True if the frontend has a part, or is about to."""
        return self._writer.part_is_out

    @property
    def waits(self) -> bool:
        """True if parts wait for room."""
        return bool(self._waiting)

    @property
    def room(self) -> Room | None:
        """The first room for the next part; None if there is none, or if others wait for it."""
        return None if self._waiting else self._writer.first_room()

    def takes(self, size: int) -> bool:
        """Return whether a part of that size always finds room once all before it are read."""
        return bytes_for(size) <= self._most_bytes

    def at(self, room: Room) -> Request:
        """Return the request with a room for its result memory."""
        start, size = room
        request = self.request
        # `_replace` would take most of what a small part costs.
        values = (*request[:5], size, request.request_offset, start, *request[8:])
        return unchecked_tuple(Request, values)

    def publish(self, room: Room, size: int) -> None:
        """Let the frontend see the part that was written into a room."""
        self._writer.publish(room, size)

    def put(self, results: Any, write: Write) -> bool:
        """Write the request's rows of results, or keep them until there is room.

        Args:
            results: of one yield, which stay as they are.
            write: writes them.

        Returns:
            True if a part was written.

        Raises:
            TooLarge, NotTaken: see there.
            WrongResult: the part cannot be written.
        """
        news = self.write_waiting(write)
        if not self._waiting and self._write(results, write):
            return True
        if len(self._waiting) >= MOST_WAITING:
            raise NotTaken(f"its frontend has not taken {MOST_WAITING} parts of the answer")
        self._waiting.append(results)
        return news

    def write_waiting(self, write: Write) -> bool:
        """Write parts that wait, while there is room; return whether any was written."""
        before = len(self._waiting)
        while self._waiting and self._write(self._waiting[0], write):
            self._waiting.popleft()
        return len(self._waiting) < before

    def _write(self, results: Any, write: Write) -> bool:
        rooms = self._writer.rooms()
        for room in rooms or [Room(self.request.result_offset, 0)]:
            size = write(results, self.at(room))
            if isinstance(size, WrongResult):
                raise size
            if not self.takes(size):
                raise TooLarge(bytes_for(size))
            if rooms and size <= room.size:
                self._writer.publish(room, size)
                return True
        return False
