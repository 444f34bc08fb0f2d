"""A queue of requests before a thread, with a limit on their total size."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from ringbatch.frontend.codec.limit_messages import no_thread_now

T = TypeVar("T")


class ThreadQueue:
    """Queue of the requests that wait for a thread, and of the one that it works on.

    Attributes:
        size: the sum of their sizes. Requests that have ended count until the thread has passed
            over them, because they take memory until then.
        most: the limit of `size`.

    Args:
        thread: returns the thread's executor.
        most: as above.
    """

    def __init__(self, thread: Callable[[], Executor], most: int) -> None:
        self._thread = thread
        self.most = most
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Return whether a request of that size may wait. A single request always may."""
        return not self.size or self.size + size <= self.most

    def submit(self, work: Callable[[], T], size: int) -> asyncio.Future[T]:
        """Have the thread do the work, for a future of the running loop.

        Callers must not cancel the future.

        Raises:
            Overloaded: the system has no thread now.
        """
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread(), work)
        except RuntimeError:
            raise no_thread_now() from None
        self.size += size
        future.add_done_callback(lambda _: self._done(size))
        return future

    def _done(self, size: int) -> None:
        self.size -= size
