"""Inference over gRPC: from the bytes of a ModelInferRequest to those of its answer.

Nothing is awaited: `Inference.start` returns at once, and the future it was given is done later, or
before it returns. No error leaves as an exception. The way of the requests is
`ringbatch.frontend.request.pipeline`'s; here is its codec for gRPC.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ringbatch.frontend.codec.outcome import BATCH_HEADER, Headers, status_of
from ringbatch.frontend.codec.part_limits import PartLimits
from ringbatch.frontend.codec.payload import LazyPart, Part
from ringbatch.frontend.codec.rendering import OffloadJob, Results
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.grpc.answer import GrpcAnswers, batch_field, id_field
from ringbatch.frontend.grpc.message_head_cache import MessageHeadCache
from ringbatch.frontend.grpc.offloaded_messages import (
    decode_requested,
    encode_requested,
    parsed,
    read_grpc,
    weighed,
    write_grpc,
)
from ringbatch.frontend.grpc.request import GrpcRequestedOutputs, requests_of
from ringbatch.frontend.payloads.recorder import Kept
from ringbatch.frontend.request.arrival import LARGE_BYTES, Arrival, Arrivals
from ringbatch.frontend.request.calls import RequestHandle
from ringbatch.frontend.request.codec import Parts, Read
from ringbatch.frontend.request.offload import LARGE_BODY_BYTES, Offloaded, encode_headers
from ringbatch.frontend.request.outcomes import RequestOutcome
from ringbatch.frontend.request.parts_task import InParts
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.texts.offloaded_texts import decode_parts
from ringbatch.shm.errors import ModelNotFound, RequestError
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.tuples import unchecked_tuple

_LEARNT_BYTES: Final = 1 << 20
"""The longest tensor whose head is remembered: what to read costs little beside a longer one."""


class GrpcAnswer(NamedTuple):
    """End of a request.

    Attributes:
        response: the bytes of a ModelInferResponse; empty if there is an error.
        error: why there is none.
        trailing: metadata with the batch that the request failed in; empty if it was in none.
    """

    response: bytes
    error: RequestError | None
    trailing: Headers


PARTS_END: Final = GrpcAnswer(b"", None, ())
"""The reply behind the last part of an answer in parts."""


class GrpcRendering(NamedTuple):
    """See `ringbatch.frontend.codec.rendering.Rendering`.

    Attributes:
        answers: of its model.
        requested: the outputs that the request asks for.
        id: the field with its id.
    """

    answers: GrpcAnswers
    requested: GrpcRequestedOutputs
    id: bytes

    @property
    def part_limits(self) -> PartLimits:
        """As in `Rendering`."""
        return self.requested.limits

    def render(self, results: Results, batch_id: str) -> GrpcAnswer:
        """As in `Rendering`."""
        response = self.answers.render(results, self.requested, self.id + batch_field(batch_id))
        return unchecked_tuple(GrpcAnswer, (response, None, ()))

    def render_in_place(
        self, memory: memoryview, rows: int, start: int, size: int, batch_id: str
    ) -> GrpcAnswer:
        """As in `Rendering`."""
        return self.render(((rows, memory[start : start + size]),), batch_id)

    def apart(self, rows: Sequence[int], size: int, batch_id: str) -> OffloadJob | None:
        """As in `Rendering`."""
        answers = self.answers
        if not answers.takes_long(sum(rows), size, self.requested):
            return None
        asked = encode_requested(self.requested)
        fields = (self.id + batch_field(batch_id)).decode("latin-1")
        return write_grpc, [dumps((answers.spec,)).decode(), asked, fields, [*rows]]

    def written(self, value: Any, data: Sequence[memoryview]) -> GrpcAnswer:
        """As in `Rendering`."""
        return GrpcAnswer(bytes(data[0]), None, ())

    def render_error(self, error: RequestError, batch_id: str) -> GrpcAnswer:
        """As in `Rendering`."""
        return GrpcAnswer(b"", error, ((BATCH_HEADER, batch_id),) if batch_id else ())


class Framing:
    """Facts of a request, learnt as it is read.

    Attributes:
        id: the field with its id, as it is in a response; empty if it has none or cannot be read.
        model: that it is for, once that is known.
        asked_for: the name of a missing model, if it names one.
        headers: the metadata of its call.
        account: its account word, see `ringbatch.shm.account`.
        says_end: as in `GrpcRequestedOutputs`.
    """

    __slots__ = ("account", "asked_for", "headers", "id", "model", "says_end")

    def __init__(self, headers: RawHeaders = (), account: int = 0) -> None:
        self.headers = headers
        self.account = account
        self.id = b""
        self.model: ServedModel | None = None
        self.asked_for = ""
        self.says_end = False


class Pending(Framing):
    """A request of a stream that is on its way.

    Args:
        ended, bytes_in: as below.
        last: returns the end of the request that ended last.
        keep: called with the answer's bytes until it is left.
        on_part: gets the parts of an answer in parts.
        headers: the metadata of its call.
        account: its account word.

    Attributes:
        ended: is done once it has ended.
        call: on which the answer depends; None where it has ended.
        ending: how it ended, once it has.
        bytes_in: of its message.
        holds: how many slots and bytes of the lane it took as it began.
        kept: what the payload log keeps of it; None if it is not drawn.
        parts_bytes: of the parts of its answer so far.
    """

    __slots__ = (
        *("_answer", "_keep", "_last", "_on_part", "bytes_in", "call", "ended", "ending", "holds"),
        *("kept", "parts_bytes"),
    )

    def __init__(
        self,
        ended: asyncio.Future[None],
        last: Callable[[], RequestOutcome],
        keep: Callable[[int], None],
        on_part: "Callable[[Pending, GrpcAnswer], None]",
        bytes_in: int,
        headers: RawHeaders = (),
        account: int = 0,
    ) -> None:
        super().__init__(headers, account)
        self._on_part = on_part
        self.parts_bytes = 0
        self._last = last
        self._keep = keep
        self.bytes_in = bytes_in
        self.ending: RequestOutcome | None = None
        self.ended = ended
        self._answer: GrpcAnswer | None = None
        self.call: RequestHandle | None = None
        self.holds = 0, 0
        self.kept: Kept | None = None

    def reply(self, answer: GrpcAnswer) -> None:
        """Take the answer."""
        self.call = None
        self.ending = self._last()
        self._answer = answer
        self._keep(len(answer.response))
        # Where the client cancels, the future is cancelled a moment before the call is abandoned.
        if not self.ended.done():
            self.ended.set_result(None)

    def take_part(self, answer: GrpcAnswer) -> None:
        """Take a part of the answer."""
        self._on_part(self, answer)
        self.parts_bytes += len(answer.response)

    @property
    def in_parts(self) -> bool:
        """True if it is on its way and its answer may come in parts."""
        model = self.model
        return self.call is not None and model is not None and model.spec.in_parts

    @property
    def bytes_out(self) -> int:
        """Bytes of the messages that answer it; 0 without any."""
        return self.parts_bytes + self._kept_bytes

    @property
    def _kept_bytes(self) -> int:
        return len(self._answer.response) if self._answer is not None else 0

    @property
    def answer(self) -> GrpcAnswer | None:
        """Answer of the call; None if it has none, because nobody waits any more."""
        return self._answer

    @property
    def outcome(self) -> GrpcAnswer:
        """End of the request, once it has ended."""
        assert self._answer is not None, "it has not ended"
        return self._answer

    def leave(self) -> None:
        """Leave the call, as its client is gone; if it has ended, write its answer at once."""
        if self.call is not None:
            self.call.abandon()
            self.call = None
            self.ending = self._last()
        self._keep(-self._kept_bytes)


class Inference:
    """Inference over gRPC.

    Args:
        service: the models.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pipeline = service.pipeline
        self._codec = GrpcCodec(service)
        self._arrivals: Arrivals[GrpcAnswer] = Arrivals(self._pipeline, Protocol.GRPC, _refused)
        self.last_ending = service.last_ending

    @property
    def lane_holds(self) -> tuple[int, int]:
        """The slots and bytes of the lane that the requests for one model may have."""
        lane = self._pipeline.engine.lane
        return lane.most_of_one, lane.most_bytes_of_one

    def start(
        self,
        data: bytes,
        timeout_ns: int,
        framing: Framing,
        reply: Callable[[GrpcAnswer], None],
        in_parts: InParts[GrpcAnswer] | None = None,
    ) -> RequestHandle | None:
        """Answer a request.

        Args:
            data: a ModelInferRequest.
            timeout_ns: how long the client will wait; 0 where it does not say, below 0 where it
                waits no more.
            framing: takes the facts that are learnt of it.
            reply: called once, unless the call is abandoned first.
            in_parts: as in `Pipeline.start`.

        Returns:
            The call that is on its way; None where `reply` was called already.
        """
        account = framing.account
        return self._pipeline.start(
            self._codec, "", data, framing, reply, timeout_ns, account, in_parts=in_parts
        )

    def prepare(
        self, begun: bytes, head_bytes: int, tensor_bytes: int, framing: Framing
    ) -> Arrival[GrpcAnswer] | None:
        """Claim a slot for a request of which only the one raw tensor is to come.

        Args:
            begun: a ModelInferRequest up to the first byte of that tensor.
            head_bytes: bytes of the message before the field with the tensor.
            tensor_bytes: bytes of the tensor.
            framing: takes the facts that are learnt of it.

        Returns:
            None where it is to go the usual way, be it because something is wrong with it, or
            because what stands before the tensor is long to read.
        """
        if head_bytes > LARGE_BODY_BYTES:
            return None
        self._service.keep_up()
        try:
            outlined = self._codec.outline(begun, head_bytes, tensor_bytes, framing)
        except RequestError:
            return None
        if outlined is None:
            return None
        own, rows, requested = outlined
        rendering = GrpcRendering(own.answers, requested, framing.id)
        return self._arrivals.claim(
            own.model,
            rows,
            tensor_bytes,
            rendering,
            requested.timeout_ns,
            requested.level,
            account=framing.account,
        )

    def begin(
        self, data: bytes, timeout_ns: int, pending: Pending, in_parts: InParts[GrpcAnswer]
    ) -> None:
        """Start a request as `start` does, for a caller that waits until its `ended` is done.

        The end of an answer in parts is `PARTS_END`, or an error.
        """
        call = pending.call = self.start(data, timeout_ns, pending, pending.reply, in_parts)
        if call is not None:
            pending.holds = call.holds

    def record_outside(self, error: RequestError | None, *, infers: bool) -> RequestOutcome:
        """Record a call that infers nothing, as over HTTP, or that was refused before it did."""
        protocol = Protocol.GRPC if infers else Protocol.HTTP
        self._service.record_outside(protocol, 200 if error is None else status_of(error))
        return self._service.last_ending()


class _Usual(NamedTuple):
    """A request of known pieces, of one part; its one raw tensor is the payload as it is."""

    own: "_GrpcModel"
    rows: int
    requested: GrpcRequestedOutputs


class GrpcCodec:
    """gRPC; the name of the model stands in the message, and the framing takes the id.

    Args:
        service: the models.
    """

    protocol = Protocol.GRPC

    def __init__(self, service: Service) -> None:
        self._service = service
        self._models: dict[ServedModel, _GrpcModel] = {}
        self._table_number = service.table_number
        self._heads: MessageHeadCache[_Usual] = MessageHeadCache()

    def read(self, name: str, body: bytes, framing: Framing) -> Read[GrpcAnswer]:
        """As in `Codec`."""
        own, parts, requested = self._read(body, framing)
        framing.says_end = requested.says_end
        rendering = unchecked_tuple(GrpcRendering, (own.answers, requested, framing.id))
        return own.model, parts, rendering, requested.timeout_ns, requested.level

    def meant(self, name: str, body: bytes, framing: Framing) -> ServedModel | None:
        """As in `Codec`."""
        return framing.model

    def refusal(self, name: str, error: RequestError) -> GrpcAnswer:
        """As in `Codec`."""
        return _refused(error)

    def outline(
        self, begun: bytes, head_bytes: int, tensor_bytes: int, framing: Framing
    ) -> _Usual | None:
        """Return a request's head if only its tensor is to come; None if it is no payload as it is.

        As `Inference.prepare`; raises the errors of `GrpcRequests.outline`.
        """
        self._keep_up()
        recalled = self._heads.recall(begun, tensor_bytes)
        if recalled is not None and recalled.meaning.own.model.sized:
            usual, framing.id, _ = recalled
            framing.model = usual.own.model
            return usual
        request = parsed(begun[:head_bytes])
        own = self._model_of(request, framing)
        if not own.plain or not own.model.sized:
            return None
        usual = _Usual(own, *own.requests.outline(request, tensor_bytes))
        if usual.requested.all_raw and tensor_bytes <= _LEARNT_BYTES:
            tensor = bytes(tensor_bytes)
            self._heads.learn(begun + tensor, tensor, usual)
        return usual

    def _keep_up(self) -> None:
        service = self._service
        if service.table_number != self._table_number:
            # A name may stand for another model now.
            self._heads.clear()
            self._table_number = service.table_number

    def _read(
        self, data: bytes, framing: Framing
    ) -> tuple["_GrpcModel", Parts, GrpcRequestedOutputs]:
        self._keep_up()
        recalled = self._heads.recall(data)
        if recalled is not None:
            (own, rows, requested), framing.id, tensor = recalled
            framing.model = own.model
            return own, (unchecked_tuple(Part, (rows, tensor, 0)),), requested
        if len(data) > LARGE_BODY_BYTES:
            self._expect_quick(data, framing)
        request = parsed(data)
        own = self._model_of(request, framing)
        parts, requested, as_it_is = own.requests.read(request, framing.headers)
        if own.plain and as_it_is and len(parts) == 1 and requested.all_raw:
            (part,) = parts
            # Of a large one it does not matter what it takes to read beside its tensor.
            if not isinstance(part, LazyPart) and len(part.payload) <= LARGE_BYTES:
                self._heads.learn(data, part.payload, _Usual(own, part.rows, requested))
        return own, parts, requested

    def _expect_quick(self, data: bytes, framing: Framing) -> None:
        """Return if a large message is quick to read, as its tensors are raw and of fixed size.

        Raises:
            Offloaded: the message is slow to read.
            RequestError: the message cannot be read, or there is no such model.
        """
        message = weighed(data)
        own = self._model_of(message, framing)
        if own.fixed and message.other_bytes <= LARGE_BODY_BYTES:
            return
        service, spec = self._service, own.model.spec
        shares = service.regions.on
        headers = encode_headers(framing.headers)
        value = dumps((spec,)).decode(), service.max_in_flight, shares, headers
        raise Offloaded(read_grpc, value, partial(_decoded, own, framing), spec.timeout_ns)

    def _model_of(self, request: Any, framing: Framing) -> "_GrpcModel":
        """Return the model of a request."""
        framing.id = id_field(request.id)
        try:
            model = self._service.model(request.model_name, request.model_version)
        except ModelNotFound:
            framing.asked_for = request.model_name
            raise
        framing.model = model
        return self._models.get(model) or self._own(model)

    def _own(self, model: ServedModel) -> "_GrpcModel":
        """Return a model's readers and writers for gRPC, and forget those of unserved models."""
        serving = {self._service.model(s.name, s.version) for s in self._service.specs}
        self._models = {known: own for known, own in self._models.items() if known in serving}
        own = self._models[model] = _GrpcModel(model, self._service)
        return own


class _GrpcModel:
    """A model, what reads requests to it, and what writes its answers.

    Attributes:
        plain: whether a raw tensor is the payload of its slot, whatever its bytes are.
        fixed: whether all elements of its inputs have a fixed size.
    """

    def __init__(self, model: ServedModel, service: Service) -> None:
        spec = model.spec
        self.model = model
        self.requests = requests_of(spec, service.regions, service.max_in_flight)
        self.answers = GrpcAnswers(spec)
        self.plain = (
            len(spec.inputs) == 1
            and spec.inputs[0].row_bytes is not None
            and spec.inputs[0].datatype.name != "BOOL"
            and spec.words is None
        )
        self.fixed = all(tensor.datatype.fixed for tensor in spec.inputs)


def _decoded(
    own: _GrpcModel, framing: Framing, value: Any, data: Sequence[memoryview]
) -> Read[GrpcAnswer]:
    encoded, wanted = value
    parts, requested = decode_parts(encoded, data), decode_requested(wanted)
    framing.says_end = requested.says_end
    rendering = unchecked_tuple(GrpcRendering, (own.answers, requested, framing.id))
    return own.model, parts, rendering, requested.timeout_ns, requested.level


def _refused(error: RequestError) -> GrpcAnswer:
    return GrpcAnswer(b"", error, ())
