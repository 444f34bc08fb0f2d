"""Batches of dead workers: they are split, and run again."""

from ringbatch.engine.collector.dispatcher import Dispatcher
from ringbatch.engine.collector.models import Batch, InFlight, Worker
from ringbatch.engine.collector.quarantine import CRASHED, KILLED, REPLACED_NS, Quarantine, regroup
from ringbatch.shm.engine_slots import EngineSlots, Request
from ringbatch.shm.slot import Status

MAX_DEATHS = 2
"""A request with which this many workers have crashed, the last of them alone, is given up."""


class DeadBatches:
    """The collector's hand that takes back what dead workers held.

    Args:
        slots: of all lanes, for the collector.
        in_flight: the requests that the collector has taken in, shared with it.
        quarantine: remembers requests that killed workers.
        dispatcher: answers these requests.
    """

    def __init__(
        self,
        slots: EngineSlots,
        in_flight: InFlight,
        quarantine: Quarantine,
        dispatcher: Dispatcher,
    ) -> None:
        self._slots = slots
        self._in_flight = in_flight
        self._quarantine = quarantine
        self._dispatcher = dispatcher
        self._deaths: dict[int, int] = {}
        """Weight of the deaths that a request may have caused, by reference. Some of these
        requests may have their answers already."""

    def take_back(self, worker: Worker, now_ns: int, *, hung: bool, killed: bool) -> bool:
        """Have the requests of a dead worker run again.

        Those of its batch run in groups that find the one it died of; those of the batch it had not
        begun run as they are. A worker of a model in steps runs all of its batches, and one on a
        device may have begun with both.

        Args:
            worker: the dead one, which held a batch at least.
            now_ns: the time.
            hung: True if it was ended because it hung.
            killed: True if it was ended with SIGKILL.

        Returns:
            True if it is known which request it died of.
        """
        model, in_flight = worker.model, self._in_flight
        count = len(worker.batches) if worker.places or worker.lead_ns else 1
        running, behind = worker.batches[:count], worker.batches[count:]
        worker.batches = []
        self._dispatcher.limits.drop(worker.number)
        left, marks = [], {}
        for batch in running:
            unanswered = self._unanswered(batch, now_ns)
            left += unanswered
            marks.update(dict.fromkeys([request.ref for request in unanswered], batch.mark))
        deaths = self._deaths = {ref: n for ref, n in self._deaths.items() if ref in in_flight}
        first = deaths.keys().isdisjoint([request.ref for request in left])
        for request in left:
            weight = KILLED if killed and not hung else CRASHED
            deaths[request.ref] = deaths.get(request.ref, 0) + weight
        explained = len(left) == 1 and deaths[left[0].ref] >= MAX_DEATHS * CRASHED
        if explained:
            fatal = left.pop()
            # As it was sent; at a later step of a chain, it is looked at elsewhere.
            self._quarantine.remember(self._slots.read(fatal.ref) or fatal, now_ns)
            model.health.explained(worker.number, now_ns)
            text = "the worker process died while it ran this request, and so did a second one"
            self._dispatcher.fail(fatal, Status.WORKER_DIED, text, marks[fatal.ref], now_ns)
        death_ns = REPLACED_NS + hung * model.spec.batch_timeout_ns
        run_ns = model.times.cycle_ns
        model.run_again(regroup(left, first=first, run_ns=run_ns, death_ns=death_ns))
        for batch in behind:
            if requests := self._unanswered(batch, now_ns):
                model.run_again([requests])
                left += requests
        # Only now, because a cancelled request may have caused the death.
        self._dispatcher.answer_cancelled([request.ref for request in left], now_ns)
        return explained

    def _unanswered(self, batch: Batch, now_ns: int) -> list[Request]:
        """Return the requests of a dead worker's batch that it left unanswered; post its answers.

        A request of which a part is out fails: its client has begun to read.
        """
        left = []
        for request in batch.requests:
            if self._slots.repeat(request.ref):
                self._dispatcher.forget([request])
            elif self._slots.part_is_out(request.ref):
                self._dispatcher.fail(request, Status.CUT_OFF, "", batch.mark, now_ns)
            else:
                left.append(request)
        return left
