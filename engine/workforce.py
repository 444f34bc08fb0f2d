"""The places of the workers: who is hired while the engine serves, and who may go.

A number is given to another worker when two things are certain: the process that had it has ended,
and the collector expects nothing of it any more. It says so, or never knew of it, or is gone.
"""

import signal
import time
from collections.abc import Callable
from typing import Final

from ringbatch.engine.place import Place
from ringbatch.engine.settings import ModelConfig

_KILL_AFTER_NS: Final = 5_000_000_000
"""What a worker gets to end by itself."""


class Workforce:
    """The places of one engine's workers.

    Attributes:
        workers: by number.

    Args:
        make: makes the place of a worker, from its number, its model, and which of that model's
            workers it is.
        fill: starts a process in a place.
        tell_segment: tells the process in a place of the segment.
        tell_collector: has the collector look at the table.
        is_entered: whether the table has the worker of a number.
    """

    def __init__(
        self,
        make: Callable[[int, ModelConfig, int], Place],
        fill: Callable[[Place], None],
        tell_segment: Callable[[Place], None],
        tell_collector: Callable[[], None],
        is_entered: Callable[[int], bool],
    ) -> None:
        self.workers: dict[int, Place] = {}
        self._make = make
        self._fill = fill
        self._is_entered = is_entered
        self.introduce = tell_segment
        self.table_changed = tell_collector

    def hire(self, number: int, model: ModelConfig, index: int) -> None:
        """As in `Crew`."""
        self.workers[number] = place = self._make(number, model, index)
        place.lasting = place.known = False
        self._fill(place)

    def dismiss(self, place: Place) -> None:
        """As in `Crew`; its number is free once its process has ended."""
        place.let_go()
        place.released = True
        if place.child is None:
            self.bury(place)
        else:
            place.child.kill(signal.SIGTERM)
            place.kill_ns = time.monotonic_ns() + _KILL_AFTER_NS

    def bury(self, place: Place) -> None:
        """Its process has ended, and its number is free."""
        assert place.worker is not None, "only workers are dismissed"
        del self.workers[place.worker]

    def release(self, number: int) -> None:
        """The collector says: nothing is expected of a worker any more."""
        place = self.workers.get(number)
        # An earlier collector may have meant an earlier worker of that number.
        if place is not None and place.known and not self._is_entered(number):
            self.dismiss(place)

    def collector_died(self) -> None:
        """It and all workers are gone, and with it what it expected of them."""
        for number, place in list(self.workers.items()):
            if place.lasting:
                continue
            place.failure = "the collector died meanwhile; try again"
            if place.released or (place.known and not self._is_entered(number)):
                self.dismiss(place)

    def collector_ready(self) -> None:
        """The new one may never have heard of those that the one before was to let go."""
        for number, place in list(self.workers.items()):
            if not place.lasting and place.child is None and not self._is_entered(number):
                self.dismiss(place)
