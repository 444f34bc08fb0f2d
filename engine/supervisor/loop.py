"""Event loop of the supervisor: waits, dispatches events, and contains unexpected exceptions.

An unexpected exception is a fault of ringbatch's own, and may come between any two steps. So it is
caught in one place. If the failed action can be given up alone, the loop does that and goes on;
otherwise the engine ends, with a status that says so.
"""

import logging
import selectors
from collections.abc import Callable
from typing import NamedTuple, Protocol

logger = logging.getLogger("ringbatch.supervisor")

Act = Callable[[], object]


class Source(Protocol):
    """Object with a descriptor that a selector can wait for."""

    def fileno(self) -> int:
        """Return its descriptor."""


class Closable(Source, Protocol):
    """A source that the loop closes."""

    def close(self) -> None:
        """Release its resources."""


class _Handler(NamedTuple):
    act: Act
    contain: Act | None


class Loop:
    """The event loop.

    Attributes:
        broken: True if an action failed that could not be given up alone.

    Args:
        selector: waits for descriptors.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self.broken = False
        self._selector = selectors.DefaultSelector() if selector is None else selector

    def watch(self, source: int | Source, act: Act, contain: Act | None = None) -> None:
        """Have `act` called whenever there is something to read.

        Args:
            source: a descriptor, or an object with one.
            act: reads from the source, or forgets it.
            contain: as for `guard`.
        """
        self._selector.register(source, selectors.EVENT_READ, _Handler(act, contain))

    def forget(self, source: int | Source) -> None:
        """Stop watching a source; do nothing if it is not watched."""
        if self.watches(source):
            self._selector.unregister(source)

    def drop(self, source: Closable) -> None:
        """Stop watching a source, and close it."""
        self.forget(source)
        source.close()

    def watches(self, source: int | Source) -> bool:
        """Return whether a source is watched."""
        return source in self._selector.get_map()

    def turn(self, timeout_s: float | None) -> None:
        """Handle the events that come within that time; None waits until one comes."""
        for key, _ in self._selector.select(timeout_s):
            # An earlier event of this turn may have ended the process of this one.
            if self._selector.get_map().get(key.fd) is key:
                self.guard(*key.data)

    def guard(self, act: Act, contain: Act | None = None) -> None:
        """Perform an action that may fail unexpectedly.

        Args:
            act: the action.
            contain: gives up what failed, if the rest can go on without it.
        """
        try:
            act()
        except Exception:
            logger.exception("this should not have happened")
            if contain is None:
                self.broken = True
            else:
                self.guard(contain)
