"""Requests by the order of their arrival, from any place of which they may leave. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from ringbatch.shm.engine_slots import Request

NOWHERE: Final = 0
"""The place of no request."""
_BITS: Final = 6
_SIZE: Final = 1 << _BITS
_MASK: Final = _SIZE - 1


class _Block:
    """Places of some requests that came one after the other.

    Attributes:
        requests: by place; None once one has left.
        waiting: how many still wait.
    """

    __slots__ = ("requests", "waiting")

    def __init__(self, empty: int) -> None:
        self.requests: list[Request | None] = [None] * empty
        self.waiting = 0


class Arrivals:
    """Waiting requests by place: the first that comes has place 1, and each next one place more.

    Blocks of places last until all requests of theirs have left. So the memory is bounded by the
    requests that wait, and places never change.
    """

    __slots__ = ("_blocks", "_next", "_places", "_waiting")

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._next = NOWHERE + 1
        self._waiting = 0
        self._places: dict[int, int] | None = None
        """Places by reference, from the first search on."""

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Request]:
        for block in self._blocks.values():
            for request in block.requests:
                if request is not None:
                    yield request

    def oldest(self) -> Request:
        """Return the request that came first; there is one."""
        for block in self._blocks.values():
            for request in block.requests:
                if request is not None:
                    return request
        raise LookupError("no request waits")

    def add(self, requests: Sequence[Request]) -> int:
        """Append requests, and return the place of the first; the others follow."""
        first, count = self._next, len(requests)
        self._next += count
        self._waiting += count
        if self._places is not None:
            self._places.update({r.ref: place for place, r in enumerate(requests, first)})
        if count <= _SIZE - (first & _MASK):
            self._fill(first, requests)
        else:
            added = 0
            while added < count:
                room = _SIZE - (first + added & _MASK)
                self._fill(first + added, requests[added : added + room])
                added += room
        return first

    def _fill(self, first: int, requests: Sequence[Request]) -> None:
        """Put requests into the block of their places, which are the next there."""
        number = first >> _BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block(first & _MASK)
        block.requests += requests
        block.waiting += len(requests)

    def get(self, place: int) -> Request | None:
        """Return the request of a place; None once it has left."""
        block = self._blocks.get(place >> _BITS)
        return None if block is None else block.requests[place & _MASK]

    def find(self, ref: int) -> int:
        """Return the place of a reference; `NOWHERE` if its request does not wait."""
        if self._places is None:
            waiting = self._blocks.items()
            self._places = {
                request.ref: number << _BITS | at
                for number, block in waiting
                for at, request in enumerate(block.requests)
                if request is not None
            }
        return self._places.get(ref, NOWHERE)

    def take(self, place: int) -> Request:
        """Remove and return the request of a place, which has not left."""
        number, at = place >> _BITS, place & _MASK
        block = self._blocks[number]
        request = block.requests[at]
        assert request is not None, "nobody leaves twice"
        block.requests[at] = None
        block.waiting -= 1
        if not block.waiting:
            del self._blocks[number]
        self._waiting -= 1
        if self._places is not None:
            del self._places[request.ref]
        return request

    def take_several(self, places: list[int]) -> list[Request]:
        """Remove and return the requests of ascending places, none of which has left."""
        first, behind = places[0], places[-1] + 1
        if behind - first > len(places):
            return [self.take(place) for place in places]
        taken: list[Request] = []
        while first < behind:
            number, at = first >> _BITS, first & _MASK
            block = self._blocks[number]
            until = min(at + behind - first, _SIZE)
            taken += cast("list[Request]", block.requests[at:until])
            block.requests[at:until] = [None] * (until - at)
            block.waiting -= until - at
            if not block.waiting:
                del self._blocks[number]
            first += until - at
        self._waiting -= len(taken)
        if self._places is not None:
            for request in taken:
                del self._places[request.ref]
        return taken
