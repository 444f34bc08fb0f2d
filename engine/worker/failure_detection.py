"""Detection of a model that fails every request, as distinct from a model that gets bad requests.

A batch counts if the model failed for some of its requests and answered none. Inputs that the model
refuses, and servers that do not answer, say nothing of the worker's process. One good answer ends
the count. Many failures in a row may still be one client's fault, so the model is run once more on
values of its warm-up, if there are some: if it answers these, its process is sound. Memory that has
run out is the exception, because a few made-up values may still find room.
"""

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("ringbatch.worker")

ENOUGH: Final = 8
"""Batches in a row: as many single requests make the search in a batch blame the model."""
ENOUGH_NS: Final = 2_000_000_000
"""Shortest time of failing: something that a model needs elsewhere may be gone for a moment."""

AGAIN_NS: Final = 10_000_000_000
"""Interval of looks and reports while every batch fails."""


class Failing:
    """Count of the batches in a row that one worker's model failed.

    Attributes:
        batches: that failed in a row.
        found: whether they were taken for more than chance.
        sample: runs the model on values of its warm-up; None if there are none.

    Args:
        name: the model's, for messages.
        report: called with the count and, once it is taken for more than chance, with why the last
            batch failed and for how many nanoseconds they have; with 0 once it is over.
    """

    def __init__(
        self,
        name: str = "",
        report: Callable[[int, str, int], object] = lambda _batches, _why, _for_ns: None,
    ) -> None:
        self.batches = 0
        self.found = False
        self.sample: Callable[[], object] | None = None
        self._name = name
        self._report = report
        self._since_ns = self._reported_ns = 0

    def failed(self, now_ns: int) -> bool:
        """Count a batch; return whether it is time to find out whether the model is to blame."""
        if not self.batches:
            self._since_ns = now_ns
        self.batches += 1
        if self.found:
            return now_ns - self._reported_ns >= AGAIN_NS
        return self.batches >= ENOUGH and now_ns - self._since_ns >= ENOUGH_NS

    def answered(self) -> None:
        """End the count: the model has answered."""
        self.batches = 0
        if self.found:
            self.found = False
            logger.info("model %s answers again", self._name)
            self._report(0, "", 0)

    def sound(self) -> None:
        """End the count: the model has answered values of its warm-up."""
        logger.warning(
            "model %s has failed %d batches in a row and answers those of its warm-up; what "
            "clients send is to blame",
            self._name,
            self.batches,
        )
        self.answered()

    def blame(self, why: str, now_ns: int) -> None:
        """Report that the model is to blame.

        Args:
            why: the last batch failed, for people.
            now_ns: the time.
        """
        self.found = True
        self._reported_ns = now_ns
        self._report(self.batches, why, now_ns - self._since_ns)
