"""Counters and states of a segment, under the names that people read."""

import time
from dataclasses import dataclass
from typing import Final

from ringbatch.shm.counters import (
    DEATHS,
    CollectorCounter,
    Counters,
    LaneCounter,
    ModelCounter,
    WorkerCounter,
    bucket_label,
)
from ringbatch.shm.descriptors import ModelWords, WorkerState, WorkerWords
from ringbatch.shm.errors import shortage
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_spec import ModelSpec, titled
from ringbatch.shm.process_state import is_stopped, stopped_words
from ringbatch.shm.scalings import Scalings
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason
from ringbatch.shm.tallies import ends_of
from ringbatch.shm.upstreams import ServerCounts, Upstreams

IN_RAY: Final = ", drives an actor in a Ray cluster"
"""Words for a worker with an actor, beside its state."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Counts of one model since the engine started.

    Attributes:
        workers: configured to run.
        spares: configured beside these, to wait for the death of one.
        limits: the fewest and the most, if the load decides how many run; else None.
        ready: those of these workers that take batches now.
        requests: collected.
        rows: instances in them.
        batches: how many batches were closed for each reason; reasons that never came are left out.
        batch_rows: how many batches had sizes in each range, by the range's label, in order.
        wait_ms: mean time between acceptance and dispatch.
        run_ms: mean time inside the model, a batch.
        answer_ms: expected time to the answer of a request that comes now; 0 if nothing waits.
        dropped: requests that expired or were cancelled before they were run.
        failed: batches in which the model failed for a request.
        answered: requests that were answered with 200, as clients saw them.
        refused: requests that were answered with an error, or given up.
        retried: requests run again because a worker died.
        deaths: workers that ended and were started again, by why they ended.
        restarts: the same by the case that decides how soon they start, and starts that were tried
            again; cases that never came are left out.
        file_differs: whether another file lies at the model's path than the one that is served.
        servers: the model servers that run it, if others do.
    """

    workers: int
    spares: int
    ready: int
    requests: int
    rows: int
    batches: dict[str, int]
    batch_rows: dict[str, int]
    wait_ms: float
    run_ms: float
    answer_ms: float
    dropped: int
    failed: int
    retried: int
    answered: int
    refused: int
    deaths: dict[str, int]
    restarts: dict[str, int]
    file_differs: bool = False
    limits: tuple[int, int] | None = None
    servers: tuple[ServerCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Counters of an engine, for `ringbatch status`.

    Attributes:
        models: by name; a version that is not the engine's choice by both, with its state.
        frontends: counts of `LaneCounter`, summed over the lanes.
        collector: counts of `CollectorCounter`.
        workers: counts of `WorkerCounter`, by the worker's number.
        states: what each worker last said of itself, by its number, in words, and that it is
            stopped.
        pids: their processes, by the same; 0 if there is none.
    """

    models: dict[str, ModelStatus]
    frontends: dict[str, int]
    collector: dict[str, int]
    workers: dict[int, dict[str, int]]
    states: dict[int, str]
    pids: dict[int, int]


def read(segment: Segment) -> EngineStatus:
    """Return the counters of an attached segment."""
    layout, words = segment.layout, segment.words
    lanes = [Counters(words, layout.lane_counters(lane)) for lane in range(layout.lanes)]
    segment.read_models()
    workers = sorted(number for spec in segment.models for number in spec.workers)
    places = {number: spec.places for spec in segment.models for number in spec.workers}
    far = dict.fromkeys(workers, "")
    far |= {number: IN_RAY for spec in segment.models for number in spec.remote}
    collector = Counters(words, layout.collector_counters())
    return EngineStatus(
        models=_models(segment),
        frontends={_label(c): sum(lane[c] for lane in lanes) for c in LaneCounter},
        collector={_label(c): collector[c] for c in CollectorCounter},
        workers={
            number: {
                _label(c): Counters(words, layout.worker_counters(number))[c] for c in WorkerCounter
            }
            for number in workers
        },
        states={
            number: _state(segment, number, places[number]) + far[number] for number in workers
        },
        pids={number: _pid(segment, number) for number in workers},
    )


def _models(segment: Segment) -> dict[str, ModelStatus]:
    return {title: _model(segment, spec) for title, spec in titled(segment.models).items()}


def _state(segment: Segment, number: int, places: int) -> str:
    first = segment.layout.worker(number)
    state = WorkerState(segment.words[first + WorkerWords.STATE])
    if errno := segment.words[first + WorkerWords.ERRNO]:
        return shortage(errno)
    if state is WorkerState.ABSENT:
        return "not started"
    pid = segment.words[first + WorkerWords.PID]
    words = f"{state.name.lower()}, process {pid}"
    if is_stopped(pid):
        words += f", {stopped_words(pid)}"
    if places and state is WorkerState.READY:
        words += f", {segment.words[first + WorkerWords.LIVE_ROWS]} of {places} rows live"
        if segment.words[first + WorkerWords.MOST_ROWS]:
            words += f", of cost {segment.words[first + WorkerWords.LIVE_COST]}"
    return words + ", fails every request" * bool(segment.words[first + WorkerWords.FAILING])


def _pid(segment: Segment, number: int) -> int:
    first, words = segment.layout.worker(number), segment.words
    absent = words[first + WorkerWords.STATE] == WorkerState.ABSENT
    return 0 if absent else words[first + WorkerWords.PID]


def _model(segment: Segment, spec: ModelSpec) -> ModelStatus:
    ends = ends_of(segment, [spec.account])[spec.account]
    counters = Counted(segment.words, segment.layout, spec.account)
    block = Scalings(segment.words, segment.layout, spec.account)
    first = segment.layout.model(spec.index)
    ready = segment.words[first + ModelWords.READY]
    reasons = {r.name.lower(): n for r, n in zip(Reason, counters.batches, strict=True)}
    return ModelStatus(
        workers=spec.running,
        spares=spec.spares,
        ready=ready,
        requests=counters[ModelCounter.REQUESTS] - counters[ModelCounter.PARTS],
        rows=counters[ModelCounter.ROWS],
        batches={reason: count for reason, count in reasons.items() if count},
        batch_rows={bucket_label(b): n for b, n in enumerate(counters.batch_rows) if n},
        wait_ms=_mean_ms(counters.wait_ns, sum(counters.waits)),
        run_ms=_mean_ms(counters.run_ns, sum(counters.runs)),
        answer_ms=segment.words[first + ModelWords.ANSWER_NS] / 1e6,
        dropped=counters[ModelCounter.EXPIRED] + counters[ModelCounter.CANCELLED],
        failed=counters[ModelCounter.FAILED],
        retried=counters[ModelCounter.RETRIED],
        answered=ends.answered,
        refused=ends.ended,
        deaths={why: counters[counter] for counter, why in DEATHS.items()},
        restarts={case.name.lower(): n for case, n in block.restarts().items() if n},
        file_differs=spec.file_differs,
        limits=spec.limits,
        servers=tuple(_servers(segment, spec)),
    )


def _servers(segment: Segment, spec: ModelSpec) -> list[ServerCounts]:
    if spec.platform != "http":
        return []
    return Upstreams(segment.words, segment.layout).counts(spec.workers, time.monotonic_ns())


def _mean_ms(total_ns: int, count: int) -> float:
    return total_ns / count / 1e6 if count else 0.0


def _label(counter: LaneCounter | CollectorCounter | WorkerCounter) -> str:
    return counter.name.lower()
