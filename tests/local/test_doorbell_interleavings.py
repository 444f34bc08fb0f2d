"""Interleavings of doorbells: frontends ring only when asked to, and no wake-up is lost.

Frontends, collector, its loop and workers are the real ones, under every order of their steps,
with and without store buffers. Steps are the words through which one can miss the other: the
flag, the positions of the rings, the doorbells. What stands in slots and rings is none, as
test_lane_interleavings.py and test_ring_interleavings.py have that. Doorbells are semaphores
without timeouts, so that no sweep rescues who sleeps.

The property, whenever nobody can move any more: no request stands in a ring or a queue while a
worker is idle, no report in a ring, and nothing that is cancelled and no worker holds in a slot.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from doorbell_harness import (
    REAL,
    Parts,
    Site,
    both_memories,
    explored,
    layout_of,
)
from interleave import Actor, Doorbell, Explored, Scenario, Violation, Watch, explore, fence
from memories import Armv8, Memory, TotalStoreOrder
from tiers import exhaustive, first_of, only

from ringbatch.engine.collector import collector as collector_module
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.ipc.messages import ReportKind, report_words
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm import lane as lane_module
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.segment import Segment


def scenario(
    state: str,
    submitted: Sequence[Sequence[int]],
    worker: str = "stays",
    workers: int = 1,
    parts: Parts = REAL,
    cap: int = 3,
) -> Scenario:
    """Frontends that submit, a collector, and a worker that "stays" what it is or acts.

    Args:
        state: of all workers at first, see `Site`.
        submitted: for each frontend, how many requests go with each submission.
        worker: act of the first worker: "stays", "finishes" its batch, "begins", or "serves".
        workers: number of workers.
        parts: classes of which the site is made.
        cap: requests that fill a batch.
    """

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, state, len(submitted), workers, parts, cap)
        bodies: dict[str, Callable[[], object]] = {
            "finishes": lambda: site.workers[0].step(),
            "begins": site.begin,
            "serves": lambda: site.serve(0),
        }
        actors = [
            Actor(f"frontend {number}", partial(site.ask, lane, groups))
            for number, (lane, groups) in enumerate(zip(site.lanes, submitted, strict=True))
        ]
        actors.append(Actor("collector", site.collect))
        if worker != "stays":
            actors.append(Actor("worker", cast(Callable[[], None], bodies[worker])))
        return actors, site.check_answered if worker == "serves" else site.check

    return made


ONE, TOGETHER, APART = [1], [2], [1, 1]

ORDERS = {
    "one request, a worker idle": (scenario("idle", [ONE]), 1, 1),
    "two at once, a worker idle": (scenario("idle", [TOGETHER]), 1, 1),
    "two apart, a worker idle": (scenario("idle", [APART]), 1, 1),
    "two at once, two workers idle": (scenario("idle", [TOGETHER], workers=2), 1, 2),
    "two apart, two workers idle": (scenario("idle", [APART], workers=2), 1, 2),
    "two frontends, two workers idle": (scenario("idle", [ONE, ONE], workers=2), 2, 2),
    "one request, a worker finishes": (scenario("busy", [ONE], "finishes"), 1, 1),
    "two at once, a worker finishes": (scenario("busy", [TOGETHER], "finishes"), 1, 1),
    "two apart, a worker finishes": (scenario("busy", [APART], "finishes"), 1, 1),
    "one request, a worker begins": (scenario("absent", [ONE], "begins"), 1, 1),
    "two at once, a worker begins": (scenario("absent", [TOGETHER], "begins"), 1, 1),
    "two apart, a worker begins": (scenario("absent", [APART], "begins"), 1, 1),
    "one request, a worker serves": (scenario("idle", [ONE], "serves"), 1, 1),
    "two at once, a worker serves": (scenario("idle", [TOGETHER], "serves"), 1, 1),
    "one request, a busy worker serves": (scenario("busy", [ONE], "serves"), 1, 1),
    "a batch to go on with, a worker finishes": (scenario("busy", [ONE], "finishes", cap=1), 1, 1),
    "a batch to go on with, a worker serves": (scenario("busy", [ONE], "serves", cap=1), 1, 1),
}
"""Scenarios to explore, each with its number of lanes and of workers."""
LARGE = {
    "one request, a worker serves",
    "two at once, a worker serves",
    "two apart, a worker idle",
    "two at once, two workers idle",
    "two apart, two workers idle",
    "two frontends, two workers idle",
    "one request, a worker finishes",
    "two at once, a worker finishes",
    "two apart, a worker finishes",
    "two at once, a worker begins",
    "two apart, a worker begins",
    "a batch to go on with, a worker finishes",
    "a batch to go on with, a worker serves",
    "one request, a busy worker serves",
}
"""Scenarios with many states, for the second tier."""


@both_memories
@pytest.mark.parametrize(("made", "lanes", "workers"), only(ORDERS, *ORDERS.keys() - LARGE))
def test_no_request_waits_in_a_ring_while_a_worker_is_idle_and_the_collector_sleeps(
    made: Scenario, lanes: int, workers: int, memory: type[Memory]
) -> None:
    found = explored(made, layout_of(lanes, workers), memory=memory)
    assert found.states > 100


WEAK = (
    "one request, a worker idle",
    "two at once, a worker idle",
    "two apart, a worker idle",
    "one request, a worker finishes",
    "one request, a worker begins",
    "two at once, a worker finishes",
    "a batch to go on with, a worker finishes",
    "one request, a worker serves",
)
"""Explored in the weak memory of AArch64 too; the others have too many orders there."""


@pytest.mark.parametrize(
    ("made", "lanes", "workers"), only({name: ORDERS[name] for name in WEAK}, *WEAK[:2])
)
def test_no_request_waits_so_in_a_weak_memory(made: Scenario, lanes: int, workers: int) -> None:
    assert explored(made, layout_of(lanes, workers), memory=Armv8).states > 100


@both_memories
def test_a_collector_killed_at_any_point_leaves_no_request_asleep(memory: type[Memory]) -> None:
    """Its successor starts with a flag that the dead one wrote, and with a fresh worker."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, "absent")

        def succeed() -> None:
            site.new_collector()
            site.begin()
            site.collect()

        frontend = Actor("frontend", lambda: site.ask(site.lanes[0], ONE))
        return [frontend, Actor("collector", site.collect, succeed)], site.check

    assert explored(made, layout_of(), memory=memory, slots=True).states > 100


@exhaustive
@both_memories
def test_a_frontend_killed_at_any_point_leaves_no_request_asleep(memory: type[Memory]) -> None:
    """The lane's next owner submits again what the dead one may not have rung for."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, "busy")

        def take_over() -> None:
            site.lanes[0] = site.new_lane(0)

        frontend = Actor("frontend", lambda: site.ask(site.lanes[0], ONE), take_over)
        worker = Actor("worker", lambda: cast(None, site.workers[0].step()))
        return [frontend, Actor("collector", site.collect), worker], site.check

    assert explored(made, layout_of(), memory=memory).states > 100


# Wrong ones, each caught


def finishing(parts: Parts = REAL) -> Scenario:
    """The flag is 0, and a worker becomes idle while a frontend submits."""
    return scenario("busy", [ONE], "finishes", parts=parts)


ASLEEP = "asleep beside a request"


def test_without_its_fence_a_frontend_loses_wake_ups_and_memory_in_order_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_module, "full_fence", lambda: None)
    assert explored(finishing(), layout_of(), memory=Memory).states > 100
    for memory in (TotalStoreOrder, Armv8):
        with pytest.raises(Violation, match=ASLEEP):
            explored(finishing(), layout_of(), memory=memory)


@pytest.mark.parametrize("memory", first_of([TotalStoreOrder, Armv8], 1))
def test_without_its_fence_a_collector_loses_wake_ups_and_memory_in_order_does_not_show_it(
    memory: type[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "full_fence", lambda: None)
    assert explored(finishing(), layout_of(), memory=Memory).states > 100
    with pytest.raises(Violation, match=ASLEEP):
        explored(finishing(), layout_of(), memory=memory)


class LooksFirst(Collector):
    """Defect: looks for requests, and says after that that they must ring."""

    def prepare_to_sleep(self) -> bool:
        if self.has_news():
            return False
        self.rung_for_requests = any(model.roster.idle for model in self._models.values())
        self._words[HeaderWords.RING_COLLECTOR] = self.rung_for_requests
        fence()
        return True


class NeverAsks(Collector):
    """Defect: a worker became idle, and frontends are told to go on without ringing."""

    def prepare_to_sleep(self) -> bool:
        self._words[HeaderWords.RING_COLLECTOR] = 0
        fence()
        return not self.has_news()


class NeverLooksAgain(Collector):
    """Defect: assumes that every request published before the flag has rung."""

    def has_news(self) -> bool:
        return False


class AsksFirst(Lane):
    """Defect: sees whether it must ring, and publishes after that."""

    def submit(self) -> None:
        ring = self.words[HeaderWords.RING_COLLECTOR]
        self._submissions.offer(self._unsubmitted)
        self._unsubmitted.clear()
        fence()
        if ring:
            self._wake_collector()


class RingsFirst(Lane):
    """Defect: rings, and publishes after that."""

    def submit(self) -> None:
        self._wake_collector()
        self._submissions.offer(self._unsubmitted)
        self._unsubmitted.clear()


class HeedsTheFlag(Worker):
    """Defect: a worker rings for its report only where frontends must ring for requests."""

    def __init__(self, segment: Segment, *others: Any) -> None:
        super().__init__(segment, *others)
        wake = self._wake_collector
        self._wake_collector = lambda: segment.words[HeaderWords.RING_COLLECTOR] and wake()


class RingsBeforeItsReport(Worker):
    """Defect: rings, and reports after that."""

    def _report(
        self, kind: ReportKind, first: int, second: int = 0, spent: Spent = NOTHING
    ) -> None:
        self._wake_collector()
        assert self._reports.offer(report_words(kind, first, second, spent))


WRONG = {
    "flag stored after the look": (Parts(collector=LooksFirst), ASLEEP),
    "flag left 0": (Parts(collector=NeverAsks), ASLEEP),
    "no second look": (Parts(collector=NeverLooksAgain), ASLEEP),
    "flag loaded before TAIL": (Parts(lane=AsksFirst), ASLEEP),
    "rung before TAIL": (Parts(lane=RingsFirst), ASLEEP),
    "report heeds the flag": (Parts(worker=HeedsTheFlag), "asleep beside a report"),
    "report after its ring": (Parts(worker=RingsBeforeItsReport), "asleep beside a report"),
}


@both_memories
@pytest.mark.parametrize(
    ("parts", "message"), only(WRONG, "no second look", "rung before TAIL", "report heeds the flag")
)
def test_a_wrong_order_is_caught(parts: Parts, message: str, memory: type[Memory]) -> None:
    with pytest.raises(Violation, match=message):
        explored(finishing(parts), layout_of(), memory=memory)


# The explorer's doorbell


def ringing(order: Sequence[str]) -> Scenario:
    """Return a scenario: one actor stores and rings, in the order given; one sleeps, then loads."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        words = watch(memoryview(bytearray(16)).cast("Q"))
        bell, seen = Doorbell(words, 1), []

        def ring() -> None:
            for step in order:
                if step == "ring":
                    bell.wake()
                else:
                    words[0] = 1

        def sleep() -> None:
            bell.wait()
            seen.append(words[0])

        def check() -> None:
            assert seen == [1], "slept on" if not seen else "woke too early"

        return [Actor("sleeper", sleep), Actor("ringer", ring)], check

    return made


def test_a_woken_process_sees_earlier_stores() -> None:
    assert explore(ringing(["store", "ring"])) == Explored(schedules=1, states=5)
    assert explore(ringing(["store", "ring"]), memory=TotalStoreOrder).schedules == 2


def test_a_process_woken_too_early_may_see_nothing() -> None:
    with pytest.raises(Violation, match="woke too early"):
        explore(ringing(["ring", "store"]))


def test_a_sleeper_that_nobody_rings_for_is_checked_as_it_sleeps() -> None:
    with pytest.raises(Violation, match="slept on"):
        explore(ringing(["store"]))
