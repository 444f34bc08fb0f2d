"""Interleavings of clients that cancel, with the doorbells of collector and workers."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from doorbell_harness import REAL, Parts, Site, both_memories, explored, layout_of
from interleave import Actor, Scenario, Violation, Watch
from memories import Memory, TotalStoreOrder
from tiers import only

from ringbatch.engine.collector.collector import Collector
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import without_part

# Clients that leave


def leaving(
    state: str,
    *,
    submitted: bool = True,
    finishes: bool = False,
    dies: str = "",
    parts: Parts = REAL,
) -> Scenario:
    """A client that sends and leaves, a collector, and a worker that "stays" what it is or finishes
    its batch.

    Args:
        state: of the worker at first, see `Site`.
        submitted: whether the client leaves only once its request was submitted.
        finishes: whether the worker does.
        dies: actor killed at any point, and followed by another: "frontend", "collector" or "".
        parts: classes of which the site is made.
    """

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, state, parts=parts)

        def follow_frontend() -> None:
            site.lanes[0] = site.new_lane(0)

        def follow_collector() -> None:
            site.new_collector()
            site.collect()

        frontend = Actor(
            "frontend",
            lambda: site.leave(site.lanes[0], submitted=submitted),
            follow_frontend if dies == "frontend" else None,
        )
        collector = Actor(
            "collector", site.collect, follow_collector if dies == "collector" else None
        )
        worker = Actor("worker", lambda: cast(None, site.workers[0].step()))
        return [frontend, collector, *[worker] * finishes], site.check_left

    return made


LEAVING = {
    "before it was submitted": leaving("busy", submitted=False),
    "a busy worker": leaving("busy"),
    "no worker": leaving("absent"),
    "a worker idle": leaving("idle"),
    "a worker finishes": leaving("busy", finishes=True),
    "the frontend dies": leaving("busy", dies="frontend"),
    "the collector dies": leaving("busy", dies="collector"),
}


@both_memories
@pytest.mark.parametrize(
    "made", only(LEAVING, "before it was submitted", "a busy worker", "no worker")
)
def test_a_request_cancelled_before_dispatch_is_given_back_beside_any_worker(
    made: Scenario, memory: type[Memory]
) -> None:
    found = explored(made, layout_of(), memory=memory, slots=True)
    assert found.states > 20


class CancelsQuietly(Lane):
    """Defect: what is cancelled is submitted, and rings only where requests must."""

    def submit(self) -> None:
        self._withdraws = False
        super().submit()


class CancelsForItself(Lane):
    """Defect: a cancelled request stands in its slot, and the collector is not told."""

    def cancel(self, slot: int) -> None:
        super().cancel(slot)
        self._unsubmitted.pop()


class RingsBeforeItCancels(Lane):
    """Defect: rings for what is cancelled, and submits that after."""

    def submit(self) -> None:
        if self._withdraws:
            self._wake_collector()
        self._withdraws = False
        super().submit()


class LooksAtTheNewAlone(Collector):
    """Defect: passes over what it knows and is submitted again."""

    def _take_submissions(self, lane: int, references: list[int] | None, now_ns: int) -> None:
        own = [ref for ref in references or () if without_part(ref) not in self._in_flight]
        super()._take_submissions(lane, own, now_ns)


class TakesInTheCancelled(Collector):
    """Defect: does not look whether what it takes in, or takes over, is cancelled."""

    def _read_new(self, lane: int, references: list[int]) -> Any:
        requests, spoilt, _, strays = super()._read_new(lane, references)
        return requests, spoilt, [], strays

    def _requeue(self, ref: int, now_ns: int) -> None:
        request = self._slots.read(ref)
        assert request is not None
        self._take_in(request, now_ns)


LEFT_WRONG = {
    "rung only for requests": leaving("busy", parts=Parts(lane=CancelsQuietly)),
    "submits nothing": leaving("busy", parts=Parts(lane=CancelsForItself)),
    "rings before TAIL": leaving("busy", parts=Parts(lane=RingsBeforeItCancels)),
    "looks at the new alone": leaving("busy", parts=Parts(collector=LooksAtTheNewAlone)),
    "takes in the cancelled": leaving(
        "busy", submitted=False, parts=Parts(collector=TakesInTheCancelled)
    ),
    "takes over the cancelled": leaving(
        "busy", dies="collector", parts=Parts(collector=TakesInTheCancelled)
    ),
}


@pytest.mark.parametrize("made", LEFT_WRONG.values(), ids=LEFT_WRONG)
def test_an_actor_that_keeps_a_cancelled_request_is_caught(made: Scenario) -> None:
    with pytest.raises(Violation, match="asleep beside a cancelled request"):
        explored(made, layout_of(), memory=TotalStoreOrder, slots=True)
