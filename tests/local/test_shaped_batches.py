"""Batches by bucket, by elements and by allowed sizes, and what the collector learns of warm-up."""

from dataclasses import replace
from typing import Any

import pytest
from collector_harness import CollectorHarness
from segment_fixture import pack, spec

from ringbatch.engine.report.models import mean_trials, table
from ringbatch.shm import cost_profile
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.descriptors import ModelCounterWords, ModelWords
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.slot import SLOT_MASK, Reason
from ringbatch.shm.tensor import Tensor

IDS = Tensor("ids", "INT8", [-1])
SUM = Tensor("sum", "INT64", [])
LATENCY = 1_000


def shaped(*, policy: str = "eager", max_batch_size: int = 4, **more: Any) -> ModelSpec:
    made = spec(
        0, [IDS], [SUM], policy=policy, max_latency_ns=LATENCY, max_batch_size=max_batch_size
    )
    return replace(made, **more)


def send(harness: CollectorHarness, length: int, rows: int = 1, accepted_ns: int = 0) -> int:
    payload, key_bytes = pack([IDS], [[[1] * length] * rows])
    return harness.clients[0].send(payload, rows, accepted_ns=accepted_ns, key_bytes=key_bytes)


def ran(harness: CollectorHarness) -> list[int]:
    """The slots of the one task that the worker has just been given; it is done."""
    task = harness.workers[0].task()
    harness.workers[0].finish(task)
    return [ref & SLOT_MASK for ref in task.references]


def batches(harness: CollectorHarness, now_ns: int = 0) -> list[list[int]]:
    """Return all batches until no request waits."""
    found: list[list[int]] = []
    for _ in range(20):
        harness.step(now_ns)
        if not harness.clients[0].lane.in_flight:
            return found
        found.append(ran(harness))
        harness.step(now_ns)
        harness.clients[0].collect()
    raise AssertionError("something waits for ever")


def test_lengths_of_one_bucket_share_a_batch_and_others_do_not() -> None:
    harness = CollectorHarness(shaped(pad_variable_length=True, length_buckets=(4, 8))).begin()
    slots = [send(harness, length) for length in (1, 5, 4, 8, 3, 9, 200)]
    by_bucket = [[slots[0], slots[2], slots[4]], [slots[1], slots[3]], slots[5:]]
    assert batches(harness) == by_bucket


def test_without_buckets_all_lengths_share_a_batch() -> None:
    harness = CollectorHarness(shaped(pad_variable_length=True)).begin()
    slots = [send(harness, length) for length in (1, 5, 200)]
    assert batches(harness) == [slots]


def test_without_padding_only_equal_lengths_do() -> None:
    harness = CollectorHarness(shaped()).begin()
    slots = [send(harness, length) for length in (1, 5, 1)]
    assert batches(harness) == [[slots[0], slots[2]], [slots[1]]]


def test_a_key_that_is_none_of_the_models_makes_a_queue_of_its_own() -> None:
    harness = CollectorHarness(shaped(pad_variable_length=True, max_batch_elements=100)).begin()
    good = send(harness, 3)
    odd = harness.clients[0].send(b"\xff" * 24, 1, key_bytes=24)
    assert batches(harness) == [[good], [odd]]


def test_a_batch_holds_no_more_elements_than_it_may() -> None:
    harness = CollectorHarness(
        shaped(pad_variable_length=True, max_batch_elements=20, max_batch_size=16)
    ).begin()
    slots = [send(harness, length) for length in (5, 5, 5, 5, 1, 20, 30, 2)]
    expected = [slots[:4], slots[4:5], slots[5:6], slots[6:7], slots[7:]]
    assert batches(harness) == expected


def test_elements_count_without_padding_as_well() -> None:
    harness = CollectorHarness(shaped(max_batch_elements=10, max_batch_size=16)).begin()
    slots = [send(harness, 4) for _ in range(5)]
    assert batches(harness) == [slots[:2], slots[2:4], slots[4:]]


def test_under_fixed_a_batch_that_is_full_of_elements_waits_for_nothing() -> None:
    harness = CollectorHarness(
        shaped(policy="fixed", pad_variable_length=True, max_batch_elements=10, max_batch_size=16)
    ).begin()
    first = send(harness, 5)
    assert harness.step(0) == LATENCY
    assert harness.workers[0].tasks() == []
    second, _third = send(harness, 5), send(harness, 5)
    assert harness.step(0) is not None
    task = harness.workers[0].task()
    assert [ref & SLOT_MASK for ref in task.references] == [first, second]
    counters = Counted(harness.segment.words, harness.segment.layout, 0)
    assert counters[ModelCounterWords.BATCHES_BY_REASON + Reason.FULL] == 1


@pytest.mark.parametrize(("at_ns", "shorts_first"), [(60, True), (1000, True), (45, False)])
def test_short_requests_go_before_a_long_one_that_has_waited_little_longer(
    at_ns: int, shorts_first: bool
) -> None:
    harness = CollectorHarness(
        shaped(pad_variable_length=True, length_buckets=(8, 64), max_batch_elements=64)
    ).begin()
    long = [send(harness, 64) for _ in range(2)]
    harness.step(0)
    first = harness.workers[0].task()
    short = [send(harness, 5, accepted_ns=30) for _ in range(2)]
    harness.workers[0].finish(first)
    harness.step(at_ns)
    harness.clients[0].collect()
    assert (ran(harness) == short) is shorts_first
    assert batches(harness, at_ns) == [long[1:] if shorts_first else short]


def warmed(model: ModelSpec, *tried: Trial) -> CollectorHarness:
    harness = CollectorHarness(model)
    cost_profile.write(harness.segment, 0, tried)
    return harness.begin()


def test_a_batch_closes_at_the_size_below_where_that_pays() -> None:
    model = shaped(max_batch_size=8, allowed_batch_sizes=(1, 4, 8))
    tried = [Trial(1, 16, 10), Trial(4, 16, 20), Trial(8, 16, 100)]
    harness = warmed(model, *tried)
    slots = [send(harness, 1) for _ in range(6)]
    assert batches(harness) == [slots[:4], slots[4:]]
    flat = warmed(model, *(trial._replace(run_ns=10) for trial in tried))
    slots = [send(flat, 1) for _ in range(6)]
    assert batches(flat) == [slots]
    unknown = CollectorHarness(model).begin()
    slots = [send(unknown, 1) for _ in range(6)]
    assert batches(unknown) == [slots]


def backlog(harness: CollectorHarness) -> tuple[int, int]:
    words, first = harness.segment.words, harness.segment.layout.model(0)
    return words[first + ModelWords.ANSWER_NS], words[first + ModelWords.ROW_NS]


def test_the_cost_of_a_burst_is_known_before_the_first_batch() -> None:
    assert backlog(CollectorHarness(shaped()).begin()) == (0, 0)
    harness = warmed(shaped(), Trial(1, 16, 100), Trial(4, 16, 4000))
    assert backlog(harness) == (0, 1000)
    for _ in range(9):
        send(harness, 1)
    harness.step(0)
    assert backlog(harness) == (3 * 4000, 1000), "the batch that runs, a full one, and its own"


def test_a_models_shapes_are_listed_with_the_times_of_its_batches() -> None:
    model = shaped(
        workers=(0, 1),
        max_batch_elements=512,
        pad_variable_length=True,
        length_buckets=(32, 64),
        allowed_batch_sizes=(1, 4),
    )
    harness = CollectorHarness(model)
    cost_profile.write(harness.segment, 0, [Trial(1, 32, 1_000_000), Trial(4, 32, 2_000_000)])
    cost_profile.write(harness.segment, 1, [Trial(1, 32, 3_000_000)])
    harness.begin()
    assert table(harness.segment).splitlines() == [
        "m: python, 2 of 2 workers ready",
        "  ids INT8 [-1] -> sum INT64 []",
        "  batches: of 1, 4 instances and up to 512 elements, padded to 32, 64, eager",
        "  warm-up:",
        "    1 x 32   2.000 ms     500 instances/s",
        "    4 x 32   2.000 ms   2,000 instances/s",
    ]


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (spec(max_batch_size=0), "none, each instance runs alone"),
        (
            replace(spec(max_batch_size=1), places=8),
            "in steps, up to 8 rows at once in each worker",
        ),
        (spec(), "of up to 32 instances, eager"),
        (shaped(pad_variable_length=True), "of up to 4 instances, padded to the longest, eager"),
    ],
)
def test_other_models_are_listed_too(model: ModelSpec, line: str) -> None:
    text = table(CollectorHarness(model).segment)
    assert f"  batches: {line}\n  warm-up: none" in text


def test_a_size_takes_the_mean_of_the_workers_that_tried_it() -> None:
    assert mean_trials([[Trial(4, 0, 10), Trial(1, 0, 5)], [Trial(4, 0, 30)], []]) == [
        Trial(1, 0, 5),
        Trial(4, 0, 20),
    ]
