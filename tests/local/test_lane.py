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
from ringbatch.shm.answers import Answer
from ringbatch.shm.counters import LaneCounter
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
MARK = BatchMark(batch=7, rows=3, reason=Reason.LATENCY, dispatched_ns=11)
LANES, SLOTS, LANE_BYTES = 2, 4, 4 * PAGE
WORKER, COLLECTOR = 0, 1
LAYOUT = Layout(
    lanes=LANES,
    slots=SLOTS,
    lane_bytes=LANE_BYTES,
    workers=1,
    models=1,
    manifest_bytes=len(dumps((MODEL,))),
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
    offset = number * WORD
    if LAYOUT.slots_offset <= offset < LAYOUT.payload:
        slot, within = divmod(offset - LAYOUT.slots_offset, at.SLOT_SIZE)
        names = {at.CONTROL: "CONTROL", at.DONE: "DONE"}
        return f"{names.get(within, within)} of {slot}"
    if LAYOUT.submissions <= offset < LAYOUT.tasks:
        kind = "submissions" if offset < LAYOUT.completions else "completions"
        if kind == "submissions":
            within = (offset - LAYOUT.submissions) % at.ring_size(SLOTS)
        else:
            within = (offset - LAYOUT.completions) % at.ring_size(LAYOUT.completion_words)
        part = {at.RING_TAIL: "TAIL", at.RING_HEAD: "HEAD"}.get(within, "word")
        return f"{part} of {kind}"
    return "counter" if LAYOUT.counters <= offset < LAYOUT.submissions else "payload"


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
        assert name.split()[0] in ("CONTROL", "DONE", "TAIL", "HEAD", "word", "counter"), name
        if name.startswith(("CONTROL", "DONE")):
            self._move(number, name, value)
        else:
            self._words[number] = value
        self._log.add(name)

    def _move(self, number: int, name: str, value: int) -> None:
        control = number if name.startswith("CONTROL") else number - at.DONE // WORD
        done = control + at.DONE // WORD
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
        return (offset - LAYOUT.slots_offset) // at.SLOT_SIZE


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
        """Answer everything that was announced."""
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
    worker.memory, worker._words = segment.memory, segment.words
    worker._completions = [
        Producer(segment.words, LAYOUT.completion_ring(lane, WORKER), LAYOUT.completion_words)
        for lane in range(LANES)
    ]
    monkeypatch.setattr(lane_module, "_HEADER", RecordingStruct(9, "header", log))
    beside = RecordingStruct(6, "result header", log)
    monkeypatch.setattr(holder_module, "_BESIDE", beside)
    monkeypatch.setattr(holder_module, "_STORED", SimpleNamespace(pack_into=beside.store))
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
    recorded.lane.announce()
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
        recorded.lane.announce()
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
    recorded.lane.announce()
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
    recorded.lane.announce()
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
    recorded.lane.announce()
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
        lane.announce()
        lane.cancel(cancelled_first)
        recorded.serve()
        lane.cancel(cancelled_late)
        for slot in lane.collect():
            lane.release(slot)
        assert lane.in_flight == 0
    ask(lane)
    lane.announce()
    heir = Lane(recorded.segment, 0, lambda: None)
    second_heir = Lane(recorded.segment, 0, lambda: None)
    recorded.serve()
    assert second_heir.collect() == []
    assert second_heir.in_flight == 0
    assert heir.in_flight == 1


@dataclass
class Rig:
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

    def slot_word(self, slot: int, field_offset: int) -> int:
        return LAYOUT.slot(self.index * SLOTS + slot) // WORD + field_offset // WORD


@pytest.fixture(params=[0, 1], ids=["lane 0", "lane 1"])
def rig(request: pytest.FixtureRequest) -> Rig:
    return Rig(index=request.param)


def test_a_request_reaches_the_engine_and_its_answer_comes_back(rig: Rig) -> None:
    slot = ask(rig.lane, b"hello")
    rig.lane.announce()
    (request,) = rig.requests()
    assert request == Request(
        ref=reference(1, rig.index * SLOTS + slot),
        model=0,
        rows=1,
        request_bytes=5,
        key_bytes=0,
        result_capacity=100,
        request_offset=rig.lane.request_offset[slot],
        result_offset=rig.lane.result_offset[slot],
        accepted_ns=5,
        deadline_ns=6,
    )
    rig.answer(request)
    rig.worker.flush()
    assert rig.lane.collect() == [slot]
    assert rig.lane.answer(slot) == Answer(Status.OK, 5, 7, 3, Reason.LATENCY, 11, 12)
    assert rig.result(slot) == b"HELLO"
    rig.lane.release(slot)
    assert rig.lane.in_flight == 0


def test_one_wake_up_for_all_that_is_announced_and_for_all_that_is_answered(rig: Rig) -> None:
    rig.collector_wakes.clear()
    for _ in range(3):
        ask(rig.lane)
    assert rig.collector_wakes == []
    rig.lane.announce()
    rig.lane.announce()
    assert rig.collector_wakes == [None]
    rig.serve()
    assert rig.lane_wakes == [rig.index]
    rig.worker.flush()
    assert rig.lane_wakes == [rig.index]


def test_a_lane_without_a_free_slot_gives_none_and_stays_as_it_is(rig: Rig) -> None:
    slots = [ask(rig.lane) for _ in range(SLOTS)]
    assert sorted(slots) == list(range(SLOTS))
    assert rig.lane.claim(1, 1) is None
    rig.lane.announce()
    rig.serve()
    assert sorted(rig.lane.collect()) == list(range(SLOTS))


def test_a_lane_without_memory_gives_none_until_some_is_free(rig: Rig) -> None:
    large = LANE_BYTES - LANE_BYTES // 8
    assert rig.lane.claim(LANE_BYTES, 0) is None
    slot = rig.lane.claim(large, 0)
    assert slot is not None
    assert rig.lane.claim(large, 0) is None
    assert rig.lane.claim(100, 100) is not None
    rig.lane.abort(slot)
    assert rig.lane.claim(large, 0) is not None


def test_memory_that_free_slots_kept_is_there_for_requests_of_other_sizes(rig: Rig) -> None:
    for size in (100, 1000, 2000):
        slots = []
        while (slot := rig.lane.claim(size, 8)) is not None:
            slots.append(slot)
        assert len(slots) == SLOTS
        for slot in slots:
            rig.lane.abort(slot)
    assert rig.lane.claim(LANE_BYTES - LANE_BYTES // 8, 0) is not None


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans()), max_size=40))
def test_claimed_memory_lies_in_the_lane_and_is_never_shared(
    wishes: list[tuple[int, int, bool]],
) -> None:
    rig = Rig(index=1)
    low = LAYOUT.lane_payload(1)
    held: dict[int, tuple[int, int]] = {}
    for request_bytes, result_bytes, frees in wishes:
        if frees and held:
            slot, _ = held.popitem()
            rig.lane.abort(slot)
        slot_or_none = rig.lane.claim(request_bytes, result_bytes)
        if slot_or_none is None:
            continue
        assert slot_or_none not in held
        start = rig.lane.request_offset[slot_or_none]
        result = rig.lane.result_offset[slot_or_none]
        end = result + result_bytes
        assert start % at.ALIGNMENT == result % at.ALIGNMENT == 0
        assert low <= start <= start + request_bytes <= result <= end <= low + LANE_BYTES
        assert all(end <= other or stop <= start for other, stop in held.values())
        held[slot_or_none] = (start, max(end, start + 1))
    assert rig.lane.in_flight == len(held)


def test_a_cancelled_request_is_not_wanted_and_its_slot_comes_back_with_its_answer(
    rig: Rig,
) -> None:
    slot = ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    assert rig.worker.wanted(request.ref)
    rig.lane.cancel(slot)
    assert not rig.worker.wanted(request.ref)
    assert rig.lane.counters[LaneCounter.CANCELLED] == 1
    assert rig.lane.in_flight == 1
    rig.answer(request)
    rig.worker.flush()
    assert rig.lane.collect() == []
    assert rig.lane.in_flight == 0
    assert rig.lane.counters[LaneCounter.LATE_ANSWERS] == 1


def test_a_cancelled_requests_memory_is_not_handed_out_while_it_is_in_flight(rig: Rig) -> None:
    slot = ask(rig.lane, bytes(1000))
    taken = range(rig.lane.request_offset[slot], rig.lane.result_offset[slot] + 100)
    rig.lane.announce()
    rig.lane.cancel(slot)
    while (other := rig.lane.claim(64, 0)) is not None:
        assert other != slot
        assert rig.lane.request_offset[other] not in taken


def test_an_answer_announced_twice_is_one_answer(rig: Rig) -> None:
    slot = ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.answer(request)
    rig.worker.flush()
    assert rig.collector.repeat(request.ref)
    rig.collector.flush()
    assert rig.lane.collect() == [slot]
    rig.lane.release(slot)
    assert rig.collector.repeat(request.ref)
    rig.collector.flush()
    again = ask(rig.lane)
    assert rig.lane.collect() == []
    assert rig.lane.counters[LaneCounter.LATE_ANSWERS] == 2
    assert rig.lane.in_flight == 1
    assert again == slot, "the test wants the very slot to be in use again"


def test_an_open_request_has_no_answer_to_repeat(rig: Rig) -> None:
    ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    assert rig.worker.is_open(request.ref)
    assert not rig.collector.repeat(request.ref)
    rig.answer(request)
    assert not rig.worker.is_open(request.ref)


def test_answers_that_find_no_room_wait_for_the_next_flush(rig: Rig) -> None:
    slots = {ask(rig.lane) for _ in range(SLOTS)}
    rig.lane.announce()
    requests = rig.requests()
    for request in requests:
        rig.answer(request, rig.collector)
    rig.collector.flush()
    for request in [*requests, *requests[:2]]:
        rig.collector.repeat(request.ref)
    rig.collector.flush()
    assert rig.collector.delayed == 2
    assert set(rig.lane.collect()) == slots
    rig.collector.flush()
    assert rig.lane.collect() == []
    assert rig.lane.counters[LaneCounter.LATE_ANSWERS] == SLOTS + 2
    rig.lane_wakes.clear()
    rig.collector.flush()
    assert rig.lane_wakes == []


def test_of_the_answers_that_find_no_room_those_stay_that_nobody_has_seen(rig: Rig) -> None:
    for _ in range(SLOTS):
        ask(rig.lane)
    rig.lane.announce()
    earlier = rig.requests()
    for request in earlier:
        rig.answer(request)
    rig.worker.flush()
    for slot in rig.lane.collect():
        rig.lane.release(slot)
    for _ in range(LAYOUT.completion_words // SLOTS):
        for request in earlier:
            rig.collector.repeat(request.ref)
        rig.collector.flush()
    unseen = ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.answer(request, EnginePort(rig.segment, WORKER, rig.lane_wakes.append))
    rig.collector.repeat(request.ref)
    for request in earlier:
        rig.collector.repeat(request.ref)
    others = [ask(rig.lane) for _ in range(SLOTS - 1)]
    rig.lane.announce()
    for request in rig.requests():
        rig.answer(request, rig.collector)
    rig.collector.flush()
    assert rig.collector.delayed == SLOTS
    assert rig.lane.collect() == []
    rig.collector.flush()
    assert rig.collector.delayed == 0
    assert rig.lane.collect() == [unseen, *others]


@pytest.mark.parametrize(
    ("field_offset", "value"),
    [
        (at.DONE, 2 << FLAG_BITS | Status.OK),
        (at.DONE, 1 << FLAG_BITS | len(Status)),
        (at.RESULT_BYTES, 101),
        (at.RESULT_BYTES, (1 << 64) - 1),
    ],
)
def test_an_answer_that_cannot_be_is_corrupt_and_has_no_result(
    rig: Rig, field_offset: int, value: int
) -> None:
    slot = ask(rig.lane, result_bytes=100)
    rig.lane.announce()
    rig.serve()
    rig.segment.words[rig.slot_word(slot, field_offset)] = value
    assert rig.lane.collect() == [slot]
    assert rig.lane.answer(slot) == Answer(Status.CORRUPT, 0, 0, 0, 0, 0, 0)


def test_what_its_holder_calls_corrupt_is_an_answer_like_others(rig: Rig) -> None:
    slot = ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.worker.answer(request.ref, Status.CORRUPT, 0, MARK, 12)
    rig.worker.flush()
    assert rig.lane.collect() == [slot]
    assert rig.lane.answer(slot) == Answer(Status.CORRUPT, 0, *MARK, 12)


def test_a_result_that_is_too_large_says_how_large_it_would_be(rig: Rig) -> None:
    slot = ask(rig.lane, result_bytes=100)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.worker.answer(request.ref, Status.RESULT_TOO_LARGE, 5000, MARK, 12)
    rig.worker.flush()
    assert rig.lane.collect() == [slot]
    assert rig.lane.answer(slot)[:2] == (Status.RESULT_TOO_LARGE, 5000)


def test_a_text_is_cut_to_the_room_there_is(rig: Rig) -> None:
    slot = ask(rig.lane, b"x", result_bytes=5)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.worker.fail(request, Status.INVALID, "too long a text", MARK, 12)
    rig.worker.flush()
    assert rig.lane.collect() == [slot]
    assert rig.lane.answer(slot)[:2] == (Status.INVALID, 5)
    assert rig.result(slot) == b"too l"


@pytest.mark.parametrize(
    "word",
    [0, reference(1, LANES * SLOTS), reference(2, 0), reference(1, 3), (1 << 64) - 1],
    ids=hex,
)
def test_a_reference_that_nobody_waits_for_is_dropped_and_counted(word: int) -> None:
    rig = Rig()
    slot = ask(rig.lane)
    assert slot == 0
    ring = LAYOUT.completion_ring(0, WORKER)
    assert Producer(rig.segment.words, ring, LAYOUT.completion_words).offer([word])
    assert rig.lane.collect() == []
    assert rig.lane.counters[LaneCounter.LATE_ANSWERS] == 1
    assert rig.lane.in_flight == 1


def test_a_corrupt_completion_ring_is_skipped_and_counted_and_the_others_are_read(
    rig: Rig,
) -> None:
    slot = ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.answer(request, rig.collector)
    rig.collector.flush()
    broken = LAYOUT.completion_ring(rig.index, WORKER)
    rig.segment.words[(broken + at.RING_TAIL) // WORD] = LAYOUT.completion_words + 1
    assert rig.lane.collect() == [slot]
    assert rig.lane.counters[LaneCounter.CORRUPT_RINGS] == 1


LANE_0 = LAYOUT.lane_payload(0)
LANE_1 = LAYOUT.lane_payload(1)


def ways_to_read(rig: Rig) -> list[Callable[[list[int]], UniformBatch | None]]:
    """Of a batch: few requests, and as many as are handled as arrays."""
    reader = UniformBatchReader(rig.segment)
    return [reader.read, reader._read_many]


@pytest.mark.parametrize(
    "header",
    [
        {at.MODEL: 1},
        {at.ROWS: 0},
        {at.KEY_BYTES: 8},
        {at.REQUEST_BYTES: LANE_BYTES + 1},
        {at.REQUEST_BYTES: (1 << 64) - 1},
        {at.REQUEST_OFFSET: LANE_0 - 1},
        {at.REQUEST_OFFSET: LANE_1},
        {at.REQUEST_OFFSET: 0},
        {at.REQUEST_OFFSET: (1 << 64) - 8},
        {at.RESULT_OFFSET: LANE_0 - 1},
        {at.RESULT_OFFSET: LANE_1 + 1},
        {at.RESULT_OFFSET: LANE_1 - 99},
        {at.RESULT_CAPACITY: LANE_BYTES},
        {at.RESULT_CAPACITY: (1 << 64) - 1},
        {at.REQUEST_OFFSET: LANE_0 + 8, at.RESULT_OFFSET: LANE_0 + 8 + 64},
        {at.KEY_BYTES: 5000, at.REQUEST_BYTES: 5000},
    ],
    ids=str,
)
def test_a_header_outside_its_lanes_limits_is_not_read(header: dict[int, int]) -> None:
    rig = Rig()
    slot = ask(rig.lane)
    rig.lane.announce()
    (ref,) = rig.submissions.take()
    assert rig.worker.read(ref) is not None
    assert all(read([ref]) is not None for read in ways_to_read(rig))
    for field_offset, value in header.items():
        rig.segment.words[rig.slot_word(slot, field_offset)] = value
    assert rig.worker.read(ref) is None
    assert all(read([ref]) is None for read in ways_to_read(rig))


def test_a_reference_to_no_slot_is_not_read(rig: Rig) -> None:
    assert rig.worker.read(reference(1, LANES * SLOTS)) is None
    assert rig.worker.read(reference(1, SLOT_MASK)) is None
    assert all(read([reference(1, SLOT_MASK)]) is None for read in ways_to_read(rig))


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=SLOTS)


@given(sizes)
def test_requests_read_together_are_those_read_singly_where_they_are_alike(
    lengths: list[int],
) -> None:
    rig = Rig(index=1)
    for length in lengths:
        ask(rig.lane, bytes(length))
    rig.lane.announce()
    requests = rig.requests()
    for read in ways_to_read(rig):
        alike = read([request.ref for request in requests])
        assert (alike is not None) == (len(set(lengths)) == 1)
        if alike is not None:
            assert rig.worker.requests(alike) == requests
            assert list(alike.slots) == [request.ref & SLOT_MASK for request in requests]


@pytest.mark.parametrize("moved_bytes", [-64, 64, 8, -LANE_1])
def test_requests_whose_results_lie_elsewhere_are_not_alike(rig: Rig, moved_bytes: int) -> None:
    slots = [ask(rig.lane) for _ in range(3)]
    rig.lane.announce()
    references = rig.submissions.take()
    assert all(read(references) is not None for read in ways_to_read(rig))
    word = rig.slot_word(slots[1], at.RESULT_OFFSET)
    rig.segment.words[word] = (rig.segment.words[word] + moved_bytes) % (1 << 64)
    assert [read(references) for read in ways_to_read(rig)] == [None, None]


@pytest.mark.parametrize("way", [0, 1], ids=["few", "many"])
def test_requests_answered_together_are_answered_like_single_ones(rig: Rig, way: int) -> None:
    slots = [ask(rig.lane) for _ in range(3)]
    rig.lane.announce()
    alike = ways_to_read(rig)[way](rig.submissions.take())
    assert alike is not None
    rig.worker.answer_uniform(alike, Status.OK, 4, MARK, 12)
    rig.worker.flush()
    assert rig.lane_wakes == [rig.index]
    assert rig.lane.collect() == slots
    for slot in slots:
        assert rig.lane.answer(slot) == Answer(Status.OK, 4, 7, 3, Reason.LATENCY, 11, 12)


def test_every_slot_that_held_a_request_is_listed_with_its_state(rig: Rig) -> None:
    answered, cancelled, waiting = (ask(rig.lane) for _ in range(3))
    first = rig.index * SLOTS
    rig.lane.cancel(cancelled)
    rig.lane.announce()
    rig.answer(rig.requests()[0])
    states = {ref & SLOT_MASK: state for ref, state in rig.collector.published()}
    assert states == {
        first + answered: State.FREE,
        first + cancelled: State.CANCELLED,
        first + waiting: State.PUBLISHED,
    }


# The next owner of a lane


def in_flight_memory(rig: Rig, slot: int) -> range:
    return range(rig.lane.request_offset[slot], rig.lane.result_offset[slot] + 100)


def claimed(lane: Lane) -> Iterator[int]:
    """Claim until there is no more."""
    while (slot := lane.claim(100, 100)) is not None:
        yield slot


def test_what_is_in_flight_keeps_slot_and_memory_until_it_is_answered(rig: Rig) -> None:
    slots = {slot: in_flight_memory(rig, slot) for slot in (ask(rig.lane), ask(rig.lane))}
    rig.lane.announce()
    heir = rig.next_owner()
    assert heir.in_flight == 2
    others = list(claimed(heir))
    assert set(others) == set(range(SLOTS)) - set(slots)
    for other in others:
        start, end = heir.request_offset[other], heir.result_offset[other] + 100
        assert not any(memory.start < end and start < memory.stop for memory in slots.values())
        heir.abort(other)
    rig.serve()
    assert heir.collect() == []
    assert heir.in_flight == 0
    assert heir.claim(LANE_BYTES - LANE_BYTES // 8, 0) is not None


def test_an_answer_its_owner_did_not_collect_does_not_reach_the_next(rig: Rig) -> None:
    ask(rig.lane, b"of the dead")
    rig.lane.announce()
    rig.serve()
    heir = rig.next_owner()
    slot = ask(heir, b"own")
    assert heir.collect() == []
    heir.announce()
    rig.serve()
    assert heir.collect() == [slot]
    assert rig.result(slot, heir) == b"OWN"


def test_an_answer_announced_after_the_takeover_does_not_reach_the_next_owner(rig: Rig) -> None:
    ask(rig.lane)
    rig.lane.announce()
    (request,) = rig.requests()
    rig.answer(request)
    heir = rig.next_owner()
    slot = ask(heir)
    rig.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 1
    assert slot == request.ref & (SLOTS - 1), "the test wants the very slot to be in use again"


def test_answers_left_in_the_rings_do_not_keep_new_ones_out(rig: Rig) -> None:
    for _ in range(SLOTS):
        ask(rig.lane)
    rig.lane.announce()
    rig.serve()
    heir = rig.next_owner()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.announce()
    rig.serve()
    assert rig.worker.delayed == 0
    assert set(heir.collect()) == slots


def test_answers_announced_after_the_takeover_do_not_keep_new_ones_out(rig: Rig) -> None:
    for _ in range(SLOTS):
        ask(rig.lane)
    rig.lane.announce()
    for request in rig.requests():
        rig.answer(request)
    heir = rig.next_owner()
    rig.worker.flush()
    slots = {ask(heir) for _ in range(SLOTS)}
    heir.announce()
    rig.serve()
    assert rig.worker.delayed == 0, "what a worker has not announced dies with it"
    assert set(heir.collect()) == slots


def test_what_was_published_and_not_announced_is_announced_by_the_next_owner(rig: Rig) -> None:
    slot = ask(rig.lane)
    rig.collector_wakes.clear()
    heir = rig.next_owner()
    assert rig.collector_wakes == [None]
    (request,) = rig.requests()
    assert request.ref == reference(1, rig.index * SLOTS + slot)
    assert not rig.worker.wanted(request.ref)
    rig.answer(request)
    rig.worker.flush()
    assert heir.collect() == []
    assert heir.in_flight == 0


def test_a_takeover_while_the_ring_is_full_loses_nothing(rig: Rig) -> None:
    for _ in range(SLOTS):
        ask(rig.lane)
    rig.lane.announce()
    heir = rig.next_owner()
    assert heir.in_flight == SLOTS
    second_heir = rig.next_owner()
    rig.serve()
    assert second_heir.collect() == []
    assert second_heir.in_flight == 0
    slot = ask(second_heir)
    second_heir.announce()
    rig.serve()
    rig.serve()
    assert second_heir.collect() == [slot]


def test_a_header_that_no_owner_can_have_written_costs_its_slot_only(rig: Rig) -> None:
    good, bad = ask(rig.lane), ask(rig.lane)
    memory = in_flight_memory(rig, good)
    rig.lane.announce()
    for field_offset, value in [
        (at.REQUEST_OFFSET, LANE_1 - 64),
        (at.RESULT_OFFSET, LANE_0),
        (at.RESULT_CAPACITY, (1 << 64) - 1),
    ]:
        rig.segment.words[rig.slot_word(bad, field_offset)] = value
        heir = rig.next_owner()
        assert heir.in_flight == 2
        for slot in claimed(heir):
            assert heir.request_offset[slot] not in memory
    for ref in rig.submissions.take():
        if rig.worker.is_open(ref):
            rig.worker.answer(ref, Status.CORRUPT, 0, MARK, 12)
    rig.worker.flush()
    last = rig.next_owner()
    starts = [last.request_offset[slot] for slot in claimed(last)]
    assert len(starts) == len(set(starts)) == SLOTS


def test_a_generation_goes_on_where_the_dead_owner_left_it(rig: Rig) -> None:
    for _ in range(5):
        slot = ask(rig.lane)
        rig.lane.announce()
        rig.serve()
        assert rig.lane.collect() == [slot]
        rig.lane.release(slot)
    heir = rig.next_owner()
    slot = ask(heir)
    heir.announce()
    refs = rig.submissions.take()
    assert [ref >> SLOT_BITS for ref in refs] == [6]
    assert [ref & (SLOTS - 1) for ref in refs] == [slot]
