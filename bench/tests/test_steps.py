"""Tests of bench/steps.py: it times requests that are answered."""

import pytest
import steps
from steps import Crowd, Engine, beside_accounts


@pytest.mark.parametrize("size", [1, 3])
def test_each_batch_is_answered_and_every_step_takes_time(size: int) -> None:
    engine = Engine(size)
    for _ in range(3):
        assert all(took_ns > 0 for took_ns in engine.batch().values())
    assert engine.collector.in_flight == 0


def test_a_request_is_answered_beside_models_that_nobody_asks() -> None:
    engine = Engine(1, models=5)
    assert all(took_ns > 0 for took_ns in engine.batch().values())
    assert engine.collector.in_flight == 0


def test_accounts_are_timed_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ACCOUNTS", 4 * 32)
    found = beside_accounts([1, 4 * 32], 2)
    assert {many: len(took_ns) for many, took_ns in found.items()} == {1: 2, 4 * 32: 2}
    assert all(took > 0 for took_ns in found.values() for took in took_ns)


def test_batches_of_many_accounts_are_full() -> None:
    crowd = Crowd(1, accounts=100, size=4, waiting=16)
    waiting = crowd.collector.in_flight
    for _ in range(30):
        crowd.send()
        crowd.collect()
        crowd.run()
        crowd.collect()
        assert crowd.collector.in_flight == waiting


def test_the_worker_runs_one_of_the_signatures_after_the_other() -> None:
    crowd = Crowd(3)
    waiting = crowd.collector.in_flight
    for _ in range(7):
        crowd.send()
        crowd.collect()
        crowd.run()
        crowd.collect()
        assert crowd.collector.in_flight == waiting
