"""The models of the engine, for code that runs in a frontend: numpy arrays in and out, awaited.

    from ringbatch.frontend import models

    y = await models.infer("mnist", x)      # x: array [rows, ...]

Requests go through the lane that the frontend has, without another process and another connection,
and share batches with those of all clients.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from ringbatch.frontend.client.arguments import expect_model_name
from ringbatch.frontend.codec.request_timeout import limit_ns
from ringbatch.shm.errors import RequestError, StartupError

Settled = tuple[Any, RequestError | None]
"""Result of a request: its answer, or why there is none."""


class Abandonable(Protocol):
    """A request that is on its way."""

    def abandon(self) -> None:
        """Abandon the request, as nobody waits any more."""


Send = Callable[[str, Any, Callable[[Settled], None], int], Abandonable | None]
"""Sends a request: the model's name, its inputs, a callback for its outcome, and the nanoseconds to
wait for it, 0 if the model's own limit counts. It returns None if it has called the callback."""


class _Bound(NamedTuple):
    """A frontend's way to its engine."""

    send: Send
    names: Callable[[], tuple[str, ...]]
    loop: asyncio.AbstractEventLoop


class AwaitableModels:
    """The models of the engine whose frontend this process is; there is one such object."""

    def __init__(self) -> None:
        self._bound: _Bound | None = None

    def bind(self, send: Send, names: Callable[[], tuple[str, ...]]) -> None:
        """Ask in this way from now on, on the running loop."""
        self._bound = _Bound(send, names, asyncio.get_running_loop())

    def unbind(self) -> None:
        """Ask nobody any more."""
        self._bound = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models that are served now.

        Raises:
            StartupError: this process is no frontend.
        """
        return self._expect_bound().names()

    async def infer(self, model: str, inputs: Any, *, timeout_s: float | None = None) -> Any:
        """Run a model; cancelled, the request is abandoned.

        Args:
            model: its name.
            inputs: as for `ringbatch.frontend.Client.infer`: for a model with one input its array
                [rows, ...] of the input's dtype, for one with several a dict of these by name; for
                a model without declared inputs a list of JSON values.
            timeout_s: seconds until the request is given up; at most, and by default, the model's.

        Returns:
            The array of the model's only output, or a dict of arrays by name; or a list.

        Raises:
            RequestError: there is no answer, and why, as of `Client.infer`.
            TypeError, ValueError: the name is no str, or the time no number above 0.
            StartupError: this process is no frontend, or this is not its event loop.
        """
        expect_model_name(model)
        timeout_ns = limit_ns("timeout_s", timeout_s)
        bound = self._expect_bound()
        if asyncio.get_running_loop() is not bound.loop:
            raise StartupError(
                "models.infer must be awaited in the frontend's own event loop; in a route that "
                "runs in a thread, use anyio.from_thread.run(models.infer, model, inputs)"
            )
        answer: asyncio.Future[Settled] = bound.loop.create_future()

        def reply(settled: Settled) -> None:
            # A cancelled task abandons the call only when the loop comes to it.
            if not answer.done():
                answer.set_result(settled)

        call = bound.send(model, inputs, reply, timeout_ns)
        try:
            value, error = await answer
        except asyncio.CancelledError:
            if call is not None:
                call.abandon()
            raise
        if error is not None:
            raise error
        return value

    def _expect_bound(self) -> _Bound:
        if self._bound is None:
            raise StartupError(
                "this process is no frontend of an engine, so it has no models; ringbatch serves "
                'an application in its frontends with app = "MODULE:NAME" in [server]; other '
                "programs use ringbatch.frontend.Client"
            )
        return self._bound


models: Final = AwaitableModels()
"""Models for code in this frontend process."""
