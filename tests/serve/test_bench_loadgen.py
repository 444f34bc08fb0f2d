"""`ringbatch bench --loadgen`: MLPerf's LoadGen against a model that is served."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.command.subject import find
from ringbatch.bench.loadgen.judgement import judged
from ringbatch.bench.loadgen.plan import Scenario, accuracy_of, planned
from ringbatch.bench.served.asking import Address
from ringbatch.bench.served.engine import Served
from ringbatch.engine.command import cli

pytest.importorskip("mlperf_loadgen")
pytestmark = exhaustive

QUICK = ("--even-if-busy", "--duration-s", "0.3", "--rounds", "1", "--max-lag-ms", "60000")


@pytest.fixture(scope="module")
def engine(start_for_module: Start) -> Server:
    """A model of sixteen numbers, served in every way."""
    return start_for_module({"matmul": {"path": "matmul.py"}}, control_port=0, grpc_port=0)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("scenario", Scenario)
def test_loadgen_asks_in_every_protocol_and_its_log_has_the_right_answers(
    engine: Server, tmp_path: Path, protocol: Protocol, scenario: Scenario
) -> None:
    served = Served(
        Address("127.0.0.1", engine.port),
        Address("127.0.0.1", engine.control_port),
        Address("127.0.0.1", grpc_port(engine)),
        engine.pid,
    )
    subject = find(served, Settings(protocol=protocol))
    plan = planned(
        scenario, 300, seconds=3, limit_ms=5000, requests=len(subject.bodies), connections=64
    )
    answers = accuracy_of(plan)
    with subject.judge() as judge:
        said, sent = judge.run(plan, tmp_path / "times", 64, 30)
        judge.run(answers, tmp_path / "answers", 64, 30)
        found = judge.compared(answers, tmp_path / "answers", subject.answers)
        others = [*subject.answers[1:], subject.answers[0]]
        wrong = judge.compared(answers, tmp_path / "answers", others)
    assert set(sent.statuses) == {200}
    assert sum(sent.statuses.values()) >= 662
    run = judged(scenario, 300, said, sent, 60_000)
    if scenario is Scenario.SERVER:
        assert run.valid, run.why
    assert found == replace(found, answers=answers.samples, wrong=0, missing=0)
    assert wrong.wrong == answers.samples


def test_the_command_writes_what_loadgen_found_and_its_logs(
    engine: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--url", f"http://127.0.0.1:{engine.port}", "--output", str(tmp_path))
    judge = ("--loadgen", "--loadgen-s", "0.5", "--slo-ms", "1000", "--rates", "100")
    assert cli.main(["bench", *where, *judge, *QUICK]) == 0
    told = capsys.readouterr()
    assert "This is not an MLPerf result" in told.out
    assert "accuracy mode: 4096 answers, 0 wrong, 0 missing" in told.err
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())["loadgen"]
    assert found["server_per_s"] > 100
    assert found["settings"]["min_duration_ms"] == 500
    assert "VALID at a p99 of 1000 ms" in file.with_suffix(".html").read_text()
    (logs,) = tmp_path.glob("*-loadgen")
    assert "not an MLPerf result" in (logs / "README.txt").read_text()
    assert "Result is : VALID" in "".join(
        log.read_text() for log in logs.glob("*server-performanceonly*/mlperf_log_summary.txt")
    )
    assert not list(tmp_path.glob(".ringbatch-bench*"))


def test_a_server_that_holds_no_rate_is_told_with_a_status_of_its_own(
    engine: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--url", f"http://127.0.0.1:{engine.port}", "--output", str(tmp_path))
    judge = ("--loadgen", "--loadgen-s", "0.2", "--slo-ms", "0.001", "--rates", "100")
    assert cli.main(["bench", *where, *judge, *QUICK]) == 1
    told = capsys.readouterr()
    assert "No rate is VALID at a p99 of 0.001 ms" in told.out
    assert "LoadGen: no rate was VALID" in told.err
