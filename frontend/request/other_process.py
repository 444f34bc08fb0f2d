"""The other process of a frontend, the thread that speaks with it, and what waits for that."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ringbatch.frontend.apart.messages import Bytes, Job, Received
from ringbatch.frontend.apart.process import Process
from ringbatch.frontend.request.queue import Queue

MOST_WAITING_BYTES: Final = 1 << 26
"""Of bodies and results that wait for the other process: some seconds of its time."""


class OtherProcess:
    """See the module."""

    def __init__(self) -> None:
        self._process = Process()
        self._thread: ThreadPoolExecutor | None = None
        self.queue = Queue(self._started, MOST_WAITING_BYTES)

    def submit(
        self, wanted: Callable[[], bool], job: Job, value: Any, data: Sequence[Bytes]
    ) -> "asyncio.Future[Received | None]":
        """Have the process call a function, on the running loop. The future is not to be cancelled.

        Args:
            wanted: whether anybody still wants that, asked when its turn comes; else nothing comes
                of it.
            job, value, data: as of `Process.call`.
        """

        def work() -> Received | None:
            return self._process.call(job, value, data) if wanted() else None

        return self.queue.submit(work, sum(map(len, data)))

    def close(self) -> None:
        """End the process; what waits for it fails."""
        self._process.close()
        if self._thread is not None:
            self._thread.shutdown()

    def _started(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "apart")
        return self._thread
