"""What bench/steps.py times is a request that is answered."""

import pytest
from steps import Crowd, Engine


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


def test_the_worker_runs_one_of_the_signatures_after_the_other() -> None:
    crowd = Crowd(3)
    waiting = crowd.collector.in_flight
    for _ in range(7):
        crowd.send()
        crowd.collect()
        crowd.run()
        crowd.collect()
        assert crowd.collector.in_flight == waiting
