"""Weight of an engine for HAProxy's agent-check: its share of the requests. Pure.

The share falls with how much slower than in warm-up batches have become, and with how many of them
a request takes. Neither depends on the model, so engines of one kind get shares by which of them is
quicker now; and the share of one that has become slow falls before a queue is there to see.
"""

from typing import Final, NamedTuple

from ringbatch.frontend.load.slowdown import Pace

FULL: Final = 100
"""Weight of an engine without load or slowdown, in percent."""
LEAST: Final = 1
"""Weight of the slowest engine that serves, in percent. An engine without requests could not show
that it is quick again."""
SLOWDOWN_POWER: Final = 2.5
"""More than 1, as requests do not wait one for another: a quick engine answers many of them with
the batch after the one that runs, where a slow one lets a second wait for a whole slow batch."""
USUAL_BATCHES: Final = 2.0
"""Batches until a request is answered: the one that runs, and its own. Only more is a queue."""
QUEUE_POWER: Final = 2.0
"""Exponent of the queue: an engine's share is to fall to that of a slow one before it is long."""


class ModelLoad(NamedTuple):
    """Load of one model.

    Attributes:
        name: the model's name.
        obstacle: why a request might not be answered; empty if no reason is known.
        wait_ns: the time of a request that comes now, its own batch included; 0 if unknown.
        pace: its slowdown and its queue.
    """

    name: str
    obstacle: str
    wait_ns: int
    pace: Pace

    @property
    def percent(self) -> int:
        """Weight of the model, from `LEAST` to `FULL`."""
        slowdown, batches = self.pace
        queue = max(batches / USUAL_BATCHES, 1.0)
        return max(int(FULL / (slowdown**SLOWDOWN_POWER * queue**QUEUE_POWER)), LEAST)


class EngineLoad(NamedTuple):
    """Load of an engine.

    Attributes:
        draining: True if it is to stop without a successor.
        models: those that serve.
    """

    draining: bool
    models: tuple[ModelLoad, ...]

    @property
    def wait_ns(self) -> int:
        """Longest expected time of any model."""
        return max((model.wait_ns for model in self.models), default=0)

    @property
    def slowdown(self) -> float:
        """Largest slowdown of any model."""
        return max((model.pace.slowdown for model in self.models), default=1.0)

    @property
    def obstacle(self) -> str:
        """Obstacle of the first model that has one, with the model's name; empty without any."""
        return next((f"{m.name}: {m.obstacle}" for m in self.models if m.obstacle), "")

    @property
    def percent(self) -> int:
        """Weight of the engine: 0 if no requests are to come, else its models' least weight."""
        if self.draining or self.obstacle:
            return 0
        return min((model.percent for model in self.models), default=FULL)


def word(load: EngineLoad) -> bytes:
    """Return a line for HAProxy.

    An engine that drains is up with a share of 0, by which HAProxy gives it no more requests. The
    words ``drain`` and ``ready`` are never sent. They set the same state as an operator: the
    second, which must follow the first, would undo an operator's own ``drain`` or ``maint``.
    """
    if load.obstacle and not load.draining:
        return b"down #%b\n" % " ".join(load.obstacle.split()).encode("ascii", "replace")
    return b"up %d%%\n" % load.percent
