"""Requests in parts that are one for their client, such as the choices of a completion."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.parts_task import InParts, SeveralInParts
from ringbatch.frontend.request.task import A
from ringbatch.shm.errors import RequestError

StartOne = Callable[[Callable[[A], None], InParts[A], Sequence[SlotPart]], RequestHandle]
"""Sends one request on its way: with its reply, the receiver of its parts, and its slot's content.
"""


class PartsGroup(Generic[A]):
    """Requests that a client has sent as one.

    To the engine, each is a request of its own: it has a row, a deadline and a count. The reply
    comes behind the last end. The first error is the reply at once, and the others are given up.

    Args:
        several: takes their parts.
        in_parts: receiver of the client's request.
        rendering: writes an error of `several`.
        reply: called once, unless the group is abandoned first.
    """

    def __init__(
        self,
        several: SeveralInParts[A],
        in_parts: InParts[A],
        rendering: Rendering[A],
        reply: Callable[[A], None],
    ) -> None:
        self._several = several
        self._in_parts = in_parts
        self._rendering = rendering
        self._reply = reply
        self._calls: list[RequestHandle] = []
        self._left = 0

    def start(self, parts: Sequence[SlotPart], start_one: StartOne[A]) -> None:
        """Send all of them on their way, or none; raises as `start_one`."""
        self._left = len(parts)
        try:
            for number, part in enumerate(parts):
                own = self._in_parts._replace(on_part=partial(self._several.take, number))
                self._calls.append(start_one(partial(self._ended, number), own, (part,)))
        except BaseException:
            self.abandon()
            raise

    @property
    def holds(self) -> tuple[int, int]:
        """As in `RequestHandle`: the slots of all of them, and their bytes."""
        held = [call.holds for call in self._calls]
        return sum(slots for slots, _ in held), sum(size for _, size in held)

    def abandon(self) -> None:
        """As in `RequestHandle`."""
        # They hold their replies, which are this group's: only the garbage collector would part
        # them.
        calls, self._calls = self._calls, []
        for call in calls:
            call.abandon()

    def _ended(self, number: int, answer: A) -> None:
        if answer is not self._in_parts.end:
            self._fail(answer)
            return
        try:
            self._several.end(number)
        except RequestError as error:
            self._fail(self._rendering.render_error(error.with_traceback(None), ""))
            return
        self._left -= 1
        if not self._left:
            self._calls.clear()
            self._reply(answer)

    def _fail(self, answer: A) -> None:
        calls, self._calls = self._calls, []
        # First, because who gets the reply asks for the outcome of the request that ended last.
        self._reply(answer)
        for call in calls:
            call.abandon()
