"""Spans as OTLP's messages. Only the extra `otel` brings the package that this module imports."""

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ringbatch.frontend.tracing.spans import Attributes, Context, Span, Value


class Encoder:
    """Makes messages of spans.

    Args:
        resource: what is said of this engine, with every message.
        version: of ringbatch.
    """

    def __init__(self, resource: Attributes, version: str) -> None:
        self._resource = Resource(attributes=_pairs(resource))
        self._scope = InstrumentationScope(name="ringbatch", version=version)

    def encode(self, spans: Iterable[Span], epoch_ns: int) -> bytes:
        """A request of the collector's.

        Args:
            spans: in it.
            epoch_ns: when the monotonic clock began, in nanoseconds since 1970.
        """
        message = ExportTraceServiceRequest()
        of_resource = message.resource_spans.add(resource=self._resource)
        of_resource.scope_spans.add(scope=self._scope, spans=[_span(s, epoch_ns) for s in spans])
        data: bytes = message.SerializeToString()
        return data


def refusal(body: bytes) -> str:
    """What a collector says that has taken only some of the spans; empty where it has all.

    Raises:
        ValueError: it answers with something else.
    """
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError as error:
        raise ValueError("its answer is not OTLP's") from error
    if not partial.rejected_spans:
        return ""
    return f"it refused {partial.rejected_spans} spans: {partial.error_message}"


def _span(span: Span, epoch_ns: int) -> Message:
    return Message(
        trace_id=bytes.fromhex(span.context.trace),
        span_id=bytes.fromhex(span.context.span),
        parent_span_id=bytes.fromhex(span.parent),
        name=span.name,
        kind=Message.SpanKind.ValueType(span.kind),
        start_time_unix_nano=epoch_ns + span.began_ns,
        end_time_unix_nano=epoch_ns + span.ended_ns,
        attributes=_pairs(span.attributes),
        links=[_link(link) for link in span.links],
        status=Status(code=Status.STATUS_CODE_ERROR) if span.failed else None,
    )


def _link(context: Context) -> Message.Link:
    trace, span = map(bytes.fromhex, context)
    return Message.Link(trace_id=trace, span_id=span)


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    return AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
