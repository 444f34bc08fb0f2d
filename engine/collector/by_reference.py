"""Ordered collection of requests, with removal by reference from any place."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ringbatch.shm.engine_slots import Request


class ByReference:
    """The deque operations that `ringbatch.engine.collector.queues.Queue` uses, and `remove`."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()
        self.extend(requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __getitem__(self, place: int) -> Request:
        """Return the first request; callers only use place 0."""
        return next(iter(self._requests.values()))

    def extend(self, requests: Iterable[Request]) -> None:
        """Append requests, as `deque.extend` does."""
        for request in requests:
            self._requests[request.ref] = request

    def popleft(self) -> Request:
        """Remove and return the first request, as `deque.popleft` does."""
        return self._requests.popitem(last=False)[1]

    def remove(self, ref: int) -> Request | None:
        """Remove and return the request of a reference; None if it is not here."""
        return self._requests.pop(ref, None)
