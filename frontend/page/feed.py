"""Events for subscribers of the page, made of samples of the engine. Pure.

There are four kinds. The `terms` explain the others. A `second` is the change between two samples,
and is kept for later subscribers. The `state` is the present one. `slowest` are the requests that
took longest in the last minute; only the latest of these events is worth sending.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from ringbatch.shm.counters import ROWS_BUCKETS, bucket_label
from ringbatch.shm.snapshot.deltas import (
    bucket_deltas,
    busy,
    class_deltas,
    counter_deltas,
    interval_s,
    rate,
    same_model,
    same_worker,
)
from ringbatch.shm.snapshot.gpus import UsedGpu
from ringbatch.shm.snapshot.sample import NO_REQUESTS, ModelSample, Sample, WorkerSample
from ringbatch.shm.snapshot.slow_requests import SlowRequest
from ringbatch.shm.time_buckets import BOUNDS_S

Json = dict[str, Any]

RETRY_MS: Final = 2_000
"""Delay after which a browser that lost the stream asks for it again."""
BEGINNING: Final = f"retry: {RETRY_MS}\n\n".encode()
HEARTBEAT: Final = b": still here\n\n"
TERMS: Final = {
    "bounds_ms": [bound_s * 1e3 for bound_s in BOUNDS_S],
    "sizes": [bucket_label(bucket) for bucket in range(ROWS_BUCKETS)],
}
"""Bounds of the time buckets, and labels of batch sizes; sent once."""
_NS_PER_MS: Final = 1_000_000


def event(kind: str, document: object, number: int | None = None) -> bytes:
    """Return a server-sent event, encoded.

    Args:
        kind: its name.
        document: its content, for JSON.
        number: the id that a browser sends back as Last-Event-ID.
    """
    id_line = b"" if number is None else b"id: %d\n" % number
    # JSON has no line breaks, so that one line holds all of it.
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), id_line, orjson.dumps(document))


def second(before: Sample, now: Sample, at_ms: int) -> Json:
    """Return the change between two samples.

    Args:
        before: the earlier one.
        now: of the same segment.
        at_ms: its time for people, since 1970.
    """
    return {
        "at": at_ms,
        "ms": round(interval_s(before, now) * 1e3),
        "models": {model.title: _counted(same_model(before, model), model) for model in now.models},
        "slots": sum(lane.slots for lane in now.lanes),
        "memory": sum(lane.memory_bytes for lane in now.lanes),
        "marks": marks(before, now),
    }


def state(before: Sample | None, now: Sample, obstacles: Mapping[str, str], more: Json) -> Json:
    """Return the present state.

    Args:
        before: an earlier sample, for the rates of workers.
        now: the latest.
        obstacles: by the title of a model, why a request to it might not be answered.
        more: further members.
    """
    seconds = interval_s(before, now)
    word = "ready" if now.ready_ns else "starting"
    return more | {
        "engine": now.engine,
        "segment": now.segment,
        "pid": now.pid,
        "state": "stopping" if now.stops else word,
        "ready_ms": (now.at_ns - now.ready_ns) // _NS_PER_MS if now.ready_ns else 0,
        "counts": now.counts,
        "lanes": [[lane.slots, lane.memory_bytes] for lane in now.lanes],
        "client_lanes": now.client_lanes,
        "lane_slots": now.slots,
        "lane_bytes": now.lane_bytes,
        "models": [_model(model, obstacles.get(model.title, "")) for model in now.models],
        "workers": [_worker(same_worker(before, own), own, seconds) for own in now.workers],
        "gpus": [_gpu(used) for used in now.gpus],
    }


def slowest(requests: Iterable[SlowRequest], now_ns: int, at_ms: int) -> list[Json]:
    """Return the requests that took longest, the longest first.

    Args:
        requests: those.
        now_ns: the time on the monotonic clock.
        at_ms: the same for people.
    """
    # One number for all samples, so that samples sent before look the same.
    to_wall_ms = at_ms - now_ns // _NS_PER_MS
    return [
        {
            "at": to_wall_ms + request.ended_ns // _NS_PER_MS,
            "ms": _ms(request.took_ns),
            "phases": {name: _ms(ns) for name, ns in request.phases.items()},
            "cause": request.cause,
            "model": request.model,
            "protocol": request.protocol,
            "status": request.status,
            "instances": request.instances,
            "batch": request.batch,
            "batch_rows": request.batch_rows,
            "reason": request.reason,
            "attempts": request.attempts,
            "id": request.request_id,
            "trace": request.trace,
        }
        for request in requests
    ]


def marks(before: Sample, now: Sample) -> list[Json]:
    """Return events between two samples that are worth a line in every chart."""
    found: list[str] = []
    for model in now.models:
        earlier = same_model(before, model)
        if earlier is None:
            found.append(f"{model.title} is there, {model.state}")
        else:
            died = counter_deltas(model.deaths, earlier.deaths)
            found += [f"{_several(count)} of {model.title} {why}" for why, count in died.items()]
            scaled = counter_deltas(model.scalings, earlier.scalings)
            found += [f"{model.title}, {model.running}: {text}" for text in scaled]
            if model.state != earlier.state:
                found.append(f"{model.title} is {model.state}")
    titles = {model.title for model in now.models}
    found += [f"{model.title} is gone" for model in before.models if model.title not in titles]
    found += _restarted(before, now.workers)
    found += [
        f"{text}, and started again" for text in counter_deltas(now.restarts, before.restarts)
    ]
    if now.collectors > before.collectors:
        found.append("another process is the collector")
    if now.ready_ns and not before.ready_ns and not now.stops:
        found.append("the engine is ready")
    if now.stops and not before.stops:
        found.append("the engine stops")
    return [{"words": words} for words in found]


def _restarted(before: Sample, workers: Iterable[WorkerSample]) -> list[str]:
    """Return workers with a new process; the model's own event says how the old one ended."""
    pids = {worker.number: worker.pid for worker in before.workers}
    return [
        f"worker {worker.number} of {worker.model} started as process {worker.pid}"
        for worker in workers
        if worker.pid and pids.get(worker.number, worker.pid) != worker.pid
    ]


def _several(count: int) -> str:
    return "a worker" if count == 1 else f"{count} workers"


def _counted(before: ModelSample | None, now: ModelSample) -> Json:
    """Return the counters that grew, and the requests under way, without zeros."""
    found: Json = {
        "flight": now.under_way.in_flight,
        "waiting": now.under_way.waiting,
        "expect_ms": round(now.answer_ms, 3),
    }
    if before is not None:
        found |= {
            "codes": counter_deltas(now.codes, before.codes),
            "times": _by_bucket(now.times, before.times),
            "firsts": _by_bucket(now.firsts, before.firsts),
            "gaps": _by_bucket(now.gaps, before.gaps),
            "closed": counter_deltas(now.reasons, before.reasons),
            "sizes": counter_deltas(now.sizes, before.sizes),
            "classes": {
                name: [own.parts, _ms(own.wait_ns), _ms(own.run_ns), own.refused]
                for name, own in class_deltas(now.classes, before.classes).items()
                if own != NO_REQUESTS
            },
        }
    return {name: value for name, value in found.items() if value}


def _by_bucket(now: Sequence[int], before: Sequence[int]) -> dict[str, int]:
    """Return the growth of each bucket that grew, by its number."""
    grown = bucket_deltas(now, before)
    return {str(bucket): count for bucket, count in enumerate(grown) if count}


def _ms(ns: int) -> float:
    return round(ns / _NS_PER_MS, 3)


def _model(model: ModelSample, obstacle: str) -> Json:
    return {
        "title": model.title,
        "state": model.state,
        "ready": model.ready,
        "running": model.running,
        "spares": model.spares,
        "limits": model.limits,
        "flight": model.under_way.in_flight,
        "waiting": model.under_way.waiting,
        "oldest_ms": round(model.under_way.oldest_s * 1e3, 3),
        "expect_ms": round(model.answer_ms, 3),
        "parts": model.in_parts,
        "failed": model.failed,
        "retried": model.retried,
        "why": obstacle,
    }


def _worker(before: WorkerSample | None, now: WorkerSample, seconds: float) -> Json:
    share = busy(before, now, seconds)
    return {
        "number": now.number,
        "model": now.model,
        "state": now.state,
        "batches": rate(now.batches, None if before is None else before.batches, seconds),
        "rows": rate(now.rows, None if before is None else before.rows, seconds),
        "busy": None if share is None else round(share, 4),
    }


def _gpu(used: UsedGpu) -> Json:
    gpu = used.gpu
    return {
        "uuid": gpu.uuid,
        "workers": used.workers,
        "busy": gpu.busy,
        "used": gpu.used_bytes,
        "total": gpu.total_bytes,
        "celsius": gpu.temperature_c,
        "slowed": gpu.slowed,
    }
