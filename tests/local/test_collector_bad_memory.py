"""Bad references, slots, rings and reports: the collector counts them and goes on."""

from collections.abc import Callable

import pytest
from collector_harness import LATENCY, CollectorHarness, eager, fixed

from ringbatch.shm.descriptors import REPORT_WORDS, SlotWords
from ringbatch.shm.ring import Producer
from ringbatch.shm.slot import FLAG_BITS, SLOT_BITS, Status, reference

FOREIGN: dict[str, Callable[[int], int]] = {
    "another-lanes-slot": lambda slot: reference(1, 64 + slot),
    "no-lanes-slot": lambda slot: reference(1, 500),
    "the-last-number-there-is": lambda slot: 2**64 - 1,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_reference_outside_its_own_lane_is_counted_and_does_nothing(
    make: Callable[[int], int],
) -> None:
    harness = CollectorHarness(fixed()).begin()
    slot = harness.send(0, lane=1)
    harness.submit_words(make(slot), lane=0)
    harness.step(1)
    assert harness.status().collector["corrupt_slots"] == 1
    assert harness.collector.in_flight == 1
    harness.step(LATENCY)
    assert harness.running() == [0]


@pytest.mark.parametrize("generation", [0, 2, (1 << 40) - 1])
def test_a_reference_of_another_generation_is_ignored(generation: int) -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0)
    harness.submit_words(reference(generation, slot))
    harness.step(1)
    assert len(harness.workers[0].task().references) == 1
    assert harness.collector.in_flight == 1


SPOILT = {
    "rows-zero": (SlotWords.ROWS, 0),
    "no-such-model": (SlotWords.MODEL, 7),
    "payload-outside-the-lane": (SlotWords.REQUEST_OFFSET, 64),
    "payload-end-overflows": (SlotWords.REQUEST_OFFSET, 2**64 - 8),
    "result-outside-the-lane": (SlotWords.RESULT_OFFSET, 64),
    "key-longer-than-the-payload": (SlotWords.KEY_BYTES, 999),
}


@pytest.mark.parametrize(("field", "value"), SPOILT.values(), ids=SPOILT.keys())
def test_a_slot_whose_words_make_no_sense_is_answered_counted_and_harms_nobody(
    field: int, value: int
) -> None:
    harness = CollectorHarness(eager()).begin()
    slot = harness.send(0, lane=1)
    harness.segment.words[harness.segment.layout.slot(64 + slot) + field] = value
    good = harness.send(5)
    harness.step(1)
    assert harness.clients[1].collect()[slot].answer.status is Status.CORRUPT
    assert harness.status().collector["corrupt_slots"] == 1
    assert harness.running() == [5]
    assert harness.collector.in_flight == 1
    assert good in range(64)


@pytest.mark.parametrize("claimed", [-1, 65, 1 << 60])
def test_a_ring_that_claims_the_impossible_is_skipped_counted_and_harms_nobody(
    claimed: int,
) -> None:
    harness = CollectorHarness(eager()).begin()
    harness.send(0, lane=1)
    harness.step(1)
    harness.workers[0].finish(harness.workers[0].task())
    tail = harness.segment.layout.submission_ring(1)
    harness.segment.words[tail] = (1 + claimed) % (1 << 64)
    harness.send(5)
    harness.step(2)
    assert harness.status().collector["corrupt_rings"] == 1
    assert harness.running() == [5]


@pytest.mark.parametrize("words", [[9, 99, 0, 0, 0, 0, 0, 0, 0], [7, 1, 0], [9] * 10])
def test_reports_that_are_none_are_counted_and_harm_nobody(words: list[int]) -> None:
    harness = CollectorHarness(eager(workers=(0, 1))).begin()
    ring = Producer(harness.segment.words, harness.segment.layout.report_ring(0), REPORT_WORDS)
    assert ring.offer(words)
    harness.send(5)
    harness.step(2)
    assert harness.status().collector["corrupt_rings"] == 1
    assert [n for w in harness.workers for t in w.tasks() for n in harness.payloads(t)] == [5]


TIMES = {
    "accepted-after-the-clock-was-read": 101,
    "accepted-in-the-far-future": 2**64 - 1,
    "accepted-at-the-beginning-of-time": 0,
}


@pytest.mark.parametrize("accepted_ns", TIMES.values(), ids=TIMES.keys())
def test_no_time_of_acceptance_stops_the_collector_or_makes_others_wait(accepted_ns: int) -> None:
    now_ns = 10**15
    harness = CollectorHarness(fixed(timeout_ns=10**9)).begin()
    liar = harness.send(0, lane=1, accepted_ns=accepted_ns + (now_ns if accepted_ns == 101 else 0))
    harness.send(1, accepted_ns=now_ns)
    until_ns = harness.step(now_ns)
    assert until_ns is None or until_ns <= now_ns + LATENCY
    harness.step(now_ns + LATENCY)
    assert sorted(n for task in harness.workers[0].tasks() for n in harness.payloads(task)) == [
        0,
        1,
    ]
    assert 0 <= harness.model().wait_ms <= 1000
    assert liar in range(64)


def test_a_slot_used_again_while_the_collector_holds_it_harms_its_own_lane_only() -> None:
    """No lane's owner does that; whoever writes its words by hand can."""
    harness = CollectorHarness(fixed()).begin()
    slot = harness.send(0, lane=1)
    harness.send(1)
    harness.step(1)
    harness.segment.words[harness.segment.layout.slot(64 + slot)] = 2 << FLAG_BITS | 1
    harness.submit_words(reference(2, 64 + slot), lane=1)
    harness.step(2)
    harness.step(LATENCY)
    task = harness.workers[0].task()
    assert [ref >> SLOT_BITS for ref in task.references] == [1, 2]
    harness.workers[0].finish(task)
    harness.step(LATENCY + 1)
    assert len(harness.clients[0].collect()) == 1
    assert harness.collector.in_flight == 0
