"""Requests that wait for a batch, one queue for each signature of one model."""

from collections import deque
from collections.abc import Iterator

from ringbatch.engine.batching import Pending, fitting
from ringbatch.shm.holder import Request


class Queue:
    """Requests that may share a batch, oldest first."""

    __slots__ = ("_earliest_ns", "_exact", "_requests", "rows")

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._earliest_ns = 0
        """No request's deadline is before this; while `_exact`, one is at it."""
        self._exact = True
        self.rows = 0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def oldest_ns(self) -> int:
        """When the oldest request was accepted."""
        return self._requests[0].accepted_ns

    @property
    def earliest_ns(self) -> int:
        """An instant before which no request expires."""
        return self._earliest_ns

    def append(self, request: Request) -> None:
        """Take a request in, behind the others."""
        if not self._requests:
            self._earliest_ns, self._exact = request.deadline_ns, True
        elif request.deadline_ns < self._earliest_ns:
            self._earliest_ns = request.deadline_ns
        self._requests.append(request)
        self.rows += request.rows

    def pending(self, max_batch_size: int, *, others: bool) -> Pending:
        """The queue, not empty, as the batching decision sees it.

        The earliest deadline matters only where the batch is not full; so it is looked for
        only there, and a long queue costs no more than a short one.
        """
        if not self._exact and self.rows < max_batch_size:
            self._refresh()
        return Pending(
            requests=len(self._requests),
            rows=self.rows,
            oldest_ns=self._requests[0].accepted_ns,
            deadline_ns=self._earliest_ns,
            others=others,
        )

    def take(self, max_batch_size: int) -> list[Request]:
        """Remove as many of the oldest requests as fit under the cap."""
        requests = self._requests
        if self.rows <= max_batch_size:
            taken = list(requests)
            requests.clear()
            self.rows = 0
            return taken
        count = fitting((request.rows for request in requests), max_batch_size)
        taken = [requests.popleft() for _ in range(count)]
        self.rows -= sum(request.rows for request in taken)
        self._exact = False
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


class Queues:
    """All queues of one model, by the bytes that must be equal within a batch."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[bytes, Queue] = {}

    def __iter__(self) -> Iterator[Queue]:
        """The queues, none empty, the one with the oldest request first."""
        if len(self._queues) == 1:
            return iter(tuple(self._queues.values()))
        return iter(sorted(self._queues.values(), key=lambda queue: queue.oldest_ns))

    def __len__(self) -> int:
        """How many signatures wait."""
        return len(self._queues)

    @property
    def rows(self) -> int:
        """Instances in all of them."""
        return sum(queue.rows for queue in self._queues.values())

    def append(self, key: bytes, request: Request) -> None:
        """Take a request into the queue of its key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
        queue.append(request)

    def drop_empty(self) -> None:
        """Forget the signatures of which nothing waits; after every removal."""
        for key in [key for key, queue in self._queues.items() if not queue.rows]:
            del self._queues[key]
