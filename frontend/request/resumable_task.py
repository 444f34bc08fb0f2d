"""A request in parts that goes on behind them if its worker dies.

See `ringbatch.frontend.codec.resumption`. To the collector and the worker, each time is a request
of its own; to the client and the counters, all are one.
"""

from ringbatch.frontend.codec.resumption import NothingLeft, Resumption
from ringbatch.frontend.request.parts_task import RequestInParts
from ringbatch.frontend.request.task import A
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.slot import Status


class ResumableRequest(RequestInParts[A]):
    """A request to a model that can go on; the arguments are those of `RequestInParts`."""

    __slots__ = ("_resumption",)

    _resumption: Resumption

    def _set_up(self) -> None:
        plan = self.model.resumption
        assert plan is not None, "only a model that can go on has such requests"
        self._resumption = Resumption(plan)

    def _keep(self, start: int, size: int) -> None:
        self._resumption.keep(self._engine.lane.memory[start : start + size])

    def _refused(self, slot: int, status: Status, size: int) -> None:
        """As in `SlotRequest`; a request that was cut off is sent again."""
        try:
            part = self._resumption.resumed(self._part) if status is Status.CUT_OFF else None
        except NothingLeft:
            self._engine.lane.release(slot)
            self._end_early(slot)
            return
        if part is None:
            super()._refused(slot, status, size)
            return
        # It may take a while until the next part comes.
        self._in_parts.flush()
        engine = self._engine
        lane = engine.lane
        lane.release(slot)
        lane.counters.add(LaneCounter.RESUMED)
        self.send_in_parts(engine, (part,))
        lane.count_no_more(self._slot)
