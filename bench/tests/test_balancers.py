"""Tests of bench/balancers.py without servers: rendered examples, counted answers."""

import re
import subprocess
from pathlib import Path

import pytest
from balancers import ACT_AT_S, ACTS, SETUPS, SLOWED, Run, Setup, configuration, gains, summary
from host.network_namespaces import Engine, obstacle, path_of
from load.open_loop import Answer


@pytest.fixture
def engines(tmp_path: Path) -> list[Engine]:
    return [Engine(number, tmp_path) for number in range(2)]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_balancer_gets_the_example_with_its_algorithm(
    setup: Setup, engines: list[Engine]
) -> None:
    text = configuration(setup, 1000, 1001, engines)
    assert "127.0.0.1:1000" in text
    for engine in engines:
        assert f"{engine.host}:{engine.port}" in text
        assert f"127.0.0.1:{engine.port}" not in text
        assert (f"agent-port {engine.agent_port}" in text) == setup.agent
    assert ("agent-check" in re.sub("#.*", "", text)) == setup.agent
    assert setup.algorithm in text
    assert ("least_conn" in text) == ("least_conn" in setup.algorithm)


@pytest.mark.parametrize("setup", [s for s in SETUPS if s.program == "haproxy"], ids=str)
def test_haproxy_takes_it(setup: Setup, engines: list[Engine], tmp_path: Path) -> None:
    program = path_of("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    file = tmp_path / "haproxy.cfg"
    file.write_text(configuration(setup, 1000, 1001, engines))
    completed = subprocess.run([program, "-c", "-f", str(file)], capture_output=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_times_are_those_after_the_act_and_failures_all() -> None:
    early = [Answer(0.0, 0, 9.0, right=False)]
    late = [Answer(ACT_AT_S, 200, ms / 1e3, right=True) for ms in range(1, 102)]
    run = summary([*early, *late])
    assert (run.requests, run.failed) == (102, 1)
    assert (run.p50_ms, run.p99_ms, run.longest_ms) == (51.0, 100.0, 101.0)


def test_the_agent_checks_gain_is_given_for_each_algorithm() -> None:
    p99s_ms = {("a", False): 90.0, ("a", True): 30.0, ("b", False): 50.0, ("b", True): 75.0}
    runs = {
        (Setup("haproxy", algorithm, agent), act): Run(1, 0, 1.0, p99_ms, p99_ms)
        for (algorithm, agent), p99_ms in p99s_ms.items()
        for act in ACTS
        if act is SLOWED or agent
    }
    assert gains(runs) == {"a": pytest.approx(1 / 3), "b": 1.5}
    assert gains({key: run for key, run in runs.items() if key[0].agent}) == {}


def test_the_missing_needs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert obstacle() == "network namespaces take root"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "no-such-program" in obstacle("no-such-program")


def test_a_factor_is_read_by_the_model(engines: list[Engine], tmp_path: Path) -> None:
    engines[0].at_speed(3.0)
    assert [float((tmp_path / f"{n}" / "factor").read_text()) for n in range(2)] == [3.0, 1.0]
