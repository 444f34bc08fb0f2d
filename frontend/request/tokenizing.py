"""Requests of texts, between what a protocol has read and what goes into slots."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from ringbatch.frontend.codec.limit_messages import no_answer, too_many_texts
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.rendering import OffloadJob, Rendering, Results
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.offload import write_reordered
from ringbatch.frontend.request.outcomes import NO_SLOT
from ringbatch.frontend.request.task import A, Engine, InflightRequest
from ringbatch.frontend.request.thread_queue import ThreadQueue
from ringbatch.frontend.request.waiting_call import WaitingCall
from ringbatch.frontend.texts.rows import reordered
from ringbatch.frontend.texts.tokenizing import Tokenized
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import RequestError
from ringbatch.shm.tallies import CLIENT_GONE

log = logging.getLogger("ringbatch.frontend")

T = TypeVar("T")


MOST_WAITING: Final = 1 << 24
"""Characters that may wait for the thread: five seconds of its time, and the largest body."""


class Tokenizing(WaitingCall[Tokenized], Generic[A]):
    """A request whose tokens a thread makes; then it goes on as any other.

    Args:
        engine: of this process.
        task: the request.
        send: sends it on its way with its tokens.
    """

    def __init__(
        self,
        engine: Engine,
        task: InflightRequest[A],
        send: Callable[[Tokenized], RequestHandle | None],
    ) -> None:
        super().__init__(engine)
        self._task = task
        self._send = send

    def begin(self, tokenized: Callable[[], Tokenized], size: int, queue: ThreadQueue) -> None:
        """Have a thread do it, on the running loop.

        Args:
            tokenized: makes the tokens.
            size: the size of the texts, as `GivenTexts.size` counts it.
            queue: before the thread.

        Raises:
            Overloaded: too many wait already.
        """
        if not queue.has_room(size):
            self._engine.lane.counters.add(LaneCounter.REFUSED)
            raise too_many_texts(queue.most)

        def work() -> Tokenized | None:
            return tokenized() if self.is_wanted else None

        task = self._task
        left_s = (task.deadline_ns - task.accepted_ns) / 1e9
        self._wait(queue.submit(work, size), left_s)

    def _left(self) -> None:
        task = self._task
        record = self._engine.outcomes.record
        record(task.tally, CLIENT_GONE, task.accepted_ns, account=task.account)

    def _is_late(self) -> None:
        task = self._task
        late = no_answer(task.deadline_ns - task.accepted_ns, task.model.spec.timeout_ns)
        task.fail(self._engine, late, 0, NO_SLOT)

    def _go_on_with(self, future: "asyncio.Future[Tokenized | None]") -> RequestHandle | None:
        error: RequestError
        try:
            found = future.result()
            assert found is not None, "it was not over"
            return self._send(found)
        except RequestError as failure:
            error = failure.with_traceback(None)
        except Exception:
            log.exception("frontend: texts for model %s failed", self._task.model.spec.name)
            error = InternalError()
        self._task.fail(self._engine, error, 0, NO_SLOT)
        return None


class Reordered(Rendering[A]):
    """Rendering of an answer whose rows came in another order than the request's.

    Args:
        rendering: of the request.
        row_order: for each row that comes, its place in the request.
    """

    def __init__(self, rendering: Rendering[A], row_order: list[int]) -> None:
        self._rendering = rendering
        self._row_order = row_order

    def render(self, results: Results, batch_id: str) -> A:
        """As in `Rendering`."""
        return self._rendering.render((reordered(results, self._row_order),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """Return the job that writes the answer in another process, as in `Rendering`."""
        found = self._rendering.apart([sum(rows)], size, batch_id)
        if found is None:
            return None
        job, value = found
        return write_reordered, [job.__module__, job.__name__, value, self._row_order, [*rows]]

    def written(self, value: Any, data: Sequence[memoryview]) -> A:
        """Return the answer that another process has written, as in `Rendering`."""
        return self._rendering.written(value, data)

    def render_error(self, error: RequestError, batch_id: str) -> A:
        """As in `Rendering`."""
        return self._rendering.render_error(error, batch_id)
