"""Requests that wait for a batch, one queue for each signature of one model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ringbatch.engine.collector.batching import Pending, fitting
from ringbatch.engine.collector.by_reference import ByReference
from ringbatch.engine.collector.instants import Instants
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.tuples import unchecked_tuple

Fitting = Callable[[Iterable[Request]], int]
"""Function that limits the oldest requests of a batch for another reason than their rows."""
Share = Callable[[Request], float]
"""The part of a batch that a request takes by itself, up to 1."""

_CHEAPEST: Final = 0.5
"""Least cost of a request within a batch. With less, costly requests would wait longer, and cheap
ones hardly shorter."""
_COSTS: Final = 16
"""Steps of a cost within one batch: rounding leaves few different costs to compare."""

Key = bytes | tuple[int, bytes]
"""Key of requests that may share a batch; at a step of a chain, with the word `asked`."""


class Queue:
    """Requests that may share a batch, oldest first.

    The first removal builds an index by reference, which lasts until the queue is empty. So each
    request enters an index at most once, and without cancellations there is none.

    Attributes:
        rows: instances in all of them.
        earliest_ns: an instant before which no request expires.
        key: of all its requests.
        number: of the queue, larger than that of every earlier queue of the model.
        cost: of the oldest request at the last ranking.
        ranked: whether it has ever had a rank among other queues.
        changed: whether it waits for a new rank.

    Args:
        fitting: bounds a batch beside its rows; None where nothing else does.
        key: see above.
    """

    __slots__ = (
        "_deadlines",
        "_exact",
        "_fitting",
        "_requests",
        "changed",
        "cost",
        "earliest_ns",
        "key",
        "number",
        "ranked",
        "rows",
    )

    def __init__(self, fitting: Fitting | None = None, key: Key = b"") -> None:
        self._fitting = fitting
        self.key = key
        self.number = self.cost = 0
        self.ranked = self.changed = False
        self._requests: deque[Request] | ByReference = deque()
        self._deadlines: Instants | None = None
        """Deadlines by reference, from the first expiry until the queue is empty."""
        self.earliest_ns = 0
        self._exact = True
        """True if a request expires exactly at `earliest_ns`."""
        self.rows = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    @property
    def oldest(self) -> Request:
        """The request that has waited longest, in a queue that is not empty."""
        return self._requests[0]

    def extend(self, requests: Sequence[Request], rows: int, earliest_ns: int) -> None:
        """Take requests in, behind the others.

        Args:
            requests: in order.
            rows: instances in all of them.
            earliest_ns: the earliest of their deadlines.
        """
        if not self._requests:
            self.earliest_ns, self._exact = earliest_ns, True
        elif earliest_ns < self.earliest_ns:
            self.earliest_ns = earliest_ns
        self._requests.extend(requests)
        self.rows += rows
        if self._deadlines is not None:
            for request in requests:
                self._deadlines.put(request.ref, request.deadline_ns)

    def pending(self, max_batch_size: int, *, others: bool, idle: bool) -> Pending:
        """Return the queue, not empty, as the batching decision sees it.

        The earliest deadline, and whether the batch is full of something else than rows, matter
        only if a worker is idle and the rows do not fill the batch. Only then are they looked for,
        so a long queue costs no more than a short one.

        Args:
            max_batch_size: of one batch.
            others: see `Pending`.
            idle: True if a worker is.
        """
        requests, full = self._requests, False
        if idle and self.rows < max_batch_size:
            self.refresh()
            full = self._fitting is not None and self._fitting(requests) < len(requests)
        oldest_ns, deadline_ns = requests[0].accepted_ns, self.earliest_ns
        fields = (len(requests), self.rows, oldest_ns, deadline_ns, others, full, False)
        return unchecked_tuple(Pending, fields)

    def take(self, max_batch_size: int) -> list[Request]:
        """Remove as many of the oldest requests as fit under the cap."""
        requests = self._requests
        count = len(requests)
        if self.rows > max_batch_size:
            count = fitting((request.rows for request in requests), max_batch_size)
        if self._fitting is not None:
            count = self._fitting(islice(requests, count))
        if count == len(requests):
            return self.empty()
        taken = [requests.popleft() for _ in range(count)]
        self.rows -= sum(request.rows for request in taken)
        self._exact = False
        if self._deadlines is not None:
            for request in taken:
                self._deadlines.drop(request.ref)
        return taken

    def empty(self) -> list[Request]:
        """Remove all of them."""
        taken = list(self._requests)
        self._requests = deque()
        self._deadlines = None
        self.rows = 0
        return taken

    def remove(self, ref: int) -> Request | None:
        """Remove and return the request of a reference; None if it does not wait here."""
        if isinstance(self._requests, deque):
            self._requests = ByReference(self._requests)
        request = self._requests.remove(ref)
        if request is not None:
            self.rows -= request.rows
            self._exact = False
            if self._deadlines is not None:
                self._deadlines.drop(ref)
        if not self._requests:
            self.empty()
        return request

    def expire(self, now_ns: int) -> list[Request]:
        """Remove and return the requests whose deadline has come, earliest first."""
        if not self._requests or now_ns < self.earliest_ns:
            return []
        if self._deadlines is None:
            # A little more work for each request saves a look at all of them at each deadline.
            self._deadlines = Instants()
            for request in self._requests:
                self._deadlines.put(request.ref, request.deadline_ns)
        left = [self.remove(ref) for ref in self._deadlines.take(now_ns)]
        self._exact = False
        if self._requests:
            self.refresh()
        return [request for request in left if request is not None]

    def refresh(self) -> None:
        """Make `earliest_ns` exact; the queue is not empty."""
        if self._exact:
            return
        if self._deadlines is None:
            self.earliest_ns = min([request.deadline_ns for request in self._requests])
        else:
            self.earliest_ns = self._deadlines.first()[0]
        self._exact = True


class Queues:
    """All queues of one model, by what must be equal within a batch.

    Several queues have ranks by oldest request and by earliest deadline. Thus the next queue is
    found without a look at the others. A changed queue gets its new ranks when they are next
    needed. One queue alone has no ranks, so a model with one signature does not pay for them.

    Attributes:
        rows: instances in all of them.

    Args:
        fitting: of each queue.
        share: the weight of a wait; None if all requests cost the same.
    """

    __slots__ = (
        "_changed",
        "_deadlines",
        "_fitting",
        "_grown",
        "_next",
        "_numbered",
        "_oldest",
        "_only",
        "_queues",
        "_share",
        "_spare",
        "rows",
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
        """By cost, the instants at which the queues' oldest requests were accepted."""
        self.rows = 0

    def __len__(self) -> int:
        """Return the number of waiting signatures."""
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        """Yield the queues, none empty, in any order."""
        return iter(self._queues.values())

    def extend(self, key: Key, requests: Sequence[Request], rows: int, earliest_ns: int) -> None:
        """Add requests to the queue of their key, as `Queue.extend` does."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._begin(key)
        queue.extend(requests, rows, earliest_ns)
        self.rows += rows
        if queue is not self._only:
            self._note(queue)

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
        return queue

    def take(self, queue: Queue, max_batch_size: int) -> list[Request]:
        """Remove and return requests of one queue, as `Queue.take` does."""
        before = queue.rows
        taken = queue.take(max_batch_size)
        self._removed(queue, before)
        return taken

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
        self._removed(queue, before)
        return expired

    def remove(self, key: Key, ref: int) -> Request | None:
        """Remove and return a request from the queue of its key, as `Queue.remove` does."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        before = queue.rows
        request = queue.remove(ref)
        if request is not None:
            self._removed(queue, before)
        return request

    def empty(self) -> list[Request]:
        """Remove and return all requests."""
        taken: list[Request] = []
        for queue in [*self._queues.values()]:
            before = queue.rows
            taken += queue.empty()
            self._removed(queue, before)
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

    def first(self, now_ns: int) -> Queue:
        """Return the queue whose requests go first; there is at least one queue.

        If all requests cost the same, the queue with the oldest request goes first. Else the
        queue with the largest ratio of wait to cost does, by its oldest request. This is Brinch
        Hansen's highest response ratio next (1971). So a request that needs almost nothing
        overtakes a request that fills a batch once it has waited a third as long. Of equal queues
        the one that has existed longest goes first.
        """
        if self._only is not None:
            return self._only
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

    def _removed(self, queue: Queue, before: int) -> None:
        """Update counts and ranks after requests may have left a queue of `before` rows."""
        self.rows -= before - queue.rows
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
