"""The worker's block in the segment for metrics of the model's own code."""

from contextlib import AbstractContextManager
from pathlib import Path

from ringbatch.engine.models.model_metrics import BOOK
from ringbatch.shm.errors import StartupError
from ringbatch.shm.model_metrics import OwnMetrics
from ringbatch.shm.segment import Segment


def count_in(segment: Segment, number: int) -> None:
    """Have what the model's code counts stand in the segment from now on."""
    accounts = {spec.account for spec in segment.models}
    (own,) = (spec.account for spec in segment.models if number in spec.workers)
    BOOK.open(OwnMetrics(segment.memory, segment.layout.own_metrics(number)), own, accounts - {own})


def expect_no_clash(segment: Segment, number: int, path: Path | str) -> None:
    """Compare what the model counts with what other models count.

    Raises:
        StartupError: in words, if both cannot be shown together.
    """
    if not BOOK.metrics:
        return
    (name,) = (spec.name for spec in segment.models if number in spec.workers)
    others = {spec.account: spec.name for spec in segment.models if spec.name != name}
    found = [
        (others[metric.account], metric)
        for worker in range(segment.layout.workers)
        if worker != number
        for metric in OwnMetrics(segment.memory, segment.layout.own_metrics(worker)).metrics()
        if metric.account in others
    ]
    if clash := BOOK.clash(found):
        raise StartupError(f"{path}: {clash}")


def warm_up_unseen() -> AbstractContextManager[None]:
    """Return a context manager for warm-up, during which the model's metrics do not count."""
    return BOOK.unseen()
