"""Live feed of the page: looks at the engine once a second, and tells subscribers its findings.

It looks even without subscribers: an operator opens the page when something has happened, and the
charts then show it. A look loads some thousands of words of the segment, and costs a fraction of a
millisecond with few models. With very many models the looks become rarer, so that they take no more
than `SHARE` of a core.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from ringbatch.frontend.page.feed import TERMS, event, second, slowest, state
from ringbatch.frontend.page.subscribers import Subscribers
from ringbatch.shm.model_readiness import unready_reason
from ringbatch.shm.model_spec import SERVING, titled
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import Look, unseen
from ringbatch.shm.snapshot.sample import Sample, sample

log = logging.getLogger("ringbatch.frontend")

PERIOD_S: Final = 1.0
SHARE: Final = 0.005
_NS_PER_MS: Final = 1_000_000
_TERMS: Final = event("terms", TERMS)


class LiveFeed:
    """Live feed of the page: samples an engine again and again, and publishes the events.

    Args:
        segment: attached.
        subscribers: get the events.
        about: facts of the engine that are not in the segment.
        cost_ns: the CPU time of this process.
        look: reads the figures of GPUs.
    """

    def __init__(
        self,
        segment: Segment,
        subscribers: Subscribers,
        about: dict[str, Any],
        cost_ns: Callable[[], int] = time.thread_time_ns,
        look: Look = unseen,
    ) -> None:
        self._segment = segment
        self._subscribers = subscribers
        self._about = about
        self._see_gpus = look
        self._cost_ns = cost_ns
        self._before: Sample | None = None
        self._complaint = ""

    async def run(self) -> None:
        """Look at the engine and publish, until cancelled."""
        wall_ms = time.time_ns() // _NS_PER_MS - time.monotonic_ns() // _NS_PER_MS
        while True:
            now_ns = time.monotonic_ns()
            # Counted on from one instant: a clock that is set back tells no time twice.
            pause_s = self.look(now_ns, wall_ms + now_ns // _NS_PER_MS)
            await asyncio.sleep(pause_s)

    def look(self, now_ns: int, at_ms: int) -> float:
        """Look once; the seconds until the next time.

        Args:
            now_ns: the time on the monotonic clock.
            at_ms: the same for people, since 1970.
        """
        began_ns = self._cost_ns()
        try:
            self._publish(now_ns, at_ms)
            self._complaint = ""
        except Exception as error:
            # Whatever it is, metrics and health are served on, and the next look may succeed.
            if str(error) != self._complaint:
                log.exception("frontend: the page could not look at the engine")
            self._complaint = str(error)
        return max(PERIOD_S, (self._cost_ns() - began_ns) * 1e-9 / SHARE)

    def _publish(self, now_ns: int, at_ms: int) -> None:
        before, now = self._before, sample(self._segment, now_ns, self._see_gpus)
        self._before = now
        happened = None
        if before is not None:
            happened = event("second", second(before, now, at_ms), at_ms)
        how = state(before, now, self._obstacles(now_ns), self._about | {"at": at_ms})
        self._subscribers.publish(
            at_ms,
            happened,
            terms=_TERMS,
            state=event("state", how),
            slowest=event("slowest", slowest(now.slowest, now_ns, at_ms)),
        )

    def _obstacles(self, now_ns: int) -> dict[str, str]:
        words, layout = self._segment.words, self._segment.layout
        return {
            title: unready_reason(words, layout, spec, now_ns)
            for title, spec in titled(self._segment.models).items()
            if spec.state == SERVING
        }
