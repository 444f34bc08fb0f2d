"""Samples of an engine, two of them, for tests of `ringbatch top` and of the page."""

from dataclasses import replace
from typing import Any

from ringbatch.shm.snapshot.occupancy import OfModel
from ringbatch.shm.snapshot.sample import (
    NO_REQUESTS,
    ClassSample,
    LaneSample,
    ModelSample,
    Sample,
    WorkerSample,
)
from ringbatch.shm.snapshot.slow_requests import SlowRequest
from ringbatch.shm.time_buckets import BUCKETS

S = 1_000_000_000


def times(**buckets: int) -> tuple[int, ...]:
    """Answers by bucket, as ``b3=7``."""
    return tuple(buckets.get(f"b{number}", 0) for number in range(BUCKETS))


MODEL = ModelSample(
    title="digits",
    state="serving",
    ready=1,
    running=2,
    spares=1,
    under_way=OfModel(12, 7, 0.25),
    answer_ms=31.0,
    reasons={"full": 10, "idle": 30},
    failed=3,
    retried=0,
    codes={"200": 100, "503": 4},
    times=times(b3=100),
    sizes={"1": 40},
    deaths={"crashed": 0, "killed": 0, "hung": 0},
)
CLASSES = {
    "interactive": ClassSample(100, 2 * S, S, 0),
    "normal": NO_REQUESTS,
    "bulk": ClassSample(50, 200 * S, S, 3),
}
LATER_CLASSES = {
    "interactive": ClassSample(300, 2 * S + S // 5, S + S // 4, 0),
    "normal": NO_REQUESTS,
    "bulk": ClassSample(52, 210 * S, S + 3 * S // 4, 7),
}
"""Classes in the later sample of `MODEL`, two seconds on, if its requests have classes."""
WORKER = WorkerSample(4, "digits", "ready, process 4711", 4711, 40, 100, S)
FIRST = Sample(
    at_ns=100 * S,
    segment="/ringbatch.prod.7.x",
    engine="prod",
    pid=7,
    ready_ns=10 * S,
    stops=False,
    models=(MODEL,),
    workers=(WORKER,),
    counts={"workers died": 1, "hung": 0},
    restarts={"a frontend killed": 0, "a collector hung": 1},
    collectors=1,
    lanes=(LaneSample(12, 4096),),
    client_lanes=0,
    slots=1024,
    lane_bytes=1 << 22,
    slowest=(),
)
SECOND = replace(
    FIRST,
    at_ns=102 * S,
    models=(
        replace(
            MODEL,
            reasons={"full": 13, "idle": 31},
            codes={"200": 300, "503": 8, "500": 2},
            times=times(b3=200, b6=100),
            sizes={"1": 40, "9-16": 4},
        ),
    ),
    workers=(replace(WORKER, batches=44, rows=300, run_ns=2 * S),),
)


def slow(**other: Any) -> SlowRequest:
    known: dict[str, Any] = {
        "ended_ns": 90 * S,
        "took_ns": 3_500_000,
        "phases": {"queue": 500_000, "run": 3_000_000},
        "cause": "batch",
        "model": "digits",
        "protocol": "v1",
        "status": 200,
        "instances": 1,
        "batch": "b",
        "batch_rows": 4,
        "reason": "full",
        "attempts": 1,
        "request_id": "r-1",
        "trace": "",
    }
    return SlowRequest(**known | other)
