"""The process that runs LoadGen: that each run ends, whatever the server does."""

import os
import signal
import socket
from pathlib import Path

import pytest

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.child import GeneratorDied
from ringbatch.bench.load.outcome import BROKEN, UNANSWERED
from ringbatch.bench.load.target import Target
from ringbatch.bench.loadgen.judge import Judge
from ringbatch.bench.loadgen.judgement import judged
from ringbatch.bench.loadgen.plan import Plan, Scenario, accuracy_of, planned

pytest.importorskip("mlperf_loadgen")

REQUESTS = [post("x", "/", b"")]


def plan(rate: float = 200.0, scenario: Scenario = Scenario.SERVER) -> Plan:
    return planned(scenario, rate, seconds=0.1, limit_ms=10, requests=1, connections=8)


def test_a_server_that_is_not_there_is_told_and_nothing_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        target = Target(*probe.getsockname())
    with Judge(target, REQUESTS) as judge:
        said, sent = judge.run(plan(), tmp_path / "server", 8, 1)
        answers = accuracy_of(plan())
        judge.run(answers, tmp_path / "answers", 8, 1)
        found = judge.compared(answers, tmp_path / "answers", [b'{"predictions": [1]}'])
    assert set(sent.statuses) == {BROKEN}
    assert sent.problems == {"Connection refused": sum(sent.statuses.values())}
    run = judged(Scenario.SERVER, 200, said, sent, 1000)
    assert run.verdict == "INVALID"
    assert "Connection refused" in run.why
    # LoadGen gave up, because nothing was ever answered in time.
    assert any("outstanding" in why for why in run.why)
    assert found.answers == found.wrong == answers.samples


def test_queries_that_are_never_answered_are_given_up(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=4) as silent,
        Judge(Target(*silent.getsockname()), REQUESTS) as judge,
    ):
        said, sent = judge.run(plan(100, Scenario.OFFLINE), tmp_path / "all", 4, 0.3)
    assert set(sent.statuses) == {UNANSWERED}
    assert sent.held_back == sum(sent.statuses.values()) - 4
    run = judged(Scenario.OFFLINE, 100, said, sent, 1000)
    assert run.void
    assert "no answer until the run was over" in run.why[0]


def test_a_judge_that_was_killed_is_an_error(tmp_path: Path) -> None:
    with Judge(Target("127.0.0.1", 1), REQUESTS) as judge:
        os.kill(judge.pid, signal.SIGKILL)
        with pytest.raises(GeneratorDied, match="has ended"):
            judge.run(plan(), tmp_path / "server", 8, 1)
