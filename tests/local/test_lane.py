"""A lane and a holder in one process: what goes in comes out, and in which order it is stored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import SupportsIndex, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm import engine_port as holder_module
from ringbatch.shm import lane as lane_module
from ringbatch.shm import layout as at
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import LaneWords, RingWords, SlotWords
from ringbatch.shm.engine_port import BatchMark, EnginePort, Request
from ringbatch.shm.lane import Lane
from ringbatch.shm.layout import PAGE, WORD, Layout
from ringbatch.shm.model_spec import ModelSpec, dumps
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import (
    ACTORS,
    FLAG_BITS,
    FLAG_MASK,
    SLOT_BITS,
    SLOT_MASK,
    WANTED,
    Actor,
    Answer,
    Event,
    Reason,
    State,
    Status,
    advance,
    reference,
    state_of,
)
from ringbatch.shm.uniform_batch import UniformBatch, UniformBatchReader

MODEL = ModelSpec(0, "m", "python", (), (), 1, 0, 1, "eager", (0,))
MARK = BatchMark(7, 3, Reason.LATENCY, 11, 21, 31, 41, 2)
LANES, SLOTS, LANE_BYTES = 2, 4, 4 * PAGE
WORKER, COLLECTOR = 0, 1
LAYOUT = Layout(
    lanes=LANES,
    slots=SLOTS,
    lane_bytes=LANE_BYTES,
    workers=1,
    models=1,
    model_table_bytes=len(dumps((MODEL,))),
)


class Log:
    """What was stored, in order: an actor's name and what it stored to."""

    def __init__(self) -> None:
        self.actor = Actor.FRONTEND
        self.entries: list[tuple[Actor, str]] = []

    def add(self, what: str) -> None:
        self.entries.append((self.actor, what))


def name_of(number: int) -> str:
    """What the word with that number is."""
    if LAYOUT.slots_word <= number < LAYOUT.payload // WORD:
        slot, within = divmod(number - LAYOUT.slots_word, SlotWords.SIZE)
        names = {SlotWords.CONTROL: "CONTROL", SlotWords.DONE: "DONE"}
        return f"{names.get(within, within)} of {slot}"
    if LAYOUT.submissions <= number < LAYOUT.tasks:
        kind = "submissions" if number < LAYOUT.completions else "completions"
        if kind == "submissions":
            within = (number - LAYOUT.submissions) % at.ring_size(SLOTS)
        else:
            within = (number - LAYOUT.completions) % at.ring_size(LAYOUT.completion_words)
        part = {RingWords.TAIL: "TAIL", RingWords.HEAD: "HEAD"}.get(within, "word")
        return f"{part} of {kind}"
    if LAYOUT.counters <= number < LAYOUT.submissions:
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
    """One lane and the holders, over memory that keeps a log."""

    segment: Segment
    lane: Lane
    worker: EnginePort
    submissions: Consumer
    log: Log
    wakes: list[str] = field(default_factory=list)

    def serve(self) -> None:
        """Answer everything that was submitted."""
        self.log.actor = Actor.HOLDER
        for ref in self.submissions.take():
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
    worker = EnginePort(segment, WORKER, lambda lane: log.add(f"wake lane {lane}"))
    segment.words = cast(memoryview, RecordingWords(segment.words, log))
    segment.memory = cast(memoryview, RecordingMemory(plain, log))
    lane = Lane(segment, 0, lambda: log.add("wake collector"))
    worker.memory = segment.memory
    worker._words = worker._load_acquire = worker._store_release = segment.words
    worker._completions = [
        Producer(segment.words, LAYOUT.completion_ring(lane, WORKER), LAYOUT.completion_words)
        for lane in range(LANES)
    ]
    header = RecordingStruct(9, "header", log)
    monkeypatch.setattr(lane_module, "_store_header", header.pack_into)
    beside = RecordingStruct(10, "result header", log)
    monkeypatch.setattr(holder_module, "_store_details", beside.pack_into)
    monkeypatch.setattr(holder_module, "ANSWER_DETAILS", beside)
    monkeypatch.setattr(holder_module, "PACKED_DETAILS", SimpleNamespace(pack_into=beside.store))
    submissions = Consumer(segment.words, LAYOUT.submission_ring(0), SLOTS)
    log.entries.clear()
    return Recorded(segment, lane, worker, submissions, log)


def ask(lane: Lane, request: bytes = b"request", result_bytes: int = 100) -> int:
    """Claim a slot, write the request and publish it."""
    slot = lane.claim(len(request), result_bytes)
    assert slot is not None
    start = lane.request_offset[slot]
    lane.memory[start : start + len(request)] = request
    lane.publish(slot, 0, 1, 5, 6, len(request))
    return slot


def test_a_request_is_stored_payload_first_then_header_control_ring_and_tail(
    recorded: Recorded,
) -> None:
    first, second = ask(recorded.lane), ask(recorded.lane)
    recorded.lane.submit()
    assert [what for _, what in recorded.log.entries] == [
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


def test_what_is_sent_in_one_call_is_stored_in_the_same_order(recorded: Recorded) -> None:
    for _ in range(2):
        recorded.log.entries.clear()
        slot = recorded.lane.send(b"request", 100, 0, 1, 5, 6)
        recorded.lane.submit()
        assert [what for _, what in recorded.log.entries] == [
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


def test_an_answer_is_stored_result_first_then_what_stands_beside_done_ring_and_tail(
    recorded: Recorded,
) -> None:
    slot = ask(recorded.lane)
    recorded.lane.submit()
    recorded.log.entries.clear()
    recorded.serve()
    assert [what for _, what in recorded.log.entries] == [
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
    assert [what for _, what in recorded.log.entries] == [
        *(f"{what} of {slot}" for slot in slots for what in ("result header", "DONE")),
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
    assert [what for _, what in recorded.log.entries] == [
        "payload",
        f"result header of {slot}",
        f"DONE of {slot}",
        "word of completions",
        "TAIL of completions",
        "wake lane 0",
    ]


def test_every_store_to_a_slot_is_a_transition_by_the_actor_who_may(recorded: Recorded) -> None:
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


@dataclass
class Harness:
    """One lane, a worker's and the collector's holder, over a process-local segment."""

    segment: Segment = field(default_factory=lambda: Segment.local(LAYOUT, (MODEL,)))
    lane_wakes: list[int] = field(default_factory=list)
    collector_wakes: list[None] = field(default_factory=list)
    index: int = 0

    def __post_init__(self) -> None:
        self.lane = self.next_owner()
        self.worker = EnginePort(self.segment, WORKER, self.lane_wakes.append)
        self.collector = EnginePort(self.segment, COLLECTOR, self.lane_wakes.append)
        ring = LAYOUT.submission_ring(self.index)
        self.submissions = Consumer(self.segment.words, ring, SLOTS)

    def next_owner(self) -> Lane:
        return Lane(self.segment, self.index, lambda: self.collector_wakes.append(None))

    def requests(self) -> list[Request]:
        found = [self.worker.read(ref) for ref in self.submissions.take()]
        return [request for request in found if request is not None]

    def serve(self) -> None:
        """Answer each open request with its own bytes in upper case."""
        for request in self.requests():
            if self.worker.is_open(request.ref):
                self.answer(request)
        self.worker.flush()

    def answer(self, request: Request, port: EnginePort | None = None) -> None:
        start, memory = request.request_offset, self.segment.memory
        result = bytes(memory[start : start + request.request_bytes]).upper()
        memory[request.result_offset : request.result_offset + len(result)] = result
        (port or self.worker).answer(request.ref, Status.OK, len(result), MARK, 12)

    def result(self, slot: int, lane: Lane | None = None) -> bytes:
        owner = lane or self.lane
        start = owner.result_offset[slot]
        return bytes(owner.memory[start : start + owner.answer(slot).size])

    def slot_word(self, slot: int, field: int) -> int:
        return LAYOUT.slot(self.index * SLOTS + slot) + field


@pytest.fixture(params=[0, 1], ids=["lane 0", "lane 1"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(index=request.param)


def test_a_request_reaches_the_engine_and_its_answer_comes_back(harness: Harness) -> None:
    slot = ask(harness.lane, b"hello")
    harness.lane.submit()
    (request,) = harness.requests()
    assert request == Request(
        ref=reference(1, harness.index * SLOTS + slot),
        model=0,
        rows=1,
        request_bytes=5,
        key_bytes=0,
        result_capacity=100,
        request_offset=harness.lane.request_offset[slot],
        result_offset=harness.lane.result_offset[slot],
        accepted_ns=5,
        deadline_ns=6,
    )
    harness.answer(request)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.OK, 5, *MARK, 12)
    assert harness.result(slot) == b"HELLO"
    harness.lane.release(slot)
    assert harness.lane.in_flight == 0


def test_one_wake_up_for_all_that_is_submitted_and_for_all_that_is_answered(
    harness: Harness,
) -> None:
    harness.collector_wakes.clear()
    for _ in range(3):
        ask(harness.lane)
    assert harness.collector_wakes == []
    harness.lane.submit()
    harness.lane.submit()
    assert harness.collector_wakes == [None]
    harness.serve()
    assert harness.lane_wakes == [harness.index]
    harness.worker.flush()
    assert harness.lane_wakes == [harness.index]


def test_a_lane_without_a_free_slot_gives_none_and_stays_as_it_is(harness: Harness) -> None:
    slots = [ask(harness.lane) for _ in range(SLOTS)]
    assert sorted(slots) == list(range(SLOTS))
    assert harness.lane.claim(1, 1) is None
    harness.lane.submit()
    harness.serve()
    assert sorted(harness.lane.collect()) == list(range(SLOTS))


def test_a_lane_without_memory_gives_none_until_some_is_free(harness: Harness) -> None:
    large = LANE_BYTES - LANE_BYTES // 8
    assert harness.lane.claim(LANE_BYTES, 0) is None
    slot = harness.lane.claim(large, 0)
    assert slot is not None
    assert harness.lane.claim(large, 0) is None
    assert harness.lane.claim(100, 100) is not None
    harness.lane.abort(slot)
    assert harness.lane.claim(large, 0) is not None


def test_memory_that_free_slots_kept_is_there_for_requests_of_other_sizes(harness: Harness) -> None:
    for size in (100, 1000, 2000):
        slots = []
        while (slot := harness.lane.claim(size, 8)) is not None:
            slots.append(slot)
        assert len(slots) == SLOTS
        for slot in slots:
            harness.lane.abort(slot)
    assert harness.lane.claim(LANE_BYTES - LANE_BYTES // 8, 0) is not None


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans()), max_size=40))
def test_claimed_memory_lies_in_the_lane_and_is_never_shared(
    wishes: list[tuple[int, int, bool]],
) -> None:
    harness = Harness(index=1)
    low = LAYOUT.lane_payload(1)
    held: dict[int, tuple[int, int]] = {}
    for request_bytes, result_bytes, frees in wishes:
        if frees and held:
            slot, _ = held.popitem()
            harness.lane.abort(slot)
        slot_or_none = harness.lane.claim(request_bytes, result_bytes)
        if slot_or_none is None:
            continue
        assert slot_or_none not in held
        start = harness.lane.request_offset[slot_or_none]
        result = harness.lane.result_offset[slot_or_none]
        end = result + result_bytes
        assert start % at.ALIGNMENT == result % at.ALIGNMENT == 0
        assert low <= start <= start + request_bytes <= result <= end <= low + LANE_BYTES
        assert all(end <= other or stop <= start for other, stop in held.values())
        held[slot_or_none] = (start, max(end, start + 1))
    assert harness.lane.in_flight == len(held)


def test_a_cancelled_request_is_not_wanted_and_its_slot_comes_back_with_its_answer(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    assert harness.worker.wanted(request.ref)
    harness.lane.cancel(slot)
    assert not harness.worker.wanted(request.ref)
    assert harness.lane.counters[LaneCounter.CANCELLED] == 1
    assert harness.lane.in_flight == 1
    harness.answer(request)
    harness.worker.flush()
    assert harness.lane.collect() == []
    assert harness.lane.in_flight == 0
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 1


def test_a_cancelled_requests_memory_is_not_handed_out_while_it_is_in_flight(
    harness: Harness,
) -> None:
    slot = ask(harness.lane, bytes(1000))
    taken = range(harness.lane.request_offset[slot], harness.lane.result_offset[slot] + 100)
    harness.lane.submit()
    harness.lane.cancel(slot)
    while (other := harness.lane.claim(64, 0)) is not None:
        assert other != slot
        assert harness.lane.request_offset[other] not in taken


def test_an_answer_posted_twice_is_one_answer(harness: Harness) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request)
    harness.worker.flush()
    assert harness.collector.repeat(request.ref)
    harness.collector.flush()
    assert harness.lane.collect() == [slot]
    harness.lane.release(slot)
    assert harness.collector.repeat(request.ref)
    harness.collector.flush()
    again = ask(harness.lane)
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 2
    assert harness.lane.in_flight == 1
    assert again == slot, "the test wants the very slot to be in use again"


def test_an_open_request_has_no_answer_to_repeat(harness: Harness) -> None:
    ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    assert harness.worker.is_open(request.ref)
    assert not harness.collector.repeat(request.ref)
    harness.answer(request)
    assert not harness.worker.is_open(request.ref)


def test_answers_that_find_no_room_wait_for_the_next_flush(harness: Harness) -> None:
    slots = {ask(harness.lane) for _ in range(SLOTS)}
    harness.lane.submit()
    requests = harness.requests()
    for request in requests:
        harness.answer(request, harness.collector)
    harness.collector.flush()
    for request in [*requests, *requests[:2]]:
        harness.collector.repeat(request.ref)
    harness.collector.flush()
    assert harness.collector.delayed == 2
    assert set(harness.lane.collect()) == slots
    harness.collector.flush()
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == SLOTS + 2
    harness.lane_wakes.clear()
    harness.collector.flush()
    assert harness.lane_wakes == []


def test_of_the_answers_that_find_no_room_those_stay_that_nobody_has_seen(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    earlier = harness.requests()
    for request in earlier:
        harness.answer(request)
    harness.worker.flush()
    for slot in harness.lane.collect():
        harness.lane.release(slot)
    for _ in range(LAYOUT.completion_words // SLOTS):
        for request in earlier:
            harness.collector.repeat(request.ref)
        harness.collector.flush()
    unseen = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request, EnginePort(harness.segment, WORKER, harness.lane_wakes.append))
    harness.collector.repeat(request.ref)
    for request in earlier:
        harness.collector.repeat(request.ref)
    others = [ask(harness.lane) for _ in range(SLOTS - 1)]
    harness.lane.submit()
    for request in harness.requests():
        harness.answer(request, harness.collector)
    harness.collector.flush()
    assert harness.collector.delayed == SLOTS
    assert harness.lane.collect() == []
    harness.collector.flush()
    assert harness.collector.delayed == 0
    assert harness.lane.collect() == [unseen, *others]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (SlotWords.DONE, 2 << FLAG_BITS | Status.OK),
        (SlotWords.DONE, 1 << FLAG_BITS | len(Status)),
        (SlotWords.RESULT_BYTES, 101),
        (SlotWords.RESULT_BYTES, (1 << 64) - 1),
    ],
)
def test_an_answer_that_cannot_be_is_corrupt_and_has_no_result(
    harness: Harness, field: int, value: int
) -> None:
    slot = ask(harness.lane, result_bytes=100)
    harness.lane.submit()
    harness.serve()
    harness.segment.words[harness.slot_word(slot, field)] = value
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.CORRUPT, *[0] * 10)


def test_what_its_holder_calls_corrupt_is_an_answer_like_others(harness: Harness) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.answer(request.ref, Status.CORRUPT, 0, MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot) == Answer(Status.CORRUPT, 0, *MARK, 12)


def test_a_result_that_is_too_large_says_how_large_it_would_be(harness: Harness) -> None:
    slot = ask(harness.lane, result_bytes=100)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.answer(request.ref, Status.RESULT_TOO_LARGE, 5000, MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot)[:2] == (Status.RESULT_TOO_LARGE, 5000)


def test_a_text_is_cut_to_the_room_there_is(harness: Harness) -> None:
    slot = ask(harness.lane, b"x", result_bytes=5)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.worker.fail(request, Status.INVALID, "too long a text", MARK, 12)
    harness.worker.flush()
    assert harness.lane.collect() == [slot]
    assert harness.lane.answer(slot)[:2] == (Status.INVALID, 5)
    assert harness.result(slot) == b"too l"


@pytest.mark.parametrize(
    "word",
    [0, reference(1, LANES * SLOTS), reference(2, 0), reference(1, 3), (1 << 64) - 1],
    ids=hex,
)
def test_a_reference_that_nobody_waits_for_is_dropped_and_counted(word: int) -> None:
    harness = Harness()
    slot = ask(harness.lane)
    assert slot == 0
    ring = LAYOUT.completion_ring(0, WORKER)
    assert Producer(harness.segment.words, ring, LAYOUT.completion_words).offer([word])
    assert harness.lane.collect() == []
    assert harness.lane.counters[LaneCounter.LATE_ANSWERS] == 1
    assert harness.lane.in_flight == 1


def test_a_corrupt_completion_ring_is_skipped_and_counted_and_the_others_are_read(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request, harness.collector)
    harness.collector.flush()
    broken = LAYOUT.completion_ring(harness.index, WORKER)
    harness.segment.words[broken + RingWords.TAIL] = LAYOUT.completion_words + 1
    assert harness.lane.collect() == [slot]
    assert harness.lane.counters[LaneCounter.CORRUPT_RINGS] == 1


LANE_0 = LAYOUT.lane_payload(0)
LANE_1 = LAYOUT.lane_payload(1)


def ways_to_read(harness: Harness) -> list[Callable[[list[int]], UniformBatch | None]]:
    """Of a batch: few requests, and as many as are handled as arrays."""
    reader = UniformBatchReader(harness.segment)
    return [reader.read, reader._read_many]


@pytest.mark.parametrize(
    "header",
    [
        {SlotWords.MODEL: 1},
        {SlotWords.ROWS: 0},
        {SlotWords.KEY_BYTES: 8},
        {SlotWords.REQUEST_BYTES: LANE_BYTES + 1},
        {SlotWords.REQUEST_BYTES: (1 << 64) - 1},
        {SlotWords.REQUEST_OFFSET: LANE_0 - 1},
        {SlotWords.REQUEST_OFFSET: LANE_1},
        {SlotWords.REQUEST_OFFSET: 0},
        {SlotWords.REQUEST_OFFSET: (1 << 64) - 8},
        {SlotWords.RESULT_OFFSET: LANE_0 - 1},
        {SlotWords.RESULT_OFFSET: LANE_1 + 1},
        {SlotWords.RESULT_OFFSET: LANE_1 - 99},
        {SlotWords.RESULT_CAPACITY: LANE_BYTES},
        {SlotWords.RESULT_CAPACITY: (1 << 64) - 1},
        {SlotWords.REQUEST_OFFSET: LANE_0 + 8, SlotWords.RESULT_OFFSET: LANE_0 + 8 + 64},
        {SlotWords.KEY_BYTES: 5000, SlotWords.REQUEST_BYTES: 5000},
    ],
    ids=str,
)
def test_a_header_outside_its_lanes_limits_is_not_read(header: dict[int, int]) -> None:
    harness = Harness()
    slot = ask(harness.lane)
    harness.lane.submit()
    (ref,) = harness.submissions.take()
    assert harness.worker.read(ref) is not None
    assert all(read([ref]) is not None for read in ways_to_read(harness))
    for word, value in header.items():
        harness.segment.words[harness.slot_word(slot, word)] = value
    assert harness.worker.read(ref) is None
    assert all(read([ref]) is None for read in ways_to_read(harness))


def test_a_reference_to_no_slot_is_not_read(harness: Harness) -> None:
    assert harness.worker.read(reference(1, LANES * SLOTS)) is None
    assert harness.worker.read(reference(1, SLOT_MASK)) is None
    assert all(read([reference(1, SLOT_MASK)]) is None for read in ways_to_read(harness))


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=SLOTS)


@given(sizes)
def test_requests_read_together_are_those_read_singly_where_they_are_alike(
    lengths: list[int],
) -> None:
    harness = Harness(index=1)
    for length in lengths:
        ask(harness.lane, bytes(length))
    harness.lane.submit()
    requests = harness.requests()
    for read in ways_to_read(harness):
        alike = read([request.ref for request in requests])
        assert (alike is not None) == (len(set(lengths)) == 1)
        if alike is not None:
            assert harness.worker.requests(alike) == requests
            assert list(alike.slots) == [request.ref & SLOT_MASK for request in requests]


@pytest.mark.parametrize("moved_bytes", [-64, 64, 8, -LANE_1])
def test_requests_whose_results_lie_elsewhere_are_not_alike(
    harness: Harness, moved_bytes: int
) -> None:
    slots = [ask(harness.lane) for _ in range(3)]
    harness.lane.submit()
    references = harness.submissions.take()
    assert all(read(references) is not None for read in ways_to_read(harness))
    word = harness.slot_word(slots[1], SlotWords.RESULT_OFFSET)
    harness.segment.words[word] = (harness.segment.words[word] + moved_bytes) % (1 << 64)
    assert [read(references) for read in ways_to_read(harness)] == [None, None]


@pytest.mark.parametrize("way", [0, 1], ids=["few", "many"])
def test_requests_answered_together_are_answered_like_single_ones(
    harness: Harness, way: int
) -> None:
    slots = [ask(harness.lane) for _ in range(3)]
    harness.lane.submit()
    alike = ways_to_read(harness)[way](harness.submissions.take())
    assert alike is not None
    harness.worker.answer_uniform(alike, Status.OK, 4, MARK, 12)
    harness.worker.flush()
    assert harness.lane_wakes == [harness.index]
    assert harness.lane.collect() == slots
    for slot in slots:
        assert harness.lane.answer(slot) == Answer(Status.OK, 4, *MARK, 12)


def test_every_slot_that_held_a_request_is_listed_with_its_state(harness: Harness) -> None:
    answered, cancelled, waiting = (ask(harness.lane) for _ in range(3))
    first = harness.index * SLOTS
    harness.lane.cancel(cancelled)
    harness.lane.submit()
    harness.answer(harness.requests()[0])
    states = {ref & SLOT_MASK: state for ref, state in harness.collector.published()}
    assert states == {
        first + answered: State.FREE,
        first + cancelled: State.CANCELLED,
        first + waiting: State.PUBLISHED,
    }


# The next owner of a lane


def in_flight_memory(harness: Harness, slot: int) -> range:
    return range(harness.lane.request_offset[slot], harness.lane.result_offset[slot] + 100)


def claimed(lane: Lane) -> Iterator[int]:
    """Claim until there is no more."""
    while (slot := lane.claim(100, 100)) is not None:
        yield slot


def test_what_is_in_flight_keeps_slot_and_memory_until_it_is_answered(harness: Harness) -> None:
    slots = {
        slot: in_flight_memory(harness, slot) for slot in (ask(harness.lane), ask(harness.lane))
    }
    harness.lane.submit()
    heir = harness.next_owner()
    assert heir.in_flight == 2
    others = list(claimed(heir))
    assert set(others) == set(range(SLOTS)) - set(slots)
    for other in others:
        start, end = heir.request_offset[other], heir.result_offset[other] + 100
        assert not any(memory.start < end and start < memory.stop for memory in slots.values())
        heir.abort(other)
    harness.serve()
    assert heir.collect() == []
    assert heir.in_flight == 0
    assert heir.claim(LANE_BYTES - LANE_BYTES // 8, 0) is not None


def test_an_answer_its_owner_did_not_collect_does_not_reach_the_next(harness: Harness) -> None:
    ask(harness.lane, b"of the dead")
    harness.lane.submit()
    harness.serve()
    heir = harness.next_owner()
    slot = ask(heir, b"own")
    assert heir.collect() == []
    heir.submit()
    harness.serve()
    assert heir.collect() == [slot]
    assert harness.result(slot, heir) == b"OWN"


def test_an_answer_posted_after_the_takeover_does_not_reach_the_next_owner(
    harness: Harness,
) -> None:
    ask(harness.lane)
    harness.lane.submit()
    (request,) = harness.requests()
    harness.answer(request)
    heir = harness.next_owner()
    slot = ask(heir)
    harness.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 1
    assert slot == request.ref & (SLOTS - 1), "the test wants the very slot to be in use again"


def test_answers_left_in_the_rings_do_not_keep_new_ones_out(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    harness.serve()
    heir = harness.next_owner()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.submit()
    harness.serve()
    assert harness.worker.delayed == 0
    assert set(heir.collect()) == slots


def test_answers_posted_after_the_takeover_do_not_keep_new_ones_out(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    for request in harness.requests():
        harness.answer(request)
    heir = harness.next_owner()
    harness.worker.flush()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.submit()
    harness.serve()
    assert harness.worker.delayed == 0, "what a worker has not posted dies with it"
    assert set(heir.collect()) == slots


def test_what_was_published_and_not_submitted_is_submitted_by_the_next_owner(
    harness: Harness,
) -> None:
    slot = ask(harness.lane)
    harness.collector_wakes.clear()
    heir = harness.next_owner()
    assert harness.collector_wakes == [None]
    (request,) = harness.requests()
    assert request.ref == reference(1, harness.index * SLOTS + slot)
    assert not harness.worker.wanted(request.ref)
    harness.answer(request)
    harness.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 0


def test_a_takeover_while_the_ring_is_full_loses_nothing(harness: Harness) -> None:
    for _ in range(SLOTS):
        ask(harness.lane)
    harness.lane.submit()
    heir = harness.next_owner()
    assert heir.in_flight == SLOTS
    second_heir = harness.next_owner()
    harness.serve()
    assert second_heir.collect() == []
    assert second_heir.in_flight == 0
    slot = ask(second_heir)
    second_heir.submit()
    harness.serve()
    harness.serve()
    assert second_heir.collect() == [slot]


def test_a_header_that_no_owner_can_have_written_costs_its_slot_only(harness: Harness) -> None:
    good, bad = ask(harness.lane), ask(harness.lane)
    memory = in_flight_memory(harness, good)
    harness.lane.submit()
    for word, value in [
        (SlotWords.REQUEST_OFFSET, LANE_1 - 64),
        (SlotWords.RESULT_OFFSET, LANE_0),
        (SlotWords.RESULT_CAPACITY, (1 << 64) - 1),
    ]:
        harness.segment.words[harness.slot_word(bad, word)] = value
        heir = harness.next_owner()
        assert heir.in_flight == 2
        for slot in claimed(heir):
            assert heir.request_offset[slot] not in memory
    for ref in harness.submissions.take():
        if harness.worker.is_open(ref):
            harness.worker.answer(ref, Status.CORRUPT, 0, MARK, 12)
    harness.worker.flush()
    last = harness.next_owner()
    starts = [last.request_offset[slot] for slot in claimed(last)]
    assert len(starts) == len(set(starts)) == SLOTS


def test_a_generation_goes_on_where_the_dead_owner_left_it(harness: Harness) -> None:
    for _ in range(5):
        slot = ask(harness.lane)
        harness.lane.submit()
        harness.serve()
        assert harness.lane.collect() == [slot]
        harness.lane.release(slot)
    heir = harness.next_owner()
    slot = ask(heir)
    heir.submit()
    refs = harness.submissions.take()
    assert [ref >> SLOT_BITS for ref in refs] == [6]
    assert [ref & (SLOTS - 1) for ref in refs] == [slot]
