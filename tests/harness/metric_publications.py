"""Publication of the metrics of a model's code: two copies, of which one is valid."""

from collections.abc import Callable
from typing import Any, cast

from interleave import Actor, Watch
from publication_site import Publication

from ringbatch.shm import model_metrics
from ringbatch.shm.layout import WORD
from ringbatch.shm.model_metric_words import OwnMetricWords
from ringbatch.shm.model_metrics import Metric, OwnMetrics, Series

ONE = [Series(Metric("gauge", "size", "the size", 0), (), (0.0,))]
"""The series of each copy: only the length of its text is a step, and that is 0 meanwhile."""


def own_metrics() -> Publication:
    """A copy becomes valid twice, so that the second time the first one's memory is used again."""

    def scenario(watch: Watch) -> tuple[list[Actor], Callable[[], None]]:
        memory = memoryview(bytearray(OwnMetricWords.SIZE * WORD))
        words = watch(memory.cast("Q"))
        found: list[list[Series]] = []

        def opened() -> OwnMetrics:
            metrics = OwnMetrics(memory, 0)
            cast(Any, metrics)._words = words
            return metrics

        writer, reader = opened(), opened()
        writer.begin(ONE)

        def write() -> None:
            for _ in range(2):
                writer.begin(ONE)

        def check() -> None:
            assert found == [ONE], "a copy that is not whole"

        actors = [Actor("worker", write), Actor("control", lambda: found.append(reader.read()))]
        return actors, check

    copies = [OwnMetricWords.COPIES + number * OwnMetricWords.COPY_SIZE for number in range(2)]
    return Publication(
        scenario,
        frozenset({OwnMetricWords.COPY, *copies}),
        (("store", OwnMetricWords.COPY), ("load", OwnMetricWords.COPY)),
        # The text is bytes, for which the reader also fences; the model table shows that.
        ((model_metrics, "release_fence"),),
    )


METRIC_PUBLICATIONS = {"the metrics of a model's code": own_metrics()}
