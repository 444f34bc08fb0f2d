"""Order of the stores that pass a request and its answer through a lane."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import SupportsIndex, cast

import pytest
from lane_harness import LANES, LAYOUT, MARK, MODEL, SLOTS, WORKER, ask

from ringbatch.shm import engine_slots as holder_module
from ringbatch.shm import lane as lane_module
from ringbatch.shm import layout as at
from ringbatch.shm.descriptors import LaneWords, RingWords, SlotWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import WORD
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    ACTORS,
    FLAG_BITS,
    FLAG_MASK,
    WANTED,
    Actor,
    Event,
    Status,
    advance,
    state_of,
    without_part,
)


class Log:
    """Log of stores in their order: an actor's name and the word that it stored to."""

    def __init__(self) -> None:
        self.actor = Actor.FRONTEND
        self.entries: list[tuple[Actor, str]] = []

    def add(self, name: str) -> None:
        self.entries.append((self.actor, name))


def name_of(number: int) -> str:
    """Return the name of the word with that number."""
    if LAYOUT.slots_word <= number < LAYOUT.payload_byte // WORD:
        slot, within = divmod(number - LAYOUT.slots_word, SlotWords.SIZE)
        names = {
            SlotWords.CONTROL: "CONTROL",
            SlotWords.DONE: "DONE",
            SlotWords.ANSWER_START: "ANSWER_START",
        }
        return f"{names.get(within, within)} of {slot}"
    if LAYOUT.submissions_word <= number < LAYOUT.tasks_word:
        kind = "submissions" if number < LAYOUT.completions_word else "completions"
        if kind == "submissions":
            within = (number - LAYOUT.submissions_word) % at.ring_size(SLOTS)
        else:
            within = (number - LAYOUT.completions_word) % at.ring_size(LAYOUT.completion_words)
        part = {RingWords.TAIL: "TAIL", RingWords.HEAD: "HEAD"}.get(within, "word")
        return f"{part} of {kind}"
    if LAYOUT.counters_word <= number < LAYOUT.submissions_word:
        return "counter"
    lane = LAYOUT.lane(0)
    return "lane" if lane <= number < lane + LaneWords.SIZE else "payload"


class RecordingWords:
    """Words that note each store, and hold every store to a slot against the table."""

    def __init__(self, words: memoryview, log: Log) -> None:
        self._words = words
        self._log = log

    def __getitem__(self, index: SupportsIndex | slice) -> "int | memoryview":
        return self._words[index]

    def __setitem__(self, index: SupportsIndex, value: int) -> None:
        number = int(index)
        name = name_of(number)
        assert name != "payload", "words are stored in records alone"
        if name.startswith(("CONTROL", "DONE")):
            self._move(number, name, value)
        else:
            self._words[number] = value
        self._log.add(name)

    def _move(self, number: int, name: str, value: int) -> None:
        control = number if name.startswith("CONTROL") else number - SlotWords.DONE
        done = control + SlotWords.DONE
        before = state_of(self._words[control], self._words[done])
        event = self._event(name, control, value)
        assert ACTORS[event] is self._log.actor
        after = advance(before, event)
        self._words[number] = value
        assert state_of(self._words[control], self._words[done]) is after

    def _event(self, name: str, control: int, value: int) -> Event:
        asked = self._words[control] >> FLAG_BITS
        if name.startswith("DONE"):
            assert value >> FLAG_BITS == asked, "an answer to another generation"
            return Event.ANSWER
        if value & FLAG_MASK == WANTED:
            assert value >> FLAG_BITS == asked + 1, "a request without a generation of its own"
            return Event.PUBLISH
        assert value >> FLAG_BITS == asked, "a cancellation of another request"
        return Event.CANCEL


class RecordingMemory:
    """Bytes that note each store."""

    def __init__(self, memory: memoryview, log: Log) -> None:
        self.memory = memory
        self._log = log

    def __getitem__(self, index: slice) -> memoryview:
        return self.memory[index]

    def __setitem__(self, index: slice, value: bytes) -> None:
        self.memory[index] = value
        self._log.add(name_of(index.start // WORD))


class RecordingStruct:
    """A `Struct` that notes its store under a name."""

    def __init__(self, words: int, name: str, log: Log) -> None:
        self._words = words
        self._name = name
        self._log = log

    def pack(self, *values: int) -> bytes:
        assert len(values) == self._words
        return b"".join(value.to_bytes(WORD, "little") for value in values)

    def pack_into(self, memory: RecordingMemory, offset: int, *values: int) -> None:
        self.store(memory, offset, self.pack(*values))

    def store(self, memory: RecordingMemory, offset: int, packed: bytes) -> None:
        assert name_of(offset // WORD).endswith(f" of {self.slot_of(offset)}")
        memory.memory[offset : offset + len(packed)] = packed
        self._log.add(f"{self._name} of {self.slot_of(offset)}")

    def slot_of(self, offset: int) -> int:
        return (offset // WORD - LAYOUT.slots_word) // SlotWords.SIZE


@dataclass
class Recorded:
    """Lane and its holders, over memory that keeps a log."""

    segment: Segment
    lane: Lane
    worker: EngineSlots
    submissions: Consumer
    log: Log
    wakes: list[str] = field(default_factory=list)

    def serve(self) -> None:
        """Answer everything that was submitted."""
        self.log.actor = Actor.HOLDER
        for ref in map(without_part, self.submissions.take()):
            request = self.worker.read(ref)
            assert request is not None
            if not self.worker.is_open(ref):
                continue
            start = request.result_offset
            self.worker.memory[start : start + 2] = b"ok"
            self.worker.answer(ref, Status.OK, 2, MARK, 12)
        self.worker.flush()
        self.log.actor = Actor.FRONTEND


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    log = Log()
    segment = Segment.local(LAYOUT, (MODEL,))
    plain = segment.memory
    worker = EngineSlots(segment, WORKER, lambda lane: log.add(f"wake lane {lane}"))
    segment.words = cast(memoryview, RecordingWords(segment.words, log))
    segment.memory = cast(memoryview, RecordingMemory(plain, log))
    lane = Lane(segment, 0, lambda: log.add("wake collector"))
    worker.memory = segment.memory
    worker._words = worker._load_acquire = worker._store_release = segment.words
    worker._completions = [
        Producer(segment.words, LAYOUT.completion_ring(lane, WORKER), LAYOUT.completion_words)
        for lane in range(LANES)
    ]
    header = RecordingStruct(10, "header", log)
    monkeypatch.setattr(lane_module, "_store_header", header.pack_into)
    beside = RecordingStruct(10, "result header", log)
    monkeypatch.setattr(holder_module, "_store_details", beside.pack_into)
    monkeypatch.setattr(holder_module, "ANSWER_DETAILS", beside)
    monkeypatch.setattr(holder_module, "PACKED_DETAILS", SimpleNamespace(pack_into=beside.store))
    submissions = Consumer(segment.words, LAYOUT.submission_ring(0), SLOTS)
    log.entries.clear()
    return Recorded(segment, lane, worker, submissions, log)


def test_a_request_is_stored_payload_first_then_header_control_ring_and_tail(
    recorded: Recorded,
) -> None:
    first, second = ask(recorded.lane), ask(recorded.lane)
    recorded.lane.submit()
    assert [name for _, name in recorded.log.entries] == [
        "payload",
        f"header of {first}",
        f"CONTROL of {first}",
        "payload",
        f"header of {second}",
        f"CONTROL of {second}",
        "word of submissions",
        "word of submissions",
        "TAIL of submissions",
        "counter",
        "wake collector",
    ]


def test_a_request_sent_in_one_call_is_stored_in_the_same_order(recorded: Recorded) -> None:
    for _ in range(2):
        recorded.log.entries.clear()
        slot = recorded.lane.send(b"request", 100, 0, 1, 5, 6)
        recorded.lane.submit()
        assert [name for _, name in recorded.log.entries] == [
            "payload",
            f"header of {slot}",
            f"CONTROL of {slot}",
            "word of submissions",
            "TAIL of submissions",
            "counter",
            "wake collector",
        ]
        recorded.serve()
        assert recorded.lane.collect() == [slot]
        assert slot is not None
        recorded.lane.release(slot)


def test_an_answer_is_stored_result_first_then_its_details_done_ring_and_tail(
    recorded: Recorded,
) -> None:
    slot = ask(recorded.lane)
    recorded.lane.submit()
    recorded.log.entries.clear()
    recorded.serve()
    assert [name for _, name in recorded.log.entries] == [
        "HEAD of submissions",
        "payload",
        f"result header of {slot}",
        f"DONE of {slot}",
        "word of completions",
        "TAIL of completions",
        "wake lane 0",
    ]


def test_answers_to_requests_that_are_alike_are_stored_in_the_same_order(
    recorded: Recorded,
) -> None:
    slots = [ask(recorded.lane) for _ in range(2)]
    recorded.lane.submit()
    alike = recorded.worker.read_uniform(recorded.submissions.take())
    assert alike is not None
    recorded.log.entries.clear()
    recorded.log.actor = Actor.HOLDER
    recorded.worker.answer_uniform(alike, Status.OK, 2, MARK, 12)
    recorded.worker.flush()
    assert [name for _, name in recorded.log.entries] == [
        *(f"{name} of {slot}" for slot in slots for name in ("result header", "DONE")),
        "word of completions",
        "word of completions",
        "TAIL of completions",
        "wake lane 0",
    ]


def test_an_answer_in_words_is_stored_in_the_same_order(recorded: Recorded) -> None:
    slot = ask(recorded.lane)
    recorded.lane.submit()
    (ref,) = recorded.submissions.take()
    request = recorded.worker.read(ref)
    assert request is not None
    recorded.log.entries.clear()
    recorded.log.actor = Actor.HOLDER
    recorded.worker.fail(request, Status.EXPIRED, "too late", MARK, 12)
    recorded.worker.flush()
    assert [name for _, name in recorded.log.entries] == [
        "payload",
        f"ANSWER_START of {slot}",
        f"result header of {slot}",
        f"DONE of {slot}",
        "word of completions",
        "TAIL of completions",
        "wake lane 0",
    ]


def test_every_store_to_a_slot_is_a_transition_of_its_actor(recorded: Recorded) -> None:
    """The recording words check each; here they are led through every row of the table."""
    lane = recorded.lane
    for _ in range(3):
        ask(lane)
        cancelled_first, cancelled_late = ask(lane), ask(lane)
        lane.submit()
        lane.cancel(cancelled_first)
        recorded.serve()
        lane.cancel(cancelled_late)
        for slot in lane.collect():
            lane.release(slot)
        assert lane.in_flight == 0
    ask(lane)
    lane.submit()
    heir = Lane(recorded.segment, 0, lambda: None)
    second_heir = Lane(recorded.segment, 0, lambda: None)
    recorded.serve()
    assert second_heir.collect() == []
    assert second_heir.in_flight == 0
    assert heir.in_flight == 1
