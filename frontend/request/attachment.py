"""Attachment of a frontend process to the engine: its segment, its lane, and the service on it."""

import asyncio
import logging
import time
from typing import Final, Self

from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.v2.regions import NOTHING_SHARED, SharedMemory
from ringbatch.shm.host.platform import require_supported_machine
from ringbatch.shm.lane import Lane
from ringbatch.shm.segment import Segment
from ringbatch.shm.spinning import where_cpus_allow

log = logging.getLogger("ringbatch.frontend")

_SWEEP_S: Final = 1.0
"""Longest time that an object stays open after the end of its region's registration."""
_SPIN_NS: Final = 200_000
"""Longest spin of the event loop for answers: some twice the time of a request through the engine
if each process must be woken on a virtual machine."""


class Attachment:
    """A lane and the service on it.

    Attributes:
        segment: attached.
        lane: the lane.
        service: the models.

    Args:
        segment: attached.
        lane: of that segment, held by this process.
        shared: what of clients' memory requests may use.
    """

    def __init__(self, segment: Segment, lane: Lane, shared: SharedMemory = NOTHING_SHARED) -> None:
        self.segment = segment
        self.lane = lane
        self._loop = asyncio.get_running_loop()
        self._gateway = Gateway(lane, self._loop, spin_ns=where_cpus_allow(_SPIN_NS))
        self._gateway.listen(segment.lane_doorbell(lane.index))
        self.service = Service(segment, self._gateway, time.monotonic_ns, shared)
        self._sweeping: asyncio.TimerHandle | None = None
        if self.service.regions.on:
            self._sweep()

    @classmethod
    def open(cls, segment_name: str, shared: SharedMemory = NOTHING_SHARED) -> Self:
        """Attach the segment and take a free lane, on the running loop.

        Raises:
            StartupError: in words.
        """
        require_supported_machine()
        segment = Segment.attach(segment_name)
        return cls(segment, Lane.attach(segment, segment.collector_doorbell().wake), shared)

    @property
    def superseded(self) -> bool:
        """As of `Segment`."""
        return self.segment.superseded

    def _sweep(self) -> None:
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)
        self.service.regions.sweep()

    def close(self) -> None:
        """Leave the lane to the next, and log how many requests were still in flight."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.service.engine.apart.close()
        self.service.regions.close()
        if cut_off := self._gateway.close():
            log.warning(
                "frontend: requests cut off without an answer, because drain_s is over: %d (each "
                "batch of a large one counts)",
                cut_off,
            )
        self.segment.detach()
