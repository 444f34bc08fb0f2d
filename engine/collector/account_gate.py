"""The gate for requests of accounts with limits: refusals, and their texts and counts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ringbatch.engine.collector.account_limits import (
    SECOND_NS,
    AccountLimiter,
    Limit,
    LimitTable,
    Refused,
)
from ringbatch.engine.collector.models import Model
from ringbatch.shm.account_limits import refusal_text
from ringbatch.shm.counters import CollectorCounter, Counters
from ringbatch.shm.engine_slots import BatchMark, EngineSlots, Request
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Reason, Status

_NO_BATCH: Final = BatchMark(0, 0, Reason.DEADLINE, 0)
_COUNTERS: Final = {
    Limit.REQUESTS: CollectorCounter.LIMITED_REQUESTS,
    Limit.MODEL_S: CollectorCounter.LIMITED_MODEL_S,
    Limit.IN_FLIGHT: CollectorCounter.LIMITED_IN_FLIGHT,
}
_WORDS: Final = {
    Limit.REQUESTS: "requests a second",
    Limit.MODEL_S: "model seconds a second",
    Limit.IN_FLIGHT: "requests in flight",
}


class AccountGate:
    """Lets requests in within the limits of their accounts, and answers the others.

    Attributes:
        on: True if any account has a limit. Nothing else need be called if not.

    Args:
        segment: the memory.
        slots: of all lanes, for the collector.
    """

    def __init__(self, segment: Segment, slots: EngineSlots) -> None:
        self._slots = slots
        self._counters = Counters(segment.words, segment.layout.collector_counters())
        self._limiter = AccountLimiter(LimitTable())
        self.on = False

    def set(self, table: LimitTable) -> None:
        """Apply these limits from now on."""
        self.on = not table.empty
        if self.on:
            self._limiter.table = table
        else:
            self._limiter = AccountLimiter(LimitTable())

    def admit(
        self,
        requests: Sequence[Request],
        parts: Collection[int],
        models: Mapping[int, Model],
        now_ns: int,
    ) -> list[Request]:
        """Return the requests that are let in; answer the others.

        Args:
            requests: that have just come.
            parts: references of further parts of requests. They are let in: if their first part is
                refused, their frontend cancels them.
            models: by reference.
            now_ns: the time.
        """
        let_in = []
        for request in requests:
            refused = None
            if request.ref not in parts:
                refused = self._limiter.admit(request.ref, request.account, now_ns)
            if refused is None:
                let_in.append(request)
            else:
                self._refuse(request, refused, models.get(request.model), now_ns)
        return let_in

    def hold(self, requests: Iterable[Request], now_ns: int) -> None:
        """Note requests in flight that an earlier collector has let in."""
        for request in requests:
            self._limiter.hold(request.ref, request.account, now_ns)

    def leave(self, requests: Iterable[Request]) -> None:
        """Note that requests are in flight no longer."""
        self._limiter.leave([request.ref for request in requests])

    def charge(
        self,
        requests: Sequence[Request],
        costs: Sequence[float] | None,
        ran_ns: int,
        now_ns: int,
    ) -> None:
        """Charge the accounts of a batch, as `AccountLimiter.charge` does; None: by rows."""
        words = [request.account for request in requests]
        shares = costs or [request.rows for request in requests]
        self._limiter.charge(words, shares, ran_ns, now_ns)

    def _refuse(self, request: Request, refused: Refused, model: Model | None, now_ns: int) -> None:
        """Answer a request with the time after which to send it again.

        If many requests are in flight, that is the time of a further request of its model: by then
        those before it are answered.
        """
        limit, bound, wait_ns = refused
        if model is not None:
            model.turned_away(request.rows)
            wait_ns = wait_ns or max(model.backlog.answer_ns, model.times.cycle_ns)
        wait_s = max(-(-wait_ns // SECOND_NS), 1)
        self._counters.add(_COUNTERS[limit])
        text = refusal_text(f"{bound:.15g} {_WORDS[limit]}", wait_s)
        self._slots.fail(request, Status.LIMITED, text, _NO_BATCH, now_ns)
