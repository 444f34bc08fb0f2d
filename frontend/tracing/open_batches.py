"""Gathers the traced requests of each batch, until no more of them are to be expected; pure.

They end nearly at once, but are read lane by lane. Who comes too late, because its client took its
answer slowly, is missing among the links of its batch; its own span has one to that all the same.
"""

from collections import OrderedDict
from typing import Final

from ringbatch.shm.slow_requests import RequestRecord

HOLD_NS: Final = 1_000_000_000
"""Time that a batch is held from its first request on."""
MOST_OPEN: Final = 4096
"""Batches that are held; beyond, the oldest is given out before its time."""
_MOST_KNOWN: Final = 2 * MOST_OPEN

Members = list[RequestRecord]


class OpenBatches:
    """Batches whose traced requests are being gathered; see the module."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[int, Members]] = OrderedDict()
        """Open batches: since when each is held, and its members; the oldest first."""
        self._given: OrderedDict[int, None] = OrderedDict()
        """Batches given out recently, so that none is given out twice."""

    def add(self, request: RequestRecord, now_ns: int) -> None:
        """Add an ended request that was in a batch."""
        batch = request.found.batch
        if batch in self._open:
            self._open[batch][1].append(request)
        elif batch not in self._given:
            self._open[batch] = now_ns, [request]

    def take(self, now_ns: int) -> list[Members]:
        """Return the members of each batch that was held for long enough."""
        taken = []
        while self._open:
            since_ns, _ = next(iter(self._open.values()))
            if now_ns - since_ns < HOLD_NS and len(self._open) <= MOST_OPEN:
                break
            batch, (_, members) = self._open.popitem(last=False)
            self._given[batch] = None
            taken.append(members)
        while len(self._given) > _MOST_KNOWN:
            self._given.popitem(last=False)
        return taken

    def take_all(self) -> list[Members]:
        """Return the members of every batch that is left, at the end."""
        taken = [members for _, members in self._open.values()]
        self._open.clear()
        return taken
