"""An engine of real frontends, collectors and workers, whose every step is explored."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import pytest
from interleave import Doorbell, Explored, Scenario, Watch, explore
from memories import STRONG, Memory
from segment_fixture import FAR_NS, local_segment, spec
from tiers import only

from ringbatch.engine.collector.collector import Collector
from ringbatch.engine.collector.loop import Loop
from ringbatch.engine.ipc.messages import read_tasks
from ringbatch.engine.worker.run_times import Runs
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.descriptors import TASK_WORDS, HeaderWords, RingWords, SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.ring import Consumer
from ringbatch.shm.slot import Status
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
    """The classes that a site is made of; wrong variants replace them."""

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
        lanes: number of frontends.
        workers: number of workers.
        parts: classes of which it is made.
        cap: requests that fill a batch, which a busy worker is given in advance.
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
            model.times.cycle_ns = 1
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
        """Act as a frontend does for a client that sends and leaves."""
        slot = self.publish(lane)
        if submitted:
            lane.submit()
        lane.cancel(slot)
        lane.submit()

    def ask(self, lane: Lane, submitted: Sequence[int]) -> None:
        """Act as a frontend: send so many requests with each submission."""
        for requests in submitted:
            for _ in range(requests):
                self.publish(lane)
            lane.submit()

    def collect(self) -> None:
        """Act as the collector's process, for ever."""
        counters = Counters(self.words, self.layout.collector_counters())
        loop = Loop(self.collector, cast(Wakeup, self.bell), counters)
        while True:
            loop.turn()

    def serve(self, number: int) -> None:
        """Act as a worker's process that has begun, for ever."""
        while True:
            self.workers[number].step()
            self._worker_bells[number].wait()

    def begin(self) -> None:
        """Act as a worker's process whose model has just been loaded."""
        self.workers[0].begin()
        self.begun = True

    def check(self) -> None:
        """Check, when no actor can move, that none sleeps beside work."""
        layout = self.layout
        given = [self._given(number) for number in range(len(self.workers))]
        idle = self.begun and not all(given)
        for number in range(len(self.workers)):
            assert not self._waiting(layout.report_ring(number)), "asleep beside a report"
        asked = any(self._waiting(layout.submission_ring(n)) for n in range(len(self.lanes)))
        queued = self.collector.in_flight - sum(given)
        assert not (idle and (asked or queued)), "asleep beside a request that a worker could run"

    def check_left(self) -> None:
        """Check as `check` does, and that no cancelled request is in flight outside workers."""
        self.check()
        for lane in self.lanes:
            for slot in lane.collect():
                lane.release(slot)
        left = sum(lane.in_flight for lane in self.lanes)
        held = sum(self._given(number) for number in range(len(self.workers)))
        assert left == held, "asleep beside a cancelled request"

    def check_answered(self) -> None:
        """Check as `check` does, and that every request has been answered."""
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


def is_private(layout: Layout, *, slots: bool = False) -> Callable[[int], bool]:
    """Return a predicate for words whose accesses are no steps.

    These are all but the flag, the doorbells and each ring's TAIL; with `slots`, slots' CONTROL
    too.

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


def explored(
    made: Scenario, layout: Layout, *, memory: type[Memory], slots: bool = False
) -> Explored:
    found = explore(made, private=is_private(layout, slots=slots), memory=memory)
    print(found)
    return found


both_memories = pytest.mark.parametrize("memory", only(STRONG, "buffered"))
"""With store buffers every order that there is without them is tried too."""
