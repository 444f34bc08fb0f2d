"""Cost-bounded splitting: cuts batches of an untyped model into runs by the cost of instances.

Nobody but the model's own code knows what a JSON value costs, and only a worker holds that code. So
a batch is formed by its instances, and the worker that is given it runs it in parts, the cheapest
first: each as large as its bound allows, and each answered before the next one is run.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringbatch.engine.models.model import RestartWorker
from ringbatch.engine.worker.join_limits import checked_cost
from ringbatch.engine.worker.json_codec import JsonCodec
from ringbatch.shm.engine_slots import Request

Cost = Callable[[Any], Any]
"""Cost of an instance, in any unit: a number from 0 up."""


class RunPlan(NamedTuple):
    """Plan of a batch's runs.

    Attributes:
        parts: requests that are run together, in that order.
        refused: requests for which `cost` has raised, or returned no cost, and the exception.
    """

    parts: list[list[Request]]
    refused: list[tuple[Request, BaseException]]


class CostSplitCodec(JsonCodec):
    """Codec that also plans the runs of a batch; the plan comes before the reading.

    Args:
        memory, asks: as of `JsonCodec`.
        cost: see `Cost`.
        most: that one run may cost, unless it is of one request.
    """

    def __init__(self, memory: memoryview, cost: Cost, most: float, asks: bool = False) -> None:
        super().__init__(memory, True, asks)
        self._cost = cost
        self._most = most
        self._planned: dict[int, list[Any]] = {}
        """Instances of requests with a known cost, by reference; they are read once."""

    def plan(self, requests: Sequence[Request]) -> RunPlan:
        """Return the runs of a batch; an unreadable request costs nothing."""
        costs: list[tuple[float, Request]] = []
        refused: list[tuple[Request, BaseException]] = []
        self._planned.clear()
        for request in requests:
            values = super()._values(request) or []
            try:
                costs.append((sum(map(self._cost_of, values[self._asks :])), request))
            except RestartWorker:
                raise
            except BaseException as error:
                refused.append((request, error))
            else:
                self._planned[request.ref] = values
        costs.sort(key=lambda pair: pair[0])
        return RunPlan(bounded(costs, self._most), refused)

    def _values(self, request: Request) -> list[Any] | None:
        return self._planned.pop(request.ref, None) or super()._values(request)

    def _cost_of(self, instance: Any) -> float:
        return checked_cost(self._cost(instance))


def bounded(costs: Sequence[tuple[float, Request]], most: float) -> list[list[Request]]:
    """Return requests in parts that cost at most so much, or of a single one, in their order."""
    parts: list[list[Request]] = []
    total = 0.0
    for cost, request in costs:
        total += cost
        if not parts or total > most:
            parts.append([])
            total = cost
        parts[-1].append(request)
    return parts
