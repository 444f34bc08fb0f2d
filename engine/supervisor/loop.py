"""The supervisor's loop: it waits, has handled what comes, and catches what nobody expected.

An exception that nobody expected is a fault of ringbatch's own, and it may come between any two
steps. So it is caught in one place. Where whatever was being handled can be given up alone, that is
done, and the loop goes on; otherwise the engine is to end, with a status that says so.
"""

import logging
import selectors
from collections.abc import Callable
from typing import NamedTuple, Protocol

logger = logging.getLogger("ringbatch.supervisor")

Act = Callable[[], object]


class Source(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """Its descriptor."""


class Closable(Source, Protocol):
    """A source that is closed by whoever watches it."""

    def close(self) -> None:
        """Let go of what it holds."""


class _Handler(NamedTuple):
    act: Act
    contain: Act | None


class Loop:
    """See above.

    Attributes:
        broken: whether something failed that could not be given up alone.

    Args:
        selector: what it waits with.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self.broken = False
        self._selector = selectors.DefaultSelector() if selector is None else selector

    def watch(self, source: int | Source, act: Act, contain: Act | None = None) -> None:
        """Have `act` called whenever there is something to read.

        Args:
            source: a descriptor, or what has one.
            act: takes what there is to read, or forgets the source.
            contain: as for `guard`.
        """
        self._selector.register(source, selectors.EVENT_READ, _Handler(act, contain))

    def forget(self, source: int | Source) -> None:
        """Watch it no longer; nothing happens where it was not watched."""
        if self.watches(source):
            self._selector.unregister(source)

    def drop(self, source: Closable) -> None:
        """Watch it no longer, and close it."""
        self.forget(source)
        source.close()

    def watches(self, source: int | Source) -> bool:
        """Whether it is watched."""
        return source in self._selector.get_map()

    def turn(self, timeout_s: float | None) -> None:
        """Handle what comes within that time; None is for as long as it takes."""
        for key, _ in self._selector.select(timeout_s):
            # What came before in this turn may have ended the process that this is about.
            if self._selector.get_map().get(key.fd) is key:
                self.guard(*key.data)

    def guard(self, act: Act, contain: Act | None = None) -> None:
        """Do something that may fail as nobody expects.

        Args:
            act: what is to be done.
            contain: gives up what failed, where the rest can go on without it.
        """
        try:
            act()
        except Exception:
            logger.exception("this should not have happened")
            if contain is None:
                self.broken = True
            else:
                self.guard(contain)
