"""Figures of a client in the measurement of fair shares, and their limits."""

from dataclasses import replace

import pytest
from fairness import CASES, Load, Run, hold_to_limits, summary
from report.record import Report

ALONE = Load(100, 100.0, 10.0, 12.0, 0)
BESIDE = Load(30, 30.0, 30.0, 35.0, 0)
FLOOD = Load(2600, 2600.0, 190.0, 220.0, 0)
WELL = Run(ALONE, BESIDE, FLOOD)


def test_the_first_part_of_a_run_does_not_count() -> None:
    times = [(at / 10, 9.0 if at < 20 else 0.001 * at, True) for at in range(101)]
    found = summary(times, 10.0)
    assert found.requests == 81
    assert found.per_s == pytest.approx(81 / 8)
    assert found.p50_ms == pytest.approx(60.0)
    assert found.p99_ms == pytest.approx(99.0)


def test_all_failures_count() -> None:
    assert summary([(0.0, 0.1, False), (10.0, 0.1, True)], 10.0).failed == 1


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        (WELL, 0),
        (replace(WELL, beside=replace(BESIDE, p99_ms=36.1)), 1),
        (replace(WELL, flood=replace(FLOOD, per_s=2500.0)), 1),
        (replace(WELL, flood=replace(FLOOD, failed=1)), 1),
    ],
)
def test_what_is_held_to_limits(changed: Run, missed: int) -> None:
    report = Report("fairness", {})
    hold_to_limits(report, {case: [WELL] for case in CASES} | {"other account": [changed]})
    assert sum(not limit.met for limit in report.limits) == missed
