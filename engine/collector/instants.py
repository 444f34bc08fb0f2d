"""Priority queue of instants by number, with changes and removal."""

from heapq import heapify, heappop, heappush
from typing import Final

_SLACK: Final = 64
"""Heaps of up to this many entries keep all their outdated ones."""


class Instants:
    """Heap with at most one instant for each number.

    Outdated entries stay in the heap until they reach its top, or until they are half of it.

    Attributes:
        at_ns: the instants by number; callers only read it.
    """

    __slots__ = ("_heap", "at_ns")

    def __init__(self) -> None:
        self.at_ns: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def put(self, number: int, at_ns: int) -> None:
        """Set the instant of a number, in place of its last one."""
        instants, heap = self.at_ns, self._heap
        instants[number] = at_ns
        heappush(heap, (at_ns, number))
        if len(heap) > _SLACK and len(heap) > 2 * len(instants):
            self._heap = [(ns, key) for key, ns in instants.items()]
            heapify(self._heap)

    def drop(self, number: int) -> None:
        """Remove a number, if it is here."""
        self.at_ns.pop(number, None)

    def first(self) -> tuple[int, int]:
        """Return the earliest instant and its number, if equal the smallest; none is an error."""
        heap, instants = self._heap, self.at_ns
        while instants.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0]

    def take(self, now_ns: int) -> list[int]:
        """Remove and return the numbers whose instant has come, earliest first."""
        taken: list[int] = []
        while self.at_ns and (first := self.first())[0] <= now_ns:
            taken.append(first[1])
            del self.at_ns[first[1]]
        return taken
