"""Requests in the order in which they came, each of which can be removed wherever it is."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ringbatch.shm.engine_port import Request


class ByReference:
    """As much of a deque as a `ringbatch.engine.collector.queues.Queue` uses, with `remove`."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()
        self.extend(requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __getitem__(self, place: int) -> Request:
        """The one in front; no other is ever asked for."""
        return next(iter(self._requests.values()))

    def extend(self, requests: Iterable[Request]) -> None:
        """As of a deque."""
        for request in requests:
            self._requests[request.ref] = request

    def popleft(self) -> Request:
        """As of a deque."""
        return self._requests.popitem(last=False)[1]

    def remove(self, ref: int) -> Request | None:
        """Remove the request of that reference; None where there is none."""
        return self._requests.pop(ref, None)
