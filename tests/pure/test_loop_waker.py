"""The waker of an event loop under every order of what a thread and the loop do."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

import pytest
from greenlet import greenlet

from ringbatch.frontend.client.loop_waker import LoopWaker, running_waker


class Request:
    """See `Notified`."""

    def __init__(self) -> None:
        self.count = 0

    def notify(self) -> None:
        self.count += 1


class Loop:
    """A loop that keeps what it is asked to call."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        stop()
        self.calls.append(call)


def stop() -> None:
    """Wait to be chosen, in an actor."""
    if (parent := greenlet.getcurrent().parent) is not None:
        parent.switch()


class Requests:
    """Requests in a deque, at which an actor stops before each use."""

    def __init__(self) -> None:
        self._kept: list[Request] = []

    def append(self, request: Request) -> None:
        stop()
        self._kept.append(request)

    def popleft(self) -> Request:
        stop()
        return self._kept.pop(0)

    def __len__(self) -> int:
        stop()
        return len(self._kept)


class Stepping(LoopWaker):
    """A waker that stops before each access to its flag and to its requests."""

    def __init__(self, loop: Loop) -> None:
        self._flag = False
        super().__init__(cast(asyncio.AbstractEventLoop, loop))
        self._requests = cast(Any, Requests())

    @property
    def _is_due(self) -> bool:
        stop()
        return self._flag

    @_is_due.setter
    def _is_due(self, due: bool) -> None:
        stop()
        self._flag = due


def orders() -> Iterator[Callable[[int], int]]:
    """Yield choosers for runs, until every order of choices was one of them."""
    path: list[tuple[int, int]] = []
    while True:
        position = count()

        def choose(options: int, position: Iterator[int] = position) -> int:
            at = next(position)
            if at == len(path):
                path.append((0, options))
            return path[at][0]

        yield choose
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        chosen, options = path.pop()
        path.append((chosen + 1, options))


def orders_that_notify_every_request(kind: type[Stepping]) -> int:
    """Have a thread add two requests beside the loop; return the number of orders."""
    found = 0
    for choose in orders():
        loop = Loop()
        waker = kind(loop)
        requests = [Request(), Request()]

        def add(waker: Stepping = waker, requests: list[Request] = requests) -> None:
            for request in requests:
                waker.add(request)

        def run_loop(loop: Loop = loop) -> None:
            while loop.calls:
                loop.calls.pop(0)()

        thread, running = greenlet(add), greenlet(run_loop)
        while True:
            if running.dead:
                running = greenlet(run_loop)
            able = [] if thread.dead else [thread]
            if loop.calls or running:
                able.append(running)
            if not able:
                break
            able[choose(len(able))].switch()
        assert all(request.count for request in requests), "a request was not notified"
        found += 1
    return found


def test_no_order_of_steps_loses_a_request() -> None:
    assert orders_that_notify_every_request(Stepping) > 100


class TakesFlagLate(Stepping):
    """Wrong: the loop takes the flag away when it has looked."""

    def _take(self) -> None:
        while self._requests:
            self._requests.popleft().notify()
        self._is_due = False


class CountsFirst(Stepping):
    """Wrong: the loop counts the requests before it takes the flag away."""

    def _take(self) -> None:
        there = len(self._requests)
        self._is_due = False
        for _ in range(there):
            self._requests.popleft().notify()


class LooksFirst(Stepping):
    """Wrong: the thread looks at the flag before its request is there."""

    def add(self, request: Any) -> None:
        was_due = self._is_due
        self._requests.append(request)
        if not was_due:
            self._is_due = True
            self.loop.call_soon_threadsafe(self._take)


@pytest.mark.parametrize("wrong", [TakesFlagLate, CountsFirst, LooksFirst])
def test_a_wrong_waker_loses_a_request(wrong: type[Stepping]) -> None:
    with pytest.raises(AssertionError, match="a request was not notified"):
        orders_that_notify_every_request(wrong)


def test_a_loop_wakes_once_for_all_requests() -> None:
    loop = Loop()
    waker = LoopWaker(cast(asyncio.AbstractEventLoop, loop))
    requests = [Request() for _ in range(64)]
    for request in requests:
        waker.add(request)
    (call,) = loop.calls
    call()
    assert [request.count for request in requests] == [1] * 64
    waker.add(requests[0])
    assert len(loop.calls) == 2


def test_each_loop_has_one_waker_while_it_is_needed() -> None:
    async def wakers() -> tuple[LoopWaker, LoopWaker]:
        return running_waker(), running_waker()

    first, again = asyncio.run(wakers())
    assert first is again
    other, _ = asyncio.run(wakers())
    assert other is not first
