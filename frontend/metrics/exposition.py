"""Metrics for Prometheus, read from the segment: one view of the whole engine.

Everything is read on request; the engine does not notice. Labels have few values: names of
models, numbers of lanes and workers, statuses, and words of the code. Counters begin at zero with
the engine, and those of a model go on over a reload.
"""

import platform
import time
from collections.abc import Iterator, Mapping
from typing import Final

from ringbatch.frontend.metrics.deliveries import DeliveryCounts, payload_metrics, trace_metrics
from ringbatch.frontend.metrics.families import Family, gauge
from ringbatch.frontend.metrics.gpus import gpu_metrics
from ringbatch.frontend.metrics.histograms import OF_MODEL, model_metrics, request_metrics
from ringbatch.frontend.metrics.model_metrics import own_metrics
from ringbatch.frontend.metrics.processes import ResourceUsage
from ringbatch.frontend.metrics.upstreams import upstream_metrics
from ringbatch.frontend.security.handshakes import FailedHandshakes
from ringbatch.shm.counters import (
    DEATHS,
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    WorkerCounter,
)
from ringbatch.shm.descriptors import ModelWords, RingWords, WorkerState, WorkerWords
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_readiness import unready_reason
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.restarts import restarts_of
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.gpus import Look, unseen, used_gpus
from ringbatch.shm.snapshot.occupancy import Occupancy

_NS: Final = 1e-9

LANE_NAMES: Final = {
    LaneCounter.REQUESTS: ("lane_requests", "Requests given to the collector."),
    LaneCounter.ANSWERS: ("lane_answers", "Answers that came before the deadline."),
    LaneCounter.REFUSED: ("lane_refused", "Requests refused for lack of slots, memory or time."),
    LaneCounter.TIMEOUTS: (
        "lane_timeouts",
        "Requests whose deadline, or their next part's, passed first.",
    ),
    LaneCounter.LATE_ANSWERS: (
        "lane_late_answers",
        "Answers that came after their request was given up.",
    ),
    LaneCounter.MISSED_WAKEUPS: (
        "lane_missed_wakeups",
        "Answers that only the periodic check found; stays 0.",
    ),
    LaneCounter.HANDED_OVER: ("lane_handed_over", "Connections that left the fast lane."),
    LaneCounter.CORRUPT_RINGS: ("lane_corrupt_rings", "Rings found corrupt by the frontend."),
    LaneCounter.CANCELLED: (
        "lane_cancelled",
        "Requests given up before their answer; texts that ringbatch ends at a stop count too.",
    ),
    LaneCounter.HOLDERS: ("lane_holders", "Processes that have held the lane."),
    LaneCounter.TLS_FAILED: ("lane_tls_failed", "Failed TLS handshakes with clients."),
    LaneCounter.REFUSED_AT_SHARE: (
        "lane_refused_at_share",
        "Requests refused at their model's share while slots for other models were free.",
    ),
    LaneCounter.PAYLOADS_LOST: (
        "lane_payloads_lost",
        "Requests missing in the payload log: the control process was slow, or a frontend died.",
    ),
    LaneCounter.STALLED: (
        "lane_stalled",
        "Answers in parts that ended because their client took nothing.",
    ),
    LaneCounter.REFUSALS_HELD: (
        "lane_refusals_held",
        "Refusals that waited because their clients came before Retry-After.",
    ),
    LaneCounter.RESUMED: (
        "lane_resumed",
        "Times an answer in parts went on elsewhere after its worker died.",
    ),
}
"""Name behind ``ringbatch_``, and the help text, of each counter of a lane."""
COLLECTOR_NAMES: Final = {
    CollectorCounter.STEPS: ("collector_steps", "Wake-ups of the collector."),
    CollectorCounter.CORRUPT_RINGS: (
        "collector_corrupt_rings",
        "Rings found corrupt by the collector.",
    ),
    CollectorCounter.CORRUPT_SLOTS: (
        "collector_corrupt_slots",
        "Slots found corrupt by the collector.",
    ),
    CollectorCounter.WORKER_DEATHS: ("worker_deaths", "Workers that died."),
    CollectorCounter.MISSED_WAKEUPS: (
        "collector_missed_wakeups",
        "Requests and reports that only the periodic check found; stays 0.",
    ),
    CollectorCounter.WORKERS_HUNG: ("workers_hung", "Workers that hung and were ended."),
    CollectorCounter.QUARANTINED: (
        "quarantined",
        "Requests refused because two workers died with them.",
    ),
    CollectorCounter.STARTS: ("collector_starts", "Processes that have been the collector."),
}
LIMITED: Final = {
    CollectorCounter.LIMITED_IN_FLIGHT: "in_flight",
    CollectorCounter.LIMITED_REQUESTS: "requests_per_s",
    CollectorCounter.LIMITED_MODEL_S: "model_s_per_s",
}
"""Limits of accounts, by the counters of the requests refused for them."""
MODEL_NAMES: Final = {
    ModelCounter.REQUESTS: ("model_parts", "Parts of requests collected, again for each retry.", 1),
    ModelCounter.ROWS: ("model_instances", "Instances in the requests collected.", 1),
    ModelCounter.EXPIRED: ("model_expired", "Requests dropped at their deadline without a run.", 1),
    ModelCounter.CANCELLED: (
        "model_cancelled",
        "Requests dropped because no client waited any more.",
        1,
    ),
    ModelCounter.FAILED: ("model_failed_batches", "Batches that failed in the model.", 1),
    ModelCounter.RETRIED: ("model_retried", "Requests that were dispatched again.", 1),
    ModelCounter.PARTS: (
        "model_further_parts",
        "Parts of split requests beyond the first.",
        1,
    ),
    ModelCounter.DISPATCHED_ROWS: (
        "model_dispatched_instances",
        "Instances in dispatched batches.",
        1,
    ),
    ModelCounter.PADDED_ROWS: (
        "model_padded_instances",
        "Rows that pad batches to allowed_batch_sizes.",
        1,
    ),
    ModelCounter.FURTHER_RUNS: (
        "model_further_runs",
        "Runs of batches beyond their first, to isolate failures.",
        1,
    ),
    ModelCounter.EXECUTED: ("model_executed_parts", "Parts of requests in batches that ran.", 1),
    ModelCounter.INPUT_NS: (
        "model_input_seconds",
        "Time to gather inputs, summed over the parts in batches.",
        _NS,
    ),
    ModelCounter.INFER_NS: (
        "model_infer_seconds",
        "Time inside the model, summed over the parts in batches.",
        _NS,
    ),
    ModelCounter.OUTPUT_NS: (
        "model_output_seconds",
        "Time to scatter results, summed over the parts in batches.",
        _NS,
    ),
}
"""Names and texts of metrics by counter, with the unit of one count."""
WORKER_NAMES: Final = {
    WorkerCounter.BATCHES: ("worker_batches", "Batches run.", 1),
    WorkerCounter.ROWS: ("worker_instances", "Instances in the batches run.", 1),
    WorkerCounter.RUN_NS: ("worker_run_seconds", "Time inside the model.", _NS),
}


class EngineMetrics:
    """Collects the metrics of one engine.

    Args:
        segment: attached.
        version: of ringbatch.
        traces: counts of them; None if nothing is traced.
        failed_handshakes: counter of this process's failed TLS hand-shakes.
        payloads: counts of the payload log's events; None without one.
        look: at GPUs.
    """

    def __init__(
        self,
        segment: Segment,
        version: str,
        traces: DeliveryCounts | None = None,
        failed_handshakes: FailedHandshakes | None = None,
        payloads: DeliveryCounts | None = None,
        look: Look = unseen,
    ) -> None:
        self._segment = segment
        self._failed = failed_handshakes or FailedHandshakes()
        self._version = version
        self._traces = traces
        self._payloads = payloads
        self._look = look
        self._serving: list[ModelSpec] = []
        self._accounts: list[ModelSpec] = []

    def collect(self, used: Mapping[str, ResourceUsage]) -> Iterator[Family]:
        """Yield all metrics as they are now.

        Args:
            used: what processes used, by what each of them is.
        """
        segment = self._segment
        segment.read_models()
        # What loads or retires has the name and version of what serves, and its account.
        self._serving = [spec for spec in segment.models if spec.state == SERVING]
        self._accounts = list({spec.account: spec for spec in segment.models}.values())
        occupancy = Occupancy(segment, time.monotonic_ns())
        python = platform.python_version()
        build = {"version": self._version or "unknown", "python": python}
        info = Family(
            "info", "ringbatch_build", "Version of ringbatch and of Python.", tuple(build)
        )
        info.add(tuple(build.values()), 1)
        yield info
        yield gauge("ringbatch_draining", "1 while the engine is stopping.", int(segment.stopping))
        yield gauge(
            "ringbatch_frontends", "Frontends that serve requests.", segment.serving_lanes()
        )
        yield from request_metrics(segment, self._accounts)
        yield from self._of_lanes(occupancy)
        yield from self._of_collector()
        yield self._restarts()
        yield from self._of_models(occupancy)
        yield from self._of_workers()
        yield from gpu_metrics(used_gpus(segment, self._look), self._serving)
        yield from upstream_metrics(segment, self._serving)
        yield from own_metrics(segment, self._accounts)
        yield from _of_processes(used)
        failed = "Failed TLS handshakes at the control address."
        family = Family("counter", "ringbatch_control_tls_failed", failed)
        family.add((), self._failed.total)
        yield family
        if self._traces is not None:
            yield from trace_metrics(self._traces)
        if self._payloads is not None:
            yield from payload_metrics(self._payloads)

    def _of_lanes(self, occupancy: Occupancy) -> Iterator[Family]:
        layout, words = self._segment.layout, self._segment.words
        blocks = [Counters(words, layout.lane_counters(lane)) for lane in range(layout.lanes)]
        for counter, (name, help_text) in LANE_NAMES.items():
            family = Family("counter", f"ringbatch_{name}", help_text, labels=["lane"])
            for lane, block in enumerate(blocks):
                family.add([str(lane)], block[counter])
            yield family
        untaken = []
        for lane in range(layout.lanes):
            ring = layout.submission_ring(lane)
            taken = words[ring + RingWords.HEAD]
            # Read in this order, what comes in between makes it larger and never negative.
            untaken.append(words[ring + RingWords.TAIL] - taken)
        for name, help_text, values in (
            ("waiting", "Requests that the collector has not read yet.", untaken),
            ("slots_used", "Slots with unanswered requests.", occupancy.slots),
            (
                "memory_used_bytes",
                "Memory of unanswered requests and for their answers.",
                occupancy.memory_bytes,
            ),
        ):
            family = Family("gauge", f"ringbatch_lane_{name}", help_text, labels=["lane"])
            for lane, value in enumerate(values):
                family.add([str(lane)], value)
            yield family
        yield gauge("ringbatch_lane_slots", "Slots of each lane.", layout.slots)
        yield gauge(
            "ringbatch_lane_memory_bytes",
            "Memory of each lane for requests and answers.",
            layout.lane_bytes,
        )

    def _of_collector(self) -> Iterator[Family]:
        block = Counters(self._segment.words, self._segment.layout.collector_counters())
        for counter, (name, help_text) in COLLECTOR_NAMES.items():
            family = Family("counter", f"ringbatch_{name}", help_text)
            family.add((), block[counter])
            yield family
        limited = "Requests refused because their client had reached a limit."
        family = Family("counter", "ringbatch_account_limited", limited, labels=["limit"])
        for counter, limit in LIMITED.items():
            family.add([limit], block[counter])
        yield family

    def _restarts(self) -> Family:
        family = Family(
            "counter",
            "ringbatch_restarts",
            "Restarts of processes other than workers, by role and by reason of their end.",
            labels=["role", "reason"],
        )
        for (role, reason), count in restarts_of(self._segment).items():
            family.add([role.name.lower(), reason.name.lower()], count)
        return family

    def _of_models(self, occupancy: Occupancy) -> Iterator[Family]:
        words, layout, models = self._segment.words, self._segment.layout, self._serving
        counted = [(s, Counted(words, layout, s.account)) for s in self._accounts]
        yield from model_metrics(counted)
        for counter, (name, help_text, unit) in MODEL_NAMES.items():
            family = Family("counter", f"ringbatch_{name}", help_text, labels=OF_MODEL)
            for spec, block in counted:
                family.add([spec.name, spec.version], block[counter] * unit)
            yield family
        requests = Family(
            "counter", "ringbatch_model_requests", "Requests collected.", labels=OF_MODEL
        )
        deaths = Family(
            "counter",
            "ringbatch_model_worker_deaths",
            "Restarted workers, by the reason of their end: crashed, killed or hung.",
            labels=[*OF_MODEL, "reason"],
        )
        restarts = Family(
            "counter",
            "ringbatch_model_worker_restarts",
            "Restarted workers, by the case that sets the delay.",
            labels=[*OF_MODEL, "case"],
        )
        for spec, block in counted:
            for case, count in Scalings(words, layout, spec.account).restarts().items():
                restarts.add([spec.name, spec.version, case.name.lower()], count)
            whole = block[ModelCounter.REQUESTS] - block[ModelCounter.PARTS]
            requests.add([spec.name, spec.version], whole)
            for counter, reason in DEATHS.items():
                deaths.add([spec.name, spec.version, reason], block[counter])
        yield requests
        yield deaths
        yield restarts
        yield from self._of_scaling()
        yield from self._of_actors()
        yield from self._of_steps()
        under_way = [occupancy.of(spec) for spec in models]
        for name, help_text, values in (
            ("workers", "Configured workers.", [spec.running for spec in models]),
            ("ready_workers", "Workers that take batches.", self._model_words(ModelWords.READY)),
            ("ready", "1 while the model is ready.", self._ready()),
            ("in_flight", "Requests waiting or running.", [m.in_flight for m in under_way]),
            ("waiting", "Requests that wait for a worker.", [m.waiting for m in under_way]),
            (
                "oldest_waiting_seconds",
                "Wait of the oldest waiting request; 0 if none waits.",
                [m.oldest_s for m in under_way],
            ),
            (
                "answer_seconds",
                "Expected time to the answer of a request sent now; 0 while a worker is idle "
                "and nothing waits, and while no worker is ready.",
                [ns * _NS for ns in self._model_words(ModelWords.ANSWER_NS)],
            ),
        ):
            family = Family("gauge", f"ringbatch_model_{name}", help_text, labels=OF_MODEL)
            for spec, value in zip(models, values, strict=True):
                family.add([spec.name, spec.version], value)
            yield family

    def _of_actors(self) -> Iterator[Family]:
        far = [spec for spec in self._serving if spec.remote]
        if far:
            family = Family(
                "gauge",
                "ringbatch_model_ray_workers",
                "Configured workers with an actor in a Ray cluster.",
                labels=OF_MODEL,
            )
            for spec in far:
                family.add([spec.name, spec.version], len(spec.remote))
            yield family

    def _of_steps(self) -> Iterator[Family]:
        stepped = [spec for spec in self._serving if spec.places]
        if not stepped:
            return
        layout, words = self._segment.layout, self._segment.words
        live, cost, places = (
            Family("gauge", f"ringbatch_model_{name}", help_text, labels=OF_MODEL)
            for name, help_text in (
                ("live_rows", "Rows that a model in steps runs now."),
                ("live_cost", "Cost of these rows by the model's cost, 0 without max_batch_cost."),
                ("row_places", "Rows that the ready workers of a model in steps can run at once."),
            )
        )
        for spec in stepped:
            firsts = [layout.worker(number) for number in spec.workers]
            ready = [f for f in firsts if words[f + WorkerWords.STATE] == WorkerState.READY]
            rows = sum([words[first + WorkerWords.LIVE_ROWS] for first in ready])
            live.add([spec.name, spec.version], rows)
            costs = sum([words[first + WorkerWords.LIVE_COST] for first in ready])
            cost.add([spec.name, spec.version], costs)
            places.add([spec.name, spec.version], spec.places * len(ready))
        yield live
        yield cost
        yield places

    def _of_scaling(self) -> Iterator[Family]:
        elastic = [spec for spec in self._serving if spec.most]
        if not elastic:
            return
        blocks = [Scalings(self._segment.words, self._segment.layout, s.account) for s in elastic]
        decisions = Family(
            "counter",
            "ringbatch_model_scalings",
            "Decisions on the number of workers of a range: up, down or held, with the reason.",
            labels=[*OF_MODEL, "direction", "reason"],
        )
        for spec, block in zip(elastic, blocks, strict=True):
            for cause, count in block.counts().items():
                labels = [spec.name, spec.version, cause.direction, cause.name.lower()]
                decisions.add(labels, count)
        yield decisions
        for name, help_text, values in (
            ("wanted_workers", "Workers that the load needs.", [b.wanted for b in blocks]),
            ("least_workers", "Fewest workers of the range.", [spec.least for spec in elastic]),
            ("most_workers", "Most workers of the range.", [spec.most for spec in elastic]),
        ):
            family = Family("gauge", f"ringbatch_model_{name}", help_text, labels=OF_MODEL)
            for spec, value in zip(elastic, values, strict=True):
                family.add([spec.name, spec.version], value)
            yield family

    def _of_workers(self) -> Iterator[Family]:
        layout, words = self._segment.layout, self._segment.words
        owners = {number: spec for spec in self._serving for number in spec.workers}
        labels = [*OF_MODEL, "worker"]
        for counter, (name, help_text, unit) in WORKER_NAMES.items():
            family = Family("counter", f"ringbatch_{name}", help_text, labels=labels)
            for number, spec in owners.items():
                block = Counters(words, layout.worker_counters(number))
                value = block[counter] * unit
                family.add([spec.name, spec.version, str(number)], value)
            yield family
        states = Family(
            "gauge",
            "ringbatch_worker_state",
            "1 for the worker's present state.",
            labels=[*labels, "state"],
        )
        for number, spec in owners.items():
            found = words[layout.worker(number) + WorkerWords.STATE]
            for state in WorkerState:
                labels_of = [spec.name, spec.version, str(number), state.name.lower()]
                states.add(labels_of, int(state == found))
        yield states

    def _ready(self) -> list[int]:
        layout, words, now_ns = self._segment.layout, self._segment.words, time.monotonic_ns()
        return [int(not unready_reason(words, layout, spec, now_ns)) for spec in self._serving]

    def _model_words(self, word: int) -> list[int]:
        layout, words = self._segment.layout, self._segment.words
        return [words[layout.model(spec.index) + word] for spec in self._serving]


def _of_processes(used: Mapping[str, ResourceUsage]) -> Iterator[Family]:
    memory = Family(
        "gauge",
        "ringbatch_process_resident_memory_bytes",
        "Resident memory of a process, shared memory included.",
        labels=["process"],
    )
    cpu = Family(
        "counter", "ringbatch_process_cpu_seconds", "CPU time of a process.", labels=["process"]
    )
    for name, own in sorted(used.items()):
        memory.add([name], own.memory_bytes)
        cpu.add([name], own.cpu_s)
    yield memory
    yield cpu
