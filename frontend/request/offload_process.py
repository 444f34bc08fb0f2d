"""A frontend's offload process, with its thread and its queue."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ringbatch.frontend.offload.messages import Bytes, Job, Received
from ringbatch.frontend.offload.process import Process
from ringbatch.frontend.request.thread_queue import ThreadQueue

MOST_WAITING_BYTES: Final = 1 << 26
"""The most bytes of bodies and results that may wait: some seconds of the process's time."""


class OtherProcess:
    """The other process, with its thread and its queue."""

    def __init__(self) -> None:
        self._process = Process()
        self._thread: ThreadPoolExecutor | None = None
        self.queue = ThreadQueue(self._started, MOST_WAITING_BYTES)

    def submit(
        self, wanted: Callable[[], bool], job: Job, value: Any, data: Sequence[Bytes]
    ) -> "asyncio.Future[Received | None]":
        """Have the process call a function, for a future of the running loop.

        Callers must not cancel the future.

        Args:
            wanted: returns whether anybody still wants the result. The thread asks when the turn
                of the call comes; if not, the future's result is None.
            job, value, data: as in `Process.call`.
        """

        def work() -> Received | None:
            return self._process.call(job, value, data) if wanted() else None

        return self.queue.submit(work, sum(map(len, data)))

    def close(self) -> None:
        """End the process; calls that wait for it fail."""
        self._process.close()
        if self._thread is not None:
            self._thread.shutdown()

    def _started(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "apart")
        return self._thread
