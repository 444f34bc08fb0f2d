"""Metrics over a segment of this process: each is there, and says what the segment does."""

import os
from enum import IntEnum
from platform import python_version
from typing import Final

import orjson
import pytest
from collector_harness import CollectorHarness, eager
from frontend_harness import SteppedLoop
from prometheus_client.parser import text_string_to_metric_families

from ringbatch.frontend.metrics import exposition
from ringbatch.frontend.metrics.exposition import EngineMetrics
from ringbatch.frontend.metrics.families import encoded
from ringbatch.frontend.metrics.processes import usage
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.counters import (
    DEATHS,
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    WorkerCounter,
)
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.model_counters import CounterBlocks
from ringbatch.shm.model_metrics import Metric, OwnMetrics, Series
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.tallies import Protocol, Tallies


@pytest.fixture(autouse=True)
def two_frontends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the lanes' locks, which a segment of this process alone lacks."""
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 2)
    monkeypatch.setattr(Segment, "pid", os.getpid())


def samples(harness: CollectorHarness) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values."""
    text, _ = encoded(EngineMetrics(harness.segment, "1.2.3").collect(usage(os.getpid())), "")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


class Traces:
    delivered: Final = 5
    dropped: Final = {"overwritten": 1, "failed": 2}


def test_metrics_of_traces_are_there_if_requests_are_traced() -> None:
    segment = CollectorHarness(eager()).segment
    (off, on) = (
        encoded(EngineMetrics(segment, "1", traces=traces).collect({}), "")[0].decode()
        for traces in (None, Traces())
    )
    assert "traces" not in off
    assert "ringbatch_traces_exported_total 5\n" in on
    assert 'ringbatch_traces_dropped_total{reason="overwritten"} 1\n' in on
    assert 'ringbatch_traces_dropped_total{reason="failed"} 2\n' in on


@pytest.mark.parametrize(
    ("counters", "names"),
    [
        (LaneCounter, exposition.LANE_NAMES),
        (CollectorCounter, exposition.COLLECTOR_NAMES | dict.fromkeys(exposition.LIMITED)),
        (
            ModelCounter,
            exposition.MODEL_NAMES | {ModelCounter.LATEST_NS: "an instant"} | DEATHS,
        ),
        (WorkerCounter, exposition.WORKER_NAMES),
    ],
)
def test_every_counter_is_a_metric(counters: type[IntEnum], names: dict[IntEnum, object]) -> None:
    assert names.keys() == set(counters)


def test_a_new_engine_has_counted_nothing() -> None:
    found = samples(CollectorHarness(eager(max_batch_size=4)))
    assert found["ringbatch_build_info", python_version(), "1.2.3"] == 1
    counted = {key: n for key, n in found.items() if key[0].endswith("_total")}
    assert counted.pop(("ringbatch_collector_starts_total",)) == 1
    for lane in ("0", "1"):
        assert counted.pop(("ringbatch_lane_holders_total", lane)) == 1
    assert len(counted) > 20
    assert set(counted.values()) == {0}


def test_a_request_is_in_flight_from_lane_to_answer() -> None:
    harness = CollectorHarness(eager(max_batch_size=4)).begin()
    harness.send(lane=1, rows=2)
    harness.clients[1].lane.submit()
    found = samples(harness)
    assert found["ringbatch_lane_waiting", "1"] == 1
    assert found["ringbatch_model_in_flight", "m", "1"] == 1
    assert found["ringbatch_model_waiting", "m", "1"] == 1
    assert found["ringbatch_lane_slots_used", "0"] == 0
    assert found["ringbatch_lane_slots_used", "1"] == 1
    assert found["ringbatch_lane_memory_used_bytes", "1"] > 0
    harness.step(1_000)
    found = samples(harness)
    assert found["ringbatch_model_waiting", "m", "1"] == 0, "a worker has it"
    assert found["ringbatch_model_queue_seconds_count", "m", "1"] == 1
    assert found["ringbatch_lane_waiting", "1"] == 0
    assert found["ringbatch_model_in_flight", "m", "1"] == 1
    assert found["ringbatch_model_batches_total", "m", "idle", "1"] == 1
    assert found["ringbatch_model_batch_instances_bucket", "1.0", "m", "1"] == 0
    assert found["ringbatch_model_batch_instances_bucket", "2.0", "m", "1"] == 1
    assert found["ringbatch_model_batch_instances_count", "m", "1"] == 1
    worker = harness.workers[0]
    worker.finish(worker.task(), run_ns=2_000_000_000)
    harness.step(2_000)
    found = samples(harness)
    assert found["ringbatch_model_in_flight", "m", "1"] == 0
    assert found["ringbatch_model_run_seconds_sum", "m", "1"] == 2
    assert found["ringbatch_model_requests_total", "m", "1"] == 1
    assert found["ringbatch_model_instances_total", "m", "1"] == 2


def test_the_sizes_of_batches_add_up_to_the_dispatched_ones_after_any_model() -> None:
    """A worker's place may have counted for a model that was unloaded."""
    harness = CollectorHarness(eager(max_batch_size=4)).begin()
    worker = harness.segment.layout.worker_counters(0)
    Counters(harness.segment.words, worker).add(WorkerCounter.ROWS, 1000)
    for rows in (2, 3):
        harness.send(rows=rows)
        harness.step(1_000)
        harness.workers[0].finish(harness.workers[0].task())
        harness.step(2_000)
    found = samples(harness)
    assert found["ringbatch_model_batch_instances_count", "m", "1"] == 2
    assert found["ringbatch_model_batch_instances_sum", "m", "1"] == 5
    CounterBlocks(harness.segment.words, harness.segment.layout).of(1 << 16)
    found = samples(harness)
    assert found["ringbatch_model_batch_instances_count", "m", "1"] == 0
    assert found["ringbatch_model_batch_instances_sum", "m", "1"] == 0


def test_a_request_counts_once_also_where_it_is_split_or_sent_again() -> None:
    harness = CollectorHarness(eager(max_batch_size=4)).begin()
    lane, loop = harness.clients[1].lane, SteppedLoop()
    gateway = Gateway(lane, loop, lambda: 1)  # type: ignore[arg-type]
    service = Service(harness.segment, gateway, lambda: 1)
    service.predict("m", orjson.dumps({"instances": [*range(10)]}), lambda *_: None)
    service.predict("m", b'{"instances":[1]}', lambda *_: None)
    loop.turn()
    worker = harness.workers[0]
    engine_slots = EngineSlots(harness.segment, 0, lambda _: None)
    harness.step(1)
    for status, size in ((Status.RESULT_TOO_LARGE, 9_000), (Status.OK, 3)):
        answered = 0
        while answered < 4:
            for task in worker.tasks():
                for ref in task.references:
                    engine_slots.answer(ref, status, size, task.mark, 1)
                    answered += 1
                engine_slots.flush()
                worker.say_done(task.mark.batch)
            harness.step(1)
        gateway.collect()
        loop.turn()
        harness.step(1)
    found = samples(harness)
    assert found["ringbatch_model_requests_total", "m", "1"] == 2
    assert found["ringbatch_model_instances_total", "m", "1"] == 22, "collected twice"
    assert found["ringbatch_lane_requests_total", "1"] == 2
    assert found["ringbatch_lane_answers_total", "1"] == 2
    assert harness.model().requests == 2


def counted_by(harness: CollectorHarness, worker: int, *series: Series) -> None:
    segment = harness.segment
    OwnMetrics(segment.memory, segment.layout.own_metrics(worker)).begin(series)


def test_model_counters_add_up_and_gauges_are_of_running_workers() -> None:
    harness = CollectorHarness(eager(workers=(0, 1, 2)))
    segment = harness.segment
    account = segment.models[0].account
    cut = Metric("counter", "cut", "Texts cut.", account, ("lang",))
    size = Metric("gauge", "size", "Texts kept.", account)
    spread = Metric("histogram", "spread", "Lengths.", account, (), (1.0, 2.0))
    gone = Metric("counter", "gone", "Of a model that is gone.", account + 1)
    for worker in range(3):
        counted_by(
            harness,
            worker,
            Series(cut, ("de",), (2.0,)),
            Series(size, (), (worker + 1.0,)),
            Series(spread, (), (1.0, 0.0, 2.0, 12.5)),
            Series(gone, (), (1.0,)),
        )
        state = WorkerState.ABSENT if worker == 1 else WorkerState.READY
        segment.words[segment.layout.worker(worker) + WorkerWords.STATE] = state
    found = {key: n for key, n in samples(harness).items() if not key[0].startswith("ringbatch_")}
    assert found == {
        ("cut_total", "de", "m", "1"): 6,
        ("size", "m", "1", "0"): 1,
        ("size", "m", "1", "2"): 3,
        ("spread_bucket", "1.0", "m", "1"): 3,
        ("spread_bucket", "2.0", "m", "1"): 3,
        ("spread_bucket", "+Inf", "m", "1"): 9,
        ("spread_count", "m", "1"): 9,
        ("spread_sum", "m", "1"): 37.5,
    }


def test_a_redefined_metric_is_that_of_the_running_workers() -> None:
    harness = CollectorHarness(eager(workers=(0, 1)))
    segment = harness.segment
    account = segment.models[0].account
    old = Metric("counter", "cut", "Old.", account)
    new = Metric("histogram", "cut", "New.", account, (), (1.0,))
    counted_by(harness, 0, Series(old, (), (2.0,)))
    counted_by(harness, 1, Series(new, (), (1.0, 0.0, 0.5)))
    segment.words[segment.layout.worker(0) + WorkerWords.STATE] = WorkerState.ABSENT
    segment.words[segment.layout.worker(1) + WorkerWords.STATE] = WorkerState.READY
    names = {key[0] for key in samples(harness) if key[0].startswith("cut")}
    assert names == {"cut_bucket", "cut_count", "cut_sum"}


def of_classes(harness: CollectorHarness) -> dict[tuple[str, str], float]:
    """The metrics of classes of model m that are not 0, by name and class."""
    found = {key: value for key, value in samples(harness).items() if "_model_class_" in key[0]}
    assert len(found) == 3 * 3 + 3 * 2
    return {
        (key[0].removeprefix("ringbatch_model_class_"), "-".join(key[1:-2])): value
        for key, value in found.items()
        if value and key[-2:] == ("m", "1")
    }


def test_classes_have_metrics_from_the_start_and_share_batches() -> None:
    harness = CollectorHarness(eager(max_batch_size=16)).begin(100)
    assert of_classes(harness) == {}
    second = 1_000_000_000
    harness.send(accepted_ns=101, account=account_word(7, PriorityClass.INTERACTIVE))
    harness.send(accepted_ns=101, rows=3, account=account_word(8, PriorityClass.BULK))
    harness.step(101 + second)
    harness.workers[0].finish(harness.workers[0].task(), run_ns=4 * second)
    harness.step(200 + 9 * second)
    tally = Tallies(harness.segment, 1).of(harness.segment.models[0].account, "m", "1")
    tally[Protocol.GRPC].ended(429, 7, 5)
    tally[Protocol.V1].ended(503, 7, 1, account_word(8, PriorityClass.BULK))
    assert of_classes(harness) == {
        ("parts_total", "interactive"): 1,
        ("parts_total", "bulk"): 1,
        ("queue_seconds_total", "interactive"): 1,
        ("queue_seconds_total", "bulk"): 1,
        ("run_seconds_total", "interactive"): 1,
        ("run_seconds_total", "bulk"): 3,
        ("refused_total", "normal-429"): 5,
        ("refused_total", "bulk-503"): 1,
    }
