"""What HAProxy's agent-check is told: an engine's share of the requests, as a pure function.

The share is inverse to the time that a request would take, as a multiple of what the model takes at
its quickest. So engines of one kind get shares by which of them is quicker now, whatever the model;
and the share of one that is slow falls before a queue is there to see.
"""

from typing import Final, NamedTuple

FULL: Final = 100
"""Percent of an engine in whose way nothing is."""
LEAST: Final = 1
"""Of the slowest that serves. One that got no requests could not show that it is quick again."""
UNKNOWN_NS: Final = 10_000_000
"""For what a model takes at its quickest, where no warm-up has measured it."""


class ModelLoad(NamedTuple):
    """What is known of one model.

    Attributes:
        name: of it.
        obstacle: why a request might not be answered; empty where nothing is known.
        answer_ns: what a request that comes now would take; 0 where nothing is in its way.
        cycle_ns: what a batch took of late; 0 before the first.
        quickest_ns: what the quickest batch took in warm-up; 0 where there was none.
    """

    name: str
    obstacle: str
    answer_ns: int
    cycle_ns: int
    quickest_ns: int

    @property
    def wait_ns(self) -> int:
        """What a request takes that comes now, its own batch included; 0 where nothing is known."""
        return max(self.answer_ns, self.cycle_ns)

    @property
    def percent(self) -> int:
        """Its share, from `LEAST` to `FULL`."""
        quickest_ns = self.quickest_ns or UNKNOWN_NS
        return max(FULL * quickest_ns // max(self.wait_ns, quickest_ns), LEAST)


class EngineLoad(NamedTuple):
    """What is known of an engine.

    Attributes:
        draining: whether it is to stop, with no other in its stead.
        models: those that serve.
    """

    draining: bool
    models: tuple[ModelLoad, ...]

    @property
    def wait_ns(self) -> int:
        """That of the model with the longest."""
        return max((model.wait_ns for model in self.models), default=0)

    @property
    def obstacle(self) -> str:
        """Of the first model that has one, with its name; empty where none has."""
        return next((f"{m.name}: {m.obstacle}" for m in self.models if m.obstacle), "")

    @property
    def percent(self) -> int:
        """Its share: 0 where it is to get no requests, else that of the model with the least."""
        if self.draining or self.obstacle:
            return 0
        return min((model.percent for model in self.models), default=FULL)


def word(load: EngineLoad) -> bytes:
    """A line for HAProxy.

    An engine that drains is up with a share of 0, by which HAProxy gives it no more requests. The
    words ``drain`` and ``ready`` are never said. They set what an operator sets: the second, which
    must follow the first, would undo an operator's own ``drain`` or ``maint``.
    """
    if load.obstacle and not load.draining:
        return b"down #%b\n" % " ".join(load.obstacle.split()).encode("ascii", "replace")
    return b"up %d%%\n" % load.percent
