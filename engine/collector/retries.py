"""Retry queue: groups of requests that wait for another run."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from ringbatch.engine.collector.batching import Pending
from ringbatch.engine.collector.instants import Instants
from ringbatch.shm.engine_slots import Request, columns


class RetryQueue:
    """Groups of requests to run once more, in the order in which they came."""

    __slots__ = ("_deadlines", "_group_of", "_groups")

    def __init__(self) -> None:
        self._groups: deque[dict[int, Request]] = deque()
        """The groups in order, each by reference; the first is not empty."""
        self._group_of: dict[int, dict[int, Request]] = {}
        """The group of each request, by its reference."""
        self._deadlines = Instants()

    def __bool__(self) -> bool:
        return bool(self._group_of)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable([group.values() for group in self._groups])

    def add(self, groups: Iterable[list[Request]]) -> None:
        """Add groups behind the others; no group is empty."""
        for requests in groups:
            for request in requests:
                self._deadlines.put(request.ref, request.deadline_ns)
            group = {request.ref: request for request in requests}
            self._groups.append(group)
            self._group_of.update(dict.fromkeys(group, group))

    def pending(self) -> Pending:
        """Return the first group as the batching decision sees it; there is a group."""
        group = [*self._groups[0].values()]
        _, _, rows, _, _, _, _, _, accepted_ns, deadlines_ns, _ = columns(group)
        return Pending(len(group), sum(rows), min(accepted_ns), min(deadlines_ns), retry=True)

    def take(self) -> list[Request]:
        """Remove and return the first group."""
        group = [*self._groups[0].values()]
        for request in group:
            self.remove(request.ref)
        return group

    def remove(self, ref: int) -> Request | None:
        """Remove and return the request of a reference; None if it does not wait here."""
        group = self._group_of.pop(ref, None)
        if group is None:
            return None
        self._deadlines.drop(ref)
        request = group.pop(ref)
        while self._groups and not self._groups[0]:
            self._groups.popleft()
        return request

    @property
    def earliest_ns(self) -> int | None:
        """The earliest deadline of all requests; None without any."""
        return self._deadlines.first()[0] if self._group_of else None

    def expire(self, now_ns: int) -> list[Request]:
        """Remove and return the requests whose deadline has come, earliest first."""
        removed = [self.remove(ref) for ref in self._deadlines.take(now_ns)]
        return [request for request in removed if request is not None]
