"""Bulk requests: one instance each, from one array into another.

Each instance has a slot of its own, and so shares batches and fails as a request alone would; but
slots are claimed, filled and published, and answers looked at and copied, many at a time.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.client.arrays import RowCodec
from ringbatch.frontend.client.calls import ClientModel
from ringbatch.frontend.client.channel import Channel
from ringbatch.frontend.client.errors import counted_as
from ringbatch.frontend.client.waiter import Waiter
from ringbatch.frontend.codec.limit_messages import no_answer, no_room_ever
from ringbatch.frontend.codec.outcome import ERRORS, RULES, error_of
from ringbatch.frontend.codec.refusal import no_room_in
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import RequestError
from ringbatch.shm.slot import Status
from ringbatch.shm.slot_answers import SlotAnswers
from ringbatch.shm.strided_view import OFFSET_BITS, StridedView
from ringbatch.shm.tallies import Tally

_OTHERS_SHARE: Final = 8
"""The part of the model's slots that is left to other threads."""
_TURNS: Final = 4
"""Answers are looked at when so large a part of those under way has come."""


class Many(NamedTuple):
    """Results of many requests.

    Attributes:
        outputs: a row for each, in their order; 0 if there is none.
        errors: why there is none, by the number of the row.
    """

    outputs: NDArray[Any]
    errors: dict[int, RequestError]


class BulkRequest(Waiter):
    """Many requests whose thread waits for all of them.

    Args:
        channel: through which they go.
        model: for which they are.
        codec: the model's.
        instances: the bytes of each.
        timeout_ns: from now to their deadline.
        account: their account word, of which the class counts.
    """

    __slots__ = (
        "_accepted_ns",
        "_answers",
        "_begun",
        "_channel",
        "_codec",
        "_found",
        "_in_flight",
        "_instances",
        "_model",
        "_next",
        "_over",
        "_results",
        "_room",
        "_row_of",
        "_sent_ns",
        "_strided",
        "_worth",
        "errors",
    )

    _answers: SlotAnswers
    _strided: StridedView

    def __init__(
        self,
        channel: Channel,
        model: ClientModel,
        codec: RowCodec,
        instances: NDArray[Any],
        timeout_ns: int,
        account: int = NOBODY,
    ) -> None:
        now_ns = channel.clock()
        super().__init__(now_ns + timeout_ns, account)
        self._accepted_ns = now_ns
        self._channel = channel
        self._model = model
        self._codec = codec
        self._instances = instances
        self._results = codec.room(len(instances))
        self._room = model.result_sizes.result_bytes(1, codec.input_bytes)
        lane = channel.slots.lane
        self._row_of = np.zeros(lane.capacity, np.intp)
        self._sent_ns = np.zeros(lane.capacity, np.int64)
        self._begun = False
        self._next = 0
        self._in_flight: set[int] = set()
        self._found: list[int] = []
        self._worth = 0
        self._over = False
        self.errors: dict[int, RequestError] = {}

    @property
    def over(self) -> bool:
        """True once every request has its answer or its error."""
        return self._over

    def advance(self) -> None:
        """Look at the answers that have come, and send as many requests as have room."""
        if self._over:
            return
        if not self._begun:
            # Not before: until then another thread may have let go of the memory.
            self._begun = True
            segment = self._channel.slots.segment
            self._answers = SlotAnswers(segment, self._channel.slots.lane.index)
            self._strided = StridedView(segment.memory)
        self._take()
        most = self._channel.slots.lane.most_of_one
        window = most - most // _OTHERS_SHARE - len(self._in_flight)
        self._send(min(window, len(self._instances) - self._next))
        if not self._in_flight:
            if rest := len(self._instances) - self._next:
                self._fail_for_room(rest)
            else:
                self._finish()
        else:
            self._worth = -(-len(self._in_flight) // _TURNS)
            self.ready = False

    def _fail_for_room(self, rest: int) -> None:
        slots, size = self._channel.slots, self._codec.input_bytes
        if slots.fits(size, self._room):
            self.fail(no_room_in(slots.lane, rest))
        else:
            self.fail(no_room_ever(size, self._room, slots.lane.lane_bytes))

    def _send(self, count: int) -> None:
        lane, row_bytes = self._channel.slots.lane, self._codec.input_bytes
        model = self._model.spec.reference
        slots = lane.claim_many(count, row_bytes, self._room, model)
        if not slots:
            return
        first, self._next = self._next, self._next + len(slots)
        starts = np.array([lane.request_offset[slot] for slot in slots])
        self._strided.of(row_bytes)[starts >> OFFSET_BITS] = self._instances[first : self._next]
        self._row_of[slots] = np.arange(first, self._next)
        self._sent_ns[slots] = now_ns = self._channel.clock()
        deadline_ns, account = self.deadline_ns, self.account
        lane.publish_many(slots, model, 1, now_ns, deadline_ns, row_bytes, account=account)
        self._channel.slots.expect(self, slots)
        self._in_flight.update(slots)

    def answered(self, slot: int) -> None:
        """As in `Waiter`."""
        if self._over:
            self._channel.slots.lane.release(slot)
            return
        found = self._found
        found.append(slot)
        if len(found) == self._worth:
            self.ready = True
            self._channel.wake(self)

    def _take(self) -> None:
        slots, self._found = self._found, []
        if not slots:
            return
        lane, size = self._channel.slots.lane, self._codec.output_bytes
        self._in_flight.difference_update(slots)
        ok = self._answers.ok(slots, size)
        if not ok.all():
            for slot in (slot for slot, good in zip(slots, ok.tolist(), strict=True) if not good):
                self._refused(slot)
            slots = [slot for slot, good in zip(slots, ok.tolist(), strict=True) if good]
        starts = np.array([lane.result_offset[slot] for slot in slots], np.intp)
        if self._model.result_sizes.chained:
            starts += np.array([lane.answer_start(slot) for slot in slots], np.intp)
        self._results[self._row_of[slots]] = self._strided.of(size)[starts >> OFFSET_BITS]
        if slots:
            self._tally().answered_many(self._channel.clock() - self._sent_ns[slots])
        for slot in slots:
            lane.release(slot)

    def _refused(self, slot: int) -> None:
        lane = self._channel.slots.lane
        before = lane.answer_start(slot) if self._model.result_sizes.chained else 0
        answer, start = lane.answer(slot), lane.result_offset[slot] + before
        # An answer of another size than the signature's is a defect of its writer.
        status = Status.CORRUPT if answer.status is Status.OK else answer.status
        text = ""
        if status not in (Status.CORRUPT, Status.RESULT_TOO_LARGE):
            text = bytes(lane.memory[start : start + answer.size]).decode(errors="replace")
        error = error_of(status, text or RULES[ERRORS[status]].text)
        self.errors[int(self._row_of[slot])] = error
        took_ns = self._channel.clock() - int(self._sent_ns[slot])
        self._tally().ended(counted_as(error), took_ns, 1, self.account)
        lane.release(slot)

    def fail(self, error: RequestError) -> None:
        """As in `Waiter`."""
        if not self._over:
            self._take()
            self._channel.slots.cancel(self._in_flight)
            self.lost(error)

    def expired(self) -> None:
        """As in `Waiter`."""
        waited_ns = self.deadline_ns - self._accepted_ns
        self.fail(no_answer(waited_ns, self._model.spec.timeout_ns))

    def lost(self, error: RequestError) -> None:
        """As in `Waiter`."""
        if not self._over:
            rows = self._row_of[[*self._in_flight]].tolist()
            rows += range(self._next, len(self._instances))
            self.errors.update(dict.fromkeys(rows, error))
            if not self._channel.closed:
                took_ns = self._channel.clock() - self._accepted_ns
                self._tally().ended(counted_as(error), took_ns, len(rows), self.account)
            self._in_flight.clear()
            self._found.clear()
            self._finish()

    def _tally(self) -> Tally:
        return self._channel.slots.tally(self._model.spec)

    def _finish(self) -> None:
        self._over = self.ready = True
        self._channel.over(self)

    def outcome(self) -> Many:
        """Return the results, once all requests are over."""
        return Many(self._codec.predictions(self._results), self.errors)
