"""Request pipeline for all protocols: from a body to a slot, or to an error.

Nothing is awaited: `Pipeline.start` returns at once, and the answer is a call of the `reply` it was
given, later or before it returns. No error leaves it as an exception. What differs between the
protocols stands in a `Codec` and in the rendering of a request; what happens once the answer is
there, in `ringbatch.frontend.request.task`.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from ringbatch.frontend.codec.asked_events import EventsAsked
from ringbatch.frontend.codec.limit_messages import (
    no_answer,
    no_room_ever,
    too_many_parts,
)
from ringbatch.frontend.codec.outcome import InternalError, status_of
from ringbatch.frontend.codec.part_limits import no_first_part, too_long_a_wait_for_parts
from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.codec.request_timeout import shortest_ns
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.codec import Codec, Parts, Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import Offloaded
from ringbatch.frontend.request.offloaded_reading import Already, OffloadedRequest
from ringbatch.frontend.request.parts_group import PartsGroup
from ringbatch.frontend.request.parts_task import InParts, RequestInParts
from ringbatch.frontend.request.resumable_task import ResumableRequest
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.split import SplitRequest
from ringbatch.frontend.request.task import Engine, InflightRequest
from ringbatch.frontend.request.thread_queue import ThreadQueue
from ringbatch.frontend.request.tokenizing import MOST_WAITING, Reordered, Tokenizing
from ringbatch.frontend.texts.tokenizing import TextModel, Tokenized, thread
from ringbatch.shm.account import IDENTITY_MASK, MAX_WORD, word_for_slot
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.errors import RequestError
from ringbatch.shm.lateness import lateness_ns, too_long_a_queue, too_long_a_wait
from ringbatch.shm.parts import bytes_for
from ringbatch.shm.tallies import CLIENT_GONE, Tally

log = logging.getLogger("ringbatch.frontend")

B = TypeVar("B")
F = TypeVar("F")
A = TypeVar("A")
_MODEL_TABLE: Final = HeaderWords.MODEL_TABLE
_EVER_NS: Final = 1 << 62


class _Accepted(NamedTuple, Generic[A]):
    """Request for parts that was read, and whose model takes requests.

    Attributes:
        model, rendering, accepted_ns, deadline_ns, tally, account: as in `InflightRequest`.
        now_ns: the time.
    """

    model: ServedModel
    rendering: Rendering[A]
    now_ns: int
    accepted_ns: int
    deadline_ns: int
    tally: Tally
    account: int


class Pipeline:
    """The way of the requests of one process.

    Attributes:
        engine: of this process.

    Args:
        engine: of this process.
        models: that are served.
        words: of the segment.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self, engine: Engine, models: Models, words: memoryview, clock: Callable[[], int]
    ) -> None:
        self.engine = engine
        self._gateway = engine.gateway
        self._models = models
        self._words = words
        self._clock = clock
        self._twice_full = 2 * engine.lane.capacity
        self._comfortable_bytes = engine.lane_bytes >> 1
        self._texts = ThreadQueue(thread, MOST_WAITING)

    def start(
        self,
        codec: Codec[B, F, A],
        name: str,
        body: B,
        framing: F,
        reply: Callable[[A], None],
        timeout_ns: int = 0,
        account: int = 0,
        begun_ns: int = 0,
        in_parts: InParts[A] | None = None,
    ) -> RequestHandle | None:
        """Answer a request.

        Args:
            codec: of its protocol.
            name, body, framing: of the request, as `Codec.read` has them.
            reply: called once, unless the call is abandoned first.
            timeout_ns: how long the client waits, if the model's own limit is not shorter; 0 if it
                does not say; below 0 if it no longer waits.
            account: its account word in a frontend, see `ringbatch.shm.account`.
            begun_ns: when the request was accepted, if that was earlier.
            in_parts: given if the client wants parts; a model without parts answers by `reply`.

        Returns:
            The call that is on its way; None if `reply` was called already.

        Raises:
            EventsAsked: the client wants parts, as its body says; nothing has happened yet.
        """
        models, words = self._models, self._words
        self._gateway.between_requests()
        if words[_MODEL_TABLE] != models.table_number:
            models.keep_up()
        now_ns = self._clock()
        accepted_ns, word, deadline_ns = begun_ns or now_ns, account, 0
        rendering: Rendering[A] | None = None
        error: RequestError
        try:
            model, parts, rendering, asked_ns, level = codec.read(name, body, framing)
            limit_ns = model.spec.timeout_ns
            if timeout_ns or asked_ns:
                limit_ns = shortest_ns(limit_ns, timeout_ns, asked_ns)
            tally = model.tallies[codec.protocol]
            deadline_ns = accepted_ns + limit_ns
            # If a worker has only died, new requests wait for the next, like those in flight.
            if not words[model.takes_word]:
                raise models.refusal(model.spec, now_ns)
            # Usual are an account without a limit, and a body that asks for no class.
            word = word_for_slot(account, level) if level or account > MAX_WORD else account
            if in_parts is not None and model.spec.in_parts and parts:
                own = _Accepted(model, rendering, now_ns, accepted_ns, deadline_ns, tally, word)
                return self._start_for_parts(own, reply, in_parts, parts)
            task = InflightRequest(model, rendering, reply, accepted_ns, deadline_ns, tally, word)
            if parts:
                if model.texts is not None:
                    start = partial(self.start, account=account)
                    again = partial(start, codec, name, body, framing, reply)
                    return self._send_texts(task, model.texts, parts, again)
                self._expect_time(task, now_ns)
                if len(parts) > 1:
                    return self._split(task, parts)
                part = parts[0]
                rows, payload, _ = part
                size = len(payload)
                result_bytes = model.result_bytes(rows, size)
                if result_bytes + size > self._comfortable_bytes:
                    (result_bytes,) = self._result_sizes(model, parts)
                task.send(self.engine, part, result_bytes)
                return task
            answer = rendering.render((), "")
        except Offloaded as large:
            return self._read_apart(
                codec, name, body, framing, reply, timeout_ns, account, accepted_ns, large, in_parts
            )
        except RequestError as failure:
            # Its traceback holds this frame, and this frame it: together they would keep open what
            # the request uses until the garbage collector looks.
            error = failure.with_traceback(None)
        except EventsAsked:
            raise
        except Exception:
            log.exception("frontend: a request to model %s failed", name or "named in its body")
            error = InternalError()
        else:
            self.engine.outcomes.record(tally, 200, accepted_ns, account=account)
            reply(answer)
            return None
        code, tally = status_of(error), self._tally(codec, name, body, framing)
        self.engine.outcomes.record(tally, code, accepted_ns, account=word, deadline_ns=deadline_ns)
        if rendering is None:
            reply(codec.refusal(name, error))
        else:
            reply(rendering.render_error(error, ""))
        return None

    def _tally(self, codec: Codec[B, F, A], name: str, body: B, framing: F) -> Tally:
        """Return the tally that counts a request whose reading has failed."""
        meant = codec.meant(name, body, framing)
        tallies = self._models.tallies.nobody if meant is None else meant.tallies
        return tallies[codec.protocol]

    def _start_for_parts(
        self, own: _Accepted[A], reply: Callable[[A], None], in_parts: InParts[A], parts: Parts
    ) -> RequestHandle:
        """Send a client's request for parts on its way, which may be several for the engine.

        Raises:
            RequestError: as `_expect_room` and `_start_in_parts`.
        """
        start_one = partial(self._start_in_parts, own)
        several = in_parts.several
        if several is None or len(parts) == 1:
            return start_one(reply, in_parts, parts)
        self._expect_room(own.model, parts)
        group = PartsGroup(several, in_parts, own.rendering, reply)
        group.start(parts, start_one)
        return group

    def _start_in_parts(
        self,
        own: _Accepted[A],
        reply: Callable[[A], None],
        in_parts: InParts[A],
        parts: Sequence[SlotPart],
    ) -> RequestInParts[A]:
        """Send a request for parts on its way; raises as `_expect_time` and `RequestInParts`.

        Args:
            own, reply, in_parts: of the request.
            parts: the one part for a slot.
        """
        model, rendering, now_ns, accepted_ns, deadline_ns, tally, account = own
        make = ResumableRequest if model.spec.resumes else RequestInParts
        task = make(model, rendering, reply, accepted_ns, deadline_ns, tally, account, in_parts)
        self._expect_time(task, now_ns)
        if task.limits.first_ns:
            self._expect_first_part(task, now_ns)
        task.start(self.engine, parts)
        return task

    def _expect_room(self, model: ServedModel, parts: Parts) -> None:
        """Return if requests for parts can be under way together.

        Raises:
            RequestTooLarge: they cannot, even in an empty lane.
        """
        lane = self.engine.lane
        if len(parts) > lane.most_of_one:
            raise too_many_parts(len(parts), len(parts), lane.capacity, lane.most_of_one)
        sizes = [len(payload) for _, payload, _ in parts]
        results = [bytes_for(model.least_bytes(1, size)) for size in sizes]
        if not lane.could_hold(zip(sizes, results, strict=True)):
            raise no_room_ever(sum(sizes), sum(results), lane.lane_bytes, len(parts))

    def _read_apart(
        self,
        codec: Codec[B, F, A],
        name: str,
        body: B,
        framing: F,
        reply: Callable[[A], None],
        timeout_ns: int,
        account: int,
        accepted_ns: int,
        large: Offloaded,
        in_parts: InParts[A] | None,
    ) -> RequestHandle | None:
        """Have another process read a request; the arguments are those of `start`."""

        def go_on(finish: Callable[[], Read[A]]) -> RequestHandle | None:
            read = Already(self._models, codec, finish)
            return self.start(
                read, name, body, framing, reply, timeout_ns, account, accepted_ns, in_parts
            )

        def gone() -> None:
            tally = self._tally(codec, name, body, framing)
            self.engine.outcomes.record(tally, CLIENT_GONE, accepted_ns, account=account)

        def refuse(error: RequestError) -> Read[A]:
            raise error

        call: OffloadedRequest[A] = OffloadedRequest(self.engine, large, go_on, gone)
        try:
            limit_ns = shortest_ns(large.model_timeout_ns or _EVER_NS, timeout_ns)
            call.begin(body, 0 if limit_ns == _EVER_NS else limit_ns)
        except RequestError as error:
            return go_on(partial(refuse, error.with_traceback(None)))
        return call

    def _send_texts(
        self,
        task: InflightRequest[A],
        texts: TextModel,
        parts: Parts,
        again: Callable[[int], RequestHandle | None],
    ) -> RequestHandle | None:
        asked = texts.given(parts)
        if texts.is_quick(asked):
            return self._send_tokens(task, texts.tokenized(asked))

        def send(found: Tokenized) -> RequestHandle | None:
            # Meanwhile the model may have become another, with other tokens.
            if not self._models.serves(task.model):
                # 0 would be as if the client did not say.
                return again(task.deadline_ns - self._clock() or -1)
            return self._send_tokens(task, found)

        call = Tokenizing(self.engine, task, send)
        call.begin(partial(texts.tokenized, asked), asked.size, self._texts)
        return call

    def _send_tokens(self, task: InflightRequest[A], found: Tokenized) -> RequestHandle:
        parts = found.parts
        self._expect_time(task, self._clock())
        if found.row_order is not None:
            task.rendering = Reordered(task.rendering, found.row_order)
        if len(parts) > 1:
            return self._split(task, parts)
        (result_bytes,) = self._result_sizes(task.model, parts)
        task.send(self.engine, parts[0], result_bytes)
        return task

    def _expect_time(self, task: InflightRequest[A], now_ns: int) -> None:
        """Return if the answer can be in time, by the collector's backlog and by its input.

        Of a request that is not behind all that waits, this knows the least wait alone. The
        collector refuses it if its account's requests make it late.

        Raises:
            Overloaded: saying when to try again.
            DeadlineExceeded: there is no time left.
        """
        words, model = self._words, task.model
        answer_ns, row_ns = words[model.answer_word], words[model.row_word]
        left_ns = task.deadline_ns - now_ns
        if not answer_ns and row_ns * self._twice_full < left_ns:
            # Not even a full lane would be too much for it; usual, and the ring is not looked at.
            return
        lane = self.engine.lane
        limit_ns, timeout_ns = task.deadline_ns - task.accepted_ns, model.spec.timeout_ns
        if left_ns <= 0:
            lane.counters.add(LaneCounter.TIMEOUTS)
            raise no_answer(limit_ns, timeout_ns)
        answer_ns = self._answer_ns(task, answer_ns, row_ns)
        if lateness_ns(answer_ns, left_ns) > 0:
            lane.counters.add(LaneCounter.REFUSED)
            raise too_long_a_wait(answer_ns, left_ns, limit_ns, timeout_ns)
        most_ns = words[model.most_word]
        if most_ns and lateness_ns(answer_ns, most_ns) > 0:
            lane.counters.add(LaneCounter.REFUSED)
            raise too_long_a_queue(answer_ns, most_ns, model.spec.max_queue_wait_ns)

    def _answer_ns(self, task: InflightRequest[A], answer_ns: int, row_ns: int) -> int:
        """Return how long an answer will take at least, by two words of its model."""
        words, model = self._words, task.model
        if not answer_ns or task.account == words[model.account_word]:
            return answer_ns + self.engine.lane.untaken * row_ns
        # The least wait holds for class normal and weight 1. The collector knows the others'.
        least_ns: int = 0 if task.account > IDENTITY_MASK else words[model.least_word]
        return least_ns

    def _expect_first_part(self, task: RequestInParts[A], now_ns: int) -> None:
        """Return if the model can begin before the first part is late; raises as `_expect_time`.

        A prediction counts two runs that are not waited for: the request's own, and the rest of
        those under way, which is counted whole.
        """
        words, model, spec = self._words, task.model, task.model.spec
        limits, lane = task.limits, self.engine.lane
        left_ns = task.accepted_ns + limits.first_ns - now_ns
        if left_ns <= 0:
            lane.counters.add(LaneCounter.TIMEOUTS)
            raise no_first_part(limits, spec)
        row_ns = words[model.row_word]
        run_ns = row_ns * (spec.places or spec.cap) * words[model.ready_word]
        wait_ns = self._answer_ns(task, words[model.answer_word], row_ns) - 2 * run_ns
        if (refusal := too_long_a_wait_for_parts(wait_ns, left_ns, limits, spec)) is not None:
            lane.counters.add(LaneCounter.REFUSED)
            raise refusal

    def _split(self, task: InflightRequest[A], parts: Parts) -> SplitRequest[A]:
        call = SplitRequest(self.engine, task)
        call.send(parts, self._result_sizes(task.model, parts))
        return call

    def _result_sizes(self, model: ServedModel, parts: Parts) -> list[int]:
        """Return the result memory to claim for each part, so that all of them can fit together.

        Raises:
            RequestTooLarge: they do not fit even into an empty lane.
        """
        lane = self.engine.lane
        if len(parts) > lane.most_of_one:
            rows = sum(rows for rows, _, _ in parts)
            raise too_many_parts(rows, len(parts), lane.capacity, lane.most_of_one)
        sizes = [len(payload) for _, payload, _ in parts]
        for claim in (model.result_bytes, model.usual_bytes, model.least_bytes):
            results = [claim(rows, size) for (rows, _, _), size in zip(parts, sizes, strict=True)]
            comfortable = sum(sizes) + sum(results) <= self._comfortable_bytes
            if comfortable or lane.could_hold(zip(sizes, results, strict=True)):
                return results
        raise no_room_ever(sum(sizes), sum(results), lane.lane_bytes, len(parts))
