"""No wake-up is lost though frontends ring only while the collector has told them to.

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
from typing import Any, NamedTuple, cast

import pytest
from interleave import Actor, Doorbell, Explored, Scenario, Violation, Watch, explore, fence
from segment_fixture import FAR_NS, local_segment, spec
from tiers import exhaustive, only

from ringbatch.engine.collector import collector as collector_module
from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.loop import Loop
from ringbatch.engine.ipc.messages import ReportKind, read_tasks, report_words
from ringbatch.engine.worker.run_times import Runs
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm import lane as lane_module
from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.descriptors import TASK_WORDS, HeaderWords, RingWords, SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.fence import full_fence
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.model_counters import NOTHING, Spent
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status, without_part
from ringbatch.shm.wakeup import Wakeup

SLOTS = 4
BELL = HeaderWords.RING_COLLECTOR + 8
"""A word of the header that nothing uses: the collector's doorbell; the workers' follow it."""


class Echo:
    """A runner whose model returns nothing, at once."""

    run_ns = 0
    failed = False

    def __init__(self, engine_slots: EngineSlots) -> None:
        self._slots = engine_slots
        self.runs = Runs()

    def run(self, references: list[int], mark: BatchMark, _began_ns: int, _asked: int) -> None:
        for ref in references:
            self._slots.answer(ref, Status.OK, 0, mark, 0)


class Parts(NamedTuple):
    """What a site is made of; the wrong variants take the place of these."""

    lane: type[Lane] = Lane
    collector: type[Collector] = Collector
    worker: type[Worker] = Worker


REAL = Parts()


class Site:
    """An engine in watched memory: all its workers are what `state` says.

    Args:
        watch: of the explorer.
        state: "idle"; "busy", each with a request that nobody asks about; or "absent". The
            collector has slept since, and so has told frontends what they must do.
        lanes: how many frontends.
        workers: how many.
        parts: what it is made of.
        cap: how many requests fill a batch, so that a busy worker is given it in advance.
    """

    def __init__(
        self,
        watch: Watch,
        state: str,
        lanes: int = 1,
        workers: int = 1,
        parts: Parts = REAL,
        cap: int = 3,
    ) -> None:
        models = spec(max_batch_size=cap, workers=tuple(range(workers)))
        self.segment = local_segment(models, lanes=lanes, slots=SLOTS)
        self.words = self.segment.words = current.words = watch(self.segment.words)
        self.layout = self.segment.layout
        self.bell = Doorbell(self.words, BELL)
        self._parts = parts
        self._worker_bells = [Doorbell(self.words, BELL + 1 + n) for n in range(workers)]
        self.collector = self.new_collector()
        for model in self.collector._models.values():
            model.cycle_ns = 1
        self.lanes = [self.new_lane(number) for number in range(lanes)]
        self.workers = [self._new_worker(number) for number in range(workers)]
        self.begun = state != "absent"
        if state != "absent":
            for worker in self.workers:
                worker.begin()
        if state == "busy":
            for _ in self.workers:
                self.publish(self.lanes[0])
            self.lanes[0].submit()
        self.collector.step(0)
        assert self.collector.prepare_to_sleep()
        assert self.words[HeaderWords.RING_COLLECTOR] == (state == "idle")
        for number in range(1 + workers):
            self.words[BELL + number] = 0

    def new_collector(self) -> Collector:
        self.collector = self._parts.collector(
            self.segment,
            lambda _lane: None,
            lambda worker: self._worker_bells[worker].wake(),
            end_worker=lambda _worker: None,
        )
        self.collector.start(1)
        return self.collector

    def new_lane(self, number: int) -> Lane:
        return self._parts.lane(self.segment, number, self.bell.wake)

    def _new_worker(self, number: int) -> Worker:
        engine_slots = EngineSlots(self.segment, number, lambda _lane: None)
        runner = cast(Runner, Echo(engine_slots))
        return self._parts.worker(
            self.segment, number, runner, engine_slots, self.bell.wake, lambda: 0
        )

    def publish(self, lane: Lane) -> int:
        slot = lane.claim(WORD, WORD, 0)
        assert slot is not None
        lane.publish(slot, 0, 1, 0, FAR_NS, WORD)
        return slot

    def leave(self, lane: Lane, *, submitted: bool) -> None:
        """What a frontend does for a client that sends and leaves."""
        slot = self.publish(lane)
        if submitted:
            lane.submit()
        lane.cancel(slot)
        lane.submit()

    def ask(self, lane: Lane, submitted: Sequence[int]) -> None:
        """What a frontend does: so many requests with each submission."""
        for requests in submitted:
            for _ in range(requests):
                self.publish(lane)
            lane.submit()

    def collect(self) -> None:
        """What the collector's process does, for ever."""
        counters = Counters(self.words, self.layout.collector_counters())
        loop = Loop(self.collector, cast(Wakeup, self.bell), counters)
        while True:
            loop.turn()

    def serve(self, number: int) -> None:
        """What a worker's process does, for ever, once it has begun."""
        while True:
            self.workers[number].step()
            self._worker_bells[number].wait()

    def begin(self) -> None:
        """What a worker's process does when its model is loaded."""
        self.workers[0].begin()
        self.begun = True

    def check(self) -> None:
        """Nobody can move: the property."""
        layout = self.layout
        given = [self._given(number) for number in range(len(self.workers))]
        idle = self.begun and not all(given)
        for number in range(len(self.workers)):
            assert not self._waiting(layout.report_ring(number)), "asleep beside a report"
        asked = any(self._waiting(layout.submission_ring(n)) for n in range(len(self.lanes)))
        queued = self.collector.in_flight - sum(given)
        assert not (idle and (asked or queued)), "asleep beside a request that a worker could run"

    def check_left(self) -> None:
        """As above, and of what is cancelled nothing is in flight but what a worker holds."""
        self.check()
        for lane in self.lanes:
            for slot in lane.collect():
                lane.release(slot)
        left = sum(lane.in_flight for lane in self.lanes)
        held = sum(self._given(number) for number in range(len(self.workers)))
        assert left == held, "asleep beside a cancelled request"

    def check_answered(self) -> None:
        """As above, and nobody has to wait for anything more."""
        self.check()
        for lane in self.lanes:
            asked = lane.in_flight
            assert len(lane.collect()) == asked, "a request was not answered"
            assert lane.counters[LaneCounter.REQUESTS] == asked

    def _waiting(self, ring: int) -> int:
        tail, head = (self.words[ring + word] for word in (RingWords.TAIL, RingWords.HEAD))
        return int(tail - head)

    def _given(self, worker: int) -> int:
        """Requests in tasks that the worker has not taken; those it has taken, it has run."""
        ring = Consumer(self.words, self.layout.task_ring(worker), TASK_WORDS)
        end = ring.position
        found = sum(len(task.references) for task in read_tasks(ring.take()))
        self.words[self.layout.task_ring(worker) + RingWords.HEAD] = end
        return found


class Current:
    """The run whose words a fence is for; one runs at a time."""

    words: memoryview


current = Current()


@pytest.fixture(autouse=True)
def _fences_are_the_explorers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lane_module, collector_module):
        assert module.full_fence is full_fence
        monkeypatch.setattr(module, "full_fence", lambda: fence(current.words))


def is_private(layout: Layout, *, slots: bool = False) -> Callable[[int], bool]:
    """All but the flag, the doorbells and each ring's TAIL; with `slots`, slots' CONTROL too.

    A ring's HEAD says only whether it is full, and none of these ever is.
    """
    shared = {HeaderWords.RING_COLLECTOR}
    for number in range(layout.lanes):
        shared.add(layout.submission_ring(number) + RingWords.TAIL)
    for number in range(layout.workers):
        rings = layout.report_ring(number), layout.task_ring(number)
        shared |= {ring + RingWords.TAIL for ring in rings}
    if slots:
        first = layout.slots_word
        shared |= {first + slot * SlotWords.SIZE for slot in range(layout.lanes * SLOTS)}
    return lambda number: number not in shared


def layout_of(lanes: int = 1, workers: int = 1) -> Layout:
    models = spec(workers=tuple(range(workers)))
    return local_segment(models, lanes=lanes, slots=SLOTS).layout


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
        worker: what the first one does: "stays", "finishes" its batch, "begins", or "serves".
        workers: how many there are.
        parts: what the site is made of.
        cap: how many requests fill a batch.
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
"""What is explored, and how many lanes and workers it has."""
LARGE = {
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
"""Those with many states, for the second tier."""


def explored(
    made: Scenario, layout: Layout, *, store_buffers: bool, slots: bool = False
) -> Explored:
    found = explore(made, private=is_private(layout, slots=slots), store_buffers=store_buffers)
    print(found)
    return found


both_memories = pytest.mark.parametrize(
    "store_buffers", only({"buffered": True, "in order": False}, "buffered")
)
"""With store buffers every order that there is without them is tried too."""


@both_memories
@pytest.mark.parametrize(("made", "lanes", "workers"), only(ORDERS, *ORDERS.keys() - LARGE))
def test_no_request_waits_in_a_ring_while_a_worker_is_idle_and_the_collector_sleeps(
    made: Scenario, lanes: int, workers: int, store_buffers: bool
) -> None:
    found = explored(made, layout_of(lanes, workers), store_buffers=store_buffers)
    assert found.states > 100


@both_memories
def test_a_collector_killed_at_any_point_leaves_no_request_asleep(store_buffers: bool) -> None:
    """Its successor starts with a flag that the dead one wrote, and with a fresh worker."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, "absent")

        def succeed() -> None:
            site.new_collector()
            site.begin()
            site.collect()

        frontend = Actor("frontend", lambda: site.ask(site.lanes[0], ONE))
        return [frontend, Actor("collector", site.collect, succeed)], site.check

    assert explored(made, layout_of(), store_buffers=store_buffers, slots=True).states > 100


@exhaustive
@both_memories
def test_a_frontend_killed_at_any_point_leaves_no_request_asleep(store_buffers: bool) -> None:
    """The lane's next owner submits again what the dead one may not have rung for."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        site = Site(watch, "busy")

        def take_over() -> None:
            site.lanes[0] = site.new_lane(0)

        frontend = Actor("frontend", lambda: site.ask(site.lanes[0], ONE), take_over)
        worker = Actor("worker", lambda: cast(None, site.workers[0].step()))
        return [frontend, Actor("collector", site.collect), worker], site.check

    assert explored(made, layout_of(), store_buffers=store_buffers).states > 100


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
        dies: who is killed at any point, and followed by another: "frontend", "collector" or "".
        parts: what the site is made of.
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
    "made", only(LEAVING, "before it was submitted", "a busy worker", "no worker", "a worker idle")
)
def test_what_is_cancelled_before_it_is_dispatched_is_given_back_whatever_workers_do(
    made: Scenario, store_buffers: bool
) -> None:
    found = explored(made, layout_of(), store_buffers=store_buffers, slots=True)
    assert found.states > 20


class CancelsQuietly(Lane):
    """Wrong: what is cancelled is submitted, and rings only where requests must."""

    def submit(self) -> None:
        self._withdraws = False
        super().submit()


class CancelsForItself(Lane):
    """Wrong: what is cancelled stands in its slot, and nobody is told."""

    def cancel(self, slot: int) -> None:
        super().cancel(slot)
        self._unsubmitted.pop()


class RingsBeforeItCancels(Lane):
    """Wrong: rings for what is cancelled, and submits that after."""

    def submit(self) -> None:
        if self._withdraws:
            self._wake_collector()
        self._withdraws = False
        super().submit()


class LooksAtTheNewAlone(Collector):
    """Wrong: passes over what it knows and is submitted again."""

    def _take_submissions(self, lane: int, references: list[int] | None, now_ns: int) -> None:
        own = [ref for ref in references or () if without_part(ref) not in self._in_flight]
        super()._take_submissions(lane, own, now_ns)


class TakesInTheCancelled(Collector):
    """Wrong: does not look whether what it takes in, or takes over, is cancelled."""

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
def test_who_keeps_what_is_cancelled_is_caught(made: Scenario) -> None:
    with pytest.raises(Violation, match="asleep beside a cancelled request"):
        explored(made, layout_of(), store_buffers=True, slots=True)


# Wrong ones, each caught


def finishing(parts: Parts = REAL) -> Scenario:
    """The flag is 0, and a worker becomes idle while a frontend submits."""
    return scenario("busy", [ONE], "finishes", parts=parts)


ASLEEP = "asleep beside a request"


def test_without_its_fence_a_frontend_loses_wake_ups_and_only_store_buffers_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_module, "full_fence", lambda: None)
    assert explored(finishing(), layout_of(), store_buffers=False).states > 100
    with pytest.raises(Violation, match=ASLEEP):
        explored(finishing(), layout_of(), store_buffers=True)


def test_without_its_fence_a_collector_loses_wake_ups_and_only_store_buffers_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector_module, "full_fence", lambda: None)
    assert explored(finishing(), layout_of(), store_buffers=False).states > 100
    with pytest.raises(Violation, match=ASLEEP):
        explored(finishing(), layout_of(), store_buffers=True)


class LooksFirst(Collector):
    """Wrong: looks for requests, and says after that that they must ring."""

    def prepare_to_sleep(self) -> bool:
        if self.has_news():
            return False
        self.rung_for_requests = any(model.idle for model in self._models.values())
        self._words[HeaderWords.RING_COLLECTOR] = self.rung_for_requests
        fence(self._words)
        return True


class NeverAsks(Collector):
    """Wrong: a worker became idle, and frontends are told to go on without ringing."""

    def prepare_to_sleep(self) -> bool:
        self._words[HeaderWords.RING_COLLECTOR] = 0
        fence(self._words)
        return not self.has_news()


class NeverLooksAgain(Collector):
    """Wrong: takes it that whoever came before the flag has rung."""

    def has_news(self) -> bool:
        return False


class AsksFirst(Lane):
    """Wrong: sees whether it must ring, and publishes after that."""

    def submit(self) -> None:
        ring = self.words[HeaderWords.RING_COLLECTOR]
        self._submissions.offer(self._unsubmitted)
        self._unsubmitted.clear()
        fence(self.words)
        if ring:
            self._wake_collector()


class RingsFirst(Lane):
    """Wrong: rings, and publishes after that."""

    def submit(self) -> None:
        self._wake_collector()
        self._submissions.offer(self._unsubmitted)
        self._unsubmitted.clear()


class HeedsTheFlag(Worker):
    """Wrong: a worker rings for its report only where frontends must ring for requests."""

    def __init__(self, segment: Segment, *others: Any) -> None:
        super().__init__(segment, *others)
        wake = self._wake_collector
        self._wake_collector = lambda: segment.words[HeaderWords.RING_COLLECTOR] and wake()


class RingsBeforeItsReport(Worker):
    """Wrong: rings, and reports after that."""

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
def test_a_wrong_order_is_caught(parts: Parts, message: str, store_buffers: bool) -> None:
    with pytest.raises(Violation, match=message):
        explored(finishing(parts), layout_of(), store_buffers=store_buffers)


# The explorer's doorbell


def ringing(order: Sequence[str]) -> Scenario:
    """One actor stores a word and rings, in that order or the other; one sleeps, then loads."""

    def made(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        words = watch(memoryview(bytearray(16)).cast("Q"))
        bell, seen = Doorbell(words, 1), []

        def ring() -> None:
            for what in order:
                if what == "ring":
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


def test_who_is_rung_for_sees_what_was_stored_before() -> None:
    assert explore(ringing(["store", "ring"])) == Explored(schedules=1, states=5)
    assert explore(ringing(["store", "ring"]), store_buffers=True).schedules == 2


def test_who_is_rung_for_too_early_may_see_nothing() -> None:
    with pytest.raises(Violation, match="woke too early"):
        explore(ringing(["ring", "store"]))


def test_a_sleeper_that_nobody_rings_for_is_checked_as_it_sleeps() -> None:
    with pytest.raises(Violation, match="slept on"):
        explore(ringing(["store"]))
