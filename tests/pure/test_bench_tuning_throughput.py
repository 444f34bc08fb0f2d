"""The search for the throughput of one candidate, by its numbers of connections."""

from dataclasses import replace

import numpy as np
import pytest

from ringbatch.bench.command.tune import (
    throughput,
)
from ringbatch.bench.load.outcome import Outcome
from ringbatch.bench.load.parts import Parts
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.statistics.histogram import Histogram


def of_level(connections: int, took_ms: float, statuses: int = 200) -> Outcome:
    """A second of a closed loop, in which every answer takes so long."""
    count = int(connections * 1000 / took_ms)
    due = (np.arange(count) * 1_000_000_000 // count).astype(np.int64)
    took = np.minimum(int(took_ms * 1e6), 1_000_000_000 - due)
    ends = np.full(count, statuses, np.int16)
    return Outcome(due, took, np.zeros(count, np.int64), ends, 1.0, 0, connections, {})


@pytest.mark.parametrize(
    ("limit_ms", "levels", "rate"),
    [
        # Answers 10,000/s at most, in a millisecond at least.
        (None, [16, 64], 10_000),
        (30, [16, 64], 10_000),
        (7, [16, 64], 10_000),
        (1.2, [16, 4], 4_000),
        (0.5, [16, 4, 1], 0),
    ],
)
def test_throughput_is_the_most_within_the_limit(
    limit_ms: float | None, levels: list[int], rate: float
) -> None:
    asked = []

    def run(connections: int) -> Outcome:
        asked.append(connections)
        return of_level(connections, max(1.0, connections / 10))

    found = throughput(run, Slo(limit_ms))
    assert asked == levels
    assert found.rate_per_s == pytest.approx(rate, rel=0.02)
    none = (
        "no number of connections has a p99 within 0.5 ms: "
        "the best has p99 1 ms, with 4 connections"
    )
    assert (found.words == none) is (rate == 0)
    assert bool(found.remedy) is (rate == 0)


def test_throughput_is_looked_for_where_it_was_found_before() -> None:
    asked = []

    def run(connections: int) -> Outcome:
        asked.append(connections)
        return of_level(connections, max(5.0, connections / 10))

    assert throughput(run, Slo()).connections == 64
    assert asked == [16, 64, 256]
    asked.clear()
    assert throughput(run, Slo(), first=64).connections == 64
    assert asked == [64, 256]
    asked.clear()
    # What is slower than what was measured before is within the limit with fewer.
    assert throughput(run, Slo(5.5), first=64).connections == 16
    assert asked == [64, 16]


def test_a_server_that_refuses_has_no_throughput() -> None:
    found = throughput(lambda connections: of_level(connections, 1.0, 503), Slo())
    assert found.rate_per_s == 0
    assert "requests were not answered: status 503" in found.words


@pytest.mark.parametrize(
    ("first", "most", "levels", "best"), [(16, 16, [16, 64], 16), (64, 10, [64, 16, 4], 4)]
)
def test_refused_connections_leave_the_findings_of_fewer(
    first: int, most: int, levels: list[int], best: int
) -> None:
    asked = []

    def run(connections: int) -> Outcome:
        asked.append(connections)
        return of_level(connections, 1.0, 200 if connections <= most else 503)

    found = throughput(run, Slo(), first)
    assert asked == levels
    assert found.connections == best
    assert found.rate_per_s == pytest.approx(best * 1000, rel=0.02)


def test_throughput_in_parts_is_the_most_within_both_limits() -> None:
    """Gaps grow with the connections, and first parts with those beyond 16."""
    asked = []

    def run(connections: int) -> Outcome:
        asked.append(connections)
        whole = of_level(connections, 100.0)
        first_ms = 5.0 if connections <= 16 else 500.0
        gaps_ns = np.full(whole.count * 9, connections * 1_000_000 // 2, np.int64)
        parts = Parts(
            np.full(whole.count, int(first_ms * 1e6), np.int64),
            np.zeros(whole.count, np.int64),
            np.full(whole.count, 10, np.int32),
            Histogram.of(gaps_ns),
            whole.count * 10,
            0,
        )
        return replace(whole, parts=parts)

    assert throughput(run, Slo(first_part_ms=50)).connections == 16
    assert asked == [16, 64]
    asked.clear()
    assert throughput(run, Slo(first_part_ms=50, gap_ms=3)).connections == 4
    assert asked == [16, 4]
    found = throughput(run, Slo(first_part_ms=1, gap_ms=100))
    assert found.words.startswith(
        "no number of connections has a p99 of first parts within 1 ms and a p99 of gaps within "
        "100 ms: the best has p99 of first parts 5"
    )
    assert "--slo-first-part-ms or --slo-gap-ms" in found.remedy
    # A run without a time that is limited is not within its limit.
    plain = throughput(lambda connections: of_level(connections, 1.0), Slo(gap_ms=5))
    assert plain.rate_per_s == 0
