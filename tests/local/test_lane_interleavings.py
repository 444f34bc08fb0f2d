"""A lane under every order of its frontend's and its holders' steps, deaths included.

Frontend and holders are the real ones; the steps are all loads and stores of slots, rings and
payload. Each request carries a number, and its answer is that number plus `ANSWERED`; so an
answer that reaches another request, or memory that two requests share, shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest
from interleave import Actor, Scenario, Violation, Watch, explore
from memories import MEMORIES, Armv8, Memory
from tiers import exhaustive, first_of, only

from ringbatch.shm import engine_slots as holder_module
from ringbatch.shm import lane as lane_module
from ringbatch.shm.descriptors import RingWords, SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.extents import RESERVE_SHARE
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, WORD, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    FLAG_BITS,
    SLOT_BITS,
    SLOT_MASK,
    WANTED,
    Reason,
    Status,
    done_word,
    without_part,
)

ANSWERED = 1000
MODEL = ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,))
MARK = BatchMark(7, 1, Reason.IDLE, 1)
WORKER, COLLECTOR = 0, 1
ALIKE_FIELDS = (
    *(
        SlotWords.MODEL,
        SlotWords.REQUEST_BYTES,
        SlotWords.KEY_BYTES,
        SlotWords.RESULT_CAPACITY,
        SlotWords.RESULT_OFFSET,
    ),
    *(
        SlotWords.ACCEPTED_NS,
        SlotWords.DEADLINE_NS,
        SlotWords.BATCH,
        SlotWords.BATCH_ROWS,
        SlotWords.REASON,
        SlotWords.DISPATCHED_NS,
    ),
)
LARGEST = PAGE - PAGE // RESERVE_SHARE
"""Most bytes that one request may take of an empty lane."""


class Stepwise:
    """Stand-in for a `Struct`: one store for each of its words."""

    words: memoryview

    def pack_into(self, memory: memoryview, offset: int, *values: int) -> None:
        for number, value in enumerate(values, offset // WORD):
            self.words[number] = value


stepwise = Stepwise()


@pytest.fixture(autouse=True)
def _headers_are_written_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "_store_header", stepwise.pack_into)
    monkeypatch.setattr(holder_module, "_store_details", stepwise.pack_into)


@cache
def layout_of(slots: int) -> Layout:
    model_table_bytes = len(dumps((MODEL,)))
    return Layout(
        lanes=1,
        slots=slots,
        lane_bytes=PAGE,
        workers=1,
        models=1,
        model_table_bytes=model_table_bytes,
    )


def is_private(slots: int, *, every_word: bool = False) -> Callable[[int], bool]:
    """Return a predicate for words whose accesses are no steps.

    These are counters, which one process alone touches, and all words of a header but three. The
    words of a header are alike, so that its first, its last and one between stand for all.
    """
    layout = layout_of(slots)
    private = set(range(layout.counters_word, layout.submissions_word))
    if not every_word:
        for slot in range(slots):
            start = layout.slot(slot)
            private |= {start + field for field in ALIKE_FIELDS}
    return private.__contains__


@dataclass
class World:
    """State of a run: the memory, and the requests and answers of its actors."""

    slots: int
    watch: Watch
    lane_type: type[Lane] = Lane
    holder_type: type[EngineSlots] = EngineSlots
    published: list[int] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Number asked with and number answered, as frontends found them."""

    def __post_init__(self) -> None:
        self.segment = Segment.local(layout_of(self.slots), (MODEL,))
        self.segment.words = stepwise.words = self.watch(self.segment.words)
        self.words = self.segment.words

    def frontend(self, of_type: "type[Frontend] | None" = None) -> "Frontend":
        return (of_type or Frontend)(self, self.lane_type(self.segment, 0, lambda: None))

    def engine(self, producer: int) -> "Engine":
        return Engine(self, producer)


class Frontend:
    """A lane and what its owner waits for."""

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.waiting: dict[int, int] = {}

    def publish(self, number: int, size: int = WORD) -> bool:
        slot = self.lane.claim(size, WORD, 0)
        if slot is None:
            return False
        start = self.lane.request_offset[slot]
        for offset in {start, start + size - WORD}:
            self.world.words[offset // WORD] = number
        self.waiting[slot] = number
        self.lane.publish(slot, 0, number, 0, 1, size)
        self.world.published.append(number)
        return True

    def collect(self) -> None:
        for slot in self.lane.collect():
            assert slot in self.waiting, "an answer that nobody waits for"
            answer = self.lane.answer(slot)
            assert answer.status is Status.OK, "the answer is not there yet"
            result = self.world.words[self.lane.result_offset[slot] // WORD]
            self.world.answers.append((self.waiting.pop(slot), result))
            self.lane.release(slot)

    def cancel(self) -> None:
        for slot in self.waiting:
            self.lane.cancel(slot)
        self.waiting.clear()


class Sender(Frontend):
    """Claims, writes and publishes in one call."""

    def publish(self, number: int, size: int = WORD) -> bool:
        # The payload's store is no step: no process may read it before CONTROL is stored.
        payload = number.to_bytes(size, "little")
        slot = self.lane.send(payload, WORD, 0, number, 0, 1)
        if slot is None:
            return False
        self.waiting[slot] = number
        self.world.published.append(number)
        return True


class Engine:
    """Collector and worker in one, which takes references and answers them at once."""

    def __init__(self, world: World, producer: int) -> None:
        layout = world.segment.layout
        self.world = world
        self.engine_slots = world.holder_type(world.segment, producer, lambda lane: None)
        self.submissions = Consumer(world.words, layout.submission_ring(0), layout.slots)

    def serve(self) -> None:
        for ref in map(without_part, self.submissions.take()):
            # What is cancelled is submitted again, and may be answered already.
            if self.engine_slots.is_open(ref):
                self.answer(ref)
        self.engine_slots.flush()

    def answer(self, ref: int) -> None:
        request = self.engine_slots.read(ref)
        assert request is not None, "published before its header"
        number = self.world.words[request.request_offset // WORD]
        assert number == request.rows, "the request's memory is not its own"
        self.world.words[request.result_offset // WORD] = number + ANSWERED
        self.engine_slots.answer(ref, Status.OK, WORD, MARK, 1)


def finish(world: World, frontend: Frontend, engine: Engine) -> None:
    """Serve and collect until nothing moves, then check that every request had its answer."""
    for _ in range(3):
        engine.serve()
        frontend.collect()
    assert not frontend.waiting, "lost"
    assert all(result == number + ANSWERED for number, result in world.answers), "mixed up"
    numbers = [number for number, _ in world.answers]
    assert len(numbers) == len(set(numbers)), "answered twice"
    assert frontend.lane.in_flight == 0, "a slot is lost"
    assert frontend.lane.claim(LARGEST, 0, 0) is not None, "memory is lost"


def reusing(
    slots: int,
    numbers: list[int],
    *,
    cancels: bool = False,
    lane_type: type[Lane] = Lane,
    holder_type: type[EngineSlots] = EngineSlots,
    frontend_type: type[Frontend] = Frontend,
) -> Scenario:
    """A frontend that publishes what finds room, beside an engine that answers."""

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        world = World(slots, watch, lane_type, holder_type)
        frontend, engine = world.frontend(frontend_type), world.engine(COLLECTOR)

        def ask() -> None:
            for number in numbers:
                frontend.publish(number)
                frontend.lane.submit()
                if cancels:
                    frontend.cancel()
                frontend.collect()

        def serve() -> None:
            for _ in numbers:
                engine.serve()

        actors = [Actor("frontend", ask), Actor("engine", serve)]
        return actors, lambda: finish(world, frontend, engine)

    return scenario


def one_of_each(slots: int) -> Callable[[int], bool]:
    """Return a predicate for words whose accesses are no steps in a weak memory.

    Of words that are alike in their order, one is a step. The others of a record stand as far
    behind CONTROL or DONE as that one.
    """
    layout = layout_of(slots)
    shared: set[int] = set()
    fields = (SlotWords.CONTROL, SlotWords.ROWS, SlotWords.DONE, SlotWords.RESULT_BYTES)
    for slot in range(slots):
        shared |= {layout.slot(slot) + field for field in fields}
    rings = {layout.submission_ring(0): slots}
    for producer in (WORKER, COLLECTOR):
        rings[layout.completion_ring(0, producer)] = layout.completion_words
    for ring, capacity in rings.items():
        shared |= {ring + RingWords.TAIL, ring + RingWords.HEAD}
        shared |= set(range(ring + RingWords.ITEMS, ring + RingWords.ITEMS + capacity))
    payload = layout.payload_byte // WORD
    shared |= set(range(payload, payload + PAGE // WORD))
    return lambda number: number not in shared


@pytest.mark.parametrize("memory", only(MEMORIES, "buffered"))
def test_a_reused_slot_gives_each_request_its_own_answer(memory: type[Memory]) -> None:
    private = one_of_each(1) if memory is Armv8 else is_private(1, every_word=memory is Memory)
    explored = explore(reusing(1, [1, 2]), private=private, memory=memory)
    print(explored)
    assert explored.states > 100


def test_two_slots_in_flight_do_not_touch_each_other() -> None:
    explored = explore(reusing(2, [1, 2]), private=is_private(2))
    print(explored)
    assert explored.states > 100


def test_a_cancelled_slot_comes_back_and_its_answer_reaches_nobody() -> None:
    explored = explore(reusing(1, [1, 2], cancels=True), private=is_private(1))
    print(explored)
    assert explored.states > 100


def worker_dies(lane_type: type[Lane] = Lane) -> Scenario:
    """A worker is killed at any point of two answers; the collector answers what it did not.

    Where the answer stands in the slot already, the collector posts it once more, as it
    cannot know whether the worker had. Meanwhile the frontend uses the slots again.
    """

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        world = World(2, watch, lane_type)
        frontend = world.frontend()
        worker, collector = world.engine(WORKER), world.engine(COLLECTOR)
        frontend.publish(1)
        frontend.publish(2)
        frontend.lane.submit()
        batch = collector.submissions.take()

        def run() -> None:
            for ref in batch:
                worker.answer(ref)
            worker.engine_slots.flush()
            world.words[world.segment.layout.report_ring(0)] = 1

        def take_back() -> None:
            for ref in batch:
                if not collector.engine_slots.repeat(ref):
                    collector.answer(ref)
            collector.engine_slots.flush()

        def ask() -> None:
            for _ in range(2):
                frontend.collect()
            frontend.publish(3)
            frontend.lane.submit()
            frontend.collect()

        actors = [Actor("worker", run, take_back), Actor("frontend", ask)]
        return actors, lambda: finish(world, frontend, collector)

    return scenario


@exhaustive
def test_a_worker_killed_at_any_point_leaves_one_answer_for_each_request() -> None:
    explored = explore(worker_dies(), private=is_private(2))
    print(explored)
    assert explored.states > 100


def frontend_dies(lane_type: type[Lane] = Lane) -> Scenario:
    """A frontend is killed at any point; the lane's next owner uses it at once.

    The dead one had one request answered and not collected, one in flight, and publishes a third.
    """

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        world = World(2, watch, lane_type)
        engine = world.engine(COLLECTOR)
        owner = world.frontend()
        owner.publish(1)
        owner.lane.submit()
        engine.serve()
        owners = [owner]

        def ask() -> None:
            owner.publish(2)
            owner.lane.submit()

        def take_over() -> None:
            heir = world.frontend()
            owners.append(heir)
            heir.collect()
            heir.publish(3, size=128 + WORD)
            heir.lane.submit()
            heir.collect()

        def serve() -> None:
            for _ in range(2):
                engine.serve()

        actors = [Actor("frontend", ask, take_over), Actor("engine", serve)]
        return actors, lambda: finish(world, owners[-1], engine)

    return scenario


@exhaustive
def test_a_frontend_killed_at_any_point_leaves_a_whole_lane_to_the_next() -> None:
    explored = explore(frontend_dies(), private=is_private(2))
    print(explored)
    assert explored.states > 100


class SameGeneration(Lane):
    """Defect: a reused slot keeps the generation of its first request."""

    def publish(self, slot: int, *args: int) -> None:
        self._generation[slot] = 0
        super().publish(slot, *args)


class ControlFirst(Lane):
    """Defect: publishes the slot before its header stands there."""

    def publish(self, slot: int, *args: int) -> None:
        number = self.first_word + slot * SlotWords.SIZE
        self.words[number] = self._generation[slot] + 1 << FLAG_BITS | WANTED
        self._unsubmitted.append(self._generation[slot] + 1 << SLOT_BITS | slot)
        self.submit()
        super().publish(slot, *args)


class FreesOnCancel(Lane):
    """Defect: hands out the memory of a request that its holder may still answer."""

    def cancel(self, slot: int) -> None:
        super().cancel(slot)
        self._cancelled.discard(slot)
        self._expected = {ref: other for ref, other in self._expected.items() if other != slot}
        self.release(slot)


class AdoptsNothing(Lane):
    """Defect: takes the memory of a dead owner's requests for free."""

    def _reserve(self, slot: int, request: int, result: int, capacity: int) -> None:
        self._extent[slot] = None


class BelievesEveryAnswer(Lane):
    """Defect: takes an answer that is posted twice for two answers."""

    def collect(self) -> list[int]:
        return [
            (word & SLOT_MASK) - self._first_slot
            for _, words in self._completions.take()
            for word in words or ()
        ]


class DoneLast(EngineSlots):
    """Defect: posts an answer before it stands in the slot."""

    def answer(
        self, ref: int, status: Status, size: int, mark: BatchMark, finished_ns: int
    ) -> None:
        first = self._first_word + (ref & SLOT_MASK) * (SlotWords.SIZE)
        self._answered.setdefault(0, []).append(ref)
        self.flush()
        self._words[first + SlotWords.DONE] = done_word(ref, status)


WRONG = [
    pytest.param(
        reusing(1, [1, 2], lane_type=SameGeneration), 1, "is lost|lost", id="same generation"
    ),
    pytest.param(
        reusing(1, [1], lane_type=ControlFirst), 1, "before its header", id="CONTROL before header"
    ),
    pytest.param(
        reusing(1, [1], holder_type=DoneLast), 1, "is not there yet", id="DONE after TAIL"
    ),
    pytest.param(
        reusing(2, [1, 2], cancels=True, lane_type=FreesOnCancel),
        2,
        "not its own",
        id="freed on cancel",
    ),
    pytest.param(worker_dies(BelievesEveryAnswer), 2, "nobody waits for", id="answered twice"),
    pytest.param(frontend_dies(AdoptsNothing), 2, "not its own", id="memory not adopted"),
]


@pytest.mark.parametrize(("scenario", "slots", "message"), WRONG)
def test_a_wrong_lane_or_holder_is_caught(scenario: Scenario, slots: int, message: str) -> None:
    with pytest.raises(Violation, match=message):
        explore(scenario, private=is_private(slots))


class ManyAtOnce(Lane):
    """Lane that publishes requests as in bulk."""

    def publish(self, slot: int, *args: int) -> None:
        self.publish_many([slot], *args)


def test_publishing_many_at_once_is_as_sound() -> None:
    explored = explore(reusing(1, [1, 2], lane_type=ManyAtOnce), private=is_private(1))
    print(explored)
    assert explored.states > 100


@pytest.mark.parametrize("slots", first_of([1, 2], 1))
def test_sending_in_one_call_is_as_sound(slots: int) -> None:
    explored = explore(reusing(slots, [1, 2], frontend_type=Sender), private=is_private(slots))
    print(explored)
    assert explored.states > 100
