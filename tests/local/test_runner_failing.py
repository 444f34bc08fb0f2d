"""A model that fails every request is found, and no model that only gets bad requests."""

from typing import Any

import numpy as np
import pytest
from runner_harness import MARK, Harness, X, Y
from tiers import exhaustive

from ringbatch.engine.models.model import InvalidInput, RestartWorker, ServerFailed
from ringbatch.engine.worker import retry
from ringbatch.engine.worker.failure_detection import AGAIN_NS, ENOUGH, ENOUGH_NS, Failing
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

BAD = 0
GOOD = 1
REFUSED = 2


class Site:
    """A model of which a test says what it does, and the worker's count of its failures.

    Attributes:
        error: what every request makes the model raise; None where the first number of a request
            says whether it fails.
        blamed: the batches in a row and the reason, each time that the model was blamed, or 0.
        samples: number of runs of the model on values of its warm-up.
    """

    def __init__(self, *, sample: bool = False, output: Tensor = Y) -> None:
        self.error: BaseException | None = None
        self.blamed: list[tuple[int, str]] = []
        self.samples = 0
        self.failing = Failing("m", lambda batches, why, _: self.blamed.append((batches, why)))
        self.harness = Harness(self._predict, [X], [output], failing=self.failing)
        if sample:
            self.failing.sample = self._sample

    def _predict(self, x: Any) -> Any:
        if self.error is not None:
            raise self.error
        if (x[:, 0] == BAD).any():
            raise ValueError("a request")
        if (x[:, 0] == REFUSED).any():
            raise InvalidInput("no")
        return x

    def _sample(self) -> None:
        self.samples += 1
        self.harness.runner.try_out([np.ones((1, 2), np.float32)], 1)

    def batches(self, *kinds: int, count: int = ENOUGH) -> None:
        """Run so many batches of such requests each."""
        for _ in range(count):
            self.harness.run(*[self.harness.send_tensor([[kind, 0]]) for kind in kinds])
            self.harness.now_ns += ENOUGH_NS

    def statuses(self, *kinds: int) -> list[Status]:
        """Run another batch and return the statuses of its requests."""
        replies = self.harness.run(*[self.harness.send_tensor([[kind, 0]]) for kind in kinds])
        return [reply.answer.status for reply in replies]


@pytest.fixture(autouse=True)
def nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the garbage collection after a failed run.

    It would go through everything that other tests of the process have left.
    """
    monkeypatch.setattr(retry, "give_back", lambda: None)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("a lost device"), "it raised RuntimeError"),
        pytest.param(SystemExit(1), "it raised SystemExit", marks=exhaustive),
        (MemoryError(), "it ran out of memory"),
    ],
)
@pytest.mark.parametrize("kinds", [(GOOD,), (GOOD,) * 2 * ENOUGH])
def test_a_model_whose_every_call_raises_is_blamed(
    error: BaseException, why: str, kinds: tuple[int, ...]
) -> None:
    site = Site()
    site.batches(*kinds)
    assert site.blamed == []
    site.error = error
    site.batches(*kinds)
    assert site.blamed == [(ENOUGH, why)]
    again = -(-AGAIN_NS // ENOUGH_NS)
    site.batches(*kinds, count=again)
    site.error = None
    site.batches(*kinds, count=1)
    assert site.blamed == [(ENOUGH, why), (ENOUGH + again, why), (0, "")]


def test_a_result_that_is_wrong_as_a_whole_is_a_failure_too() -> None:
    site = Site()
    site.harness.runner._predict = lambda x: x[:0]
    site.batches(GOOD)
    (blamed,) = site.blamed
    assert blamed[0] == ENOUGH


def test_results_that_are_wrong_in_each_requests_part_are_failures_too() -> None:
    site = Site(output=Tensor("y", "INT8", [2]))
    site.harness.runner._predict = lambda x: np.full(x.shape, 1000)
    site.batches(GOOD, GOOD)
    (blamed,) = site.blamed
    assert blamed[0] == ENOUGH


@pytest.mark.parametrize("others", [(GOOD,), (GOOD, BAD, BAD), (BAD, BAD, GOOD)])
def test_one_good_answer_in_a_batch_is_enough(others: tuple[int, ...]) -> None:
    site = Site()
    site.batches(BAD, *others, count=3 * ENOUGH)
    assert site.blamed == []


def test_an_earlier_batchs_answers_do_not_count() -> None:
    site = Site()
    site.batches(BAD, GOOD, count=1)
    site.batches(BAD)
    assert site.blamed == [(ENOUGH, "it raised ValueError")]


def test_nor_where_nothing_is_raised() -> None:
    site = Site(output=Tensor("y", "INT8", [2]))
    site.harness.runner._predict = lambda x: site._predict(x).astype(np.int8)
    assert site.statuses(BAD, GOOD) == [Status.MODEL_FAILED, Status.OK]
    site.harness.runner._predict = lambda x: np.full(x.shape, 1000)
    site.batches(GOOD, GOOD)
    assert [batches for batches, _ in site.blamed] == [ENOUGH]


def test_inputs_that_the_model_refuses_are_no_failures() -> None:
    site = Site()
    site.batches(REFUSED, count=3 * ENOUGH)
    site.batches(REFUSED, REFUSED, count=3 * ENOUGH)
    assert site.blamed == []
    assert site.failing.batches == 0


def test_and_are_no_answers_either() -> None:
    site = Site()
    site.batches(BAD, count=ENOUGH - 1)
    site.batches(REFUSED)
    site.batches(BAD, count=1)
    assert site.blamed == [(ENOUGH, "it raised ValueError")]


def test_a_server_that_does_not_answer_is_no_failure_of_this_process() -> None:
    site = Site()
    site.error = ServerFailed(Status.NO_WORKER, "the server is gone")
    site.batches(GOOD, count=3 * ENOUGH)
    assert site.blamed == []


def test_bad_requests_alone_blame_no_model_that_answers_its_warm_up() -> None:
    site = Site(sample=True)
    site.batches(BAD, count=10 * ENOUGH)
    assert site.blamed == []
    assert site.samples == 10
    assert site.statuses(GOOD, BAD) == [Status.OK, Status.MODEL_FAILED]


def test_a_model_that_does_not_answer_its_warm_up_either_is_blamed() -> None:
    site = Site(sample=True)
    site.error = RuntimeError()
    site.batches(GOOD)
    assert site.blamed == [(ENOUGH, "it raised RuntimeError")]
    assert site.samples == 1


def test_a_model_that_answers_its_warm_up_again_is_blamed_no_longer() -> None:
    site = Site(sample=True)
    site.error = RuntimeError()
    site.batches(GOOD)
    site.error = None
    site.batches(BAD)
    assert site.blamed == [(ENOUGH, "it raised RuntimeError"), (0, "")]


def test_without_memory_no_sample_is_asked_for() -> None:
    """It is one row of ones, and may still find room where no request does."""
    site = Site(sample=True)
    site.error = MemoryError()
    site.batches(GOOD)
    assert site.blamed == [(ENOUGH, "it ran out of memory")]
    assert site.samples == 0


def test_clients_have_their_answers_before_the_sample_is_run() -> None:
    site = Site()
    answered = []

    def sample() -> None:
        answered.append(len(site.harness.clients[0].collect()))

    site.failing.sample = sample
    site.batches(BAD, count=ENOUGH - 1)
    ref = site.harness.send_tensor([[BAD, 0]])
    site.harness.runner.run([ref], MARK, 0)
    assert answered == [1]


def test_a_sample_may_ask_for_another_process() -> None:
    site = Site()

    def sample() -> None:
        raise RestartWorker

    site.failing.sample = sample
    with pytest.raises(RestartWorker):
        site.batches(BAD)
