"""Tests of the autoscaler's decision under loads, in simulated time."""

from datetime import datetime

import pytest
from autoscale import EASE, outcome_of, rules, wanted
from load.open_loop import Answer
from peers.simulated_workers import Model, Scenario, Simulation, figures, scenarios
from tiers import only

from ringbatch.shm.scalings import Cause

SCALE = 0.2
MODEL = Model()
LOADS = scenarios(EASE * MODEL.per_s, SCALE)


@pytest.mark.parametrize("scenario", only(LOADS, "burst"))
def test_workers_do_not_come_and_go_in_turns(scenario: Scenario) -> None:
    outcome = Simulation(scenario.rate, scenario.peak, rules(SCALE), MODEL).run(scenario.s)
    found = figures(outcome, scenario, 3 * MODEL.full_s, wanted(scenario, MODEL))
    assert found.turns == 0
    assert found.overshoot <= 1
    if found.recovered_s is not None:
        assert found.recovered_s < 12


def test_a_steady_load_changes_nothing() -> None:
    scenario = LOADS["steady"]
    assert not Simulation(scenario.rate, scenario.peak, rules(SCALE), MODEL).run(30).decisions


def test_eight_times_the_load_is_met_at_once() -> None:
    scenario = LOADS["step"]
    outcome = Simulation(scenario.rate, scenario.peak, rules(SCALE), MODEL).run(18)
    at_s, before, decision = outcome.decisions[0]
    assert 8 < at_s < 9
    assert (before, decision.workers, decision.cause) == (1, 7, Cause.LATE)


def test_the_events_are_those_of_a_servers_log() -> None:
    log = (
        "2026-11-23 11:00:05,500 ringbatch supervisor [7] INFO m version 1: 1 of 1 to 8 workers "
        "run, 4 from now on: the predicted wait is above its target; predicted wait 9 ms, target "
        "5 ms\nanother line\n"
    )
    began = datetime(2026, 11, 23, 11, 0, 0)
    found = outcome_of([Answer(1.0, 200, 0.25, right=True)], log, began)
    ((at_s, before, decision),) = found.decisions
    assert (at_s, before, decision.workers, decision.cause) == (5.5, 1, 4, Cause.LATE)
    assert found.latencies == [(1.0, 0.25)]
    assert found.workers == [(0.0, 1), (5.5, 4)]
