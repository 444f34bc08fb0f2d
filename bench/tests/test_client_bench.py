"""Tests of bench/client.py: a peer that answers, and a check that finds wrong answers."""

import numpy as np
import pytest
from client import MODEL, WEIGHTS, Asked, WrongAnswers, expect, measure
from peers.queue_worker import QueueWorker
from tiers import exhaustive


@exhaustive
def test_the_model_behind_queues_answers_and_ends() -> None:
    with QueueWorker(MODEL, cap=4) as worker:
        asked = Asked(worker.infer, lambda instances: worker.infer_many(instances, window=10))
        found = measure(asked, trips=5, requests=2000)
    assert 0 < found.p50_us <= found.p99_us
    assert found.requests_per_s > 0


def test_answers_that_belong_to_other_requests_are_refused() -> None:
    swapped = Asked(lambda instance: instance @ WEIGHTS, lambda many: (many @ WEIGHTS)[::-1])
    with pytest.raises(WrongAnswers):
        measure(swapped, trips=1, requests=2000)
    with pytest.raises(WrongAnswers):
        expect(np.zeros((1, 10), np.float32), np.zeros((2, 10), np.float32))
