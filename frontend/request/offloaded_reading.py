"""Requests whose bodies the offload process reads."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from ringbatch.frontend.codec.limit_messages import no_answer, too_many_large
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.offload.messages import Received
from ringbatch.frontend.offload.process import Broken
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.codec import Codec, Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import Offloaded
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.task import Engine
from ringbatch.frontend.request.waiting_call import WaitingCall
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import RequestError

log = logging.getLogger("ringbatch.frontend")

B = TypeVar("B")
F = TypeVar("F")
A = TypeVar("A")


class Already(Generic[B, F, A]):
    """A `Codec` of a single request that has been read already.

    Args:
        models: the models that the frontend serves.
        codec: the codec of the request's protocol.
        finish: returns the request as it was read, or raises why it cannot be read.
    """

    def __init__(
        self, models: Models, codec: Codec[B, F, A], finish: Callable[[], Read[A]]
    ) -> None:
        self.protocol = codec.protocol
        self._models = models
        self._codec = codec
        self._finish = finish

    def read(self, name: str, body: B, framing: F) -> Read[A]:
        """Return the request as it was read; read it again if the model has changed."""
        read = self._finish()
        if self._models.serves(read[0]):
            return read
        # A reload has replaced the model since then, and the new one may have other inputs.
        return self._codec.read(name, body, framing)

    def meant(self, name: str, body: B, framing: F) -> ServedModel | None:
        """Return the model that the request is for, as in `Codec`."""
        return self._codec.meant(name, body, framing)

    def refusal(self, name: str, error: RequestError) -> A:
        """Return the answer to a request that cannot be read, as in `Codec`."""
        return self._codec.refusal(name, error)


class OffloadedRequest(WaitingCall[Received], Generic[A]):
    """A request whose body the other process reads; then it goes on like any other.

    Args:
        engine: the engine of this process.
        large: says how the other process reads the body.
        go_on: sends the request on its way. Its argument returns the request as it was read, or
            raises why it cannot be read.
        gone: counts a request whose client has left.
    """

    def __init__(
        self,
        engine: Engine,
        large: Offloaded,
        go_on: Callable[[Callable[[], Read[A]]], RequestHandle | None],
        gone: Callable[[], None],
    ) -> None:
        super().__init__(engine)
        self._large = large
        self._go_on = go_on
        self._gone = gone
        self._limit_ns = 0

    def begin(self, body: Any, limit_ns: int) -> None:
        """Have the other process read the body, on the running loop.

        Args:
            body: the request's body.
            limit_ns: how long the client wants an answer; 0 if only the body says that.

        Raises:
            Overloaded: too many bodies wait already.
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

    def _go_on_with(self, future: "asyncio.Future[Received | None]") -> RequestHandle | None:
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
