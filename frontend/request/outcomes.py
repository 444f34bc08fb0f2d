"""Outcomes of all requests of a process, for metrics and logs, in every protocol.

That happens before its answer is written. A refusal before the pipeline (for its head, its size or
its key) is reported by the code that refuses. A request is counted at once, or, if it was answered
with 200 out of a slot, with all that were answered in the same turn. The writer of its answer
learns from here if the request needs more than a count.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ringbatch.shm.account import NOBODY
from ringbatch.shm.lane import Lane
from ringbatch.shm.slot import Answer
from ringbatch.shm.slow_requests import RequestRecord, Slowest
from ringbatch.shm.tallies import Tally
from ringbatch.shm.traced_requests import TracedRequests

NO_SLOT: Final = -1
_NEVER: Final = 1 << 62


class RequestOutcome(NamedTuple):
    """End of a request.

    Attributes:
        tally: that counts it. It has the name and version of the model, empty if there is none, and
            the protocol.
        code: the status, or its equal over HTTP; `CLIENT_GONE` if no client waited.
        accepted_ns: when it was accepted, on the monotonic clock; when it ended if it was refused
            before.
        ended_ns: when its answer was there.
        instances: in it; 0 if it was not answered with 200.
        stamps: of its slot, of its last part if it has several; None if no answer came out of a
            slot.
        account: its account word, see `ringbatch.shm.account`; `NOBODY` if it was refused before
            that was known.
    """

    tally: Tally
    code: int
    accepted_ns: int
    ended_ns: int
    instances: int
    stamps: Answer | None
    account: int = NOBODY


class RequestOutcomes:
    """Recorder of the outcomes of all requests of a process, for metrics and logs.

    Attributes:
        must_log: whether the request that ended last was not answered with 200, or took so
            long that it may be one of the slowest, or one that is to be logged.
        took_ns: of that request, from its acceptance to its end.
        ended_ns: as in `RequestOutcome`.
        deadline_ns: of that request, if it failed and had one; else 0. Only for those with
            `must_log`.
        batch_id, slot: of that request, unless `must_log`: the id of its batch, and the slot
            out of which its answer came.
        traced: where those are kept that are traced; None if none are.
        clock: monotonic nanoseconds.

    Args:
        lane: of this process.
        slowest: of that lane.
        clock, traced: as above.
    """

    __slots__ = (
        "_account",
        "_code",
        "_instances",
        "_logged_ns",
        "_quick_ns",
        "_slowest",
        "_tally",
        "_unsettled",
        "batch_id",
        "clock",
        "deadline_ns",
        "ended_ns",
        "lane",
        "must_log",
        "slot",
        "took_ns",
        "traced",
    )

    def __init__(
        self,
        lane: Lane,
        slowest: Slowest,
        clock: Callable[[], int],
        traced: TracedRequests | None = None,
    ) -> None:
        self.lane = lane
        self._slowest = slowest
        self.clock = clock
        self._unsettled: list[Tally] = []
        self._tally: Tally | None = None
        self._code = self._instances = 0
        self._account = NOBODY
        """Account of a request that had no slot; any other request has it in its slot."""
        self.took_ns = self.ended_ns = self.deadline_ns = 0
        self.batch_id = ""
        self.slot = NO_SLOT
        self.must_log = False
        self.traced = traced
        self._logged_ns = _NEVER
        self._quick_ns = -1
        """Requests that take no longer need no logging for that."""

    def log_slower_than(self, took_ns: int) -> None:
        """Set `must_log` for requests that take longer, from now on."""
        self._logged_ns = took_ns
        self._quick_ns = min(self._quick_ns, took_ns)

    def answered(
        self, tally: Tally, accepted_ns: int, instances: int, batch_id: str, slot: int
    ) -> None:
        """Record an answer with status 200; `settle` must follow.

        Args:
            tally: its own.
            accepted_ns: when it was accepted.
            instances: in it.
            batch_id: of its batch.
            slot: that the answer came out of; this and the batch are the last of several.
        """
        self.ended_ns = ended_ns = self.clock()
        self.took_ns = took_ns = ended_ns - accepted_ns
        pending_ns = tally.pending_ns
        if not pending_ns:
            self._unsettled.append(tally)
        pending_ns.append(took_ns)
        tally.pending_instances += instances
        self.must_log = took_ns > self._quick_ns
        self._tally, self._code, self._instances = tally, 200, instances
        self.batch_id, self.slot = batch_id, slot

    def settle(self) -> None:
        """Count all that were answered since the last call."""
        for tally in self._unsettled:
            tally.settle()
        self._unsettled.clear()
        if self.ended_ns > self._slowest.look_ns:
            self._slowest.look(self.ended_ns)
            self._quick_ns = min(self._slowest.floor_ns, self._logged_ns)

    def record(
        self,
        tally: Tally,
        code: int,
        accepted_ns: int,
        slot: int = NO_SLOT,
        account: int = NOBODY,
        instances: int = 0,
        deadline_ns: int = 0,
    ) -> None:
        """Record another end of a request; arguments as for `answered` and of `RequestOutcome`.

        `NO_SLOT` is the slot of a request that had none. 0 is the deadline of one that had none.
        """
        self.ended_ns = ended_ns = self.clock()
        self.took_ns = took_ns = ended_ns - accepted_ns
        if instances:
            tally.answered(took_ns, instances)
        else:
            tally.ended(code, took_ns, 1, account)
        self.must_log = True
        self.deadline_ns = deadline_ns
        self._tally, self._code, self._instances = tally, code, instances
        self.slot, self._account = slot, account

    def may_be_slowest(self, took_ns: int, now_ns: int) -> bool:
        """Return whether a request of this duration that ends now is to be given to `keep`."""
        if now_ns > self._slowest.look_ns:
            self._slowest.look(now_ns)
        return took_ns > self._slowest.floor_ns

    def keep(self, request: RequestRecord) -> None:
        """Record an ended request that may be one of the slowest."""
        self._slowest.put(request)
        self._quick_ns = min(self._slowest.floor_ns, self._logged_ns)

    def last(self) -> RequestOutcome:
        """Return the end of the request that ended last.

        It is the one whose `reply` is called, while that call lasts. Its slot's words stand until
        another request is sent.
        """
        tally = self._tally
        assert tally is not None, "a request has ended"
        ended_ns, slot = self.ended_ns, self.slot
        stamps, account = None, self._account
        if slot != NO_SLOT:
            stamps, account = self.lane.answer(slot), self.lane.account(slot)
        accepted_ns = ended_ns - self.took_ns
        return RequestOutcome(
            tally, self._code, accepted_ns, ended_ns, self._instances, stamps, account
        )
