"""The spans of requests and of batches, as values; pure.

A request has a span in its client's trace, and below that one for each phase that took time. A
batch has a trace of its own, whose id is the batch's as clients know it, without dashes. Its span
links to those of its members, and these link to it, so one leads to the others.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ringbatch.shm.batch_ids import BatchIds
from ringbatch.shm.latency_breakdown import PHASES
from ringbatch.shm.slow_requests import RequestRecord
from ringbatch.shm.tallies import Protocol

Value = str | int
Attributes = Mapping[str, Value]

_NOTHING: Final[Attributes] = MappingProxyType({})
_ID_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E37_79B9_7F4A_7C15
"""Multiples of it differ, and lie far apart."""
_FAILED: Final = 500
_SERVICE: Final = "inference.GRPCInferenceService"
_V1: Final = "/v1/models/{model}:predict"
_V2: Final = "/v2/models/{model}/infer"
_OPERATIONS: Final = {
    Protocol.V1: ("predict", _V1),
    Protocol.V2: ("infer", _V2),
    Protocol.V2_BINARY: ("infer", _V2),
    Protocol.GRPC: ("ModelInfer", ""),
}
"""First word of the span's name, and HTTP's route, of each protocol that predicts."""
_GRPC_CODES: Final = {
    200: 0,
    400: 3,
    404: 5,
    413: 8,
    422: 3,
    429: 14,
    499: 1,
    500: 13,
    501: 12,
    502: 14,
    503: 14,
    504: 4,
}
"""Statuses over gRPC for those that ModelInfer is counted under."""
_GRPC_INTERNAL: Final = 13
"""Status of all others, which only a model server gives."""
_TO_BATCH: Final = PHASES.index("gather")
_BEHIND_BATCH: Final = PHASES.index("write")


class Kind(IntEnum):
    """Kinds of spans, by OTLP's numbers."""

    INTERNAL = 1
    SERVER = 2


class SpanContext(NamedTuple):
    """Ids of a span: 32 and 16 hexadecimal digits."""

    trace: str
    span: str


class Span(NamedTuple):
    """OpenTelemetry span.

    Attributes:
        context: its own.
        parent: the span that it is below; empty if there is none.
        name: few of them differ.
        kind: server or internal.
        began_ns, ended_ns: on the monotonic clock.
        attributes: its attributes.
        links: related spans.
        failed: True for an error.
    """

    context: SpanContext
    parent: str
    name: str
    kind: Kind
    began_ns: int
    ended_ns: int
    attributes: Attributes = _NOTHING
    links: Sequence[SpanContext] = ()
    failed: bool = False


class ModelName(NamedTuple):
    """Model in the attributes of spans.

    Attributes:
        name, version: its own; empty if a request was for none that is known.
        texts: True if it takes texts, for which there are further paths.
    """

    name: str = ""
    version: str = ""
    texts: bool = False


def request_spans(request: RequestRecord, model: ModelName, batch_ids: BatchIds) -> list[Span]:
    """Return the span of a request, and those of its phases.

    Args:
        request: that is traced.
        model: of the request.
        batch_ids: of the engine.
    """
    context, found = SpanContext(request.trace, request.span), request.found
    began_ns = request.ended_ns - found.total
    attributes = {
        "ringbatch.request_id": request.request_id,
        "ringbatch.protocol": request.protocol.name.lower(),
        **_of_protocol(request, model),
    }
    if model.name:
        attributes |= {"ringbatch.model": model.name, "ringbatch.model_version": model.version}
    if request.instances:
        attributes["ringbatch.instances"] = request.instances
    links: tuple[SpanContext, ...] = ()
    if found.batch_rows:
        links = (batch_context(batch_ids, found.batch),)
        attributes |= {
            "ringbatch.batch_id": batch_ids.text(found.batch),
            "ringbatch.batch_size": found.batch_rows,
            "ringbatch.reason": found.reason,
            "ringbatch.attempts": found.attempts,
        }
    if found.copy:
        attributes["ringbatch.copy_ns"] = found.copy
    operation = _OPERATIONS.get(request.protocol, ("HTTP", ""))[0]
    whole = Span(
        context,
        request.parent,
        f"{operation} {model.name}".rstrip(),
        Kind.SERVER,
        began_ns,
        request.ended_ns,
        attributes,
        links,
        request.code >= _FAILED,
    )
    return [whole, *_phases(request, began_ns)]


def _of_protocol(request: RequestRecord, model: ModelName) -> Attributes:
    """Return the attributes that OpenTelemetry's semantic conventions name."""
    if request.protocol is Protocol.GRPC:
        return {
            "rpc.system": "grpc",
            "rpc.service": _SERVICE,
            "rpc.method": "ModelInfer",
            "rpc.grpc.status_code": _GRPC_CODES.get(request.code, _GRPC_INTERNAL),
        }
    found: dict[str, Value] = {"http.response.status_code": request.code}
    route = _OPERATIONS.get(request.protocol, ("", ""))[1]
    if route:
        found["http.request.method"] = "POST"
    # Under V1 the paths of embeddings and the like are counted too.
    if route and (request.protocol is not Protocol.V1 or (model.name and not model.texts)):
        found["http.route"] = route
    return found


def _phases(request: RequestRecord, began_ns: int) -> list[Span]:
    spans, span = [], int(request.span, 16)
    for number, (name, took_ns) in enumerate(zip(PHASES, request.found.phases, strict=True), 1):
        if took_ns:
            own = f"{(span + number * _ODD) & _ID_MASK or 1:016x}"
            context = SpanContext(request.trace, own)
            ended_ns = began_ns + took_ns
            spans.append(Span(context, request.span, name, Kind.INTERNAL, began_ns, ended_ns))
            began_ns = ended_ns
    return spans


def batch_context(batch_ids: BatchIds, batch: int) -> SpanContext:
    """Return the ids of a batch's span, which follow from the batch alone."""
    trace = batch_ids.text(batch).replace("-", "")
    return SpanContext(trace, trace[16:])


def batch_span(members: Sequence[RequestRecord], model: str, batch_ids: BatchIds) -> Span:
    """Return the span of a batch, from its start in a worker until all results are in slots.

    Args:
        members: those of its requests that are traced and known, at least one.
        model: that ran it; empty if it is not known.
        batch_ids: of the engine.
    """
    found = members[0].found
    began, ended = zip(*map(_under_way, members), strict=True)
    attributes: dict[str, Value] = {
        "ringbatch.batch_id": batch_ids.text(found.batch),
        "ringbatch.batch_size": found.batch_rows,
        "ringbatch.reason": found.reason,
    }
    if found.copy:
        attributes["ringbatch.copy_ns"] = found.copy
    if model:
        attributes["ringbatch.model"] = model
    links = [SpanContext(member.trace, member.span) for member in members]
    context, name = batch_context(batch_ids, found.batch), f"batch {model}".rstrip()
    return Span(context, "", name, Kind.INTERNAL, min(began), max(ended), attributes, links)


def _under_way(request: RequestRecord) -> tuple[int, int]:
    phases, began_ns = request.found.phases, request.ended_ns - request.found.total
    return began_ns + sum(phases[:_TO_BATCH]), began_ns + sum(phases[:_BEHIND_BATCH])
