"""Instants by number, of which the earliest is found without a look at the others."""

from heapq import heapify, heappop, heappush
from typing import Final

_SLACK: Final = 64
"""So many entries that no longer hold are kept before any is looked for."""


class Instants:
    """At most one instant for each of some numbers: a heap whose outdated entries stay until they
    come to its top, or until they are half of it.

    Attributes:
        at_ns: the instants by their numbers, for reading.
    """

    __slots__ = ("_heap", "at_ns")

    def __init__(self) -> None:
        self.at_ns: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def put(self, number: int, at_ns: int) -> None:
        """Give a number this instant instead of its last."""
        instants, heap = self.at_ns, self._heap
        instants[number] = at_ns
        heappush(heap, (at_ns, number))
        if len(heap) > _SLACK and len(heap) > 2 * len(instants):
            self._heap = [(ns, key) for key, ns in instants.items()]
            heapify(self._heap)

    def drop(self, number: int) -> None:
        """Forget a number, if it is known."""
        self.at_ns.pop(number, None)

    def first(self) -> tuple[int, int]:
        """The earliest instant and its number, of equal ones the smallest; there is one."""
        heap, instants = self._heap, self.at_ns
        while instants.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0]

    def take(self, now_ns: int) -> list[int]:
        """Remove the numbers whose instant has come, the earliest first."""
        taken: list[int] = []
        while self.at_ns and (first := self.first())[0] <= now_ns:
            taken.append(first[1])
            del self.at_ns[first[1]]
        return taken
