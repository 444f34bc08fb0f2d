"""Tests of bench/equal_pairs.py: which pairs of runs it calls equal, and its limits."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import equal_pairs
import pytest
from equal_pairs import Pair, trace
from report import record

from ringbatch.bench.load.arrivals import recorded
from ringbatch.bench.report.comparison import Compared
from ringbatch.bench.statistics.difference import Difference


def compared(cost: float, *, differs: bool = True, worse: bool = False) -> Compared:
    found = Difference(cost, cost - 0.1, cost + 0.1, 0.001, differs)
    return Compared("p50 ms", 1.0, cost, found, worse, better=False)


NOTHING = compared(1.1, differs=False)
LITTLE = compared(1.01)
WORSE = compared(1.5, worse=True)


def test_a_pair_is_equal_where_nothing_is_called_worse_or_better() -> None:
    assert Pair([NOTHING, LITTLE]).equal
    assert not Pair([NOTHING, WORSE]).equal
    assert [run["called"] for run in Pair([LITTLE, WORSE]).runs(3)] == [0, 1]
    assert "1.5" in equal_pairs.show([Pair([LITTLE]), Pair([WORSE])])


def test_recorded_instants_are_the_same_for_all_runs_and_fill_them() -> None:
    found = recorded(trace(1000, 0.5))
    assert trace(1000, 0.5) == trace(1000, 0.5)
    assert len(found) == 500
    assert 0.4e9 < max(found) < 0.5e9


@pytest.mark.parametrize(("unequal", "status"), [(1, 0), (2, 1)])
def test_nineteen_of_twenty_have_to_be_equal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unequal: int, status: int
) -> None:
    def run(config: Path, instants: Path, folder: Path, options: argparse.Namespace) -> Path:
        assert config.exists()
        assert instants.exists()
        return folder / "result.json"

    verdicts: Iterator[list[Compared]] = iter([[WORSE]] * unequal + [[LITTLE]] * (20 - unequal))
    monkeypatch.setattr(equal_pairs, "run", run)
    monkeypatch.setattr(equal_pairs, "differences", lambda *_, **__: next(verdicts))
    monkeypatch.setattr(record, "versions", dict)
    monkeypatch.setenv("RINGBATCH_BENCH_RESULTS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["equal_pairs.py"])
    assert equal_pairs.main() == status
    (file,) = tmp_path.glob("equal_pairs-*.json")
    (limit,) = json.loads(file.read_text())["limits"]
    assert limit["value"] == pytest.approx(1 - unequal / 20)
