"""Outcomes, points and results of measurements that were never made."""

from dataclasses import replace

import numpy as np

from ringbatch.bench.load.outcome import BROKEN, Outcome
from ringbatch.bench.report.point import Asked, Point, judged
from ringbatch.bench.report.result import Result
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.metrics import Observed

MS = 1_000_000
SEEN = Observed(
    100,
    400,
    {"idle": 80, "full": 20},
    {"frontend": 20.0, "worker <m>": 8.0},
    {"model": 0.1, "waits for its batch": 0.2},
)


def outcome(
    count: int = 1000,
    took_ms: float = 5.0,
    statuses: dict[int, int] | None = None,
    lag_ms: float = 0.1,
    seed: int = 0,
    held_back: int = 0,
) -> Outcome:
    """Return a second's outcome, with requests evenly spread and times that vary by a tenth."""
    random = np.random.default_rng(seed)
    ends = np.full(count, 200, np.int16)
    at = 0
    for status, many in (statuses or {}).items():
        ends[at : at + many] = status
        at += many
    return Outcome(
        (np.arange(count) * 1_000_000_000 // max(count, 1)).astype(np.int64),
        (took_ms * MS * np.exp(random.normal(0, 0.1, count))).astype(np.int64),
        np.full(count, int(lag_ms * MS), np.int64),
        ends,
        1.0,
        held_back,
        8,
        {"the server closed the connection": 1} if BROKEN in (statuses or {}) else {},
    )


def point(
    asked: Asked, rounds: list[Outcome], seen: Observed | None = SEEN, slo_ms: float = 20
) -> Point:
    return judged(asked, rounds, [seen] * len(rounds), slo=Slo(slo_ms), lag_max_ms=2)


RATE = Asked("1,000 requests/s", 1000.0, 64)


def result(took_ms: float = 5.0, seed: int = 0, rounds: int = 5) -> Result:
    """Return the result for a server that takes about so long."""

    def of(asked: Asked, count: int) -> Point:
        runs = [
            outcome(count, took_ms * (1 + 0.01 * n), seed=seed + 100 * n) for n in range(rounds)
        ]
        return point(asked, runs)

    return Result(
        model="<mnist>",
        started_utc="2026-11-23T15:00:00+00:00",
        settings={
            "path": "/v1/models/mnist:predict",
            "protocol": "v1",
            "requests": "made up from the signature",
            "request_bytes": 100,
            "slo_ms": 20.0,
            "arrivals": "poisson",
            "seconds": 2.0,
            "rounds": rounds,
            "connections": 64,
            "generators": 1,
            "engines": "one for each round",
            "answers_compared": False,
            "lag_max_ms": 5.0,
            "seed": 1,
        },
        machine={
            "cpu": "X",
            "cores": 2,
            "memory_mib": 1024,
            "kernel": "6.1",
            "python": "3.11",
            "ringbatch": "0.1.0",
            "compiled": True,
            "load_average": 0.1,
        },
        lone=of(Asked("one at a time", None, 1), 700),
        closed=of(Asked("closed loop, 64 connections", None, 64), 2000),
        points=(
            of(replace(RATE, title="500 requests/s", rate_per_s=500.0), 500),
            of(RATE, 1000),
            point(replace(RATE, title="9,000 requests/s"), [outcome(lag_ms=30)]),
        ),
        knee={"rate_per_s": 1000.0, "missed_per_s": 1050.0, "why": ""},
        warnings=("Others were <busy>.",),
    )
