"""Detection of models that fail every request."""

from typing import NamedTuple

import pytest

from ringbatch.engine.worker.failure_detection import AGAIN_NS, ENOUGH, ENOUGH_NS, Failing


class FailureReport(NamedTuple):
    """Report of a model that fails every request."""

    batches: int
    why: str
    for_ns: int


class Site:
    """Failure detection of one model, and its reports."""

    def __init__(self) -> None:
        self.reports: list[FailureReport] = []
        self.failing = Failing("m", lambda *fields: self.reports.append(FailureReport(*fields)))

    def fail(self, count: int, *, every_ns: int = ENOUGH_NS, start_ns: int = 5) -> list[bool]:
        """Fail so many batches, and return for each whether its end calls for an inquiry."""
        return [self.failing.failed(start_ns + number * every_ns) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "every_ns", "enough"),
    [
        (ENOUGH - 1, ENOUGH_NS, False),
        (ENOUGH, ENOUGH_NS, True),
        (ENOUGH, -(-ENOUGH_NS // (ENOUGH - 1)), True),
        (ENOUGH, ENOUGH_NS // ENOUGH, False),
        (10 * ENOUGH, ENOUGH_NS // (10 * ENOUGH), False),
        (10 * ENOUGH, ENOUGH_NS // (10 * ENOUGH) * 2, True),
    ],
    ids=["few", "slow", "just-long-enough", "too-short", "many-too-short", "many"],
)
def test_it_takes_enough_batches_and_enough_time(count: int, every_ns: int, enough: bool) -> None:
    assert Site().fail(count, every_ns=every_ns)[-1] == enough


def test_one_answer_begins_the_count_anew() -> None:
    site = Site()
    assert not any(site.fail(ENOUGH - 1))
    site.failing.answered()
    assert not any(site.fail(ENOUGH - 1))
    assert site.reports == [], "nothing was wrong"


def test_a_model_whose_sample_is_answered_is_counted_anew() -> None:
    site = Site()
    assert site.fail(ENOUGH)[-1]
    site.failing.sound()
    assert site.fail(ENOUGH) == [False] * (ENOUGH - 1) + [True]
    assert site.reports == []


def test_blame_and_its_end_are_reported() -> None:
    site = Site()
    site.fail(ENOUGH, start_ns=0)
    site.failing.blame("it raised OSError", 99 * ENOUGH_NS)
    site.failing.answered()
    site.failing.answered()
    assert site.reports == [
        FailureReport(ENOUGH, "it raised OSError", 99 * ENOUGH_NS),
        FailureReport(0, "", 0),
    ]


def test_it_is_looked_into_again_as_long_as_every_batch_fails() -> None:
    site = Site()
    site.fail(ENOUGH, start_ns=0)
    site.failing.blame("it raised OSError", 0)
    assert site.fail(3, every_ns=AGAIN_NS // 2, start_ns=1) == [False, False, True]
    site.failing.blame("it raised OSError", AGAIN_NS)
    assert site.fail(2, every_ns=AGAIN_NS, start_ns=AGAIN_NS) == [False, True]
    assert [report.batches for report in site.reports] == [ENOUGH, ENOUGH + 3]


def test_one_that_was_blamed_and_answers_its_sample_again_is_cleared() -> None:
    site = Site()
    site.fail(ENOUGH, start_ns=0)
    site.failing.blame("it raised OSError", 0)
    site.failing.sound()
    assert site.reports[-1] == FailureReport(0, "", 0)
