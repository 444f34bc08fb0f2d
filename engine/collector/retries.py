"""Requests that were in a batch and wait for another."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from ringbatch.engine.collector.batching import Pending
from ringbatch.shm.engine_port import Request, columns


class RetryQueue:
    """Groups of requests that were in a batch and are to be in another, first come first."""

    __slots__ = ("_earliest_ns", "_groups")

    def __init__(self) -> None:
        self._groups: deque[list[Request]] = deque()
        self._earliest_ns = 0
        """No request's deadline is before this."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._groups)

    def add(self, groups: Iterable[list[Request]]) -> None:
        """Take groups in, behind the others; none is empty."""
        for group in groups:
            earliest_ns = min([request.deadline_ns for request in group])
            if not self._groups or earliest_ns < self._earliest_ns:
                self._earliest_ns = earliest_ns
            self._groups.append(group)

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
        """An instant before which no request expires; None if there are none."""
        return self._earliest_ns if self._groups else None

    def expire(self, now_ns: int) -> list[Request]:
        """Remove the requests whose deadline has come."""
        if not self._groups or now_ns < self._earliest_ns:
            return []
        groups, expired = self._groups, list[Request]()
        self._groups = deque()
        for group in groups:
            if left := [request for request in group if request.deadline_ns > now_ns]:
                self.add([left])
            expired += [request for request in group if request.deadline_ns <= now_ns]
        return expired
