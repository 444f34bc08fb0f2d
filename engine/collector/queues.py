"""Requests that wait for a batch, one queue for each signature of one model."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from ringbatch.engine.collector.batching import Pending, fitting
from ringbatch.shm.engine_port import Request, columns
from ringbatch.shm.tuples import new_tuple

Fitting = Callable[[Iterable[Request]], int]
"""How many of the oldest requests a batch may take, for another reason than their rows."""
Share = Callable[[Request], float]
"""The part of a batch that a request takes by itself, up to 1."""

_CHEAPEST: Final = 0.5
"""What a request costs of a batch at least. With less, what costs most would wait longer, and what
costs least hardly shorter."""

Key = bytes | tuple[int, bytes]
"""What is equal for all requests that may share a batch: their key, and at a step of a chain also
what is `asked`."""


class Queue:
    """Requests that may share a batch, oldest first.

    Args:
        fitting: bounds a batch beside its rows; None where nothing else does.
        share: by which `ratio` weighs a wait; None where all requests are alike.
    """

    __slots__ = ("_earliest_ns", "_exact", "_fitting", "_requests", "_share", "rows")

    def __init__(self, fitting: Fitting | None = None, share: Share | None = None) -> None:
        self._fitting = fitting
        self._share = share
        self._requests: deque[Request] = deque()
        self._earliest_ns = 0
        """No request's deadline is before this; while `_exact`, one is at it."""
        self._exact = True
        self.rows = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def ratio(self, now_ns: int) -> float:
        """By what the queues of a model take turns, the greatest first: how long the oldest request
        has waited, by what it costs."""
        head = self._requests[0]
        waited_ns = now_ns - head.accepted_ns
        return waited_ns if self._share is None else waited_ns / (_CHEAPEST + self._share(head))

    @property
    def earliest_ns(self) -> int:
        """An instant before which no request expires."""
        return self._earliest_ns

    def extend(self, requests: Iterable[Request], rows: int, earliest_ns: int) -> None:
        """Take requests in, behind the others.

        Args:
            requests: in order.
            rows: instances in all of them.
            earliest_ns: the earliest of their deadlines.
        """
        if not self._requests:
            self._earliest_ns, self._exact = earliest_ns, True
        elif earliest_ns < self._earliest_ns:
            self._earliest_ns = earliest_ns
        self._requests.extend(requests)
        self.rows += rows

    def pending(self, max_batch_size: int, *, others: bool, first: bool, idle: bool) -> Pending:
        """The queue, not empty, as the batching decision sees it.

        The earliest deadline, and whether the batch is full of something else than rows, matter
        only where a worker is idle and the rows do not fill the batch; so they are looked for only
        there, and a long queue costs no more than a short one.

        Args:
            max_batch_size: of one batch.
            others: see `Pending`.
            first: see `Pending`.
            idle: whether a worker is.
        """
        requests, full = self._requests, False
        if idle and self.rows < max_batch_size:
            if not self._exact:
                self._refresh()
            full = self._fitting is not None and self._fitting(requests) < len(requests)
        oldest_ns, deadline_ns = requests[0].accepted_ns, self._earliest_ns
        fields = (len(requests), self.rows, oldest_ns, deadline_ns, others, full, first, False)
        return new_tuple(Pending, fields)

    def take(self, max_batch_size: int) -> list[Request]:
        """Remove as many of the oldest requests as fit under the cap."""
        requests = self._requests
        count = len(requests)
        if self.rows > max_batch_size:
            count = fitting((request.rows for request in requests), max_batch_size)
        if self._fitting is not None:
            count = self._fitting(islice(requests, count))
        if count == len(requests):
            taken = list(requests)
            requests.clear()
            self.rows = 0
            return taken
        taken = [requests.popleft() for _ in range(count)]
        self.rows -= sum(request.rows for request in taken)
        self._exact = False
        return taken

    def empty(self) -> list[Request]:
        """Remove all of them."""
        taken = list(self._requests)
        self._requests.clear()
        self.rows = 0
        return taken

    def expire(self, now_ns: int) -> list[Request]:
        """Remove the requests whose deadline has come."""
        if not self._requests or now_ns < self._earliest_ns:
            return []
        expired = [request for request in self._requests if request.deadline_ns <= now_ns]
        self._requests = deque(r for r in self._requests if r.deadline_ns > now_ns)
        self.rows -= sum(request.rows for request in expired)
        if self._requests:
            self._refresh()
        return expired

    def _refresh(self) -> None:
        self._earliest_ns = min(request.deadline_ns for request in self._requests)
        self._exact = True


class RetryQueue:
    """Groups of requests that were in a batch and are to be in another, first come first."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: deque[list[Request]] = deque()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._groups)

    def add(self, groups: Iterable[list[Request]]) -> None:
        """Take groups in, behind the others; none is empty."""
        self._groups += groups

    def pending(self) -> Pending:
        """The first group, as the batching decision sees it; there is one."""
        group = self._groups[0]
        _, _, rows, _, _, _, _, _, accepted_ns, deadlines_ns = columns(group)
        return Pending(len(group), sum(rows), min(accepted_ns), min(deadlines_ns), retry=True)

    def take(self) -> list[Request]:
        """Remove the first group."""
        return self._groups.popleft()

    @property
    def earliest_ns(self) -> int | None:
        """The earliest deadline among them; None where there are none."""
        return min((r.deadline_ns for requests in self._groups for r in requests), default=None)

    def expire(self, now_ns: int) -> list[Request]:
        """Remove the requests whose deadline has come."""
        expired = [r for requests in self._groups for r in requests if r.deadline_ns <= now_ns]
        if expired:
            left = ([r for r in requests if r.deadline_ns > now_ns] for requests in self._groups)
            self._groups = deque(requests for requests in left if requests)
        return expired


class Queues:
    """All queues of one model, by what must be equal within a batch.

    Args:
        fitting: of each queue.
        share: of each queue.
    """

    __slots__ = ("_fitting", "_queues", "_share")

    def __init__(self, fitting: Fitting | None = None, share: Share | None = None) -> None:
        self._fitting = fitting
        self._share = share
        self._queues: dict[Key, Queue] = {}

    def __iter__(self) -> Iterator[Queue]:
        """The queues, none empty, in any order."""
        return iter(self._queues.values())

    def in_turn(self, now_ns: int) -> Iterable[Queue]:
        """The queues, none empty, by whose requests go first.

        That is the queue with the oldest request, where all cost the same. Else it is the one
        where that has waited longest by its cost, as in Brinch Hansen's highest response ratio
        next (1971), so that short texts do not wait as long as long ones: what takes a whole batch
        lets go before it what takes next to nothing and has waited a third as long.
        """
        if len(self._queues) == 1:
            return self._queues.values()
        return sorted(self._queues.values(), key=lambda queue: queue.ratio(now_ns), reverse=True)

    def __len__(self) -> int:
        """How many signatures wait."""
        return len(self._queues)

    @property
    def rows(self) -> int:
        """Instances in all of them."""
        rows = 0
        for queue in self._queues.values():
            rows += queue.rows
        return rows

    def extend(self, key: Key, requests: Iterable[Request], rows: int, earliest_ns: int) -> None:
        """Take requests into the queue of their key; as `Queue.extend`."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(self._fitting, self._share)
        queue.extend(requests, rows, earliest_ns)

    def drop_empty(self) -> None:
        """Forget the signatures of which nothing waits; after every removal."""
        for key in [key for key, queue in self._queues.items() if not queue.rows]:
            del self._queues[key]
