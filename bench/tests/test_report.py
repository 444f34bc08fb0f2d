"""The committed report: what goes into it, that nothing is silently missing, that README agrees."""

import json
from pathlib import Path
from typing import Any

import all as every
import pytest
from host.server import ServerDied
from peers.servers import BENCH, Environment, install
from report import readme_table, record
from report.peer_rounds import run_entries
from report.readme_table import BEGIN, END, NoMarkers, with_table
from report.record import Report, git_state
from report.scenarios import SCENARIOS, Scenario, Shape
from report.summary import FAILED, MEASURED, MISSED, NOT_RUN, Outcome, summarize, table
from report.text import as_json, markdown

SCRIPT = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["RINGBATCH_BENCH_RESULTS"])
calls = folder.parent / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + " ".join(sys.argv[1:]) + ";")
if "--fail" in sys.argv:
    raise SystemExit("PeerGone: it went away")
(folder / "works-1.json").write_text(json.dumps(RECORD))
"""
RECORD: dict[str, Any] = {
    "started_utc": "2026-01-02T03:04:05+00:00",
    "settings": {"rounds": 3, "seconds": 1.0},
    "machine": {"cpu": "a cpu", "cores": 2, "kernel": "6", "memory_mib": 2048},
    "versions": {"python": "3.11", "compiled": True, "wrk": "4"},
    "git": {"commit": "0123456789abcdef", "dirty": False},
    "limits": [],
    "absent": {"other": "pip: no"},
    "pins": {"other": ["other==1"]},
    "runs": [
        {
            "round": turn,
            "workload": "16 floats",
            "peer": "us",
            "result": {"connections": 1, "p50_ms": p50},
        }
        for turn, p50 in enumerate((3.0, 1.0, 2.0))
    ],
}
FRAMEWORKS = Scenario(
    "frameworks", "", [Shape(("workload", "peer", "connections"), ("p50_ms",))], "", 1, 1
)
README = f"before\n{BEGIN}\nold\n{END}\nafter\n"
OUTCOME = Outcome(0, 60.0, 0.0, 0.01, "")


def report_of(**summaries: Any) -> dict[str, Any]:
    return {"command": "c", "peers": {}, "scenarios": summaries}


def test_a_report_needs_neither_git_nor_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(record, "BENCH", tmp_path)
        assert git_state() == {"commit": None, "dirty": False}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {"commit": None, "dirty": False}


def test_rounds_of_one_row_become_median_and_spread() -> None:
    found = table(FRAMEWORKS.shapes[0], RECORD["runs"])
    assert found["rows"] == [["16 floats", "us", 1, [2.0, 1.0, 3.0, 3]]]


def test_a_run_without_a_field_of_the_table_is_in_none_of_its_rows() -> None:
    assert table(Shape(("size",), ("p50_ms",)), RECORD["runs"])["rows"] == []


def test_a_run_that_holds_several_is_a_row_for_each() -> None:
    shape = Shape(("server", "result"), ("p50_ms",), split="result")
    runs = [{"server": "s", "result": {"short": {"p50_ms": 1.0}, "long": {"p50_ms": 2.0}}}]
    assert table(shape, runs)["rows"] == [
        ["s", "short", [1.0, 1.0, 1.0, 1]],
        ["s", "long", [2.0, 2.0, 2.0, 1]],
    ]


def test_a_scenario_without_a_result_failed_and_says_why() -> None:
    log = "Traceback (most recent call last):\nserver.ServerDied: the server ended\nlast words\n"
    found = summarize(FRAMEWORKS, Outcome(1, 60.0, 0.0, 0.0, log), None)
    assert (found["outcome"], found["why"]) == (FAILED, "server.ServerDied: the server ended")
    assert "`frameworks` failed: server.ServerDied: the server ended" in markdown(
        report_of(frameworks=found)
    )


def test_a_missed_limit_and_an_absent_peer_are_listed() -> None:
    limit = {
        "name": "rate",
        "value": 1.0,
        "at_least": 2.0,
        "at_most": None,
        "unit": "",
        "met": False,
    }
    found = summarize(FRAMEWORKS, OUTCOME, RECORD | {"limits": [limit]})
    text = markdown(report_of(frameworks=found))
    assert found["outcome"] == MISSED
    assert "Missed: rate: 1, at least 2 is wanted." in text
    assert "`frameworks` is without other: pip: no" in text


def test_figures_beside_others_are_called_provisional() -> None:
    quiet = summarize(FRAMEWORKS, OUTCOME, RECORD)
    busy = summarize(FRAMEWORKS, Outcome(0, 60.0, 0.0, 0.4, ""), RECORD)
    for found, is_provisional in ((quiet, False), (busy, True)):
        report = report_of(frameworks=found)
        assert ("provisional" in markdown(report)) == is_provisional
        assert (
            "provisional" in "".join(readme_table.comparison(report["scenarios"]))
        ) == is_provisional


def test_the_json_is_read_back_as_it_was() -> None:
    report = report_of(frameworks=summarize(FRAMEWORKS, OUTCOME, RECORD))
    text = as_json(report)
    assert json.loads(text) == report
    assert '["16 floats", "us", 1, [2.0, 1.0, 3.0, 3]]' in text


def test_the_table_goes_between_the_markers_and_nowhere_else() -> None:
    report = report_of(frameworks=summarize(FRAMEWORKS, OUTCOME, RECORD))
    text = with_table(README, report)
    assert text.startswith(f"before\n{BEGIN}\n\nMedians")
    assert text.endswith(f"\n\n{END}\nafter\n")
    assert "old" not in text
    assert "| us | 2 ms |" in text
    assert with_table(text, report) == text
    assert with_table(README, report_of()) == README


@pytest.mark.parametrize(
    "readme", ["", README.replace(END, ""), README.replace(BEGIN, ""), README * 2]
)
def test_readme_without_one_place_for_it_is_refused(readme: str) -> None:
    with pytest.raises(NoMarkers, match="once each"):
        with_table(readme, report_of(frameworks={}))


def test_the_committed_report_is_made_from_its_figures() -> None:
    assert every.REPORT_MD.read_text() == markdown(json.loads(every.REPORT_JSON.read_text()))


def test_readme_has_the_figures_of_the_committed_report() -> None:
    assert readme_table.README.read_text() == readme_table.wanted()


def test_every_scenario_is_a_script_that_is_explained_and_in_the_report() -> None:
    explained = (BENCH / "README.md").read_text()
    reported = json.loads(every.REPORT_JSON.read_text())["scenarios"]
    for scenario in SCENARIOS:
        assert (BENCH / f"{scenario.name}.py").exists()
        assert f"`{scenario.name}.py" in explained
        assert scenario.name in reported


def test_results_are_kept_and_failures_are_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("works", "fails"):
        (tmp_path / f"{name}.py").write_text(SCRIPT.replace("RECORD", repr(RECORD)))
    scenarios = (
        Scenario("works", "", FRAMEWORKS.shapes, "--short", 1, 1),
        Scenario("fails", "", (), "--fail", 1, 1),
    )
    monkeypatch.setattr(every, "SCENARIOS", scenarios)
    monkeypatch.setattr(every, "BENCH", tmp_path)
    monkeypatch.setattr(every, "REPORT_JSON", tmp_path / "R.json")
    monkeypatch.setattr(every, "REPORT_MD", tmp_path / "R.md")
    monkeypatch.setattr(every, "busy_share", lambda: 0.0)
    monkeypatch.setattr(readme_table, "write", lambda: None)
    (tmp_path / "R.json").write_text(
        json.dumps({"peers": {"mosec": ["mosec==1"]}, "scenarios": {"gone": {}}})
    )
    monkeypatch.setattr("sys.argv", ["all.py", "--quick"])
    for _ in range(2):
        assert every.main() == 1
    assert (tmp_path / "results/quick/calls").read_text() == "--short;--fail;--fail;"
    report = json.loads((tmp_path / "R.json").read_text())
    outcomes = report["scenarios"]
    assert report["peers"] == {"mosec": ["mosec==1"]} | RECORD["pins"]
    assert outcomes.keys() == {"works", "fails"}
    assert outcomes["works"]["outcome"] == "measured"
    assert (outcomes["fails"]["outcome"], outcomes["fails"]["why"]) == (
        FAILED,
        "PeerGone: it went away",
    )


def test_a_scenario_that_was_not_run_anew_stays_in_the_report() -> None:
    missing = {"about": "", "outcome": NOT_RUN}
    earlier, later = {"about": "", "outcome": MISSED}, {"about": "", "outcome": MEASURED}
    assert every.kept(missing, earlier) == earlier
    assert every.kept(later, earlier) == later
    assert every.kept(missing, None) == missing


class AbsenceReport(Report):
    """Keeps the absent peers, and measures no machine."""

    def __init__(self) -> None:
        self.absent_peers: dict[str, str] = {}

    def without(self, absent: Any) -> None:
        self.absent_peers |= absent


def test_a_peer_that_fails_is_left_out_and_the_others_go_on() -> None:
    def run(turn: int, name: str) -> int:
        if name == "peer" and turn == 1:
            raise ServerDied("it ended")
        return turn

    report = AbsenceReport()
    assert run_entries(report, ["peer", "ringbatch"], 3, run) == {"ringbatch": [0, 1, 2]}
    assert report.absent_peers == {"peer": "ServerDied in round 1: it ended"}


def test_a_failure_of_ringbatch_ends_the_scenario() -> None:
    def run(turn: int, name: str) -> int:
        raise ServerDied("it ended")

    with pytest.raises(ServerDied):
        run_entries(AbsenceReport(), ["ringbatch"], 1, run)


def test_a_peer_that_cannot_be_installed_is_named_with_pips_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def create(folder: Path, with_pip: bool) -> None:
        python = folder / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 'ERROR: no such release' >&2; exit 1\n")
        python.chmod(0o755)

    monkeypatch.setattr("peers.servers.ENVIRONMENTS", tmp_path)
    monkeypatch.setattr("venv.create", create)
    absent = install({"gone": Environment("gone", ("gone==1",)), "own": None})
    assert absent == {"gone": "pip could not install it: ERROR: no such release"}
