"""Samples for `ringbatch top`: requests under way, read from an engine's memory."""

from dataclasses import replace

import numpy as np
import pytest
from segment_fixture import local_segment, spec

from ringbatch.engine.ipc.messages import task_words
from ringbatch.engine.report.frame import page
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.counters import CollectorCounter, Counters, WorkerCounter
from ringbatch.shm.descriptors import TASK_WORDS, RingWords, WorkerState, WorkerWords
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_counters import CounterBlocks
from ringbatch.shm.ring import Consumer, Producer
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.snapshot.occupancy import Occupancy, OfModel
from ringbatch.shm.snapshot.sample import NO_REQUESTS, ClassSample, sample
from ringbatch.shm.tallies import Protocol, Tallies

S = 1_000_000_000


def engine() -> tuple[Segment, Lane, list[int]]:
    """Return a segment of two models, its lane, and references of requests to the first model."""
    parted = replace(spec(0, name="a"), in_parts=True)
    segment = local_segment(parted, spec(1, name="b", workers=(1,)), lanes=2)
    segment.words[segment.layout.worker(0) + WorkerWords.STATE] = WorkerState.READY
    lane = Lane(segment, 1, lambda: None)
    for number in range(4):
        lane.send(b"x", 64, segment.models[0].reference, 1, (10 + number) * S, 99 * S)
    lane.submit()
    layout = segment.layout
    ring = Consumer(segment.words, layout.submission_ring(1), layout.slots)
    return segment, lane, ring.peek()


def give(segment: Segment, references: list[int]) -> None:
    tasks = Producer(segment.words, segment.layout.task_ring(0), TASK_WORDS)
    assert tasks.offer(task_words(BatchMark(7, len(references), Reason.FULL, S), references))


def looked(segment: Segment) -> list[OfModel]:
    occupancy = Occupancy(segment, 20 * S)
    return [occupancy.of(model) for model in segment.models]


def test_a_sent_request_waits_until_a_worker_has_it() -> None:
    segment, _, references = engine()
    assert looked(segment) == [OfModel(4, 4, 10.0), OfModel(0, 0, 0.0)]
    give(segment, references[:1])
    assert looked(segment)[0] == OfModel(4, 3, 9.0)
    give(segment, references[1:])
    assert looked(segment)[0] == OfModel(4, 0, 0.0)


@pytest.mark.parametrize("given", [TASK_WORDS - 3, 5 * TASK_WORDS - 1])
def test_a_task_that_goes_round_the_end_of_the_ring_is_read_whole(given: int) -> None:
    segment, _, references = engine()
    ring = segment.layout.task_ring(0)
    for word in (RingWords.HEAD, RingWords.TAIL):
        segment.words[ring + word] = given
    give(segment, references[:3])
    assert looked(segment)[0].waiting == 1


@pytest.mark.parametrize("words", [[0], [3, 1, 2], [9, 1], [1 << 60]])
def test_a_ring_that_makes_no_sense_holds_nothing(words: list[int]) -> None:
    segment, _, _ = engine()
    ring = segment.layout.task_ring(0)
    first = ring + RingWords.ITEMS
    for place, word in enumerate(words):
        segment.words[first + place] = word
    segment.words[ring + RingWords.TAIL] = len(words)
    assert looked(segment)[0].waiting == 4
    segment.words[ring + RingWords.TAIL] = 1 << 62
    assert looked(segment)[0].waiting == 4


def test_a_sample_has_all_that_the_page_shows() -> None:
    segment, _, references = engine()
    layout, words = segment.layout, segment.words
    tally = Tallies(segment, 0).of(segment.models[0].account, "a", "1")
    tally[Protocol.V1].answered_many(np.array([1_000_000] * 5))
    tally[Protocol.GRPC].ended(503, 2_000_000, 2)
    Counters(words, layout.worker_counters(0)).add(WorkerCounter.BATCHES, 2)
    Counters(words, layout.worker_counters(0)).add(WorkerCounter.ROWS, 7)
    Counters(words, layout.collector_counters()).add(CollectorCounter.WORKER_DEATHS, 3)
    for now_ns, last_ns in ((5_000_000, 0), (6_000_000, 5_000_000), (6_100_000, 6_000_000)):
        tally[Protocol.V1].parts.count(now_ns, last_ns, 1_000_000)
    give(segment, references[:1])
    segment.name = "/ringbatch.prod.7.x"
    found = sample(segment, 20 * S)
    assert (found.engine, found.pid) == ("prod", 7)
    a, b = found.models
    assert (a.title, a.under_way.in_flight, a.under_way.waiting) == ("a", 4, 3)
    assert {code: count for code, count in a.codes.items() if count} == {"200": 5, "503": 2}
    assert sum(a.times) == 5
    assert (sum(a.firsts), sum(a.gaps), a.parts, b.parts) == (1, 2, 3, 0)
    assert (a.in_parts, b.in_parts) == (True, False)
    assert (b.under_way.in_flight, sum(b.codes.values())) == (0, 0)
    assert [(w.number, w.model, w.batches, w.rows) for w in found.workers] == [
        (0, "a", 2, 7),
        (1, "b", 0, 0),
    ]
    assert found.counts["workers died"] == 3
    text = "\n".join(line.text for line in page(None, found, 100))
    assert "a: so far ended 200: 5, 503: 2" in text


def test_classes_are_in_a_sample_once_a_request_is_not_normal() -> None:
    segment, _, _ = engine()
    segment.name = "/ringbatch.prod.7.x"
    account = segment.models[0].account
    counters = CounterBlocks(segment.words, segment.layout).of(account)
    counters.dispatched((0, 0), 5, Reason.IDLE, 2)
    Tallies(segment, 0).of(account, "a", "1")[Protocol.V1].ended(503, 7)
    assert sample(segment, 20 * S).models[0].classes == {}
    bulk = account_word(7, PriorityClass.BULK)
    Tallies(segment, 1).of(account, "a", "1")[Protocol.V1].ended(429, 7, 1, bulk)
    assert sample(segment, 20 * S).models[0].classes == {
        "interactive": NO_REQUESTS,
        "normal": ClassSample(2, 10, 0, 1),
        "bulk": ClassSample(0, 0, 0, 1),
    }
