"""What bench/steps.py times is a request that is answered."""

import pytest
from steps import Engine


@pytest.mark.parametrize("size", [1, 3])
def test_each_batch_is_answered_and_every_step_takes_time(size: int) -> None:
    engine = Engine(size)
    for _ in range(3):
        assert all(took_ns > 0 for took_ns in engine.batch().values())
    assert engine.collector.in_flight == 0
