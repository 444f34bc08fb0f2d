"""Order of waiting requests that shares a model fairly between accounts. Pure."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from ringbatch.engine.collector.by_reference import ByReference
from ringbatch.engine.collector.usage import AccountUsage, Usage
from ringbatch.shm.engine_slots import Request

Cost = Callable[[Request], float]
"""The cost of a request: more than 0."""
_SLACK: Final = 64
"""Heaps of up to this many entries keep all their outdated ones."""
_MOST_TURNS: Final = 1024
"""The most batches that are remembered, to find out who was overtaken."""
_PRECISION: Final = 32
"""Resolution in age of remembered batches: of two whose ages differ by less than one part in this
number, only the later is kept."""
_GONE: Final = 0
"""The place of no request in the order of arrivals."""


class _Line:
    """Requests of one account, in the order of their arrival.

    Attributes:
        account: the owner's use of the model.
        ref, number, cost: of the first request: its reference, its place in the order of all
            arrivals, and its cost. The place of a line without requests is `_GONE`.
        later: places of the other requests, by reference; None until there is one, because most of
            very many accounts never have two requests at once.
    """

    __slots__ = ("account", "cost", "later", "number", "ref")

    def __init__(self, account: AccountUsage) -> None:
        self.account = account
        self.ref, self.number, self.cost = 0, _GONE, 0.0
        self.later: OrderedDict[int, int] | None = None

    @property
    def key(self) -> float:
        """The account's counter once its first request is added."""
        return self.account.used + self.cost / self.account.weight


_Heap = list[tuple[float, int, _Line]]
"""Lines of one class by key, then by arrival; outdated entries go when they reach the top."""


class FairOrder(ByReference):
    """Requests by arrival, and the order in which they are taken: see `Usage`.

    It is a `ByReference`: iteration and place 0 are by arrival. Only `popleft` and `next_request`
    follow the order between accounts. Within an account, they follow the arrival.

    A request is overtaken at the end of the first turn in which a later one went. Once it leaves,
    `Usage.overtaken` has that instant.

    Args:
        usage: of the model; several orders share it.
        cost: of a request.
        requests: the first, in the order of their arrival.
        counts: whether its requests count in the usage as waiting; False if they wait elsewhere.
    """

    __slots__ = (
        "_arrivals",
        "_cost",
        "_counts",
        "_heaps",
        "_latest",
        "_lines",
        "_turns",
        "_usage",
    )

    def __init__(
        self, usage: Usage, cost: Cost, requests: Iterable[Request], *, counts: bool = True
    ) -> None:
        self._usage = usage
        self._cost = cost
        self._counts = counts
        self._arrivals = 0
        self._latest = 0
        """The place in the order of arrivals of the latest request that has gone."""
        self._turns: list[tuple[int, int]] = []
        """Place and time in ns of each batch with a request later than all that went before."""
        self._lines: dict[int, _Line] = {}
        self._heaps: list[_Heap] = [[] for _ in usage.classes]
        super().__init__(requests)

    def extend(self, requests: Iterable[Request]) -> None:
        """Append requests, as `deque.extend` does."""
        for request in requests:
            ref, word, cost = request.ref, request.account, self._cost(request)
            self._requests[ref] = request
            self._arrivals += 1
            line = self._lines.get(word)
            if line is None:
                line = self._lines[word] = _Line(self._usage.begin(word))
                self._place(line, ref, self._arrivals, cost)
            elif line.later is None:
                line.later = OrderedDict({ref: self._arrivals})
            else:
                line.later[ref] = self._arrivals
            if self._counts:
                self._usage.came(line.account, cost)

    def next_request(self) -> Request:
        """Return the request that `popleft` removes."""
        return self._requests[self._next_line().ref]

    def popleft(self) -> Request:
        """Remove and return the request that goes next, and charge it to its account."""
        return self._take(self._next_line())

    def remove(self, ref: int) -> Request | None:
        """Remove and return the request of a reference, free of charge; None if it is not here."""
        request = self._requests.get(ref)
        return None if request is None else self._leave(self._lines[request.account], ref)

    def fitting(self, most_rows: int, taken: list[Request]) -> Iterator[Request]:
        """Yield requests in order while their rows fit; at least the first.

        A request moves to `taken` when its successor is asked for. So a caller that finds that a
        request does not fit for another reason just stops.

        Args:
            most_rows: of them all.
            taken: gets the requests, which then wait no more.
        """
        rows = 0
        while self._requests:
            line = self._next_line()
            request = self._requests[line.ref]
            rows += request.rows
            if rows > most_rows and taken:
                return
            yield request
            taken.append(self._take(line))

    def _take(self, line: _Line) -> Request:
        """Remove and return the first request of a line, and charge it to its account."""
        self._usage.charge(line.account, line.cost)
        if line.number > self._latest:
            self._latest = line.number
        return self._leave(line, line.ref)

    def end_turn(self, now_ns: int) -> None:
        """Note that the requests taken since the last call go into a batch."""
        turns = self._turns
        if self._latest > (turns[-1][0] if turns else 0):
            turns.append((self._latest, now_ns))
            if len(turns) == _MOST_TURNS:
                self._turns = _thinned(turns)

    def lead(self, account: int) -> None:
        """Note that an account's first request here goes first in a batch of another order."""
        self._latest = max(self._latest, self._lines[account].number)

    def _leave(self, line: _Line, ref: int) -> Request:
        """Remove and return a request of a line."""
        request, later = self._requests.pop(ref), line.later
        number, cost = line.number, line.cost
        if later and ref != line.ref:
            number, cost = later.pop(ref), self._cost(request)
        elif later:
            following, place = later.popitem(last=False)
            self._place(line, following, place, self._cost(self._requests[following]))
        else:
            line.number = _GONE
            del self._lines[line.account.word]
            self._usage.end(line.account)
        if self._counts:
            self._usage.left(line.account, cost)
        turns = self._turns
        if turns and number < turns[-1][0]:
            self._usage.note_overtaken(ref, turns[bisect_left(turns, (number + 1, 0))][1])
        return request

    def _place(self, line: _Line, ref: int, number: int, cost: float) -> None:
        """Make a request the first of its line, and put the line into its heap."""
        line.ref, line.number, line.cost = ref, number, cost
        kind = line.account.priority.kind
        heap = self._heaps[kind]
        heappush(heap, (line.key, number, line))
        if len(heap) > _SLACK and len(heap) > 2 * line.account.priority.accounts:
            current = [entry for entry in heap if entry[1] == entry[2].number]
            heapify(current)
            self._heaps[kind] = current

    def _next_line(self) -> _Line:
        """Return the line that goes next; there is one."""
        best: _Line | None = None
        least, arrival = 0.0, 0
        for heap in self._heaps:
            line = _first(heap) if heap else None
            if line is None:
                continue
            priority = line.account.priority
            key = priority.used + line.cost / priority.weight
            if best is None or key < least or (key == least and line.number < arrival):
                best, least, arrival = line, key, line.number
        assert best is not None, "callers look only while requests wait"
        return best


def _thinned(turns: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return turns without those that are hardly older than the next.

    Who was overtaken in one of these seems to be overtaken a little later, and never sooner.
    """
    last, now_ns = turns[-1], turns[-1][1]
    kept = [last]
    for turn in reversed(turns):
        if (kept[-1][1] - turn[1]) * _PRECISION > now_ns - turn[1]:
            kept.append(turn)
    kept.reverse()
    return kept


def _first(heap: _Heap) -> _Line | None:
    """Return the first line of a heap, by its key of now; None if the heap has no line."""
    while heap:
        key, number, line = heap[0]
        if number != line.number:
            heappop(heap)
        elif line.key > key:
            # Another order of the model has taken requests of the account.
            heapreplace(heap, (line.key, number, line))
        else:
            return line
    return None
