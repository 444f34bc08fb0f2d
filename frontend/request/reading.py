"""Requests whose bodies another process reads, between what a protocol has received and what goes
into slots."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from ringbatch.frontend.apart.messages import Received
from ringbatch.frontend.apart.process import Broken
from ringbatch.frontend.codec.limit_words import no_answer, too_many_large
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.request.apart import ReadApart
from ringbatch.frontend.request.calls import Call
from ringbatch.frontend.request.codec import Codec, Read
from ringbatch.frontend.request.elsewhere import Elsewhere
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.task import Engine
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import RequestError

log = logging.getLogger("ringbatch.frontend")

B = TypeVar("B")
F = TypeVar("F")
A = TypeVar("A")


class Already(Generic[B, F, A]):
    """A `Codec` of one request that is read already.

    Args:
        models: that are served.
        codec: of its protocol.
        finish: gives what was read, or raises why it cannot be.
    """

    def __init__(
        self, models: Models, codec: Codec[B, F, A], finish: Callable[[], Read[A]]
    ) -> None:
        self.protocol = codec.protocol
        self._models = models
        self._codec = codec
        self._finish = finish

    def read(self, name: str, body: B, framing: F) -> Read[A]:
        """As in `Codec`."""
        read = self._finish()
        if self._models.serves(read[0]):
            return read
        # Meanwhile the model has become another, with other inputs.
        return self._codec.read(name, body, framing)

    def meant(self, name: str, body: B, framing: F) -> ServedModel | None:
        """As in `Codec`."""
        return self._codec.meant(name, body, framing)

    def refusal(self, name: str, error: RequestError) -> A:
        """As in `Codec`."""
        return self._codec.refusal(name, error)


class Reading(Elsewhere[Received], Generic[A]):
    """A request whose body the other process reads; then it goes on as any other.

    Args:
        engine: of this process.
        large: says how.
        go_on: goes on with what gives what was read, or raises why it cannot be.
        gone: counts a request that nobody waits for any more.
    """

    def __init__(
        self,
        engine: Engine,
        large: ReadApart,
        go_on: Callable[[Callable[[], Read[A]]], Call | None],
        gone: Callable[[], None],
    ) -> None:
        super().__init__(engine)
        self._large = large
        self._go_on = go_on
        self._gone = gone
        self._limit_ns = 0

    def begin(self, body: Any, limit_ns: int) -> None:
        """Have the process read it, on the running loop.

        Args:
            body: of the request.
            limit_ns: how long it is worth an answer; 0 where only the body says.

        Raises:
            Overloaded: too many wait already.
        """
        apart, size = self._engine.apart, len(body)
        if not apart.queue.has_room(size):
            self._engine.lane.counters.add(LaneCounter.REFUSED)
            raise too_many_large(apart.queue.most)
        self._limit_ns = limit_ns
        large = self._large
        future = apart.submit(lambda: self.is_wanted, large.job, large.value, [body])
        self._wait(future, limit_ns / 1e9 if limit_ns else None)

    def _left(self) -> None:
        self._gone()

    def _is_late(self) -> None:
        timeout_ns = self._large.model_timeout_ns or self._limit_ns
        self._go_on(partial(_refuse, no_answer(self._limit_ns, timeout_ns)))

    def _go_on_with(self, future: "asyncio.Future[Received | None]") -> Call | None:
        try:
            found = future.result()
            assert found is not None, "it was wanted"
            value, data = found
            finish = partial(self._large.finish, value, data)
        except RequestError as error:
            finish = partial(_refuse, error.with_traceback(None))
        except Broken as defect:
            log.error("frontend: a large body was not read: %s", defect)
            finish = partial(_refuse, InternalError())
        return self._go_on(finish)


def _refuse(error: RequestError) -> NoReturn:
    raise error
