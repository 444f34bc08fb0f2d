"""A frontend killed with SIGKILL at each point of a request, and what its successor finds.

The frontend is a process that stops itself at a named point and is killed there. The engine is a
stand-in, a holder in the test, which answers what was submitted with the request in upper case.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tiers import exhaustive, first_of, only

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.ring import Consumer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, SLOT_MASK, Reason, Status, without_part

SLOTS = 4
MODELS = (ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,)),)
LAYOUT = Layout(
    lanes=1,
    slots=SLOTS,
    lane_bytes=2 * PAGE,
    workers=1,
    models=1,
    model_table_bytes=len(dumps(MODELS)),
)
LARGEST = 2 * PAGE - 2 * PAGE // 8
MARK = BatchMark(1, 1, Reason.IDLE, 1)
DEAD, LIVING = b"the request of the dead", b"the request of the living"
ROOM = 64
"""Bytes for each result."""

FRONTEND = f"""
import os, signal, sys
from ringbatch.shm import lane as lane_module
from ringbatch.shm.lane import Lane
from ringbatch.shm.segment import Segment

_, name, point, earlier = sys.argv
store_header = lane_module._store_header
segment = Segment.attach(name)
current = None

def stop(here):
    if here == point and current is not None:
        start, result = lane.request_offset[current], lane.result_offset[current]
        print(current, start, result + {ROOM}, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

lane = Lane.attach(segment, lambda: stop("after the ring's tail"))

def store_header_with_stops(memory, offset, *values):
    half = len(values) // 2
    stop("before the header")
    for number, value in enumerate(values[:half]):
        segment.words[offset // 8 + number] = value
    stop("in the header")
    store_header(memory, offset, *values)
    stop("after the header")

def write(text):
    slot = lane.claim(len(text), {ROOM}, 0)
    start = lane.request_offset[slot]
    lane.memory[start : start + len(text)] = text
    return slot

def publish(slot, text):
    lane.publish(slot, 0, 1, 0, 1, len(text))

for _ in range(int(earlier)):
    publish(write({DEAD!r}), {DEAD!r})
lane.submit()
lane_module._store_header = store_header_with_stops
current = write({DEAD!r})
stop("after the payload")
publish(current, {DEAD!r})
stop("after CONTROL")
lane.submit()
stop("after submitting")
lane.cancel(current)
stop("after cancelling")
"""
POINTS = {
    "after the payload": False,
    "before the header": False,
    "in the header": False,
    "after the header": False,
    "after CONTROL": True,
    "after the ring's tail": True,
    "after submitting": True,
    "after cancelling": True,
}
"""Points at which the frontend stops, and whether the slot is in flight from there on."""


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.create(LAYOUT, MODELS)
    yield made
    made.detach()
    made.unlink()


@dataclass
class Stopped:
    """A frontend that stands still: its request's slot and memory."""

    process: "subprocess.Popen[str]"
    slot: int
    memory: range

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def frontend(segment: Segment, point: str, earlier: int = 0) -> Iterator[Stopped]:
    command = [sys.executable, "-c", FRONTEND, segment.name, point, str(earlier)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            slot, start, end = map(int, process.stdout.readline().split())
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield Stopped(process, slot, range(start, end))
        finally:
            process.kill()


class Engine:
    """Engine that answers open requests, and nothing twice; its requests stay with it."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.engine_slots = EngineSlots(segment, LAYOUT.workers, lambda lane: None)
        self.submissions = Consumer(segment.words, LAYOUT.submission_ring(0), SLOTS)
        self.held: dict[int, Request] = {}

    def take(self) -> None:
        for ref in map(without_part, self.submissions.take()):
            if ref not in self.held and self.engine_slots.is_open(ref):
                request = self.engine_slots.read(ref)
                assert request is not None
                self.held[ref] = request

    def has_work(self) -> bool:
        self.take()
        return bool(self.held)

    def text(self, request: Request) -> bytes:
        start = request.request_offset
        return bytes(self.segment.memory[start : start + request.request_bytes])

    def answer(self, limit: int = SLOTS) -> None:
        """Answer what is held, at most `limit` requests, the oldest first."""
        for request in list(self.held.values())[:limit]:
            result, start = self.text(request).upper(), request.result_offset
            self.segment.memory[start : start + len(result)] = result
            self.engine_slots.answer(request.ref, Status.OK, len(result), MARK, 1)
            del self.held[request.ref]
        self.engine_slots.flush()


def ask(lane: Lane, text: bytes) -> int | None:
    slot = lane.claim(len(text), ROOM, 0)
    if slot is None:
        return None
    start = lane.request_offset[slot]
    lane.memory[start : start + len(text)] = text
    lane.publish(slot, 0, 1, 0, 1, len(text))
    return slot


def answers(lane: Lane) -> dict[int, bytes]:
    found = {}
    for slot in lane.collect():
        start = lane.result_offset[slot]
        found[slot] = bytes(lane.memory[start : start + lane.answer(slot).size])
        lane.release(slot)
    return found


@contextmanager
def successor(segment: Segment) -> Iterator[Lane]:
    attached = Segment.attach(segment.name)
    try:
        yield Lane.attach(attached, lambda: None)
    finally:
        attached.detach()


def assert_whole(lane: Lane) -> None:
    """Assert that every slot and all memory can be used."""
    assert lane.in_flight == 0
    slots = [lane.claim(100, 100, 0) for _ in range(SLOTS)]
    assert None not in slots
    for slot in slots:
        assert slot is not None
        lane.abort(slot)
    assert lane.claim(LARGEST, 0, 0) is not None


@pytest.mark.parametrize("point", first_of(POINTS, 2))
def test_a_frontend_killed_at_any_point_leaves_a_whole_lane(segment: Segment, point: str) -> None:
    engine = Engine(segment)
    with frontend(segment, point) as dead:
        dead.kill()
    with successor(segment) as lane:
        assert lane.in_flight == POINTS[point]
        engine.take()
        engine.answer()
        assert answers(lane) == {}
        assert_whole(lane)


@pytest.mark.parametrize("taken", only({"not taken": False, "taken": True}, "taken"))
@pytest.mark.parametrize("point", POINTS)
def test_the_successor_works_at_once_and_gets_its_own_answers_only(
    segment: Segment, point: str, taken: bool
) -> None:
    """Two requests of the dead are answered and not collected, one stands at the point."""
    engine = Engine(segment)
    with frontend(segment, point, earlier=2) as dead:
        engine.take()
        engine.answer(limit=2)
        dead.kill()
    if taken:
        engine.take()
    with successor(segment) as lane:
        own = [slot for slot in (ask(lane, LIVING) for _ in range(SLOTS)) if slot is not None]
        lane.submit()
        assert len(own) == SLOTS - POINTS[point]
        assert answers(lane) == {}
        engine.take()
        engine.answer()
        assert answers(lane) == {slot: LIVING.upper() for slot in own}
        engine.take()
        assert engine.held == {}
        assert_whole(lane)


@pytest.mark.parametrize("point", [point for point, in_flight in POINTS.items() if in_flight])
def test_memory_of_a_request_in_flight_is_not_handed_out_before_it_is_answered(
    segment: Segment, point: str
) -> None:
    engine = Engine(segment)
    with frontend(segment, point) as dead:
        dead.kill()
    with successor(segment) as lane:
        while (slot := lane.claim(1000, 200, 0)) is not None:
            assert slot != dead.slot
            start, end = lane.request_offset[slot], lane.result_offset[slot] + 200
            assert end <= dead.memory.start or dead.memory.stop <= start
            lane.memory[start:end] = b"\xff" * (end - start)
        engine.take()
        (request,) = engine.held.values()
        assert request.ref & SLOT_MASK == dead.slot
        assert engine.text(request) == DEAD


def test_a_dead_owners_request_is_not_wanted(segment: Segment) -> None:
    engine = Engine(segment)
    with frontend(segment, "after CONTROL") as dead:
        dead.kill()
    with successor(segment) as lane:
        engine.take()
        (ref,) = engine.held
        assert not engine.engine_slots.wanted(ref)
        assert lane.in_flight == 1


def test_a_request_that_the_engine_holds_already_is_not_submitted_into_a_second_life(
    segment: Segment,
) -> None:
    engine = Engine(segment)
    with frontend(segment, "after submitting") as dead:
        engine.take()
        before = list(engine.held)
        dead.kill()
    with successor(segment) as lane:
        engine.take()
        assert list(engine.held) == before
        engine.answer()
        assert answers(lane) == {}
        engine.take()
        assert engine.held == {}
        assert lane.in_flight == 0


@exhaustive
def test_one_frontend_after_another_may_die(segment: Segment) -> None:
    engine = Engine(segment)
    for point in list(POINTS) * 2:
        with frontend(segment, point) as dead:
            dead.kill()
        engine.take()
        engine.answer()
    with successor(segment) as lane:
        assert answers(lane) == {}
        own = ask(lane, LIVING)
        lane.submit()
        engine.take()
        engine.answer()
        assert own is not None
        assert answers(lane) == {own: LIVING.upper()}
        assert_whole(lane)


def test_a_frontend_that_only_stands_still_keeps_its_lane(
    segment: Segment, wait_until: Callable[..., object]
) -> None:
    """Stopped is not dead: nothing of it is handed to anybody, and it goes on where it was."""
    engine = Engine(segment)
    with frontend(segment, "after the header") as stopped:
        attached = Segment.attach(segment.name)
        assert not attached.lock_lane(0)
        stopped.process.send_signal(signal.SIGCONT)
        wait_until(engine.has_work, "the request to be submitted")
        (request,) = engine.held.values()
        assert engine.text(request) == DEAD
        assert stopped.process.wait() == 0
        assert attached.lock_lane(0)
        attached.detach()


def test_the_generation_of_a_reused_slot_is_a_new_one(segment: Segment) -> None:
    engine = Engine(segment)
    with frontend(segment, "after submitting") as dead:
        dead.kill()
    engine.take()
    (old,) = engine.held
    engine.answer()
    with successor(segment) as lane:
        slot = ask(lane, LIVING)
        lane.submit()
        engine.take()
        (new,) = engine.held
        assert slot == dead.slot == new & SLOT_MASK == old & SLOT_MASK
        assert new >> SLOT_BITS == (old >> SLOT_BITS) + 1
        control = segment.words[LAYOUT.slot(dead.slot) + SlotWords.CONTROL]
        assert control >> FLAG_BITS == new >> SLOT_BITS
