"""What is counted in the segment, for Prometheus: one view of the whole engine.

Everything is read when somebody asks; the engine does not notice. Labels have few values: names of
models, numbers of lanes and workers, and words of the code. Counters begin at zero with the engine.
"""

import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import numpy as np
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ringbatch.frontend.request.readiness import obstacle
from ringbatch.shm.counters import (
    ROWS_BUCKETS,
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    WorkerCounter,
)
from ringbatch.shm.descriptors import (
    CounterWords,
    ModelWords,
    RingWords,
    SlotWords,
    WorkerState,
    WorkerWords,
)
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.slot_arrays import open_array

_NS: Final = 1e-9

LANE_NAMES: Final = {
    LaneCounter.REQUESTS: ("lane_requests", "Requests given to the collector."),
    LaneCounter.ANSWERS: ("lane_answers", "Answers that came while somebody waited."),
    LaneCounter.REFUSED: ("lane_refused", "Requests refused for want of slots, memory or time."),
    LaneCounter.TIMEOUTS: ("lane_timeouts", "Requests whose deadline came before the answer."),
    LaneCounter.LATE_ANSWERS: ("lane_late_answers", "Answers to an earlier request of a slot."),
    LaneCounter.MISSED_WAKEUPS: ("lane_missed_wakeups", "Answers only the sweep found; stays 0."),
    LaneCounter.HANDED_OVER: ("lane_handed_over", "Connections given to the Falcon path."),
    LaneCounter.CORRUPT_RINGS: ("lane_corrupt_rings", "Rings that claimed the impossible."),
    LaneCounter.CANCELLED: ("lane_cancelled", "Requests given up before their answer."),
}
"""By counter, the name behind ``ringbatch_`` and what it says."""
COLLECTOR_NAMES: Final = {
    CollectorCounter.STEPS: ("collector_steps", "Times the collector woke up."),
    CollectorCounter.CORRUPT_RINGS: ("collector_corrupt_rings", "Rings of the impossible."),
    CollectorCounter.CORRUPT_SLOTS: ("collector_corrupt_slots", "Slots that made no sense."),
    CollectorCounter.WORKER_DEATHS: ("worker_deaths", "Workers that died."),
    CollectorCounter.MISSED_WAKEUPS: (
        "collector_missed_wakeups",
        "Requests or reports only the sweep found; stays 0.",
    ),
    CollectorCounter.WORKERS_HUNG: ("workers_hung", "Workers that hung and were ended."),
    CollectorCounter.QUARANTINED: (
        "quarantined",
        "Requests refused because workers died of them.",
    ),
}
MODEL_NAMES: Final = {
    ModelCounter.REQUESTS: ("model_parts", "Requests collected, each part and each time sent.", 1),
    ModelCounter.ROWS: ("model_instances", "Instances in the requests collected.", 1),
    ModelCounter.EXPIRED: ("model_expired", "Requests dropped at their deadline, not run.", 1),
    ModelCounter.CANCELLED: ("model_cancelled", "Requests dropped as nobody waited any more.", 1),
    ModelCounter.WAIT_NS: (
        "model_queue_seconds",
        "Time from acceptance to dispatch, summed over requests.",
        _NS,
    ),
    ModelCounter.RUN_NS: (
        "model_run_seconds",
        "Time from dispatch to report, summed over batches.",
        _NS,
    ),
    ModelCounter.FAILED: ("model_failed_batches", "Batches that the model failed.", 1),
    ModelCounter.RETRIED: ("model_retried", "Requests that were dispatched again.", 1),
    ModelCounter.PARTS: (
        "model_further_parts",
        "Parts of requests counted before.",
        1,
    ),
    ModelCounter.DISPATCHED_ROWS: (
        "model_dispatched_instances",
        "Instances in the batches dispatched.",
        1,
    ),
}
"""The same, and the unit of one count."""
WORKER_NAMES: Final = {
    WorkerCounter.BATCHES: ("worker_batches", "Batches run.", 1),
    WorkerCounter.ROWS: ("worker_instances", "Instances in the batches run.", 1),
    WorkerCounter.RUN_NS: ("worker_run_seconds", "Time inside the model.", _NS),
}


_OF_MODEL: Final = ["model", "version"]


class EngineMetrics(Collector):
    """Collects the metrics of one engine, for a registry of prometheus_client.

    Args:
        segment: attached.
        version: of ringbatch.
    """

    def __init__(self, segment: Segment, version: str) -> None:
        self._segment = segment
        self._version = version
        self._serving: list[ModelSpec] = []

    def collect(self) -> Iterator[Metric]:
        """The registry's call, for each time that somebody asks."""
        self._segment.read_models()
        # What loads or retires has the name and version of what serves.
        self._serving = [spec for spec in self._segment.models if spec.state == SERVING]
        yield InfoMetricFamily("ringbatch", "What runs.", {"version": self._version or "unknown"})
        yield _gauge("draining", "1 while the engine stops.", int(self._segment.stopping))
        yield _gauge(
            "frontends", "Frontends that accept connections.", self._segment.serving_lanes()
        )
        yield from self._of_lanes()
        yield from self._of_collector()
        yield from self._of_models()
        yield from self._of_workers()

    def _of_lanes(self) -> Iterator[Metric]:
        layout, words = self._segment.layout, self._segment.words
        blocks = [Counters(words, layout.lane_counters(lane)) for lane in range(layout.lanes)]
        for counter, (name, says) in LANE_NAMES.items():
            family = CounterMetricFamily(f"ringbatch_{name}", says, labels=["lane"])
            for lane, block in enumerate(blocks):
                family.add_metric([str(lane)], block[counter])
            yield family
        waiting = GaugeMetricFamily(
            "ringbatch_lane_waiting", "Requests that the collector has not taken.", labels=["lane"]
        )
        for lane in range(layout.lanes):
            ring = layout.submission_ring(lane)
            taken = words[ring + RingWords.HEAD]
            # Read in this order, what comes in between makes it larger and never negative.
            given = words[ring + RingWords.TAIL]
            waiting.add_metric([str(lane)], given - taken)
        yield waiting

    def _of_collector(self) -> Iterator[Metric]:
        block = Counters(self._segment.words, self._segment.layout.collector_counters())
        for counter, (name, says) in COLLECTOR_NAMES.items():
            yield CounterMetricFamily(f"ringbatch_{name}", says, value=block[counter])

    def _of_models(self) -> Iterator[Metric]:
        models = self._serving
        blocks = {spec: self._model_counters(spec) for spec in models}
        for counter, (name, says, unit) in MODEL_NAMES.items():
            family = CounterMetricFamily(f"ringbatch_{name}", says, labels=_OF_MODEL)
            for spec, block in blocks.items():
                family.add_metric([spec.name, spec.version], block[counter] * unit)
            yield family
        requests = CounterMetricFamily(
            "ringbatch_model_requests",
            "Requests collected, as sent.",
            labels=_OF_MODEL,
        )
        for spec, block in blocks.items():
            whole = block[ModelCounter.REQUESTS] - block[ModelCounter.PARTS]
            requests.add_metric([spec.name, spec.version], whole)
        yield requests
        yield self._batches(blocks)
        yield self._batch_sizes(blocks)
        in_flight = self._in_flight()
        for name, says, values in (
            ("workers", "Workers configured.", [spec.running for spec in models]),
            ("ready_workers", "Workers that take batches.", self._model_words(ModelWords.READY)),
            ("ready", "1 while requests can be expected to be answered.", self._ready()),
            ("in_flight", "Requests waiting or running.", in_flight),
            (
                "answer_seconds",
                "What a request that comes now is expected to take; 0 where nothing waits.",
                [ns * _NS for ns in self._model_words(ModelWords.ANSWER_NS)],
            ),
        ):
            gauge = GaugeMetricFamily(f"ringbatch_model_{name}", says, labels=_OF_MODEL)
            for spec, value in zip(models, values, strict=True):
                gauge.add_metric([spec.name, spec.version], value)
            yield gauge

    def _batches(self, blocks: dict[ModelSpec, Counters]) -> Metric:
        family = CounterMetricFamily(
            "ringbatch_model_batches",
            "Batches dispatched, by why they closed.",
            labels=[*_OF_MODEL, "reason"],
        )
        for spec, block in blocks.items():
            for reason in Reason:
                labels = [spec.name, spec.version, reason.name.lower()]
                family.add_metric(labels, block[CounterWords.BATCHES_BY_REASON + reason])
        return family

    def _batch_sizes(self, blocks: dict[ModelSpec, Counters]) -> Metric:
        family = HistogramMetricFamily(
            "ringbatch_model_batch_instances", "Instances in a batch dispatched.", labels=_OF_MODEL
        )
        bounds = [*(f"{1 << bucket}.0" for bucket in range(ROWS_BUCKETS - 1)), "+Inf"]
        for spec, block in blocks.items():
            counts = accumulate(
                block[CounterWords.BATCHES_BY_ROWS + bucket] for bucket in range(ROWS_BUCKETS)
            )
            family.add_metric(
                [spec.name, spec.version],
                list(zip(bounds, counts, strict=True)),
                block[ModelCounter.DISPATCHED_ROWS],
            )
        return family

    def _of_workers(self) -> Iterator[Metric]:
        layout, words = self._segment.layout, self._segment.words
        owners = {number: spec for spec in self._serving for number in spec.workers}
        labels = [*_OF_MODEL, "worker"]
        for counter, (name, says, unit) in WORKER_NAMES.items():
            family = CounterMetricFamily(f"ringbatch_{name}", says, labels=labels)
            for number, spec in owners.items():
                value = self._worker_counters(number)[counter] * unit
                family.add_metric([spec.name, spec.version, str(number)], value)
            yield family
        states = GaugeMetricFamily(
            "ringbatch_worker_state", "1 for what a worker says it is.", labels=[*labels, "state"]
        )
        for number, spec in owners.items():
            found = words[layout.worker(number) + WorkerWords.STATE]
            for state in WorkerState:
                labels_of = [spec.name, spec.version, str(number), state.name.lower()]
                states.add_metric(labels_of, int(state == found))
        yield states

    def _in_flight(self) -> list[int]:
        """For each model, the requests that are published and not answered."""
        layout = self._segment.layout
        words = np.frombuffer(self._segment.words, np.uint64)
        step = SlotWords.SIZE
        first = layout.slots_word
        slots = words[first : first + layout.lanes * layout.slots * step].reshape(-1, step)
        control, done = slots[:, SlotWords.CONTROL], slots[:, SlotWords.DONE]
        references = slots[open_array(control, done), SlotWords.MODEL]
        return [int(np.count_nonzero(references == spec.reference)) for spec in self._serving]

    def _ready(self) -> list[int]:
        layout, words, now_ns = self._segment.layout, self._segment.words, time.monotonic_ns()
        return [not obstacle(words, layout.model(spec.index), now_ns) for spec in self._serving]

    def _model_words(self, word: int) -> list[int]:
        layout, words = self._segment.layout, self._segment.words
        return [words[layout.model(spec.index) + word] for spec in self._serving]

    def _model_counters(self, spec: ModelSpec) -> Counters:
        return Counters(self._segment.words, self._segment.layout.model_counters(spec.index))

    def _worker_counters(self, number: int) -> Counters:
        return Counters(self._segment.words, self._segment.layout.worker_counters(number))


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(f"ringbatch_{name}", says, value=value)
