"""Order of waiting requests that shares a model fairly between accounts. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from ringbatch.engine.collector.arrivals import Arrivals
from ringbatch.engine.collector.lines import MOST_TOGETHER, ClassTurns, Line, Newcomers
from ringbatch.engine.collector.overtakes import Overtakes
from ringbatch.engine.collector.usage import Usage, without_repeats
from ringbatch.shm.account import all_usual, same_share
from ringbatch.shm.engine_slots import Request

Cost = Callable[[Request], float]
"""The cost of a request: more than 0."""


class FairOrder:
    """Requests by arrival, and the order in which they are taken: see `Usage`.

    Iteration and place 0 are by arrival. Only `take`, `fitting`, `popleft` and `next_request`
    follow the order between accounts. Within an account, they follow the arrival.

    Once a request leaves that was overtaken, `Usage.overtaken` has the instant.

    Args:
        usage: of the model; several orders share it.
        cost: of a request; None if that is the number of its rows.
        requests: the first, in the order of their arrival.
        counts: whether its requests count in the usage as waiting; False if they wait elsewhere
            too, and came there first.
    """

    __slots__ = (
        "_arrivals",
        "_cost",
        "_counts",
        "_lines",
        "_newest",
        "_overtakes",
        "_turns",
        "_usage",
    )

    def __init__(
        self,
        usage: Usage,
        cost: Cost | None,
        requests: Iterable[Request],
        *,
        counts: bool = True,
    ) -> None:
        usage.orders += 1
        self._usage = usage
        self._cost = cost
        self._counts = counts
        self._arrivals = Arrivals()
        self._overtakes = Overtakes()
        self._lines: dict[int, Line] = {}
        self._turns = [ClassTurns(priority) for priority in usage.classes]
        self._newest: Newcomers | None = None
        """The latest newcomers; others may come to them."""
        self.extend(requests)

    def __len__(self) -> int:
        return len(self._arrivals)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._arrivals)

    def __getitem__(self, place: int) -> Request:
        """Return the first request by arrival; callers only use place 0."""
        return self._arrivals.oldest()

    def extend(self, requests: Iterable[Request]) -> None:
        """Append requests, as `deque.extend` does."""
        several = list(requests)
        if several:
            rows = sum([request.rows for request in several])
            self.add(several, rows, without_repeats([each.account for each in several]))

    def add(self, requests: Sequence[Request], rows: int, words: Sequence[int]) -> None:
        """Append requests.

        Args:
            requests: in order.
            rows: instances in all of them.
            words: the account word of each; of one account, only one.
        """
        place, count = self._arrivals.add(requests), len(requests)
        # In several orders, an account waits in more than one place at once.
        if len(words) == 1 or self._usage.orders > 1:
            self._append(requests, place)
            return
        single_rows = rows == count
        for first in range(0, count, MOST_TOGETHER):
            some, own = requests, words
            if count > MOST_TOGETHER:
                behind = first + MOST_TOGETHER
                some, own = requests[first:behind], words[first:behind]
            if not self._are_newcomers(some, own, place + first, single_rows):
                self._append(some, place + first)

    def next_request(self) -> Request:
        """Return the request that `popleft` removes."""
        return self._first_of(self._next())

    def popleft(self) -> Request:
        """Remove and return the request that goes next, and charge it to its account."""
        return self._take_first(self._next())

    def remove(self, ref: int) -> Request | None:
        """Remove and return the request of a reference, free of charge; None if it is not here."""
        place = self._arrivals.find(ref)
        request = self._arrivals.get(place)
        if request is None:
            return None
        word = request.account
        line = self._lines.get(word)
        if line is None:
            newcomers = self._usage.find(word)
            assert isinstance(newcomers, Newcomers), "who waits without a line is a newcomer"
            line = newcomers.part(word, self._usage)
        first = line.place
        self._leave(line, place)
        if line.place != first and line.count:
            self._turns[line.priority.kind].push(line)
        return request

    def take(self, most_rows: int) -> tuple[list[Request], int]:
        """Remove requests in order while their rows fit, at least the first.

        Returns:
            The requests, and the instances in them.
        """
        taken: list[Request] = []
        left = most_rows
        while left > 0 and self._arrivals:
            first = self._next()
            if first.rows > left and taken:
                break
            if isinstance(first, Newcomers):
                count = min(max(left // first.rows, 1), self._undisturbed(first))
                taken += self._take_together(first, count)
                left -= count * first.rows
            else:
                left -= first.rows
                taken.append(self._take_first(first))
        return taken, most_rows - left

    def fitting(self, most_rows: int, taken: list[Request]) -> Iterator[Request]:
        """Yield the requests that `take` takes.

        A request moves to `taken` when its successor is asked for. So a caller that finds that a
        request does not fit for another reason just stops.

        Args:
            most_rows: of them all.
            taken: gets the requests, which then wait no more.
        """
        rows = 0
        while self._arrivals:
            first = self._next()
            request = self._first_of(first)
            rows += request.rows
            if rows > most_rows and taken:
                return
            yield request
            taken.append(self._take_first(first))

    def end_turn(self, now_ns: int) -> None:
        """Note that the requests taken since the last call go into a batch."""
        self._overtakes.end_turn(now_ns)

    def lead(self, account: int) -> None:
        """Note that an account's first request here goes first in a batch of another order."""
        self._overtakes.goes(self._lines[account].place)

    def _first_of(self, line: Line | Newcomers) -> Request:
        request = self._arrivals.get(line.place)
        assert request is not None, "the first request of a line waits"
        return request

    def _cost_of(self, request: Request) -> float:
        return request.rows if self._cost is None else self._cost(request)

    def _are_newcomers(
        self, requests: Sequence[Request], words: Sequence[int], place: int, single_rows: bool
    ) -> bool:
        """Let alike newcomers wait; return False, with nothing done, if not all are that.

        Args:
            requests: of them.
            words: the account word of each.
            place: of the first request; the others follow.
            single_rows: True if each is of one row.
        """
        if self._usage.find(words[0]) is not None:
            return False
        first = requests[0]
        cost = self._cost_of(first)
        return (
            (all_usual(words) or same_share(min(words), max(words)))
            and (single_rows or all(each.rows == first.rows for each in requests))
            and (self._cost is None or all(self._cost(each) == cost for each in requests))
            and self._begin_together(words, place, first.rows, cost)
        )

    def _append(self, requests: Sequence[Request], place: int) -> None:
        """Let requests wait, whoever sent them; the arguments are those of `_are_newcomers`."""
        usage, lines = self._usage, self._lines
        for request in requests:
            word, rows, cost = request.account, request.rows, self._cost_of(request)
            line = lines.get(word)
            if line is None:
                known = usage.find(word)
                if known is None and usage.orders == 1:
                    self._begin_together((word,), place, rows, cost)
                    place += 1
                    continue
                if isinstance(known, Newcomers):
                    # Perhaps of another order.
                    known.part(word, usage)
                    line = lines.get(word)
            if line is None:
                line = lines[word] = Line(usage.begin(word), place, rows, cost)
                self._turns[line.priority.kind].push(line)
            else:
                line.append(place)
            if self._counts:
                usage.came(line.account, cost)
            place += 1

    def _begin_together(self, words: Sequence[int], place: int, rows: int, cost: float) -> bool:
        """Let alike accounts begin to wait; return as `Usage.begin_together` does."""
        newest, word, count = self._newest, words[0], len(words)
        joins = newest is not None and newest.takes_in(word, rows, cost, count)
        if newest is None or not joins:
            turns = self._turns[self._usage.class_of(word).kind]
            newest = Newcomers(self._lines, turns, word, rows, cost)
        if not self._usage.begin_together(words, newest, newest.words):
            return False
        newest.words += words
        newest.places += range(place, place + count)
        if not joins:
            self._newest = newest
            self._turns[newest.priority.kind].push(newest)
        return True

    def _take_first(self, first: Line | Newcomers) -> Request:
        """Remove and return the first request of a line or of newcomers, and charge it."""
        if isinstance(first, Newcomers):
            return self._take_together(first, 1)[0]
        self._usage.charge(first.account, first.cost)
        self._overtakes.goes(first.place)
        request = self._leave(first, first.place)
        self._turns[first.priority.kind].went(first)
        return request

    def _undisturbed(self, newcomers: Newcomers) -> int:
        """Return how many of the newcomers that go next go before anybody else."""
        if newcomers.priority.accounts < self._usage.accounts:
            return 1
        return self._turns[newcomers.priority.kind].undisturbed(newcomers)

    def _take_together(self, newcomers: Newcomers, count: int) -> list[Request]:
        """Remove and return the first newcomers' requests, and charge them."""
        words, places = newcomers.words[:count], newcomers.places[:count]
        del newcomers.words[:count], newcomers.places[:count]
        self._turns[newcomers.priority.kind].went(newcomers)
        taken = self._arrivals.take_several(places)
        self._usage.take_together(words, newcomers)
        self._overtakes.goes(places[-1])
        if places[0] < self._overtakes.reached:
            for request, place in zip(taken, places, strict=True):
                self._note_overtaken(request.ref, place)
        return taken

    def _leave(self, line: Line, place: int) -> Request:
        """Remove and return a request of a line; the caller gives the line its next turn."""
        request = self._arrivals.take(place)
        cost = line.cost if place == line.place else self._cost_of(request)
        if line.leaves(place, self._arrivals):
            following = line.advance(self._arrivals)
            line.rows, line.cost = following.rows, self._cost_of(following)
        elif not line.count:
            del self._lines[line.account.word]
            self._usage.end(line.account)
        if self._counts:
            self._usage.left(line.account, cost)
        self._note_overtaken(request.ref, place)
        return request

    def _note_overtaken(self, ref: int, place: int) -> None:
        """Note since when a request was overtaken that leaves, if it was."""
        if place < self._overtakes.reached:
            self._usage.note_overtaken(ref, self._overtakes.since_ns(place))

    def _next(self) -> Line | Newcomers:
        """Return the line or the newcomers whose first request goes next; there is one."""
        best: Line | Newcomers | None = None
        least, arrival = 0.0, 0
        for turns in self._turns:
            first = turns.first()
            if first is None:
                continue
            priority = first.priority
            key = priority.used + first.cost / priority.weight
            if best is None or key < least or (key == least and first.place < arrival):
                best, least, arrival = first, key, first.place
        assert best is not None, "callers look only while requests wait"
        return best
