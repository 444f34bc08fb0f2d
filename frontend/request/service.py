"""Service of a frontend process: the models of its segment, their readiness, and their requests.

All ways into the process end in one `ringbatch.frontend.request.pipeline.Pipeline`, so that they
cannot differ in their answers.
"""

import logging
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.request.arrival import LARGE_BYTES, Arrival, Arrivals
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.codec import V1Codec, V2Codec
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.generate_codec import GenerateCodec
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES
from ringbatch.frontend.request.offload_process import OtherProcess
from ringbatch.frontend.request.outcomes import RequestOutcome, RequestOutcomes
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.pipeline import Pipeline
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.task import Engine
from ringbatch.frontend.texts.paths import is_served
from ringbatch.frontend.v2.documents import Json, model_statistics
from ringbatch.frontend.v2.regions import NOTHING_SHARED, SharedMemory
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.frontend.v2.server_settings import ServerSettings
from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.errors import Draining
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_readiness import not_ready, unready_reason
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.parts import PartReader
from ringbatch.shm.segment import Segment
from ringbatch.shm.slow_requests import Slowest
from ringbatch.shm.tallies import Protocol, ends_of
from ringbatch.shm.traced_requests import TracedRequests

log = logging.getLogger("ringbatch.frontend")

_MODEL_TABLE: Final = HeaderWords.MODEL_TABLE


class Service(Models):
    """The models of a segment, through this process's gateway.

    Attributes:
        engine: what requests need of this process.
        pipeline: their way.

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
        super().__init__(segment, gateway.lane, shared)
        self._clock = clock
        lane = gateway.lane.index
        traced = TracedRequests(segment, lane) if segment.layout.traced else None
        self.engine = Engine(
            gateway,
            gateway.lane,
            PartReader(gateway.lane),
            BatchIds(segment.identity),
            segment.layout.lane_bytes,
            RequestOutcomes(gateway.lane, Slowest(segment, lane), clock, traced),
            OtherProcess(),
            lambda spec: self.refusal(spec, clock()),
        )
        gateway.connect(on_doorbell=self.keep_up, on_answers=self.engine.outcomes.settle)
        self.pipeline = Pipeline(self.engine, self, segment.words, clock)
        self._v1 = V1Codec(self)
        self._v1_in_parts = V1Codec(self, in_parts=True)
        self._v2 = V2Codec(self, Protocol.V2)
        self._v2_binary = V2Codec(self, Protocol.V2_BINARY)
        self._arrivals: Arrivals[Answer] = Arrivals(self.pipeline, Protocol.V2_BINARY, outcome)
        self.keep_up()

    def predict(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders | None = None,
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """As in `PredictionService`."""
        codec = self._v1 if in_parts is None else self._v1_in_parts
        return self.pipeline.start(
            codec, name, body, origin, reply, timeout_ns, account, in_parts=in_parts
        )

    def infer(
        self,
        name: str,
        body: Body,
        json_bytes: int | None,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """As in `PredictionService`."""
        codec = self._v2 if json_bytes is None else self._v2_binary
        if in_parts is not None:
            codec = V2Codec(self, codec.protocol, origin, in_parts=True)
        elif origin and (self.asking or self._words[_MODEL_TABLE] != self.table_number):
            codec = V2Codec(self, codec.protocol, origin)
        return self.pipeline.start(
            codec, name, body, json_bytes, reply, timeout_ns, account, in_parts=in_parts
        )

    def generate(
        self,
        name: str,
        body: Body,
        reply: Reply,
        timeout_ns: int = 0,
        origin: RawHeaders = b"",
        account: int = 0,
        in_parts: InParts[Answer] | None = None,
    ) -> RequestHandle | None:
        """As in `PredictionService`."""
        codec = GenerateCodec(self, origin)
        return self.pipeline.start(
            codec, name, body, None, reply, timeout_ns, account, in_parts=in_parts
        )

    def prepare(
        self, name: str, text: bytes, binary_bytes: int, timeout_ns: int = 0, account: int = 0
    ) -> Arrival[Answer] | None:
        """As in `PredictionService`."""
        if len(text) > LARGE_BODY_BYTES or binary_bytes < LARGE_BYTES:
            return None
        self.keep_up()
        model = self.by_address.get(name)
        if model is None or not model.sized:
            return None
        outline = model.v2.requests.outline(text, binary_bytes)
        if outline is None:
            return None
        rows, _, requested = outline
        rendering = V2Rendering(model.v2.answers, requested)
        worth_ns, level = requested.timeout_ns, requested.level
        return self._arrivals.claim(
            model, rows, binary_bytes, rendering, worth_ns, level, timeout_ns, account
        )

    def record_outside(
        self, protocol: Protocol, code: int, name: str = "", accepted_ns: int = 0
    ) -> None:
        """As in `PredictionService`."""
        model = self.by_address.get(name)
        tallies = self.tallies.nobody if model is None else model.tallies
        self.engine.outcomes.record(tallies[protocol], code, accepted_ns or self._clock())

    def last_ending(self) -> RequestOutcome:
        """As `RequestOutcomes.last`."""
        return self.engine.outcomes.last()

    def check(self, name: str, version: str = "") -> ModelSpec:
        """Return the model if it can predict now.

        Raises:
            ModelNotFound, ModelNotReady: the text says why it cannot.
        """
        model = self.model(name, version)
        self._check(model)
        return model.spec

    def _check(self, model: ServedModel) -> None:
        why = unready_reason(self._words, self._segment.layout, model.spec, self._clock())
        for texts in (model.texts, model.generator):
            if not why and texts is not None:
                why = texts.obstacle
        if why:
            raise not_ready(model.spec, why)

    def expect_ready(self) -> None:
        """Return if every model can predict now, in every version.

        Raises:
            Draining, ModelNotReady: the text names the first that cannot.
        """
        if self.stopping:
            raise Draining
        self.keep_up()
        for model in self._known.values():
            self._check(model)

    def statistics(self, specs: Sequence[ModelSpec]) -> list[Json]:
        """Return V2's statistics of models that serve."""
        segment = self._segment
        ends = ends_of(segment, [spec.account for spec in specs])
        epoch_ns = time.time_ns() - time.monotonic_ns()
        return [
            model_statistics(
                spec,
                Counted(segment.words, segment.layout, spec.account),
                ends[spec.account],
                epoch_ns,
            )
            for spec in specs
        ]

    def serves_texts_at(self, path: str) -> bool | None:
        """Return whether a path about texts is served now; None if it is no such path."""
        return is_served(path, map(attrgetter("spec"), self.models.values()))

    def settings(self, trace_share: float) -> ServerSettings:
        """Return the settings of logs and traces, given the share of traced requests."""
        traced = self.engine.outcomes.traced is not None
        return ServerSettings(traced, trace_share, log.getEffectiveLevel())

    @property
    def model_control(self) -> bool:
        """True if clients may load and unload models."""
        return self._segment.model_control

    @property
    def since_s(self) -> int:
        """Time at which the engine became ready, in seconds since 1970; now if it is not ready."""
        now_ns = self._clock()
        return (time.time_ns() - now_ns + (self._segment.ready_ns or now_ns)) // 1_000_000_000

    @property
    def segment_name(self) -> str:
        """Name of the engine's segment."""
        return self._segment.name

    @property
    def stopping(self) -> bool:
        """True while the engine stops."""
        return self._segment.stopping
