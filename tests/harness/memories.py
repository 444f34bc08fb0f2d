"""Memory models of the explorer: stores in order, those of x86-64, and those of AArch64.

All are operational: a store waits in a buffer of its actor, which sees it at once, and reaches
memory later. They differ in which stores may reach memory next, and in which of the values that a
word had a load may return.

`Armv8` is after Pulte et al., "Simplifying ARM Concurrency", 2018, and "Promising-ARM/RISC-V",
2019: memory is one for all (multi-copy atomic), so that it is a history of stores. Stores leave
a buffer in any order that barriers, releases and the order within a word allow. A load may have
been done as early as the last barrier or acquire before it: it returns any value that its word has
had since. No store leaves before a load that precedes it, though AArch64 allows that where the
store does not depend on the load: each of Python's loads makes a number of the value it loads, and
branches on it (small numbers are kept ready), so that all that follows depends on it; and no store
that depends on a branch is seen before the branch is decided. Copies of bytes are no numbers; such
loads are late here: they are done at any time before what must come behind them. Dependencies
between loads order nothing, so the model allows more than a processor does.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

_BARRIER: Final = -1
"""Barrier in a store buffer: no store behind it leaves before those in front of it."""


class Stored(NamedTuple):
    """A store that has not reached memory, or a load that was not done.

    Attributes:
        number: the word.
        value: stored there; of a load, the place of its value among the actor's late ones.
        releases: True if all earlier stores and loads are done before it.
        is_load: True for a load.
    """

    number: int
    value: int
    releases: bool = False
    is_load: bool = False


@dataclass
class View:
    """Side of memory that one actor sees.

    Attributes:
        buffer: its stores that have not reached memory, the oldest first.
        floor: no load of the actor happens before this time.
        seen: by word, the time of the newest store to it that the actor has loaded or made.
        loaded, stored: the latest of these times.
    """

    buffer: list[Stored] = field(default_factory=list)
    floor: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    loaded: int = 0
    stored: int = 0
    late: list[int | None] = field(default_factory=list)
    """Values that the actor's late loads returned, None where they are not done."""


class Memory:
    """Words in which each store is seen at once, by all actors.

    Args:
        words: words that hold the values.

    Attributes:
        stores: the words that were stored to, with their values.
    """

    buffers: ClassVar[bool] = False
    """True if others see a store only later."""
    has_half_fences: ClassVar[bool] = False
    """True if acquire and release fences mean anything in it."""

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self.stores: dict[int, int] = {}

    def put(self, number: int, value: int) -> None:
        """Store a word that no two actors share, or before they begin."""
        self._words[number] = value

    def commit(self, number: int, value: int) -> None:
        """Write a store to memory."""
        self._words[number] = self.stores[number] = value

    def store(self, view: View, stored: Stored) -> None:
        """Take an actor's store."""
        self.commit(stored.number, stored.value)

    def drainable(self, view: View) -> list[int]:
        """Return the places in an actor's buffer whose stores may reach memory next."""
        return []

    def drain(self, view: View, place: int) -> Stored:
        """Take a store of an actor out of its buffer, and write it to memory."""
        stored = view.buffer.pop(place)
        self.commit(stored.number, stored.value)
        return stored

    def settle(self, view: View) -> None:
        """Write all stores of a dead actor to memory."""
        while view.buffer:
            self.drain(view, self.drainable(view)[0])

    def inherit(self) -> View:
        """Return the view of an actor that begins after what it knows has happened."""
        return View()

    def readable(self, view: View, number: int) -> int:
        """Return how many values a load of an actor may return."""
        return 1

    def load(self, view: View, number: int, choice: int, *, acquires: bool) -> int:
        """Return the value of a load, the chosen one of those that `readable` counts."""
        for stored in reversed(view.buffer):
            if stored.number == number:
                return stored.value
        return int(self._words[number])

    def may_fence(self, view: View) -> bool:
        """Return whether an actor's full fence can be done now."""
        return True

    def fence(self, view: View) -> None:
        """Take an actor's full fence, or a use of a semaphore."""
        self.settle(view)

    def acquire_fence(self, view: View) -> None:
        """Take a fence between an actor's earlier loads and what follows."""

    def release_fence(self, view: View) -> None:
        """Take a fence between an actor's earlier accesses and its later stores."""

    def post(self, view: View, number: int) -> None:
        """Post a semaphore, after `may_fence`."""
        self.settle(view)
        self.commit(number, int(self._words[number]) + 1)

    def wait(self, view: View, number: int) -> None:
        """Take a semaphore that was posted."""
        self.settle(view)
        self.commit(number, 0)

    def state(self, views: Iterable[View]) -> Hashable:
        """Return what the future depends on, with the views of the actors that go on."""
        return frozenset(self.stores.items()), tuple(tuple(view.buffer) for view in views)


class TotalStoreOrder(Memory):
    """x86-64: stores reach memory in order (Sewell et al., "x86-TSO", 2010)."""

    buffers = True

    def store(self, view: View, stored: Stored) -> None:
        """Take an actor's store."""
        view.buffer.append(stored)

    def drainable(self, view: View) -> list[int]:
        """Return the first place, if there is one."""
        return [0] if view.buffer else []


class Armv8(Memory):
    """AArch64: only what barriers, acquires and releases ask for is kept in order."""

    buffers = True
    has_half_fences = True

    def __init__(self, words: memoryview) -> None:
        super().__init__(words)
        self._now = 0
        self._history: dict[int, list[tuple[int, int]]] = {}

    def commit(self, number: int, value: int) -> None:
        """Write a store to memory; earlier values can still be loaded."""
        self._now += 1
        history = self._history.setdefault(number, [(0, int(self._words[number]))])
        history.append((self._now, value))
        super().commit(number, value)

    def store(self, view: View, stored: Stored) -> None:
        """Take an actor's store."""
        view.buffer.append(stored)

    def drainable(self, view: View) -> list[int]:
        """Return the places of stores that nothing in front of them keeps."""
        found: list[int] = []
        before: set[int] = set()
        for place, stored in enumerate(view.buffer):
            if stored.number == _BARRIER:
                break
            if stored.number not in before and not (stored.releases and place):
                found.append(place)
            before.add(stored.number)
        return found

    def drain(self, view: View, place: int) -> Stored:
        """Take a store of an actor out of its buffer, and write it to memory."""
        if view.buffer[place].is_load:
            stored = view.buffer.pop(place)
            view.late[stored.value] = int(self._words[stored.number])
        else:
            stored = super().drain(view, place)
            view.seen[stored.number] = view.stored = self._now
        while view.buffer and view.buffer[0].number == _BARRIER:
            view.buffer.pop(0)
        return stored

    def inherit(self) -> View:
        """Return the view of an actor that begins after what it knows has happened."""
        return View(floor=self._now)

    def readable(self, view: View, number: int) -> int:
        """Return how many values the word has had since the last barrier of the actor."""
        if any(stored.number == number and not stored.is_load for stored in view.buffer):
            return 1
        return len(self._values(view, number))

    def _values(self, view: View, number: int) -> list[tuple[int, int]]:
        """Return these values, with the times of their stores, the newest first."""
        history = self._history.get(number)
        if history is None:
            return [(0, int(self._words[number]))]
        low = max(view.floor, view.seen.get(number, 0))
        return history[bisect_right(history, low, key=_time) - 1 :][::-1]

    def load(self, view: View, number: int, choice: int, *, acquires: bool) -> int:
        """Return one of these, the newest first."""
        for stored in reversed(view.buffer):
            if stored.number == number and not stored.is_load:
                return stored.value
        time, value = self._values(view, number)[choice]
        view.seen[number] = max(view.seen.get(number, 0), time)
        view.loaded = max(view.loaded, time)
        if acquires:
            view.floor = max(view.floor, time)
        return value

    def copy(self, view: View, number: int, choice: int) -> int:
        """Load a word that nothing depends on; return the place of its value in `View.late`.

        The last choice is to do it later, at any time before what must come behind it.
        """
        place = len(view.late)
        if choice < self.readable(view, number):
            view.late.append(self.load(view, number, choice, acquires=False))
        else:
            view.buffer.append(Stored(number, place, is_load=True))
            view.late.append(None)
        return place

    def may_fence(self, view: View) -> bool:
        """Return whether an actor's full fence can be done now: all its stores are in memory."""
        return not view.buffer

    def fence(self, view: View) -> None:
        """Order later loads behind all earlier loads and stores."""
        view.floor = max(view.floor, view.loaded, view.stored)

    def acquire_fence(self, view: View) -> None:
        """Order later loads behind all earlier loads."""
        view.floor = max(view.floor, view.loaded)

    def release_fence(self, view: View) -> None:
        """Order later stores behind all earlier stores."""
        if view.buffer and view.buffer[-1].number != _BARRIER:
            view.buffer.append(Stored(_BARRIER, 0))

    def post(self, view: View, number: int) -> None:
        """Post a semaphore, with release."""
        self.commit(number, int(self._words[number]) + 1)
        view.stored = self._now

    def wait(self, view: View, number: int) -> None:
        """Take a semaphore that was posted, with acquire."""
        posted, _ = self._history[number][-1]
        view.floor = max(view.floor, posted)
        self.commit(number, 0)

    def state(self, views: Iterable[View]) -> Hashable:
        """Return memory, the values of before that can still be loaded, and the views.

        Times matter only in their order, so each is counted among those of the stores that remain.
        """
        views = list(views)
        kept: dict[int, list[tuple[int, int]]] = {}
        for number in self._history:
            older = max((self._values(view, number) for view in views), key=len, default=[])
            if len(older) > 1:
                kept[number] = older
        times = sorted(time for values in kept.values() for time, _ in values[:-1])

        def rank(time: int) -> int:
            return bisect_right(times, time)

        return (
            frozenset(self.stores.items()),
            tuple((n, tuple((rank(t), v) for t, v in found)) for n, found in sorted(kept.items())),
            tuple(
                (
                    tuple(view.buffer),
                    rank(view.floor),
                    rank(view.loaded),
                    rank(view.stored),
                    tuple(rank(max(view.floor, view.seen.get(n, 0))) for n in sorted(kept)),
                )
                for view in views
            ),
        )


def _time(value: tuple[int, int]) -> int:
    return value[0]


STRONG: Final[dict[str, type[Memory]]] = {"in order": Memory, "buffered": TotalStoreOrder}
MEMORIES: Final[dict[str, type[Memory]]] = STRONG | {"weak": Armv8}
"""Memory models, of which each allows all that the ones before it allow."""
