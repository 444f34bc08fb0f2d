"""Requests that wait for a batch, one queue for each signature of one model."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ringbatch.engine.collector.fair_order import Cost, FairOrder
from ringbatch.engine.collector.instants import Instants
from ringbatch.engine.collector.queue import Fitting, Key, Queue
from ringbatch.engine.collector.usage import SEVERAL, Usage, shared_account
from ringbatch.shm.account import NOBODY
from ringbatch.shm.engine_slots import Request

Share = Callable[[Request], float]
"""The part of a batch that a request takes by itself, up to 1."""

_CHEAPEST: Final = 0.5
"""Least cost of a request within a batch. With less, costly requests would wait longer, and cheap
ones hardly shorter."""
_COSTS: Final = 16
"""Steps of a cost within one batch: rounding leaves few different costs to compare."""
_LEAST_SHARE: Final = 1 / 4096
"""Least cost of a request for its account, so that it never goes for nothing."""


class Queues:
    """All queues of one model, by what must be equal within a batch.

    Several queues have ranks by oldest request and by earliest deadline. Thus the next queue is
    found without a look at the others. A changed queue gets its new ranks when they are next
    needed. One queue alone has no ranks, so a model with one signature does not pay for them.

    The order between accounts matters once requests of several accounts wait, and a batch leaves
    some behind or several queues wait. From then until no request waits, accounts take turns
    (`ringbatch.engine.collector.usage`), and the ranks by oldest request do not choose the queue.

    Attributes:
        rows: instances in all of them.
        word: the account word of all that waits or waited last; `SEVERAL` from the first other one
            on, until nothing waits.
        overtaken: as in `Usage`, also after the turns have ended.

    Args:
        fitting: of each queue.
        share: the weight of a wait; None if all requests cost the same.
    """

    __slots__ = (
        "_changed",
        "_cost",
        "_deadlines",
        "_fitting",
        "_grown",
        "_keys",
        "_least_cost",
        "_next",
        "_numbered",
        "_oldest",
        "_only",
        "_order",
        "_queues",
        "_share",
        "_spare",
        "_usage",
        "overtaken",
        "rows",
        "word",
    )

    def __init__(self, fitting: Fitting | None = None, share: Share | None = None) -> None:
        self._fitting = fitting
        self._share = share
        self._queues: dict[Key, Queue] = {}
        self._only: Queue | None = None
        """The queue if there is only one, else None."""
        self._spare = Queue(fitting)
        """An empty queue, ready for the next request with its key."""
        self._numbered: dict[int, Queue] = {}
        self._next = 0
        self._changed: list[Queue] = []
        self._grown: dict[int, Queue] = {}
        """Changed queues that `take_grown` has not returned yet: they may be full."""
        self._deadlines = Instants()
        self._oldest = [Instants() for _ in range(1 if share is None else _COSTS + 1)]
        """Instants at which the queues' oldest requests were accepted, by cost."""
        self.word = NOBODY
        self._cost: Cost | None = None if share is None else partial(_cost_of, share)
        self._least_cost = 1.0 if share is None else _LEAST_SHARE
        self._usage: Usage | None = None
        """The turns of the accounts; None while there is no need for them."""
        self._order: FairOrder | None = None
        """All requests, from the first time that accounts take turns in several queues."""
        self._keys: dict[int, Key] = {}
        """Key of the queue of each request in `_order`, by reference."""
        self.overtaken: dict[int, int] = {}
        self.rows = 0

    def __len__(self) -> int:
        """Return the number of waiting signatures."""
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        """Yield the queues, none empty, in any order."""
        return iter(self._queues.values())

    def extend(
        self,
        key: Key,
        requests: Sequence[Request],
        rows: int,
        earliest_ns: int,
        words: Sequence[int],
    ) -> None:
        """Add requests to the queue of their key, as `Queue.extend` does.

        Args:
            key: of all of them.
            requests: in order.
            rows: instances in all of them.
            earliest_ns: the earliest of their deadlines.
            words: the account word of each; of one account, only one.
        """
        account = shared_account(words)
        if account != self.word:
            self.word = SEVERAL if self.rows else account
        queue = self._queues.get(key)
        if queue is None:
            queue = self._begin(key)
        queue.extend(requests, rows, earliest_ns, words)
        self.rows += rows
        if queue is not self._only:
            self._note(queue)
        if self._order is not None:
            self._order.add(requests, rows, words)
            self._keys.update(dict.fromkeys([request.ref for request in requests], key))

    def _begin(self, key: Key) -> Queue:
        """Add and return an empty queue."""
        queue, only = self._spare, self._only
        if queue.key != key or queue.rows or queue.ranked or queue.changed:
            queue = Queue(self._fitting, key)
        queue.number = self._next
        self._next += 1
        if only is not None:
            self._note(only)
        self._only = None if self._queues else queue
        self._queues[key] = queue
        if self._usage is not None:
            queue.share_fairly(self._usage, self._cost)
        return queue

    def costs(self, requests: Sequence[Request]) -> list[float] | None:
        """Return the cost of each request; None if that is the number of its rows."""
        cost = self._cost
        return None if cost is None else [cost(request) for request in requests]

    def take(self, queue: Queue, max_batch_size: int) -> list[Request]:
        """Remove and return requests of one queue, as `Queue.take` does."""
        before = queue.rows
        if self.word == SEVERAL and (before > max_batch_size or self._fitting is not None):
            self._share_fairly()
        order = self._order
        head = None if order is None else order.next_request()
        taken = queue.take(max_batch_size)
        if order is not None and head is taken[0]:
            # The account in turn chose the queue, and did not just find room in its batch.
            order.lead(head.account)
        self._removed(queue, before, taken)
        return taken

    def end_turn(self, queue: Queue, now_ns: int) -> None:
        """Note that the requests taken last, from a queue, go into a batch."""
        if self._usage is not None:
            queue.end_turn(now_ns)
            if self._order is not None:
                self._order.end_turn(now_ns)

    def expire(self, now_ns: int) -> list[Request]:
        """Remove and return the requests of all queues whose deadline has come."""
        if self._only is not None:
            return self.expire_in(self._only, now_ns)
        self._rank()
        expired: list[Request] = []
        for number in self._deadlines.take(now_ns):
            expired += self.expire_in(self._numbered[number], now_ns)
        return expired

    def expire_in(self, queue: Queue, now_ns: int) -> list[Request]:
        """Remove and return requests of one queue, as `Queue.expire` does."""
        before = queue.rows
        expired = queue.expire(now_ns)
        self._removed(queue, before, expired)
        return expired

    def remove(self, key: Key, ref: int) -> Request | None:
        """Remove and return a request from the queue of its key, as `Queue.remove` does."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        before = queue.rows
        request = queue.remove(ref)
        if request is not None:
            self._removed(queue, before, [request])
        return request

    def empty(self) -> list[Request]:
        """Remove and return all requests."""
        taken: list[Request] = []
        for queue in [*self._queues.values()]:
            before = queue.rows
            removed = queue.empty()
            self._removed(queue, before, removed)
            taken += removed
        return taken

    @property
    def earliest_ns(self) -> int | None:
        """An instant before which no request expires; None if there are none."""
        if self._only is not None:
            return self._only.earliest_ns
        if not self._queues:
            return None
        self._rank()
        return self._deadlines.first()[0]

    @property
    def account(self) -> int:
        """As `word`, but for the account that is left alone while others have gone."""
        only = None if self._usage is None else self._usage.only_account
        return self.word if only is None else only

    def rows_before(self, request: Request) -> int:
        """Return how many of the waiting instances go before a new request, as far as is sure.

        From then on accounts take turns. See `Usage.share_before` for the error. If several queues
        wait, a batch may also take requests before their turn.
        """
        if not self.rows:
            return 0
        self.word = SEVERAL
        cost = request.rows if self._cost is None else self._cost(request)
        return int(self.rows * self._share_fairly().share_before(request.account, cost))

    @property
    def least_rows(self) -> int:
        """`rows_before` of the cheapest request of class normal whose account has none waiting.

        Before accounts take turns, 0.
        """
        if self._usage is None:
            return 0
        return int(self.rows * self._usage.share_before(NOBODY, self._least_cost))

    def first(self, now_ns: int) -> Queue:
        """Return the queue whose requests go first; there is at least one queue.

        If all requests cost the same, the queue with the oldest request goes first. Else the
        queue with the largest ratio of wait to cost does, by its oldest request. This is Brinch
        Hansen's highest response ratio next (1971). So a request that needs almost nothing
        overtakes a request that fills a batch once it has waited a third as long. Of equal queues
        the one that has existed longest goes first.

        While requests of several accounts wait, the account in turn decides: the queue with its
        oldest request goes first.
        """
        if self._only is not None:
            return self._only
        if self.word == SEVERAL:
            ref = self._fair_order().next_request().ref
            return self._queues[self._keys[ref]]
        self._rank()
        best, best_number = -1.0, 0
        for cost, oldest in enumerate(self._oldest):
            if oldest.at_ns:
                accepted_ns, number = oldest.first()
                response_ratio = max(now_ns - accepted_ns, 0) / (_CHEAPEST + cost / _COSTS)
                if response_ratio > best or (response_ratio == best and number < best_number):
                    best, best_number = response_ratio, number
        return self._numbered[best_number]

    def oldest(self) -> Queue:
        """Return the queue with the oldest request; there are several queues."""
        self._rank()
        found = [oldest.first() for oldest in self._oldest if oldest.at_ns]
        return self._numbered[min(found)[1]]

    def most_urgent(self) -> Queue:
        """Return the queue, of several, with the earliest deadline (its exact `earliest_ns`)."""
        self._rank()
        while True:
            first = self._deadlines.first()
            queue = self._numbered[first[1]]
            queue.refresh()
            if queue.earliest_ns == first[0]:
                return queue
            self._deadlines.put(first[1], queue.earliest_ns)

    def take_grown(self) -> Queue | None:
        """Return a queue that has changed since this last returned it; None if none is left.

        There are several queues.
        """
        self._rank()
        return self._grown.popitem()[1] if self._grown else None

    def _note(self, queue: Queue) -> None:
        if not queue.changed:
            queue.changed = True
            self._changed.append(queue)

    def _share_fairly(self) -> Usage:
        """Put the accounts in turn in all queues, and return their use of the model."""
        usage = self._usage
        if usage is None:
            usage = self._usage = Usage()
            usage.overtaken = self.overtaken
            for queue in self:
                queue.share_fairly(usage, self._cost)
        return usage

    def _fair_order(self) -> FairOrder:
        """Return the requests of all queues in one order."""
        order = self._order
        if order is None:
            waiting = [(request, queue.key) for queue in self for request in queue]
            waiting.sort(key=_arrival)
            requests = [request for request, _ in waiting]
            order = FairOrder(self._share_fairly(), self._cost, requests, counts=False)
            self._order = order
            self._keys = {request.ref: key for request, key in waiting}
        return order

    def _forget_turns(self, gone: Sequence[Request]) -> None:
        """Update the turns of several accounts after requests have left."""
        if self._order is not None:
            for request in gone:
                self._order.remove(request.ref)
                del self._keys[request.ref]
        if not self.rows:
            self.word, self._usage, self._order = NOBODY, None, None

    def _removed(self, queue: Queue, before: int, gone: Sequence[Request]) -> None:
        """Update counts and ranks after requests may have left a queue of `before` rows."""
        self.rows -= before - queue.rows
        if self.word == SEVERAL:
            self._forget_turns(gone)
        if queue.rows:
            if queue is not self._only:
                self._note(queue)
            return
        del self._queues[queue.key]
        if queue.ranked:
            number = queue.number
            del self._numbered[number]
            self._deadlines.drop(number)
            self._oldest[queue.cost].drop(number)
            self._grown.pop(number, None)
        if queue is self._only:
            self._only = None
            self._changed.clear()
            self._spare = queue
        elif len(self._queues) == 1:
            self._only = next(iter(self._queues.values()))

    def _rank(self) -> None:
        """Give the changed queues their new ranks."""
        for queue in self._changed:
            queue.changed = False
            if not queue.rows:
                continue
            number, oldest = queue.number, queue.oldest
            cost = 0 if self._share is None else round(self._share(oldest) * _COSTS)
            if cost != queue.cost:
                self._oldest[queue.cost].drop(number)
                queue.cost = cost
            self._oldest[cost].put(number, oldest.accepted_ns)
            self._deadlines.put(number, queue.earliest_ns)
            self._grown[number] = self._numbered[number] = queue
            queue.ranked = True
        self._changed.clear()


def _cost_of(share: Share, request: Request) -> float:
    """Return the part of a batch that a request takes, and a little if it has no elements."""
    return max(share(request), _LEAST_SHARE)


def _arrival(waiting: tuple[Request, Key]) -> int:
    return waiting[0].accepted_ns
