"""Figures and limits of the measurement of answers in parts."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from host.procfs import ProcessUsage
from report.record import Report
from streams import (
    CLIENT,
    COROUTINES,
    EVENTS,
    GRPC,
    HTTP2,
    MOST_GAP_MS,
    Run,
    cost_row,
    cpu_us_by_role,
    hold_steps_to_limit,
    hold_to_limits,
    model_us,
    percentile,
)


def run_of(gap_most_ms: float = 1.0, cpu_us: Mapping[str, float] | None = None) -> Run:
    return Run(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, gap_most_ms, cpu_us or {}, 0.5)


def test_percentiles_are_of_all_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.99) == 0.0


def test_model_time_is_of_its_own_step_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent_s = [5.0]
    monkeypatch.setattr(time, "process_time", lambda: spent_s[0])
    monkeypatch.setattr(time, "spent_s", spent_s, raising=False)
    file = tmp_path / "model.py"
    file.write_text(
        "import time\n\n\ndef begin(x):\n    time.spent_s[0] += 1\n    return [*x]\n\n\n"
        "def step(states):\n    time.spent_s[0] += 1e-4 * len(states)\n"
    )
    assert model_us(file, 4) == pytest.approx(100)


def test_cpu_time_of_a_part_is_divided_by_role() -> None:
    titles = {
        "ringbatch: worker parts/0": 0.2,
        "ringbatch: collector": 0.1,
        "ringbatch: frontend 0": 0.25,
        "ringbatch: grpc frontend 0": 0.05,
        "ringbatch: supervisor": 0.01,
    }
    usages = [ProcessUsage(1, title, cores, 0, 0, 0, 0) for title, cores in titles.items()]
    found = cpu_us_by_role(usages, 10_000)
    assert found == pytest.approx({"worker": 20, "collector": 10, "frontend": 30, "others": 1})


def test_costs_are_of_a_step_of_all_rows() -> None:
    runs = [
        run_of(cpu_us={"worker": us, "collector": 1, "frontend": 2, "others": 0.5})
        for us in (3.0, 4.0, 9.0)
    ]
    found = cost_row(32, GRPC, runs)
    assert found == ["32", GRPC, "128.0", "32", "64", "16", "240.0", "7.5", "0.5"]


@pytest.mark.parametrize(
    ("way", "cpu_us", "met"),
    [
        (EVENTS, 17.5, True),
        (EVENTS, 18.5, False),
        *((way, us, us < 8) for way in (GRPC, HTTP2, CLIENT, COROUTINES) for us in (7.5, 8.5)),
    ],
)
def test_costly_steps_miss_the_limit_of_their_way(way: str, cpu_us: float, met: bool) -> None:
    report = Report("streams", {})
    run = run_of(cpu_us={"worker": cpu_us - 2, "frontend": 2})
    hold_steps_to_limit(report, way, 32, 1.0, [run])
    assert [limit.met for limit in report.limits] == [met]


@pytest.mark.parametrize(
    ("gap_ms", "step_ms", "met"),
    [
        (MOST_GAP_MS + 2, 2.0, True),
        (MOST_GAP_MS + 2, 1.0, False),
        (MOST_GAP_MS + 49, 50.0, True),
    ],
)
def test_long_gaps_in_any_round_miss_the_limit(gap_ms: float, step_ms: float, met: bool) -> None:
    report = Report("streams", {})
    hold_to_limits(report, EVENTS, 32, step_ms, [run_of(), run_of(gap_ms), run_of()])
    assert [limit.met for limit in report.limits] == [met]
