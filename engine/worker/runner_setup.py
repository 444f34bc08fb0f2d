"""Setup of a `Runner`: what runners of all kinds are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringbatch.engine.models.model import Model
from ringbatch.engine.worker.codec import Codec, Place
from ringbatch.engine.worker.cost_splitting import RunPlan
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.shm.engine_slots import EngineSlots, Request


def _nothing(_number: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class RunnerSetup:
    """Model of a runner, the slots of its requests, and choices for its batches.

    By default batches may have any number of rows, and are in no chain.

    Attributes:
        model: loaded.
        name: of the model, for messages.
        slots: answers for this worker.
        clock_ns: the monotonic clock.
        batched: whether what the model takes and returns has a batch dimension; if it has none,
            every batch is one instance.
        sizes: the numbers of rows that the model is run with, ascending; none if every number is
            right.
        codec: reads and writes the batches; None for the usual one.
        run_again: called before every run of a batch but the first, with the batch's number.
        place: returns where batches of which that word is `asked` are in a chain, see
            `ringbatch.shm.chain`; None if they are no chain's.
        plan: cuts batches into runs before any is made; None if each is one run.
        failing: counts the batches that the model fails entirely; None for a count of its own.
    """

    model: Model
    name: str
    slots: EngineSlots
    clock_ns: Callable[[], int]
    batched: bool = True
    sizes: Sequence[int] = ()
    codec: Codec | None = None
    run_again: Callable[[int], object] = _nothing
    place: Callable[[int], Place | None] = _nothing
    plan: Callable[[Sequence[Request]], RunPlan] | None = None
    failing: Failing | None = None
