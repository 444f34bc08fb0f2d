"""Rows of a model in steps under every order of a worker's steps and a new collector's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from interleave import Actor, Body, Scenario, Violation, Watch, explore
from memories import MEMORIES, Memory

from ringbatch.engine.collector import takeover
from ringbatch.engine.ipc.messages import read_tasks, task_size, task_words
from ringbatch.engine.worker.steps_runner import StepsRunner
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.shm.descriptors import TASK_WORDS, RingWords, SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots
from ringbatch.shm.joined import JoinedRows
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.ring import Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import SLOT_BITS, Reason, Status, is_open

MODEL = ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,), in_parts=True, places=2)
LAYOUT = Layout(
    lanes=1,
    slots=2,
    lane_bytes=PAGE,
    workers=1,
    models=1,
    model_table_bytes=len(dumps((MODEL,))),
)
FAR_NS = 1 << 62
ROWS = 2

Held = Callable[[Segment], list[Any]]


def is_private(number: int) -> bool:
    """Return whether a word has no role: only the ring's ends, JOINED and DONE are steps."""
    ring = LAYOUT.task_ring(0)
    shared = {ring + RingWords.TAIL, ring + RingWords.HEAD}
    for slot in range(ROWS):
        shared |= {LAYOUT.slot(slot) + SlotWords.JOINED, LAYOUT.slot(slot) + SlotWords.DONE}
    return number not in shared


@dataclass
class World:
    """A segment with published requests whose tasks are in the worker's ring."""

    watch: Watch
    joined: list[int] = field(default_factory=list)
    """References of the rows that the worker's model was given."""

    def __post_init__(self) -> None:
        self.segment = Segment.local(LAYOUT, (MODEL,))
        lane = Lane(self.segment, 0, lambda: None)
        tasks = Producer(self.segment.words, LAYOUT.task_ring(0), TASK_WORDS)
        self.references = []
        for number in range(ROWS):
            slot = lane.claim(8, 64, 0)
            assert slot is not None
            lane.publish(slot, 0, 1, 0, FAR_NS, 8)
            ref = 1 << SLOT_BITS | slot
            self.references.append(ref)
            mark = BatchMark(number + 1, 1, Reason.FULL, 0)
            assert tasks.offer(task_words(mark, [ref], MODEL.reference))
        self.segment.words = self.watch(self.segment.words)

    def is_open(self, ref: int) -> bool:
        """Return whether a request has no answer, by two steps."""
        first, words = LAYOUT.slot(ref & 1), self.segment.words
        return is_open(ref, words[first + SlotWords.CONTROL], words[first + SlotWords.DONE])


def worker_of(world: World, kind: type[StepsWorker]) -> StepsWorker:
    """Return a worker whose model takes note of the rows that begin."""

    def join(references: list[int], _mark: BatchMark, _now_ns: int) -> None:
        world.joined += references

    runner = cast(StepsRunner, SimpleNamespace(join=join, live=0))
    slots = EngineSlots(world.segment, 0, lambda _lane: None)
    return kind(world.segment, 0, runner, slots, lambda: None, lambda: 0)


def taking(held: Held, kind: type[StepsWorker]) -> Scenario:
    """Return a scenario: a worker takes its tasks and answers, while a collector takes over."""

    def scenario(watch: Watch) -> tuple[list[Actor], Body]:
        world = World(watch)
        found: list[int] = []
        unanswered: list[int] = []

        def work() -> None:
            worker = worker_of(world, kind)
            worker._take_tasks()
            assert sorted(world.joined) == sorted(world.references)
            for ref in world.references:
                mark = BatchMark(1, 1, Reason.FULL, 0)
                worker._slots.answer(ref, Status.OK, 0, mark, 0)

        def take_over() -> None:
            (tasks,) = held(world.segment)
            found.extend(ref for task in tasks for ref in task.references)
            unanswered.extend(ref for ref in world.references if world.is_open(ref))

        def check() -> None:
            assert len(found) == len({*found}), "a request is held twice"
            assert {*unanswered} <= {*found}, "a row that the worker holds is taken for lost"

        return [Actor("worker", work), Actor("collector", take_over)], check

    return scenario


def dying(reclaim: Callable[[Segment, int], None]) -> Scenario:
    """Return a scenario: a worker dies at any step; a collector reclaims, and another follows."""

    def scenario(watch: Watch) -> tuple[list[Actor], Body]:
        world = World(watch)
        held: list[Any] = []

        def work() -> None:
            worker_of(world, StepsWorker)._take_tasks()

        def bury() -> None:
            reclaim(world.segment, 0)
            held.extend(takeover.held_by_all(world.segment))

        def check() -> None:
            assert not any(held), "the next process of a number holds rows of a dead one"

        return [Actor("worker", work, heir=bury)], check

    return scenario


class LetsGoFirst(StepsWorker):
    """Defect: lets go of its ring before the slots say what it holds."""

    def _take_tasks(self) -> None:
        found = read_tasks(self._tasks.peek())
        self._tasks.release(sum(task_size(references) for _, references, _ in found))
        for mark, references, _ in found:
            for ref in references:
                self._joined.join(ref, self._number, mark)
            self._stepped.join(references, mark, 0)


def slots_first(segment: Segment) -> list[Any]:
    joined = JoinedRows(segment).by_worker()
    tasks = takeover._in_ring(segment, 0)
    assert tasks is not None
    return [takeover._together(joined.get(0, []), tasks, MODEL.reference)]


def twice(segment: Segment) -> list[Any]:
    tasks = takeover._in_ring(segment, 0)
    assert tasks is not None
    joined = JoinedRows(segment).by_worker().get(0, [])
    return [[*(SimpleNamespace(references=refs) for _, refs in joined), *tasks]]


def empties_the_ring_alone(segment: Segment, worker: int) -> None:
    takeover._ring(segment, worker).skip()


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_a_new_collector_finds_every_row_once(memory: type[Memory]) -> None:
    scenario = taking(takeover.held_by_all, StepsWorker)
    explored = explore(scenario, private=is_private, memory=memory)
    print(explored)
    assert explored.states > 100


def test_a_dead_worker_s_rows_are_forgotten_wherever_it_dies() -> None:
    explored = explore(dying(takeover.reclaim), private=is_private)
    print(explored)
    assert explored.states > 10


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (taking(takeover.held_by_all, LetsGoFirst), "taken for lost"),
        (taking(slots_first, StepsWorker), "taken for lost"),
        (taking(twice, StepsWorker), "held twice"),
        (dying(empties_the_ring_alone), "rows of a dead one"),
    ],
    ids=["the ring first", "slots before rings", "in both", "the ring alone is reclaimed"],
)
def test_a_wrong_version_is_found(scenario: Scenario, message: str) -> None:
    with pytest.raises(Violation, match=message):
        explore(scenario, private=is_private)
