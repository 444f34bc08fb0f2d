"""Figures of the measurement of fair shares, and their limits."""

from dataclasses import replace

import numpy as np
import pytest
from fairness import (
    CLASS_WAY,
    NEW,
    TWO,
    Beside,
    Classes,
    Load,
    Run,
    Use,
    hold_classes_to_limits,
    hold_minute_to_limits,
    hold_ways_to_limits,
    longest_ms,
    passed_on,
    show_classes,
    show_ways,
    summary,
)
from load.ways import WAYS
from report.record import Report

from ringbatch.bench.load.outcome import UNANSWERED, Outcome

ALONE = Load(100, 10.0, 12.0, 13.0, 0)
POLITE = Load(30, 30.0, 35.0, 36.0, 0)
FLOOD = Load(2600, 190.0, 220.0, 230.0, 0)
WELL = Run(ALONE, Beside(POLITE, FLOOD), Beside(FLOOD, FLOOD))
INTERACTIVE = Load(320, 15.0, 20.0, 22.0, 0)
BULK = Load(3200, 160.0, 170.0, 180.0, 0)
CLASSES = Classes(
    INTERACTIVE,
    BULK,
    replace(INTERACTIVE, p99_ms=39.0),
    replace(BULK, per_s=2800.0),
    replace(BULK, longest_ms=230.0),
)


def outcome(due_s: list[float], took_ms: list[float], statuses: list[int]) -> Outcome:
    due, took = (np.array(values, float) for values in (due_s, took_ms))
    count = np.zeros(len(due), np.int64)
    fields = (due * 1e9).astype(np.int64), (took * 1e6).astype(np.int64), count
    return Outcome(*fields, np.array(statuses, np.int16), 10.0, 0, 1, {})


def test_the_first_part_of_a_run_does_not_count() -> None:
    due_s = [at / 10 for at in range(100)]
    found = summary(outcome(due_s, [900.0 if at < 2 else 10 * at for at in due_s], [200] * 100))
    assert found.per_s == pytest.approx(80 / 8)
    assert found.p50_ms == pytest.approx(59.5)
    assert found.longest_ms == pytest.approx(99.0)


def test_all_failures_count() -> None:
    found = summary(outcome([0.0, 5.0, 6.0], [1.0, 1.0, 1.0], [503, 200, UNANSWERED]))
    assert (found.failed, found.per_s) == (2, 1 / 8)


def test_a_run_without_answers_has_no_figures() -> None:
    assert summary(outcome([5.0], [1.0], [503])) == Load(0.0, 0.0, 0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        (WELL, 0),
        (replace(WELL, fair=Beside(replace(POLITE, p99_ms=36.1), FLOOD)), 1),
        (replace(WELL, fair=Beside(POLITE, replace(FLOOD, per_s=2500.0))), 1),
        (replace(WELL, fair=Beside(POLITE, replace(FLOOD, failed=1))), 1),
    ],
)
def test_the_limits_of_a_way(changed: Run, missed: int) -> None:
    report = Report("fairness", {})
    hold_ways_to_limits(report, {way: [WELL] for way in WAYS} | {WAYS[0]: [changed]})
    assert sum(not limit.met for limit in report.limits) == missed


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        (CLASSES, 0),
        (replace(CLASSES, beside_bulk=replace(INTERACTIVE, p99_ms=40.1)), 1),
        (replace(CLASSES, saturating=replace(BULK, per_s=2700.0)), 1),
        (replace(CLASSES, longest_bulk=replace(BULK, longest_ms=300.0)), 1),
        (replace(CLASSES, interactive=replace(INTERACTIVE, failed=1)), 1),
    ],
)
def test_the_limits_of_the_classes(changed: Classes, missed: int) -> None:
    report = Report("fairness", {})
    hold_classes_to_limits(report, [changed])
    assert sum(not limit.met for limit in report.limits) == missed


@pytest.mark.parametrize(
    ("new", "missed"),
    [
        ([Use(10.4, 100), Use(10.4, 104)], 0),
        ([Use(10.6, 100), Use(10.6, 104)], 1),
        ([Use(10.4, 100), Use(10.4, 106)], 1),
    ],
)
def test_the_limits_of_a_minute_of_new_addresses(new: list[Use], missed: int) -> None:
    report = Report("fairness", {})
    hold_minute_to_limits(report, {TWO: [Use(10.0, 100)] * 2, NEW: new})
    assert sum(not limit.met for limit in report.limits) == missed


def test_new_addresses_come_once() -> None:
    two, new, later = (passed_on(*given) for given in ((0, 2, 300), (0, 300, 300), (300, 300, 300)))
    assert [len({*two}), len({*new}), len({*new, *later})] == [2, 300, 600]


def test_the_longest_wait_follows_from_the_weights() -> None:
    """Beside 7 of its own and 72 times 9 others, with one of each class, and three batches."""
    assert longest_ms(CLASSES, 8) == pytest.approx(((7 + 9 * 72 + 2) / 32 + 3) * 10.0)


def test_the_tables_have_a_row_for_each_way_and_class() -> None:
    assert len(show_ways({way: [WELL] for way in WAYS}).splitlines()) == 2 + len(WAYS)
    assert len(show_classes([CLASSES]).splitlines()) == 2 + 5
    assert CLASS_WAY in WAYS
