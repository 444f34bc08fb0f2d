"""Models of a life that are on a device: two batches are under way, and either may end the worker.

A batch has been read when it begins. It runs when it is finished, as any model of a life does, but
the worker may die of it as soon as it has begun.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from simulation.machine import MICROSECOND_NS, Machine

LOOK_AGAIN_S: Final = 2e-4
"""Time between two looks at a batch, which saves steps of a life."""
_COPIES_NS: Final = 100 * MICROSECOND_NS
"""Time that the copies of a batch take, at most."""


class PlayedBatch:
    """Batch under way on the device.

    Attributes:
        lost: see `ringbatch.engine.devices.batch_run.UnderWay`.
    """

    def __init__(self, inputs: Sequence[Any], until_ns: int, is_fatal: bool) -> None:
        self.inputs = inputs
        self.until_ns = until_ns
        self.is_fatal = is_fatal
        self.lost = False


class PlayedRun:
    """Simulated run of a batch; see `ringbatch.engine.devices.batch_run.BatchRun`.

    Args:
        machine: runs the worker.
        chance: decides how long copies take.
        predict: the model's function.
        dies_of: whether the worker, which is this process, is about to die of a batch that begins.
        copies_ns: how long the device took for the copies of a batch that it has run.
    """

    def __init__(
        self,
        machine: Machine,
        chance: random.Random,
        predict: Callable[..., Any],
        dies_of: Callable[[Any], bool],
        copies_ns: Callable[[Any], int],
    ) -> None:
        self._machine = machine
        self._chance = chance
        self._predict = predict
        self._dies_of = dies_of
        self._copies_ns = copies_ns
        self.copy_ns = 0
        self.under_way: list[PlayedBatch] = []

    def begin(self, *inputs: Any) -> PlayedBatch:
        """Begin a batch."""
        assert len(self.under_way) < 2, "it has two sets of buffers"
        begins_ns = max([self._machine.now_ns, *[one.until_ns for one in self.under_way]])
        until_ns = begins_ns + int(self._chance.random() * _COPIES_NS)
        self.under_way.append(PlayedBatch(inputs, until_ns, self._dies_of(inputs[0])))
        return self.under_way[-1]

    def passed(self, one: PlayedBatch) -> bool:
        """Return whether its copies are done."""
        return one.lost or self._machine.now_ns >= one.until_ns

    def wait(self, one: PlayedBatch) -> None:
        """Wait until a batch's run is over."""
        self._machine.sleep(max(one.until_ns - self._machine.now_ns, 0))

    def finish(self, one: PlayedBatch) -> Any:
        """Run a batch, unless it is lost."""
        assert one is self.under_way[0], "batches end in their order"
        try:
            if one.lost:
                raise RuntimeError("the device failed")
            self.wait(one)
            if one.is_fatal:
                self._machine.sleep(None)
            return self.predict(*one.inputs)
        except Exception:
            if len(self.under_way) > 1:
                for other in self.under_way:
                    other.lost = True
            raise
        finally:
            self.under_way.remove(one)

    def predict(self, *inputs: Any) -> Any:
        """Run a batch alone, which does not begin before it runs."""
        outputs = self._predict(*inputs)
        self.copy_ns = self._copies_ns(inputs[-1])
        return outputs
