"""Metrics over a segment of this process: each is there, and says what the segment does."""

from enum import IntEnum

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from stand import Stand, eager

from ringbatch.frontend import metrics
from ringbatch.frontend.metrics import EngineMetrics
from ringbatch.shm.counters import CollectorCounter, LaneCounter, ModelCounter, WorkerCounter
from ringbatch.shm.segment import Segment


@pytest.fixture(autouse=True)
def two_frontends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of this process alone has no locks."""
    monkeypatch.setattr(Segment, "held_lanes", lambda _: 2)


def samples(stand: Stand) -> dict[tuple[str, ...], float]:
    """By name and the values of labels."""
    registry = CollectorRegistry()
    registry.register(EngineMetrics(stand.segment, "1.2.3"))
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("counters", "names"),
    [
        (LaneCounter, metrics.LANE_NAMES),
        (CollectorCounter, metrics.COLLECTOR_NAMES),
        (ModelCounter, metrics.MODEL_NAMES),
        (WorkerCounter, metrics.WORKER_NAMES),
    ],
)
def test_every_counter_is_a_metric(counters: type[IntEnum], names: dict[IntEnum, object]) -> None:
    assert names.keys() == set(counters)


def test_a_new_engine_has_counted_nothing() -> None:
    found = samples(Stand(eager(max_batch_size=4)))
    assert found["ringbatch_info", "1.2.3"] == 1
    counted = {key: n for key, n in found.items() if key[0].endswith("_total")}
    assert len(counted) > 20
    assert set(counted.values()) == {0}


def test_a_request_is_in_flight_from_lane_to_answer() -> None:
    stand = Stand(eager(max_batch_size=4)).begin()
    stand.send(lane=1, rows=2)
    stand.clients[1].lane.announce()
    found = samples(stand)
    assert found["ringbatch_lane_waiting", "1"] == 1
    assert found["ringbatch_model_in_flight", "m", "1"] == 1
    stand.step(1_000)
    found = samples(stand)
    assert found["ringbatch_lane_waiting", "1"] == 0
    assert found["ringbatch_model_in_flight", "m", "1"] == 1
    assert found["ringbatch_model_batches_total", "m", "idle", "1"] == 1
    assert found["ringbatch_model_batch_instances_bucket", "1.0", "m", "1"] == 0
    assert found["ringbatch_model_batch_instances_bucket", "2.0", "m", "1"] == 1
    assert found["ringbatch_model_batch_instances_count", "m", "1"] == 1
    worker = stand.workers[0]
    worker.finish(worker.task(), run_ns=2_000_000_000)
    stand.step(2_000)
    found = samples(stand)
    assert found["ringbatch_model_in_flight", "m", "1"] == 0
    assert found["ringbatch_model_run_seconds_total", "m", "1"] == 2
    assert found["ringbatch_model_requests_total", "m", "1"] == 1
    assert found["ringbatch_model_instances_total", "m", "1"] == 2
