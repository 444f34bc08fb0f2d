"""Everything between the body of a prediction request and the body of its answer.

Both ways into the process, the fast lane and Falcon, end here, so that they cannot differ in what
they answer. Nothing is awaited: `Service.predict` returns at once, and the answer is a call of the
`reply` it was given, later or before it returns. No error leaves this module as an exception.
"""

import logging
from collections.abc import Callable
from typing import Final

from ringbatch.frontend.codec.batch_ids import BatchIds
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.model_address import OF_VERSION, address
from ringbatch.frontend.codec.outcome import InternalError
from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.codec.request_timeout import shortest_ns
from ringbatch.frontend.request.arrival import Arrival, Arrivals
from ringbatch.frontend.request.calls import (
    Body,
    Call,
    Engine,
    InferTask,
    PlacedTask,
    Reply,
    ServedModel,
    Split,
    Task,
    reply_error,
)
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.readiness import obstacle
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.frontend.v1.placed_answers import PlacedAnswers
from ringbatch.frontend.v1.protocol import V1Codec
from ringbatch.frontend.v2.protocol import V2Codec
from ringbatch.frontend.v2.regions import NOTHING_SHARED, Regions, SharedMemory
from ringbatch.shm.counters import Counters, LaneCounter
from ringbatch.shm.errors import (
    Draining,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    RequestError,
    RequestTooLarge,
)
from ringbatch.shm.layout import (
    LANE_TABLE,
    MODEL_ANSWER_NS,
    MODEL_READY,
    MODEL_ROW_NS,
    MODEL_SERVED,
    WORD,
)
from ringbatch.shm.model_spec import SERVING, ModelSpec, defaults, version_order
from ringbatch.shm.model_table import TABLE_WORD
from ringbatch.shm.region_registry import Registry
from ringbatch.shm.segment import Segment
from ringbatch.shm.strided_view import StridedView

log = logging.getLogger("ringbatch.frontend")

_MARGIN: Final = 8
"""By one part in so many, answers may take longer than expected."""
Parts = tuple[SlotPart, ...]


class Service:
    """The models of a segment, through this process's gateway.

    The table of models may change at any time. What is here follows it before each request, which
    takes one load from memory while it has not, and says so in a word of the lane: who reads that
    knows that no more requests come for models that were in earlier tables alone.

    Attributes:
        table: the number of the table that is followed.

    Args:
        segment: where the models are described.
        gateway: through which requests go.
        clock: monotonic nanoseconds.
        shared: what of clients' memory requests may use.
    """

    def __init__(
        self,
        segment: Segment,
        gateway: Gateway,
        clock: Callable[[], int],
        shared: SharedMemory = NOTHING_SHARED,
    ) -> None:
        self._segment = segment
        self.regions = Regions(Registry.attach(segment), shared)
        self._words = segment.words
        self._windows = StridedView(segment.memory)
        self._clock = clock
        self.origins = Origins(segment.models)
        self._any: ServedModel | None = None
        """Takes predictions of whatever model."""
        self.table = 0
        self._unsaid = True
        """Whether the lane does not say yet that it follows that table."""
        self._seen_word = (segment.layout.lane(gateway.lane.index) + LANE_TABLE) // WORD
        self._known: dict[int, ServedModel] = {}
        self._defaults: dict[str, ServedModel] = {}
        self._by_address: dict[str, ServedModel] = {}
        gateway.rung = self.keep_up
        self._twice_full = 2 * gateway.lane.capacity
        self._comfortable_bytes = segment.layout.lane_bytes >> 1
        self.engine = Engine(
            gateway, gateway.lane, BatchIds(segment.identity), segment.layout.lane_bytes
        )
        self._arrivals = Arrivals(self.engine, clock, self.expect_served, self.expect_time)
        self.keep_up()

    def keep_up(self) -> None:
        """Follow the table of models, and say so."""
        if self._words[TABLE_WORD] != self.table:
            self._follow()
        if self._unsaid:
            # What was sent before must be found by who reads the word.
            lane = self.engine.lane
            lane.submit()
            if not lane.held_back:
                self._words[self._seen_word] = self.table
                self._unsaid = False

    def _follow(self) -> None:
        number = self._segment.read_models()
        serving = [spec for spec in self._segment.models if spec.state == SERVING]
        self._known = {spec.reference: self._model_of(spec) for spec in serving}
        self._defaults = {
            name: self._known[spec.reference] for name, spec in defaults(serving).items()
        }
        self._by_address = self._defaults | {
            address(model.spec.name, model.spec.version): model for model in self._known.values()
        }
        known = self._known.values()
        of_any = (model for model in known if model.spec.forward and model.spec.forward.any_path)
        self._any = next(of_any, None)
        self.table = number
        self._unsaid = True

    def _model_of(self, spec: ModelSpec) -> ServedModel:
        known = self._known.get(spec.reference)
        if known is not None and known.spec == spec:
            return known
        start = self._segment.layout.model(spec.index)
        codec = V1Codec(spec)
        return ServedModel(
            spec,
            codec,
            V2Codec(spec, self.regions),
            None if codec.numbers is None else PlacedAnswers(codec.numbers, self._windows),
            ready_word=(start + MODEL_READY) // WORD,
            served_word=(start + MODEL_SERVED) // WORD,
            answer_word=(start + MODEL_ANSWER_NS) // WORD,
            row_word=(start + MODEL_ROW_NS) // WORD,
        )

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: bytes | None = None,
    ) -> Call | None:
        """Answer a request.

        Args:
            name: the model's, or its `address`.
            body: the request's, undecoded.
            reply: called once, unless the call is abandoned first.
            timeout_ns: how long the client waits, where that is less than the model's own limit;
                0 where it does not say.
            origin: of a request to a model that another server runs; see `Origins`.

        Returns:
            The call that is on its way; None where `reply` was called already.
        """
        self.engine.gateway.between_requests()
        if self._words[TABLE_WORD] != self.table:
            self.keep_up()
        accepted_ns = self._clock()
        model = self._by_address.get(name) or self._any
        if model is None:
            reply_error(reply, self._not_found(name), kserve_errors=False)
            return None
        try:
            if origin is None or model.codec.forwarded is None:
                parts, columns = model.codec.parse(body)
            else:
                parts, columns = model.codec.forwarded.parse(body, origin)
            self.expect_served(model)
            limit_ns = model.spec.timeout_ns
            if timeout_ns:
                limit_ns = shortest_ns(limit_ns, timeout_ns)
            kind = Task if columns or model.placed is None else PlacedTask
            task = kind(model, columns, reply, accepted_ns, accepted_ns + limit_ns)
            return self.send(task, parts)
        except RequestError as error:
            reply_error(reply, error, kserve_errors=model.spec.kserve_errors)
        except Exception:
            log.exception("frontend: a request to model %s failed", name)
            reply_error(reply, InternalError(), kserve_errors=model.spec.kserve_errors)
        return None

    def infer(
        self, name: str, body: Body, json_bytes: int | None, reply: Reply, timeout_ns: int = 0
    ) -> Call | None:
        """Answer a V2 request.

        Args:
            name, body, reply, timeout_ns: as for `predict`.
            json_bytes: where the JSON text of the body ends, as its header says; None where the
                body is nothing else.

        Returns:
            As `predict`.
        """
        self.engine.gateway.between_requests()
        accepted_ns = self._clock()
        try:
            model = self._at(name)
            parts, requested = model.v2.parse(body, json_bytes)
            self.expect_served(model)
            limit_ns = model.spec.timeout_ns
            if timeout_ns or requested.timeout_ns:
                limit_ns = shortest_ns(limit_ns, timeout_ns, requested.timeout_ns)
            task = InferTask(model, requested, reply, accepted_ns, accepted_ns + limit_ns)
            if parts:
                return self.send(task, parts)
            answer = task.render((), "")
        except RequestError as error:
            reply_error(reply, error, kserve_errors=False)
        except Exception:
            log.exception("frontend: a request to model %s failed", name)
            reply_error(reply, InternalError(), kserve_errors=False)
        else:
            reply(200, *answer)
        return None

    def prepare(
        self, name: str, text: bytes, binary_bytes: int, timeout_ns: int = 0
    ) -> Arrival | None:
        """Prepare for a V2 request of which everything is there but binary data.

        Args:
            name: the model's.
            text: the JSON text of the body.
            binary_bytes: how many bytes are to follow.
            timeout_ns: as for `predict`.

        Returns:
            Where they belong; None where the body is to be gathered and given to `infer`.
        """
        self.keep_up()
        model = self._by_address.get(name)
        if model is None:
            return None
        return self._arrivals.prepare(model, text, binary_bytes, timeout_ns)

    def expect_served(self, model: ServedModel) -> None:
        """Return where a request to the model will find a worker, perhaps after a while: where
        one only died, it waits for the next, like those in flight.

        Raises:
            ModelNotReady
        """
        if not self._words[model.served_word]:
            raise _not_ready(model.spec)

    def send(self, task: Task, parts: Parts) -> Call:
        """Send a request on its way.

        Args:
            task: what is the same for all its parts.
            parts: at least one.

        Raises:
            Overloaded: no slot or no memory is left, or so much waits that the answer would come
                too late.
            RequestTooLarge: it would not fit even if nothing else were there.
        """
        self.expect_time(task)
        if len(parts) > 1:
            return self._split(task, parts)
        part = parts[0]
        rows, payload, _ = part
        size = len(payload)
        result_bytes = task.model.result_bytes(rows, size)
        if result_bytes + size > self._comfortable_bytes:
            (result_bytes,) = self._result_sizes(task.model, parts)
        task.send(self.engine, part, result_bytes)
        return task

    def expect_time(self, task: Task) -> None:
        """Return where the answer can be expected in time, by what the collector has said and by
        what it has yet to take.

        Raises:
            Overloaded: saying when to try again.
        """
        words, model, lane = self._words, task.model, self.engine.lane
        answer_ns, row_ns = words[model.answer_word], words[model.row_word]
        left_ns = task.deadline_ns - task.accepted_ns
        if not answer_ns and row_ns * self._twice_full < left_ns:
            # Not even a full lane would be too much for it; usual, and the ring is not looked at.
            return
        answer_ns += lane.untaken * row_ns
        late_ns = answer_ns + answer_ns // _MARGIN - left_ns
        if late_ns > 0:
            lane.counters.add(LaneCounter.REFUSED)
            raise Overloaded(
                f"so many requests wait that an answer would take {answer_ns / 1e9:.1f} s",
                retry_after_s=-(-late_ns // 1_000_000_000),
            )

    def _split(self, task: Task, parts: Parts) -> Split:
        call = Split(self.engine, task)
        call.send(parts, self._result_sizes(task.model, parts))
        return call

    def _result_sizes(self, model: ServedModel, parts: Parts) -> list[int]:
        """What to claim for the answer to each part, so that all of them can fit together.

        Raises:
            RequestTooLarge: they would not even if nothing else were there.
        """
        lane = self.engine.lane
        if len(parts) > lane.capacity:
            rows = sum(rows for rows, _, _ in parts)
            raise RequestTooLarge(
                f"the request has {rows} instances, which make {len(parts)} batches; "
                f"at most {lane.capacity} fit at once"
            )
        sizes = [len(payload) for _, payload, _ in parts]
        for claim in (model.result_bytes, model.usual_bytes, model.least_bytes):
            results = [claim(rows, size) for (rows, _, _), size in zip(parts, sizes, strict=True)]
            comfortable = sum(sizes) + sum(results) <= self._comfortable_bytes
            if comfortable or lane.could_hold(zip(sizes, results, strict=True)):
                return results
        raise RequestTooLarge(
            f"the request takes {sum(sizes)} bytes and its answer {sum(results)}, more than there "
            "is room for; [server] lane_bytes bounds what they may take together"
        )

    def check(self, name: str, version: str = "") -> ModelSpec:
        """The model, which can predict now.

        Raises:
            ModelNotFound, ModelNotReady: the text says why it cannot.
        """
        model = self.model(name, version)
        self._check(model)
        return model.spec

    def _check(self, model: ServedModel) -> None:
        layout = self._segment.layout
        offset = layout.model(model.spec.index)
        workers = map(layout.worker, model.spec.workers)
        why = obstacle(self._words, offset, self._clock(), workers)
        if self.draining:
            why = "the server is stopping"
        if why:
            raise _not_ready(model.spec, why)

    def expect_ready(self) -> None:
        """Return where every model can predict now, in every version.

        Raises:
            Draining, ModelNotReady: the text names the first that cannot.
        """
        if self.draining:
            raise Draining
        self.keep_up()
        for model in self._known.values():
            self._check(model)

    def model(self, name: str, version: str = "") -> ServedModel:
        """The model of that name and version; without a version the server's choice.

        Raises:
            ModelNotFound
        """
        return self._at(address(name, version))

    def _at(self, name: str) -> ServedModel:
        self.keep_up()
        model = self._by_address.get(name)
        if model is None:
            raise self._not_found(name)
        return model

    def counters(self, spec: ModelSpec) -> Counters:
        """What was counted for a model that serves."""
        return Counters(self._words, self._segment.layout.model_counters(spec.index))

    @property
    def models(self) -> dict[str, ServedModel]:
        """By name, what serves requests that name no version."""
        self.keep_up()
        return self._defaults

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """What the table says of the models that serve, each version for itself."""
        self.keep_up()
        return tuple(model.spec for model in self._known.values())

    @property
    def entries(self) -> tuple[ModelSpec, ...]:
        """All of the table, with what is being loaded and what retires."""
        self.keep_up()
        return self._segment.models

    def specs_of(self, name: str, version: str = "") -> tuple[ModelSpec, ...]:
        """Those of one model: of that version, or of every one where there is no version."""
        return tuple(s for s in self.specs if s.name == name and version in ("", s.version))

    def versions(self, name: str) -> list[str]:
        """Those of a model that serve, the lowest first."""
        return sorted((spec.version for spec in self.specs_of(name)), key=version_order)

    @property
    def model_control(self) -> bool:
        """Whether clients may load and unload models."""
        return self._segment.model_control

    @property
    def segment_name(self) -> str:
        """Of the engine's segment."""
        return self._segment.name

    @property
    def draining(self) -> bool:
        """Whether the engine is being stopped."""
        return self._segment.draining

    def _not_found(self, wanted: str) -> ModelNotFound:
        name, _, version = wanted.partition(OF_VERSION)
        if name in self._defaults:
            have = " and ".join(f'"{known}"' for known in self.versions(name))
            return ModelNotFound(
                f"model {shown(name)} has version {have} and no version {shown(version)}"
            )
        cut = name if len(name) <= 128 else f"{name[:128]}..."
        known = ", ".join(self._defaults) or "none"
        return ModelNotFound(f'there is no model "{cut}"; there is: {known}')


def _not_ready(spec: ModelSpec, why: str = "no worker holds it now") -> ModelNotReady:
    return ModelNotReady(f'model "{spec.name}" is not ready: {why}')
