"""Requests of texts, between what a protocol has read and what goes into slots."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Generic

from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.rendering import Rendering, Results
from ringbatch.frontend.request.calls import Call
from ringbatch.frontend.request.endings import NO_SLOT
from ringbatch.frontend.request.task import A, Engine, Task
from ringbatch.frontend.texts.rows import reordered
from ringbatch.frontend.texts.tokenizing import Tokenized
from ringbatch.shm.errors import RequestError
from ringbatch.shm.tallies import CLIENT_GONE

log = logging.getLogger("ringbatch.frontend")


class Tokenizing(Generic[A]):
    """A request whose tokens a thread makes; then it goes on as any other.

    Args:
        engine: of this process.
        task: the request.
        send: sends it on its way with its tokens.
    """

    def __init__(
        self, engine: Engine, task: Task[A], send: Callable[[Tokenized], Call | None]
    ) -> None:
        self._engine = engine
        self._task = task
        self._send = send
        self._call: Call | None = None
        self._over = False

    def begin(self, tokenized: Callable[[], Tokenized], thread: Executor) -> None:
        """Have the thread do it, on the running loop."""
        future = asyncio.get_running_loop().run_in_executor(thread, tokenized)
        future.add_done_callback(self._done)

    def abandon(self) -> None:
        """As in `Call`."""
        if self._call is not None:
            self._call.abandon()
        elif not self._over:
            self._over = True
            self._engine.endings.ended(self._task.tally, CLIENT_GONE, self._task.accepted_ns)

    def _done(self, future: asyncio.Future[Tokenized]) -> None:
        if self._over or future.cancelled():
            # Else asyncio would complain that nobody has asked how it ended.
            _ = future.cancelled() or future.exception()
            return
        self._over = True
        error: RequestError
        try:
            self._call = self._send(future.result())
        except RequestError as failure:
            error = failure.with_traceback(None)
        except Exception:
            log.exception("frontend: texts for model %s failed", self._task.model.spec.name)
            error = InternalError()
        else:
            return
        self._task.fail(self._engine, error, 0, NO_SLOT)


class Reordered(Generic[A]):
    """See `ringbatch.frontend.codec.rendering.Rendering`: an answer whose rows came in another
    order than the request's.

    Args:
        rendering: of the request.
        places: for each row that comes, its place in the request.
    """

    def __init__(self, rendering: Rendering[A], places: list[int]) -> None:
        self._rendering = rendering
        self._places = places

    def render(self, results: Results, batch_id: str) -> A:
        """As in `Rendering`."""
        return self._rendering.render((reordered(results, self._places),), batch_id)

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> A:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def render_error(self, error: RequestError, batch_id: str) -> A:
        """As in `Rendering`."""
        return self._rendering.render_error(error, batch_id)
