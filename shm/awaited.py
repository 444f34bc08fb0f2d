"""Requests that a worker looks at before each step: whether all of their clients wait.

They are mostly those of the step before, and mostly all wait. So one call loads the words of all,
from places that are known since the step before. `EngineSlots.given_up` says which do not wait.
"""

from collections.abc import Callable
from operator import itemgetter

from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.memory_order import acquiring
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import slot_of, wanted_words


class AwaitedRequests:
    """Requests of every lane, as one worker asks about them.

    Args:
        segment: where the lanes lie.
    """

    __slots__ = ("_first_word", "_known", "_load", "_load_acquire", "_references", "_wanted")

    def __init__(self, segment: Segment) -> None:
        self._load_acquire = acquiring(segment.words)
        self._first_word = segment.layout.slots_word
        self._references: list[int] = []
        """The requests of the last question."""
        self._known: dict[int, tuple[int, int, int]] = {}
        """For each of them the places of its two words, and CONTROL while its client waits."""
        self._wanted: tuple[int, ...] = ()
        self._load: Callable[[memoryview], tuple[int, ...]] = itemgetter(0, 0)

    def all_wait(self, references: list[int], now_ns: int) -> bool:
        """Return whether no client has given up, and every deadline is to come.

        Args:
            references: different requests in slots that exist; the caller leaves the list as it is.
            now_ns: the time.
        """
        if not references:
            return True
        if references != self._references:
            self._remember(references)
        found, count = self._load(self._load_acquire), len(references)
        return found[:count] == self._wanted and min(found[count:]) > now_ns

    def _remember(self, references: list[int]) -> None:
        before = self._known
        self._known = {ref: before.get(ref) or self._find(ref) for ref in references}
        controls, deadlines, self._wanted = zip(*self._known.values(), strict=True)
        self._references = references
        self._load = itemgetter(*controls, *deadlines)

    def _find(self, ref: int) -> tuple[int, int, int]:
        first = self._first_word + slot_of(ref) * SlotWords.SIZE
        (wanted,) = wanted_words([ref])
        return first + SlotWords.CONTROL, first + SlotWords.DEADLINE_NS, wanted
