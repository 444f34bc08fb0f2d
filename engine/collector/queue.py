"""Requests that wait for a batch and may share one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ringbatch.engine.collector.batching import Pending, fitting
from ringbatch.engine.collector.by_reference import ByReference
from ringbatch.engine.collector.fair_order import Cost, FairOrder
from ringbatch.engine.collector.instants import Instants
from ringbatch.engine.collector.usage import Usage
from ringbatch.shm.engine_slots import Request
from ringbatch.shm.tuples import unchecked_tuple

Fitting = Callable[[Iterable[Request]], int]
"""Function that limits the first requests of a batch for another reason than their rows.

It asks for a further request only after the one before fits."""

Key = bytes | tuple[int, bytes]
"""Key of requests that may share a batch; at a step of a chain, with the word `asked`."""


class Queue:
    """Requests that may share a batch, oldest first.

    They are taken oldest first too, until `share_fairly` puts the accounts in turn.

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
        fitting: bounds a batch beside its rows; None if nothing else does.
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
        self._requests: deque[Request] | ByReference | FairOrder = deque()
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

    def extend(
        self,
        requests: Sequence[Request],
        rows: int,
        earliest_ns: int,
        words: Sequence[int],
    ) -> None:
        """Take requests in, behind the others.

        Args:
            requests: in order.
            rows: instances in all of them.
            earliest_ns: the earliest of their deadlines.
            words: the account word of each; of one account, only one.
        """
        if not self._requests:
            self.earliest_ns, self._exact = earliest_ns, True
        elif earliest_ns < self.earliest_ns:
            self.earliest_ns = earliest_ns
        if isinstance(self._requests, FairOrder):
            self._requests.add(requests, rows, words)
        else:
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
        """Remove as many of the requests that go first as fit under the cap."""
        requests = self._requests
        if isinstance(requests, FairOrder):
            taken, rows = self._take_fairly(requests, max_batch_size)
        else:
            count = len(requests)
            # Most requests have one row; then no request has to be looked at.
            single_rows = self.rows == count
            if self.rows > max_batch_size and single_rows:
                count = max_batch_size
            elif self.rows > max_batch_size:
                first = islice(requests, max_batch_size)
                count = fitting([request.rows for request in first], max_batch_size)
            if self._fitting is not None:
                count = self._fitting(islice(requests, count))
            if count == len(requests):
                return self.empty()
            taken = [requests.popleft() for _ in range(count)]
            rows = count if single_rows else sum([request.rows for request in taken])
        self.rows -= rows
        self._exact = False
        if self._deadlines is not None:
            for request in taken:
                self._deadlines.drop(request.ref)
        if not requests:
            self.empty()
        return taken

    def _take_fairly(self, requests: FairOrder, max_batch_size: int) -> tuple[list[Request], int]:
        """Remove and return requests in the order between accounts, and the instances in them."""
        if self._fitting is None:
            return requests.take(max_batch_size)
        taken: list[Request] = []
        self._fitting(requests.fitting(max_batch_size, taken))
        return taken, sum([request.rows for request in taken])

    def end_turn(self, now_ns: int) -> None:
        """As `FairOrder.end_turn`, if accounts take turns."""
        if isinstance(self._requests, FairOrder):
            self._requests.end_turn(now_ns)

    def share_fairly(self, usage: Usage, cost: Cost | None) -> None:
        """Have `take` follow the use of the model by accounts, until the queue is empty."""
        self._requests = FairOrder(usage, cost, self._requests)

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
