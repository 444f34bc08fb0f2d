"""A request for parts on `frontend_harness`, and the engine's side of it."""

from collections.abc import Callable
from typing import Any, Final

import orjson
from frontend_harness import FrontendHarness, untyped

from ringbatch.frontend.codec.part_limits import NO_LIMITS, PartLimits
from ringbatch.frontend.request.codec import V1Codec
from ringbatch.frontend.request.parts_task import EnoughParts, InParts, never, no_time
from ringbatch.shm.engine_slots import BatchMark
from ringbatch.shm.slot import Reason, Status
from ringbatch.shm.tallies import ends_of

END: Final[Any] = "end"


class Parted:
    """A request for parts, and the engine's side of it.

    Args:
        enough: the number of parts that its receiver wants.
        raises: error that it raises then.
        limits: that the request asks for.
        joins: whether its client gets one answer.
        stalled_s: for how many seconds its client takes nothing.
        timeout_ns: how long its client waits; 0 if it does not say.
        harness: of the frontend; by default a new one.
        spec: fields of the model's entry in a new one.
    """

    def __init__(
        self,
        enough: int = 1 << 62,
        raises: type[Exception] = EnoughParts,
        *,
        limits: PartLimits = NO_LIMITS,
        joins: bool = False,
        stalled_s: Callable[[], int] = no_time,
        timeout_ns: int = 0,
        harness: FrontendHarness | None = None,
        **spec: Any,
    ) -> None:
        self.harness = harness or FrontendHarness(untyped(in_parts=True, **spec))
        self.parts: list[Any] = []
        self.ends: list[Any] = []
        self._enough = enough
        self._raises = raises
        service = self.harness.service
        body = b'{"instances": [1]}'
        joined = (lambda: True) if joins else never
        self.call = service.pipeline.start(
            V1Codec(service),
            "echo",
            body,
            None,
            self.ends.append,
            timeout_ns,
            in_parts=InParts(self._on, END, limits=limits, joins=joined, stalled_s=stalled_s),
        )
        self.harness.loop.turn()
        if self.call is None:
            return
        # Requests that were cancelled in between are announced again.
        wanted = self.harness.engine_slots.wanted
        (self.request,) = [one for one in self.harness.taken() if wanted(one.ref)]
        self._writer = self.harness.engine_slots.part_writer(self.request, 7)

    def _on(self, answer: Any) -> None:
        self.parts.append(orjson.loads(answer[1])["predictions"])
        if len(self.parts) == self._enough:
            raise self._raises

    def part(self, value: int) -> None:
        """Write a part as the worker."""
        text = orjson.dumps([value])
        assert self._writer.write(text)
        self.harness.engine_slots.post_part(self.request.ref)
        self.harness.engine_slots.flush()

    def is_given_up(self) -> bool:
        """Return whether the worker sees that nobody waits for more parts."""
        ref = self.request.ref
        return self.harness.engine_slots.given_up([ref], self.harness.loop.now_ns) == [ref]

    def is_late(self) -> bool:
        """Return whether the worker sees that this is for a deadline."""
        return self._writer.deadline_ns <= self.harness.loop.now_ns

    def answer(self, status: Status = Status.OK) -> None:
        """End the answer as the worker."""
        mark = BatchMark(7, 1, Reason.IDLE, 0)
        self.harness.engine_slots.answer(self.request.ref, status, 0, mark, 0)
        self.harness.engine_slots.flush()

    def collect(self) -> None:
        """Collect answers as the frontend."""
        self.harness.gateway.collect()

    def ends_counted(self) -> tuple[int, int, int]:
        """Return the requests answered with 200, their instances, and the others that ended."""
        account = self.harness.service.models["echo"].spec.account
        ends = ends_of(self.harness.segment, [account])[account]
        return ends.answered, ends.instances, ends.ended
