"""What waits for a thread, bounded by what it takes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


class Queue:
    """Requests that wait for a thread, and the one that it has.

    Attributes:
        size: of all of them, those included that have ended meanwhile and that the thread has yet
            to pass over: until then they take memory.
        most: may wait, as the sizes say.

    Args:
        thread: gives it.
        most: as above.
    """

    def __init__(self, thread: Callable[[], Executor], most: int) -> None:
        self._thread = thread
        self.most = most
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether a request of that size may wait. One request alone always may."""
        return not self.size or self.size + size <= self.most

    def submit(self, work: Callable[[], T], size: int) -> asyncio.Future[T]:
        """Have the thread do it, on the running loop. The future is not to be cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._thread(), work)
        self.size += size
        future.add_done_callback(lambda _: self._done(size))
        return future

    def _done(self, size: int) -> None:
        self.size -= size
