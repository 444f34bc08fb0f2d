"""Lines of waiting requests in one order, and the turns that those of one class take. Pure."""

from bisect import bisect_left
from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from ringbatch.engine.collector.arrivals import NOWHERE, Arrivals
from ringbatch.engine.collector.usage import AccountUsage, ClassUsage, Usage
from ringbatch.shm.account import same_share
from ringbatch.shm.engine_slots import Request

MOST_TOGETHER: Final = 64
"""The most newcomers in one place: to find one of them takes a look at all."""
_SLACK: Final = 64
"""Heaps and lines of up to this many entries keep all their outdated ones."""


class Line:
    """Requests of one account, in the order of their arrival.

    Attributes:
        account: the owner's use of the model.
        priority: the account's class.
        place, rows, cost: of the first request: its place among all arrivals, its rows and its
            cost. The place of a line without requests is `NOWHERE`.
        count: number of requests.
    """

    __slots__ = ("_later", "account", "cost", "count", "place", "priority", "rows")

    def __init__(self, account: AccountUsage, place: int, rows: int, cost: float) -> None:
        self.account = account
        self.priority = account.priority
        self.place, self.rows, self.cost = place, rows, cost
        self.count = 1
        self._later: deque[int] | None = None
        """Places of the other requests, and of some that have left; None until there is one."""

    def __lt__(self, _: object) -> bool:
        """Let either of two go first that have the same key and place: one is outdated."""
        return False

    @property
    def key(self) -> float:
        """The account's counter once its first request is added."""
        return self.account.used + self.cost / self.account.weight

    def has_left(self, place: int) -> bool:
        """Return whether the request of a place is not its first any more."""
        return place != self.place

    def append(self, place: int) -> None:
        """Append a request."""
        self.count += 1
        if self._later is None:
            self._later = deque([place])
        else:
            self._later.append(place)

    def leaves(self, place: int, arrivals: Arrivals) -> bool:
        """Note that a request has left; return whether another is to become the first.

        Args:
            place: of the request.
            arrivals: of all lines of the order.
        """
        self.count -= 1
        if place != self.place:
            if self._later is not None and len(self._later) > _SLACK + 2 * self.count:
                waiting = [later for later in self._later if arrivals.get(later) is not None]
                self._later = deque(waiting)
            return False
        self.place = NOWHERE
        return self.count > 0

    def advance(self, arrivals: Arrivals) -> Request:
        """Make the next request the first, and return it; its rows and cost are the caller's."""
        later = self._later
        assert later is not None, "a line of several has others than the first"
        request: Request | None = None
        while request is None:
            self.place = later.popleft()
            request = arrivals.get(self.place)
        return request


class Newcomers(AccountUsage):
    """Accounts that began to wait at the same clock, each with one request that is still its only.

    They have the same class, weight, rows and cost. So they have one key, and go in the order of
    arrival. One that sends another request, or gives up, gets a line of its own.

    Attributes:
        rows, cost: of each request.
        key: the counter of each once its request is added.
        words, places: by arrival, their account words, and the places of their requests.

    Args:
        lines: of the order, by account word.
        turns: of their class in that order.
        word: of one of them.
        rows, cost: of each request.
    """

    __slots__ = ("_lines", "_turns", "cost", "key", "places", "rows", "words")

    def __init__(
        self, lines: dict[int, Line], turns: "ClassTurns", word: int, rows: int, cost: float
    ) -> None:
        super().__init__(word, turns.priority)
        self._lines, self._turns = lines, turns
        self.rows, self.cost = rows, cost
        self.waiting, self.lines = cost, 1
        self.key = self.used + cost / self.weight
        self.words: list[object] = []
        self.places: list[int] = []

    def __lt__(self, _: object) -> bool:
        """As `Line.__lt__`."""
        return False

    @property
    def place(self) -> int:
        """The place of the first request, as of a line."""
        return self.places[0] if self.places else NOWHERE

    def has_left(self, _: int) -> bool:
        """Return whether none of them waits any more; a place may be that of an earlier first."""
        return not self.places

    def takes_in(self, word: int, rows: int, cost: float, count: int) -> bool:
        """Return whether so many accounts like that of a word belong to these."""
        return (
            0 < len(self.places) <= MOST_TOGETHER - count
            and self.used == self.priority.clock
            and rows == self.rows
            and cost == self.cost
            and same_share(word, self.word)
        )

    def part(self, word: int, usage: Usage) -> Line:
        """Give one of them a line of its own, and return the line."""
        which = self.words.index(word)
        del self.words[which]
        account = usage.part(word, self)
        line = Line(account, self.places.pop(which), self.rows, self.cost)
        self._lines[word] = line
        self._turns.push(line)
        return line


class ClassTurns:
    """Lines and newcomers of one class, by key and then by arrival.

    Outdated entries go when they come first. The entry of newcomers whose first gets a line of its
    own stays: it is put right once it comes first.

    Attributes:
        priority: the class.
    """

    __slots__ = ("_heap", "priority")

    def __init__(self, priority: ClassUsage) -> None:
        self.priority = priority
        self._heap: list[tuple[float, int, Line | Newcomers]] = []

    def __len__(self) -> int:
        """Return the number of entries, outdated ones too."""
        return len(self._heap)

    def push(self, line: Line | Newcomers) -> None:
        """Add a line or newcomers, by the first request; an earlier entry of a line is outdated."""
        heap = self._heap
        heappush(heap, (line.key, line.place, line))
        if len(heap) > _SLACK and len(heap) > 2 * self.priority.accounts:
            heap[:] = [entry for entry in heap if not entry[2].has_left(entry[1])]
            heapify(heap)

    def first(self) -> Line | Newcomers | None:
        """Return what goes next, by its key and place of now; None if nothing is left."""
        heap = self._heap
        while heap:
            key, place, line = heap[0]
            if line.has_left(place):
                heappop(heap)
            elif line.key > key or line.place > place:
                # Another order has taken requests of the account, or a newcomer has a line now.
                heapreplace(heap, (line.key, line.place, line))
            else:
                return line
        return None

    def went(self, line: Line | Newcomers) -> None:
        """Note that the first requests of what `first` returned have been taken."""
        if line.place == NOWHERE:
            heappop(self._heap)
        else:
            heapreplace(self._heap, (line.key, line.place, line))

    def undisturbed(self, newcomers: Newcomers) -> int:
        """Return how many of the newcomers that `first` returned go before any others."""
        behind = self._heap[1:3]
        if behind:
            key, place, _ = min(behind)
            if key <= newcomers.key:
                return max(bisect_left(newcomers.places, place), 1)
        return len(newcomers.places)
